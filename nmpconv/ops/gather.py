"""Chosen slices along one axis, in any order and any number: y[..., i, ...] = x[..., index[i], ...]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import RANK_MAX
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.along_axis import AlongAxis
from nmpconv.ops.common.case import WIDTHS, fed, grid, single
from nmpconv.ops.common.traits import channels_of
from nmpconv.ops.op import Case, QArray

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class GatherParams:
    axis: int = 0
    index: tuple[int, ...] = ()


class Gather(AlongAxis):
    name = "gather"
    Params = GatherParams
    grid = "same"
    onnx = ("Tile", "Expand")
    monotone = True
    head = True

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Tile repeats all of an axis, Expand its only element. Gather, Pad and Resize emit gathers, too."""
        if node.op_type == "Expand":
            return _lower_expand(node, to)
        x = to.value(node.input(0))
        shape = to[x].shape
        repeats = to.integers(node.input(1), "repeats")
        if len(repeats) != len(shape):
            raise Invalid(f"{len(repeats)} repeats for {len(shape)} axes", hint="one for each axis")
        indices = [tuple(range(size)) * repeat for size, repeat in zip(shape, repeats, strict=True)]
        take(to, x, indices, node.outputs[0])
        return None

    def reads(self, params: GatherParams, inputs: Sequence[Value], output: Value) -> list[int]:
        return [output.size, *(value.size for value in inputs[1:])]

    def infer(self, params: GatherParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        shape, axis = inputs[0].shape, params.axis
        outside = [i for i in params.index if not 0 <= i < shape[axis]]
        if outside:
            raise Unsupported(f"index {outside[0]} along an axis of {shape[axis]}", hint=f"0 to {shape[axis] - 1}")
        return [(*shape[:axis], len(params.index), *shape[axis + 1 :])]

    def factors(self, params: GatherParams, inputs: Sequence[Value], output: Value) -> Sequence[np.ndarray] | None:
        return [np.asarray(params.index) if params.axis == len(output.shape) - 1 else channels_of(output)]

    def reference(self, params: GatherParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y[..., i, ...] = x[..., index[i], ...] along the axis."""
        return [np.take(inputs[0].q, params.index, axis=params.axis)]

    def cases(self) -> Iterator[Case]:
        choices = (
            ("rows", 1, (0, 0, 1, 1, 2, 2)),
            ("images", 0, (0, 0)),
            ("columns", 2, (3, 2, 1, 0, 1, 2, 3)),
            ("channels", 3, (4, 0, 4)),
            ("one", 2, (2,)),
            ("even", 1, (0, 2)),
        )
        for (name, axis, index), bits in product(choices, WIDTHS):
            x = fed(name, (1, 3, 4, 5), bits, -3)
            yield single(self, f"{name}/int{bits}", GatherParams(axis, index), [x], grid(bits, -3))
        for channels, bits in product((1, 2, 3, 5, 7, 9, 16, 21, 32, 33, 64, 70, 300), WIDTHS):
            name = f"pixels/{channels}/int{bits}"
            x = fed(name, (2, 3, channels), bits, -3)
            yield single(self, name, GatherParams(1, (0, 0, 2, 1, 2)), [x], grid(bits, -3))
        shuffled = np.arange(96).reshape(2, 48).T.ravel()
        parts = {
            "shuffle": shuffled,
            "half": shuffled[48:],
            "apart": 2 * shuffled[::4],
            "uneven": shuffled[:71],
            "crossed": (shuffled + 48) % 96,
            "falling": np.arange(96)[::-1],
            "again": np.zeros(9, int),
            "runs": np.add.outer(8 * np.arange(9), np.arange(3)).ravel(),
        }
        for (name, index), bits in product(parts.items(), WIDTHS):
            x = fed(name, (1, 3, 5, 192), bits, -3)
            params = GatherParams(3, tuple(index.tolist()))
            yield single(self, f"{name}/int{bits}", params, [x], grid(bits, -3))
        x = fed("many", (1, 2, 1, 3, 2, 2), 8, -3)
        yield single(self, "rank6", GatherParams(4, (1, 1, 0)), [x], grid(8, -3))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        index = to.const(node.params.index)
        to.node("Gather", (node.inputs[0], index), node.outputs[0], axis=node.params.axis)


def _lower_expand(node: OnnxNode, to: GraphBuilder) -> None:
    """Repeats the only element of an axis. Axes of size 1 are left out where there are more than a tensor can have, as
    PyTorch's repeat makes them."""
    x, shape = to.shaped(node.input(0))
    goals = np.broadcast_shapes(shape, to.integers(node.input(1), "shape"))
    axes = list(zip((*(1,) * (len(goals) - len(shape)), *shape), goals, strict=True))
    if is_wide := len(goals) > RANK_MAX:
        axes = [(size, goal) for size, goal in axes if goal > 1]
    spread = [range(size) if size == goal else (0,) * goal for size, goal in axes]
    y = to.reshape(x, [size for size, _ in axes])
    if is_wide:
        return to.shape_as(take(to, y, spread, ""), goals, node.outputs[0])
    take(to, y, spread, node.outputs[0])
    return None


def take(to: GraphBuilder, x: str, indices: Sequence[Sequence[int]], output: str) -> str:
    """x with these indices along each of its axes; those that make it smaller go first."""
    shape = to[x].shape
    changed = [axis for axis, index in enumerate(indices) if tuple(index) != tuple(range(shape[axis]))]
    changed.sort(key=lambda axis: len(indices[axis]) / shape[axis])
    if not changed and output:
        to.rename(output, x)
    for axis in changed:
        params = GatherParams(axis, tuple(int(i) for i in indices[axis]))
        x = to.emit("gather", (x,), params, output if axis == changed[-1] else "")
    return x
