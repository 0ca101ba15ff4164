"""Softmax along one axis, integers only: a table of exponentials and one exact division."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import div, round_half_up, rsh, sat
from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.common.aligned import AlignedParams
from nmpconv.ops.common.along_axis import AlongAxis
from nmpconv.ops.common.case import FILLS, WIDTHS, by, fed, grid, single
from nmpconv.ops.common.constant import with_constant
from nmpconv.ops.common.rules import vector, within
from nmpconv.ops.common.traits import Bounds, Factors, Rule
from nmpconv.ops.fully_connected import FullyConnectedParams
from nmpconv.ops.lookup import LookupParams
from nmpconv.ops.max_pool import MaxPoolParams
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

AXIS_MAX = 65536  # legal length of the axis
HIDES = -1e3  # numbers up to this one are masks
MASKED = -32.0  # what a mask makes of a score: e^-32 is nothing beside scores of usual size
OPEN = 2.0**15  # above any score: the smaller one of both is the score
KNOWN = 1e-6  # how well a table tells the factor
EXP_BITS = 30  # exponentials are on a grid of 2^-30


@dataclass(frozen=True)
class SoftmaxParams:
    """before: of what the exponentials are taken, times the operand."""

    axis: int = -1
    before: float = 1.0


class Softmax(AlongAxis):
    name = "softmax"
    Params = SoftmaxParams
    float_only = ("before",)
    exponents = (-16, 0)
    axis_max = AXIS_MAX
    head = True
    constants = (1, 1)
    restrictions = f"an axis of at most {AXIS_MAX}"
    onnx = ("Softmax", "LogSoftmax")

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Before opset 13 all axes from ``axis`` on are one."""
        x = to.value(node.input(0))
        shape = to[x].shape
        axis = node.axis(node.integer("axis", -1 if node.opset >= 13 else 1), len(shape))
        emit = _log_softmax if node.op_type == "LogSoftmax" else _softmax
        if node.opset >= 13 or prod(shape[axis + 1 :]) == 1:
            emit(to, x, axis, node.outputs[0])
        else:
            flat = to.reshape(x, (*shape[:axis], prod(shape[axis:])))
            to.reshape(emit(to, flat, axis, ""), shape, node.outputs[0])

    def infer(self, params: SoftmaxParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        shape = inputs[0].shape
        if shape[params.axis] > AXIS_MAX:
            raise Unsupported(f"an axis of {shape[params.axis]}", hint=f"at most {AXIS_MAX}")
        return [shape]

    def rules(self, params: SoftmaxParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        x, table = inputs
        yield vector(table, 256 if x.dtype == "int8" else 512, 32, -EXP_BITS)
        yield within(table.data, 0, 1 << EXP_BITS)
        assert table.data is not None
        yield "an exponential of 0 is not 1", bool((table.data[::256] == 1 << EXP_BITS).all())

    def work(self, params: SoftmaxParams, inputs: Sequence[Value], output: Value) -> int:
        return inputs[0].size * 16

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        return 0.0, 1.0

    def part(
        self, params: SoftmaxParams, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[SoftmaxParams, list[int | None]] | None:
        own = range(len(output.shape))[params.axis]
        return None if axis == own else (params, [axis, *[None] * (len(inputs) - 1)])

    def own_exponent(self, node: Node, bits: int) -> int | None:
        return 1 - bits

    def tensor_factors(self, params: SoftmaxParams, inputs: Sequence[Value], output: Value) -> Factors:
        return Factors.OPERAND

    def with_factors(self, node: Node, graph: Graph, x: np.ndarray, y: np.ndarray) -> tuple[Node, list[Value]]:
        return replace(node, params=replace(node.params, before=node.params.before / float(x[0]))), []

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """The table of exp(-before * d * 2^e_x) * 2^30: for int8 all d; for int16 d = 0..255 and then 256 times those.

        A result is off by half a step of y and at most (n + 1) * 2^-29 for an axis of n, as E is within 2^-30 of
        the exponential (int16: 2^-29).
        """
        x = quant_of(graph[node.inputs[0]])
        d = np.arange(256, dtype=np.float64)
        if x.bits == 16:
            d = np.concatenate([d, 256 * d])
        table = round_half_up(np.exp(-node.params.before * np.ldexp(d, x.exponent)) * 2.0**EXP_BITS)
        return with_constant(node, "table", table, Quant(32, (-EXP_BITS,), 0, 1 << EXP_BITS))

    def restored(self, node: Node, graph: Graph) -> Node:
        """The factor is read where the table tells it best; one that is 1 but for the table's rounding is 1."""
        table = graph[node.inputs[1]].data
        assert table is not None
        d = np.append(np.arange(256.0), 256.0 * np.arange(256))[: table.size]
        best = int(np.argmax(d * table))
        before = -math.log(table[best]) / math.ldexp(d[best], quant_of(graph[node.inputs[0]]).exponent) if best else 1.0
        params = replace(node.params, before=1.0 if abs(before - 1) < KNOWN or not before else before)
        return replace(node, inputs=node.inputs[:1], params=params)

    def reference(self, params: SoftmaxParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """d = max - x; E = t[d], int16: rsh(t[d & 255] * t[256 + (d >> 8)], 30); S = sum E;
        y = sat(div(E * 2^-e_y, S)), e_y in [-16, 0], axis of at most AXIS_MAX.
        """
        x, table = inputs
        quant = quant_of(outputs[0])
        assert self.exponents[0] <= quant.exponent <= self.exponents[1]
        t = table.q.astype(np.int64)
        q = x.q.astype(np.int64)
        d = q.max(axis=params.axis, keepdims=True) - q
        e = t[d] if x.quant.bits == 8 else rsh(t[d & 255] * t[256 + (d >> 8)], EXP_BITS)
        s = e.sum(axis=params.axis, keepdims=True)
        return [sat(div(e << -quant.exponent, s), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        for bits, fill in product(product(WIDTHS, repeat=2), FILLS):
            for shape, axis in (
                ((1, 10), 1),
                ((1, 5, 4, 3), 3),
                ((1, 5, 4, 3), 1),
                ((1, 1), 1),
                ((2, 300), 0),
                ((7,), 0),
            ):
                for e in (3 - bits[0], 0, -30):
                    name = f"{by(shape)}/{axis}/{bits[0]}to{bits[1]}/{e}/{fill}"
                    x = fed(name, shape, bits[0], e, fill)
                    yield single(self, name, SoftmaxParams(axis), [x], grid(bits[1], 1 - bits[1]), quantize=True)
        for e_y in (0, -16):
            x = fed(f"y{e_y}", (1, 1001), 16, -12)
            yield single(self, f"output/{e_y}", SoftmaxParams(1), [x], grid(16, e_y), quantize=True)
        yield single(self, "long", SoftmaxParams(1), [fed("long", (1, 1100, 2), 16, -12)], grid(16, -15), quantize=True)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p, x = node.params, node.inputs[0]
        x = x if p.before == 1 else to.node("Mul", (x, to.const(np.float32(p.before))))
        to.node("Softmax", (x,), node.outputs[0], axis=p.axis)


def _softmax(to: GraphBuilder, x: str, axis: int, output: str) -> str:
    return to.emit("softmax", (x,), SoftmaxParams(axis), output)


def _log_softmax(to: GraphBuilder, x: str, axis: int, output: str) -> str:
    """d - log(sum of exp(d)), d = x - max(x)."""
    shape = to[x].shape
    last = (*(i for i in range(len(shape)) if i != axis), axis)
    rows = to.transpose(x, last)
    before, n = prod(shape) // shape[axis], shape[axis]
    reduced_shape = (*(shape[i] for i in last[:-1]), 1)
    largest = to.emit("max_pool", (to.reshape(rows, (1, before, n, 1)),), MaxPoolParams(1, n))
    d = to.emit("sub", (rows, to.reshape(largest, reduced_shape)), AlignedParams())
    ones, zero = to.const(np.ones((1, n)), ""), to.const(np.zeros(1), "")
    e = to.emit("lookup", (d,), LookupParams("exp"))
    total = to.emit("fully_connected", (e, ones, zero), FullyConnectedParams())
    y = to.emit("sub", (d, to.emit("lookup", (total,), LookupParams("log"))), AlignedParams())
    return to.transpose(y, tuple(int(i) for i in np.argsort(last)), output)
