"""Elements at computed places along one axis: y[..., j, ...] = x[..., i[..., j, ...], ...]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import quantize
from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.case import FILLS, WIDTHS, Operand, by, constant, fed, grid, single
from nmpconv.ops.common.traits import Limit, Origins, exponents_of, unfit
from nmpconv.ops.gather import take
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

INDEX_MAX = 32767  # int16 holds it


@dataclass(frozen=True)
class GatherElementsParams:
    axis: int = 0


class GatherElements(Op):
    """x and i have one rank; beside the axis, i has the size of x or 1, and then one index for all of x."""

    name = "gather_elements"
    Params = GatherElementsParams
    grid = "same"
    head = True
    operands = 2
    places = 1
    restrictions = f"computed indices up to {INDEX_MAX}"
    onnx = ("GatherElements",)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Other axes of the index may be shorter than those of x, whose elements beyond them are left out. Those that a
        Tile or an Expand made of one element need not be there."""
        x, index = to.value(node.input(0)), to.value(node.input(1))
        shape, at = to[x].shape, to[index].shape
        axis = node.axis(node.integer("axis", 0), len(shape))
        sizes = (size if i == axis else short for i, (size, short) in enumerate(zip(shape, at, strict=True)))
        x = take(to, x, [range(size) for size in sizes], "")
        while (maker := to.maker(index)) is not None and maker.op == "gather" and maker.params.axis != axis:
            if to[maker.inputs[0]].shape[maker.params.axis] > 1:
                break
            index = maker.inputs[0]
        choose(to, x, index, axis, node.outputs[0])

    def infer(self, params: GatherElementsParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        x, i = (value.shape for value in inputs)
        return [(*x[: params.axis], i[params.axis], *x[params.axis + 1 :])]

    def misfit(self, params: GatherElementsParams, inputs: Sequence[Value]) -> str:
        shapes = [value.shape for value in inputs]
        if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]) or params.axis >= len(shapes[0]):
            return unfit(self.name, inputs)
        pairs = [pair for axis, pair in enumerate(zip(*shapes, strict=True)) if axis != params.axis]
        return "" if all(index in (1, size) for size, index in pairs) else unfit(self.name, inputs)

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        """Indices are whole."""
        if (e := exponents_of(graph, node)[1]) is not None:
            yield Limit(e, 0, 0, below=node.inputs[1:])

    def keeps_batch(self, params: GatherElementsParams, inputs: Sequence[Value], output: Value) -> bool:
        """A constant is there once, not once for each sample."""
        return params.axis % len(output.shape) != 0 and not any(x.is_const for x in inputs)

    def origins(self, params: GatherElementsParams, inputs: Sequence[Value], output: Value) -> Origins:
        """Indices have none, and all operands would have one."""
        return Origins.NONE

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """A constant x on the grid of the output, constant indices as they are; each a clone of its own."""
        y, names, constants = quant_of(graph[node.outputs[0]]), list(node.inputs), []
        for place, quant in enumerate((y, grid(16, 0))):
            value = graph[names[place]]
            if value.data is not None and value.quant is None:
                names[place] = f"{node.outputs[0]}.{('data', 'index')[place]}"
                data = quantize(value.data, quant.exponent, quant.lo, quant.hi).astype(quant.dtype)
                constants.append(Value(names[place], value.shape, quant.dtype, data, quant=quant))
        return replace(node, inputs=tuple(names)), constants

    def reference(
        self, params: GatherElementsParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """With n the length of the axis: k = i, or i + n for i < 0, at least 0 and at most n - 1;
        y[..., j, ...] = x[..., k[..., j, ...], ...] along the axis. e_i = 0.
        """
        x, i = inputs
        n = x.q.shape[params.axis]
        k = i.q.astype(np.int64)
        k = np.clip(np.where(k < 0, k + n, k), 0, n - 1)
        return [np.take_along_axis(x.q, k, params.axis)]

    def cases(self) -> Iterator[Case]:
        """Every axis, one index for an element, a row and a block; those that count from the end or lie outside."""
        for (shape, at, axis), widths in product(_SHAPES, product(WIDTHS, repeat=2)):
            name = f"{by(shape)}/{by(at)}/{axis}/{by(widths)}"
            operands = [fed(f"{name}x", shape, widths[0], -3), _index(name, at, widths[1], shape[axis])]
            yield single(self, name, GatherElementsParams(axis), operands, grid(widths[0], -3))
        for fill, bits in product(FILLS, WIDTHS):
            operands = [fed(f"{fill}x", (1, 9, 3), bits, -3), fed(fill, (1, 5, 1), bits, 0, fill)]
            yield single(self, f"outside/{fill}/int{bits}", GatherElementsParams(1), operands, grid(bits, -3))
        for bits in WIDTHS:
            table, index = constant("table", (40, 6), bits, -3), _index("found", (7, 1), bits, 40)
            yield single(self, f"table/int{bits}", GatherElementsParams(0), [table, index], grid(bits, -3))
            x = fed("x", (1, 30, 2), bits, 0)
            yield single(self, f"own/int{bits}", GatherElementsParams(1), [x, x], grid(bits, 0))
            chosen = replace(_index("chosen", (1, 9, 1), 16, 30), const=True)
            yield single(self, f"chosen/int{bits}", GatherElementsParams(1), [x, chosen], grid(bits, 0))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        """Exports indices that lie outside, which ONNX does not have: it is brought inside first."""
        x, i, axis = *node.inputs, node.params.axis
        n = graph[x].shape[axis]
        index = to.node("Clip", (i, to.const(np.float32(-n)), to.const(np.float32(n - 1))))
        shape = [1 if a == axis else size for a, size in enumerate(graph[x].shape)]
        whole = to.node("Cast", (index,), to=7)
        if shape != [1 if a == axis else size for a, size in enumerate(graph[i].shape)]:
            whole = to.node("Expand", (whole, to.const(shape)))
        to.node("GatherElements", (x, whole), node.outputs[0], axis=axis)


def choose(to: GraphBuilder, x: str, index: str, axis: int, output: str = "") -> str:
    """The elements of x at these indices, of its rank. Unsupported where int16 does not hold all that they are computed
    from: on a coarser grid they would not be exact."""
    length = to[x].shape[axis]
    if length > INDEX_MAX + 1:
        raise Unsupported(f"computed indices of an axis of {length}", hint=f"at most {INDEX_MAX + 1}")
    if (wide := to.beyond(index, -INDEX_MAX - 1, INDEX_MAX)) is not None:
        low, high = to.reach(wide)
        raise Unsupported(
            f"indices computed from '{wide}', whole numbers from {low:.0f} to {high:.0f}",
            hint=f"numbers from {-INDEX_MAX - 1} to {INDEX_MAX}, as int16 holds",
        )
    return to.emit("gather_elements", (x, index), GatherElementsParams(axis), output)


def _index(seed: str, shape: tuple[int, ...], bits: int, n: int) -> Operand:
    """Indices of an axis of n elements, some of them from its end."""
    drawn = fed(seed, shape, bits, 0)
    wrapped = drawn.q.astype(np.int64) % (2 * n) - n
    return replace(drawn, q=wrapped.clip(drawn.quant.lo, drawn.quant.hi).astype(drawn.quant.dtype))


# x, i, axis
_SHAPES = (
    ((1, 9, 4), (1, 5, 4), 1),
    ((1, 9, 4), (1, 5, 1), 1),
    ((1, 9, 4), (1, 20, 1), 1),
    ((1, 50), (1, 20), 1),
    ((1, 400, 3), (1, 9, 3), 1),
    ((300, 5), (4, 5), 0),
    ((300, 5), (4, 1), 0),
    ((7,), (3,), 0),
    ((2, 5, 3, 4), (2, 2, 3, 4), 1),
    ((2, 5, 3, 4), (1, 2, 1, 4), 1),
    ((2, 5, 3, 4), (2, 6, 3, 1), 1),
    ((2, 5, 3, 4), (2, 2, 1, 1), 1),
    ((2, 5, 3, 4), (1, 1, 2, 4), 2),
    ((2, 3, 1, 2, 5, 2), (2, 1, 1, 2, 3, 1), 4),
    ((1, 1), (1, 1), 1),
)
