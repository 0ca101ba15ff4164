"""The same elements in another shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.add import AddParams
from nmpconv.ops.common.aligned import AlignedParams
from nmpconv.ops.common.case import WIDTHS, by, fed, grid, single
from nmpconv.ops.common.comparison import opposite
from nmpconv.ops.common.traits import Rule, channels_of
from nmpconv.ops.lookup import LookupParams
from nmpconv.ops.op import Case, Op, QArray
from nmpconv.ops.requantize import RequantizeParams

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class ReshapeParams:
    shape: tuple[int, ...] = ()


class Reshape(Op):
    name = "reshape"
    Params = ReshapeParams
    grid = "same"
    in_place = True
    moves = False
    onnx = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Cast")
    monotone = True
    head = True

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Everything that changes at most the shape: the new one is computed here, from constants and known shapes."""
        x, shape = to.shaped(node.input(0))
        if node.op_type == "Cast" and node.integer("to", 1) not in _FLOAT_TYPES:
            return _lower_cast(node, to, to.value(node.input(0)))
        new = _NEW_SHAPES[node.op_type](node, to, shape)
        if prod(new) != prod(shape):
            raise Invalid(f"{list(shape)} cannot become {list(new)}", hint="as many elements")
        to.shape_as(x, new, node.outputs[0])

    def infer(self, params: ReshapeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [params.shape]

    def rules(self, params: ReshapeParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        yield f"{inputs[0].size} elements become {output.size}", inputs[0].size == output.size

    def part(
        self, params: ReshapeParams, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[ReshapeParams, list[int | None]] | None:
        """Part of an axis that is there before, with as many elements on either side of it."""
        shape, ahead = inputs[0].shape, prod(output.shape[:axis])
        for i, dim in enumerate(shape):
            if dim == output.shape[axis] and prod(shape[:i]) == ahead:
                return ReshapeParams((*output.shape[:axis], size, *output.shape[axis + 1 :])), [i]
        return None

    def by_channel(self, params: ReshapeParams, inputs: Sequence[Value], output: Value) -> bool:
        return inputs[0].shape[-1:] == output.shape[-1:]

    def with_channels(self, params: ReshapeParams, channels: int) -> ReshapeParams:
        return ReshapeParams((*params.shape[:-1], channels))

    def idle(self, params: ReshapeParams, x: Value, y: Value) -> bool:
        return x.shape == y.shape

    def factors(self, params: ReshapeParams, inputs: Sequence[Value], output: Value) -> Sequence[np.ndarray] | None:
        """Passes factors on where the last axis stays, or takes in all the others."""
        c, channels = channels_of(inputs[0]).size, channels_of(output)
        flat = len(output.shape) >= 1 and output.size == channels.size and channels.size % c == 0
        return [channels % c] if flat or channels.size == c else None

    def reference(self, params: ReshapeParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """The same elements in row-major order."""
        return [inputs[0].q.reshape(outputs[0].shape)]

    def cases(self) -> Iterator[Case]:
        for bits in WIDTHS:
            for old, new in (((1, 3, 4, 5), (1, 60)), ((1, 60), (3, 4, 5)), ((1,), ()), ((6,), (1, 1, 2, 1, 3, 1))):
                name = f"{by(old)}-{by(new)}/int{bits}"
                yield single(self, name, ReshapeParams(new), [fed(name, old, bits, -3)], grid(bits, -3))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        to.node("Reshape", (node.inputs[0], to.shape(node.params.shape)), node.outputs[0])


_BOOL = 9
_FLOAT_TYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}  # of onnx.TensorProto.DataType


def _reshape(node: OnnxNode, to: GraphBuilder, shape: Sequence[int]) -> tuple[int, ...]:
    """0 copies the input's size (unless allowzero), -1 takes what is left."""
    asked = to.integers(node.input(1), "shape")
    zero = not node.integer("allowzero", 0)
    if zero and any(size == 0 and axis >= len(shape) for axis, size in enumerate(asked)):
        raise Unsupported(f"shape {list(asked)} copies a dimension that {list(shape)} does not have")
    sizes = [shape[axis] if size == 0 and zero else size for axis, size in enumerate(asked)]
    if -1 in sizes:
        sizes[sizes.index(-1)] = prod(shape) // max(prod(size for size in sizes if size != -1), 1)
    return tuple(sizes)


def _flatten(node: OnnxNode, to: GraphBuilder, shape: Sequence[int]) -> tuple[int, ...]:
    axis = node.integer("axis", 1)
    axis = len(shape) if axis == len(shape) else node.axis(axis, len(shape))
    return prod(shape[:axis]), prod(shape[axis:])


def _squeeze(node: OnnxNode, to: GraphBuilder, shape: Sequence[int]) -> tuple[int, ...]:
    axes = _axes(node, to, len(shape)) or [axis for axis, size in enumerate(shape) if size == 1]
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _unsqueeze(node: OnnxNode, to: GraphBuilder, shape: Sequence[int]) -> tuple[int, ...]:
    count = len(node.integers("axes") or ()) or to.array(node.input(1), "axes").size
    axes, rest = _axes(node, to, len(shape) + count), iter(shape)
    return tuple(1 if axis in axes else next(rest) for axis in range(len(shape) + count))


def _axes(node: OnnxNode, to: GraphBuilder, rank: int) -> tuple[int, ...]:
    """An attribute before opset 13, an input since."""
    axes = node.integers("axes") or (to.integers(node.input(1), "axes") if node.input(1) else ())
    return node.axes(axes, rank, once=node.op_type != "Squeeze")


def _same(node: OnnxNode, to: GraphBuilder, shape: Sequence[int]) -> tuple[int, ...]:
    if node.input(2) and to.array(node.input(2), "training_mode").any():
        raise Unsupported("training mode", hint="an export in inference mode")
    return tuple(shape)


_INTEGERS = (2, 3, 4, 5, 6, 7, 12, 13)  # of ONNX's types: (u)int8 to (u)int64
_SIDES = ((0.0, inf), (-inf, 0.0))  # of 0


def _lower_cast(node: OnnxNode, to: GraphBuilder, x: str) -> None:
    """To bool: whether it is not 0. To integers: what is whole already, or its whole part. ONNX leaves open what
    becomes of numbers beyond their range."""
    if node.integer("to", 1) == _BOOL:
        zero = to.const(np.zeros((1,) * len(to[x].shape)), "")
        opposite(to, to.emit("equal", (x, zero), AlignedParams()), node.outputs[0])
    elif to.is_integer(node.input(0)) or to.is_whole(x):
        to.rename(node.outputs[0], x)
    elif node.integer("to", 1) not in _INTEGERS:
        raise Unsupported("a cast of a computed tensor to a type that is neither float nor integer", hint="float types")
    else:
        above, below = (to.emit("requantize", (x,), RequantizeParams(), "", clamp=ends) for ends in _SIDES)
        parts = [to.emit("lookup", (y,), LookupParams(f), "") for y, f in ((above, "floor"), (below, "ceil"))]
        to.emit("add", parts, AddParams(), node.outputs[0])


_NEW_SHAPES = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Identity": _same,
    "Dropout": _same,
    "Cast": _same,
}
