"""Indices of the largest (or smallest) elements along one axis, in their order: x [.., N, ..] -> [.., count, ..]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.along_axis import AlongAxis
from nmpconv.ops.common.case import FILLS, WIDTHS, by, fed, grid, single
from nmpconv.ops.common.traits import Rule, unfit
from nmpconv.ops.gather_elements import choose
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

AXIS_MAX = 32768  # legal length of the axis: indices fit int16


@dataclass(frozen=True)
class ArgMaxParams:
    """smallest: of the smallest elements. last: the last one of several that are equal first, instead of the first."""

    axis: int = 0
    smallest: bool = False
    last: bool = False
    count: int = 1


class ArgMax(AlongAxis):
    name = "arg_max"
    Params = ArgMaxParams
    exponents = (0, 0)
    axis_max = AXIS_MAX
    counted = True
    head = True
    restrictions = f"an axis of at most {AXIS_MAX}"
    onnx = ("ArgMax", "ArgMin", "TopK")

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        if node.op_type == "TopK":
            return _lower_top_k(node, to)
        x = to.value(node.input(0))
        shape = to[x].shape
        axis = node.axis(node.integer("axis", 0), len(shape))
        params = ArgMaxParams(axis, node.op_type == "ArgMin", bool(node.integer("select_last_index", 0)))
        if node.integer("keepdims", 1) == 1:
            to.emit("arg_max", (x,), params, node.outputs[0])
        else:
            to.reshape(to.emit("arg_max", (x,), params), (*shape[:axis], *shape[axis + 1 :]), node.outputs[0])
        return None

    def infer(self, params: ArgMaxParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        shape, axis = inputs[0].shape, params.axis
        if shape[axis] > AXIS_MAX:
            raise Unsupported(f"an axis of {shape[axis]}", hint=f"at most {AXIS_MAX}")
        return [(*shape[:axis], params.count, *shape[axis + 1 :])]

    def rules(self, params: ArgMaxParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        """Every index fits the output."""
        last, y = inputs[0].shape[params.axis] - 1, quant_of(output)
        yield f"indices up to {last}, the output holds [{y.lo}, {y.hi}]", y.lo <= 0 and last <= y.hi

    def work(self, params: ArgMaxParams, inputs: Sequence[Value], output: Value) -> int:
        return (inputs[0].size + output.size) * (1 + 2 * (params.count - 1).bit_length())

    def misfit(self, params: ArgMaxParams, inputs: Sequence[Value]) -> str:
        return "" if 1 <= params.count <= inputs[0].shape[params.axis] else unfit(self.name, inputs)

    def own_exponent(self, node: Node, bits: int) -> int | None:
        return 0

    def numbers(self, params: ArgMaxParams, inputs: Sequence[Value]) -> int:
        return inputs[0].shape[params.axis]

    def reference(self, params: ArgMaxParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y[..., j, ...] = i of the element x[..., i, ...] that j others come before; e_y = 0."""
        x = inputs[0].q.astype(np.int64) * (-1 if params.smallest else 1)
        if params.last:
            order = x.shape[params.axis] - 1 - np.argsort(-np.flip(x, params.axis), params.axis, kind="stable")
        else:
            order = np.argsort(-x, params.axis, kind="stable")
        index = np.take(order, np.arange(params.count), params.axis)
        return [index.astype(quant_of(outputs[0]).dtype)]

    def cases(self) -> Iterator[Case]:
        whole = (
            ((1, 10), 1),
            ((1, 5, 4, 3), 3),
            ((1, 5, 4, 3), 1),
            ((2, 300), 0),
            ((2, 300), 1),
            ((7,), 0),
            ((1, 1), 1),
        )
        counts = (((1, 10), 1, 10), ((1, 5, 4, 3), 3, 2), ((2, 5, 4, 3), 1, 3), ((300,), 0, 40), ((1, 2, 300), 2, 17))
        shapes = (*((shape, axis, 1) for shape, axis in whole), *counts, ((2, 128, 2), 1, 128))
        for bits, fill, (shape, axis, count) in product(product(WIDTHS, repeat=2), FILLS, shapes):
            if shape[axis] > 2 ** (bits[1] - 1):
                continue
            for params in (ArgMaxParams(axis, s, last, count) for s, last in product((False, True), repeat=2)):
                name = f"{by(shape)}/{axis}/{by(bits)}/{fill}/{'min' if params.smallest else 'max'}"
                name += f"{count}" * (count > 1)
                x = fed(name, shape, bits[0], -3, fill)
                yield single(self, name + "/last" * params.last, params, [x], grid(bits[1], 0))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p: ArgMaxParams = node.params
        if p.count > 1:
            return self._export_top_k(node, graph, to)
        kind = "ArgMin" if p.smallest else "ArgMax"
        index = to.node(kind, node.inputs, axis=p.axis, keepdims=1, select_last_index=int(p.last))
        to.node("Cast", (index,), node.outputs[0], to=1)
        return None

    def _export_top_k(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        """TopK, of whose outputs the second one has the indices; it has the first of equal elements first."""
        p: ArgMaxParams = node.params
        x, length = node.inputs[0], graph[node.inputs[0]].shape[p.axis]
        if p.last:
            x = to.node("Gather", (x, to.const(np.arange(length)[::-1].copy())), axis=p.axis)
        index = to.second("TopK", (x, to.const([p.count])), axis=p.axis, largest=int(not p.smallest))
        as_float = to.node("Cast", (index,), "" if p.last else node.outputs[0], to=1)
        if p.last:
            to.node("Sub", (to.const(np.float32(length - 1)), as_float), node.outputs[0])


def _lower_top_k(node: OnnxNode, to: GraphBuilder) -> None:
    """The values are the elements at the indices."""
    x = to.value(node.input(0))
    shape = to[x].shape
    axis = node.axis(node.integer("axis", -1), len(shape))
    counts = (node.integer("k", 0),) if node.integer("k", 0) else to.integers(node.input(1), "k")
    if len(counts) != 1 or not 1 <= counts[0] <= shape[axis]:
        raise Invalid(f"k = {', '.join(map(str, counts))} of {shape[axis]}")
    params = ArgMaxParams(axis, not node.integer("largest", 1), False, counts[0])
    index = to.emit("arg_max", (x,), params, node.outputs[1] if len(node.outputs) > 1 else "")
    if node.outputs[0]:
        choose(to, x, index, axis, node.outputs[0])
