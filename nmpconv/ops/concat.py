"""Concatenation along one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import quantize
from nmpconv.errors import Invalid
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.along_axis import AlongAxis
from nmpconv.ops.common.case import WIDTHS, constant, fed, grid, single
from nmpconv.ops.common.rules import alike
from nmpconv.ops.common.traits import Rule, channels_of
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class ConcatParams:
    axis: int = 0


class Concat(AlongAxis):
    name = "concat"
    Params = ConcatParams
    grid = "same"
    onnx = ("Concat",)
    monotone = True
    head = True
    joins = True
    operands = None

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Lowers a Concat; empty operands add nothing."""
        parts = [to.value(name) for name in node.inputs if not (to.is_const(name) and not to.array(name, "part").size)]
        if len(parts) == 1:
            return to.rename(node.outputs[0], parts[0])
        axis = node.axis(node.integer("axis", 1), len(to[parts[0]].shape))
        others = {tuple(np.delete(to[part].shape, axis)) for part in parts}
        if len(others) > 1:
            raise Invalid(f"its inputs differ in more than axis {axis}: {[list(to[part].shape) for part in parts]}")
        to.emit("concat", parts, ConcatParams(axis), node.outputs[0])

    def infer(self, params: ConcatParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        shape = list(inputs[0].shape)
        shape[params.axis] = sum(x.shape[params.axis] for x in inputs)
        return [tuple(shape)]

    def rules(self, params: ConcatParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        shapes = [x.shape for x in inputs]
        yield alike(shapes)
        sides = {shape[: params.axis] + shape[params.axis + 1 :] for shape in shapes}
        yield f"inputs differ beside axis {params.axis}", len(sides) == 1

    def keeps_batch(self, params: ConcatParams, inputs: Sequence[Value], output: Value) -> bool:
        """A constant is there once, not once for each sample."""
        return super().keeps_batch(params, inputs, output) and not any(x.is_const for x in inputs)

    def part(
        self, params: ConcatParams, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[ConcatParams, list[int | None]] | None:
        return None if axis == params.axis else (params, [axis] * len(inputs))

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """Constants on the grid of the output, each a clone of its own; the calibrated range covers them."""
        y, names, constants = quant_of(graph[node.outputs[0]]), list(node.inputs), []
        for i, value in enumerate(graph.ins(node)):
            if value.data is not None and value.quant is None:
                names[i] = f"{node.outputs[0]}.part{i}"
                data = quantize(value.data, y.exponent, y.lo, y.hi).astype(y.dtype)
                constants.append(Value(names[i], value.shape, y.dtype, data, quant=y))
        return replace(node, inputs=tuple(names)), constants

    def factors(self, params: ConcatParams, inputs: Sequence[Value], output: Value) -> Sequence[np.ndarray] | None:
        """Along the channels; those of a constant have no factor."""
        if params.axis != len(output.shape) - 1:
            return None
        sources, channels, start = [], channels_of(output), 0
        for x in inputs:
            own = channels - start
            start += x.shape[-1]
            if not x.is_const:
                sources.append(np.where((own >= 0) & (own < x.shape[-1]), own, -1))
        return sources

    def reference(self, params: ConcatParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """The inputs one after the other."""
        return [np.concatenate([x.q for x in inputs], axis=params.axis)]

    def placed_inputs(self, params: ConcatParams, inputs: Sequence[Value], output: Value) -> list[int | None]:
        """Along the outermost axis the inputs are stretches of the output."""
        if any(dim != 1 for dim in output.shape[: params.axis]):
            return [None] * len(inputs)
        ends = np.cumsum([x.size for x in inputs])
        return [int(end) - x.size for end, x in zip(ends, inputs, strict=True)]

    def cases(self) -> Iterator[Case]:
        for bits in WIDTHS:
            for axis in range(4):
                name = f"axis{axis}/int{bits}"
                shapes = [tuple(n if i == axis else d for i, d in enumerate((1, 3, 4, 5))) for n in (1, 2, 4)]
                operands = [fed(f"{name}{n}", shape, bits, -3) for n, shape in enumerate(shapes)]
                yield single(self, name, ConcatParams(axis), operands, grid(bits, -3))
            stretches = [fed(f"stretch{n}", (1, n, 2, 8), bits, -3) for n in (1, 3, 2)]  # these lie in the output
            yield single(self, f"stretches/int{bits}", ConcatParams(1), stretches, grid(bits, -3))
            many = [fed(f"many{n}", (1, 2, n + 1), bits, 0) for n in range(9)]
            yield single(self, f"many/int{bits}", ConcatParams(2), many, grid(bits, 0))
            yield single(self, f"one/int{bits}", ConcatParams(1), many[:1], grid(bits, 0))
            repeated = [many[1], constant("k", (1, 2, 3), bits, 0), many[1]]
            yield single(self, f"constant/int{bits}", ConcatParams(2), repeated, grid(bits, 0))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        to.node("Concat", node.inputs, node.outputs[0], axis=node.params.axis)
