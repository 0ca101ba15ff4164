"""Reductions over any axes, as a pool over W, or H and W, of an [N,H,W,C] view of the input."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from nmpconv.errors import Invalid

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder
    from nmpconv.ops.onnx_node import OnnxNode


def lower_reduction(node: OnnxNode, to: GraphBuilder, x: str, pool: Callable[[str, int, int], str]) -> None:
    """The node's result from its input x. pool(value, h, w) reduces the first h x w pixels of [N,H,W,C], all of W."""
    shape = to[x].shape
    axes = reduced_axes(node, to, len(shape))
    if not axes:
        return to.rename(node.outputs[0], x)
    if node.integer("keepdims", 1) == 1:
        result = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    else:
        result = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    if len(shape) == 4 and axes == (2, 3):
        y = pool(to.transpose(x, (0, 2, 3, 1)), *shape[2:])
        if len(result) == 4:
            to.transpose(y, (0, 3, 1, 2), node.outputs[0])
            return None
    elif len(shape) == 4 and axes == (1, 2):
        y = pool(x, *shape[1:3])
    else:
        first, stop = axes[0], axes[0] + len(axes)
        if axes != tuple(range(first, stop)):
            perm = (*range(first), *axes, *(axis for axis in range(first, len(shape)) if axis not in axes))
            x = to.transpose(x, perm)
            shape = tuple(shape[axis] for axis in perm)
        batch = shape[:1] if first else (1,)
        width = prod(shape[first:stop])
        y = pool(to.reshape(x, (*batch, prod(shape[1:first]), width, prod(shape[stop:]))), 1, width)
    to.reshape(y, result, node.outputs[0])
    return None


def reduced_axes(node: OnnxNode, to: GraphBuilder, rank: int) -> tuple[int, ...]:
    """In ascending order; an attribute before opset 18, an input since. None given: all, unless the node says none."""
    axes = node.integers("axes")
    if axes is None and node.input(1):
        if to.array(node.input(1), "axes").ndim != 1:
            raise Invalid(f"its axes '{node.input(1)}' are no list", hint="one dimension")
        axes = to.integers(node.input(1), "axes")
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(node.axes(axes, rank, once=False)))
