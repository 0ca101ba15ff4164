"""Running sums along one axis, which ONNX calls cumulative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MAX, SHIFT_MIN, rsh, sat
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.along_axis import AlongAxis
from nmpconv.ops.common.case import FILLS, WIDTHS, by, fed, grid, single
from nmpconv.ops.common.traits import Bounds, Limit, channels_of
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

AXIS_MAX = 65536  # legal length of the axis: sums of int16 fit 32 bits


@dataclass(frozen=True)
class CumSumParams:
    """exclusive: an element is no part of its own sum. reverse: sums begin at the end of the axis."""

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False


class CumSum(AlongAxis):
    name = "cum_sum"
    Params = CumSumParams
    axis_max = AXIS_MAX
    clamps = True
    in_place = True
    monotone = True
    homogeneous = True
    restrictions = f"a constant axis of at most {AXIS_MAX}"
    onnx = ("CumSum",)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        x = to.value(node.input(0))
        axes = to.integers(node.input(1), "axis")
        if len(axes) != 1:
            raise Invalid(f"{len(axes)} axes", hint="one")
        axis = node.axis(axes[0], len(to[x].shape))
        flags = (bool(node.integer(name, 0)) for name in ("exclusive", "reverse"))
        to.emit("cum_sum", (x,), CumSumParams(axis, *flags), node.outputs[0])

    def infer(self, params: CumSumParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        shape = inputs[0].shape
        if shape[params.axis] > AXIS_MAX:
            raise Unsupported(f"an axis of {shape[params.axis]}", hint=f"at most {AXIS_MAX}")
        return [shape]

    def work(self, params: CumSumParams, inputs: Sequence[Value], output: Value) -> int:
        return inputs[0].size * 4

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        x, y = quant_of(graph[node.inputs[0]]).exponent, quant_of(graph[node.outputs[0]]).exponent
        yield Limit(y - x, SHIFT_MIN, SHIFT_MAX, below=node.outputs, above=node.inputs)

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        """Sums of what has one sign have that sign."""
        low, high = inputs[0]
        return (0.0 if low >= 0 else -inf), (0.0 if high <= 0 else inf)

    def by_channel(self, params: CumSumParams, inputs: Sequence[Value], output: Value) -> bool:
        return params.axis != len(output.shape) - 1

    def factors(self, params: CumSumParams, inputs: Sequence[Value], output: Value) -> Sequence[np.ndarray] | None:
        return [channels_of(output)] if self.by_channel(params, inputs, output) else None

    def reference(self, params: CumSumParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y = sat(rsh(S, e_y - e_x)), S the sum of x along the axis up to here; |S| <= 2^31."""
        x, quant = inputs[0], quant_of(outputs[0])
        q = x.q.astype(np.int64)
        if params.reverse:
            q = np.flip(q, params.axis)
        sums = np.cumsum(q, axis=params.axis)
        if params.exclusive:
            sums -= q
        if params.reverse:
            sums = np.flip(sums, params.axis)
        return [sat(rsh(sums, quant.exponent - x.quant.exponent), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        """Every way along every axis; every legal shift; lines as long as they may be."""
        ways = tuple(product((False, True), repeat=2))
        shapes = (
            ((1, 10), 1),
            ((1, 5, 4, 3), 3),
            ((1, 5, 4, 3), 2),
            ((1, 5, 4, 3), 1),
            ((2, 300), 0),
            ((7,), 0),
            ((1, 1), 1),
        )
        for widths, fill, (shape, axis), way in product(product(WIDTHS, repeat=2), FILLS, shapes, ways):
            name = f"{by(shape)}/{axis}/{by(widths)}/{fill}{'/exclusive' * way[0]}{'/reverse' * way[1]}"
            x = fed(name, shape, widths[0], -4, fill)
            yield single(self, name, CumSumParams(axis, *way), [x], grid(widths[1], -2))
        for bits, shift in product(WIDTHS, range(SHIFT_MIN, SHIFT_MAX + 1)):
            x = fed(f"shift{shift}", (1, 40, 3), bits, -7)
            yield single(self, f"shift/{shift}/int{bits}", CumSumParams(1), [x], grid(bits, shift - 7))
        for fill in ("lowest", "highest"):
            x = fed("long", (1, AXIS_MAX), 16, -9, fill)
            yield single(self, f"long/{fill}", CumSumParams(1), [x], grid(16, 7))
        for bits in WIDTHS:
            x = fed("clamp", (1, 3, 5, 4), bits, -4)
            yield single(self, f"clamp/int{bits}", CumSumParams(2), [x], grid(bits, -3, lo=0, hi=96))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p: CumSumParams = node.params
        inputs = (node.inputs[0], to.const(np.array(p.axis, np.int64)))
        to.node("CumSum", inputs, node.outputs[0], exclusive=int(p.exclusive), reverse=int(p.reverse))
