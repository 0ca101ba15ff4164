"""Sums of squares over an axis that a Concat makes, or that a reshape splits off another one, as sums of its parts.

Real and imaginary parts are often stacked along a new axis, or computed as channels of one convolution, and what
follows is done to both: slices, products with constants, Concats along other axes, moves. With f a table that is steep
near 0 (`wide_sums`),

    f(w * p + b), p the squares along such an axis, b not negative

becomes f(w0 * a^2 + w1 * c^2 + b) of the parts, and is moved behind that. So bins that were places are channels, each
with a range of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.common.function import is_steep
from nmpconv.ops.concat import ConcatParams
from nmpconv.ops.slice import SliceParams
from nmpconv.passes.float.squares import PARTS, is_square
from nmpconv.passes.rewrite import MOVES, Editor, apply, axis_groups

Make = Callable[[], str]
"""Writes the nodes of a part and returns its name."""


def run(graph: Graph) -> Graph:
    return apply(graph, _sum_of_parts)


def _sum_of_parts(editor: Editor, node: Node) -> bool:
    layer = editor.producer(node.inputs[0])
    if node.op != "lookup" or not any(map(is_steep, node.params.steps())) or layer is None:
        return False
    if layer.op != "fully_connected" or editor.only_user(layer.outputs[0]) is None:
        return False
    weights, bias = editor.data(layer.inputs[1]), editor.data(layer.inputs[2])
    if len(weights) != 1 or weights.size < 2 or weights.min() < 0 or bias.item() < 0:
        return False
    x, moves, axes = layer.inputs[0], list[Node](), [len(editor[layer.inputs[0]].shape) - 1]
    while (move := editor.producer(x)) is not None and move.op in MOVES and editor.only_user(x) is not None:
        before = axis_before(editor, move, axes[-1])
        if before is None:
            return False
        moves.append(move)
        axes.append(before)
        x = move.inputs[0]
    if move is None or not is_square(move):
        return False
    parts = parts_along(editor, node, x, axes[-1])
    if parts is None:
        return False
    total, out = editor[layer.outputs[0]], editor[node.outputs[0]]
    scaled = [
        part if w == 1 else editor.emit("mul", (part, editor.const(layer.inputs[1], np.full(1, w))), at=node)
        for part, w in zip(parts, weights[0], strict=True)
    ]
    offset = [editor.const(layer.inputs[2], bias)] if bias.item() else []
    y, *others = (*scaled, *offset)
    for last, other in enumerate(others, 2 - len(scaled) - len(offset)):
        y = editor.emit("add", (y, other), at=node, clamp=None if last else total.clamp)
    editor.remove(node)
    y = editor.emit("lookup", (y,), node.params, at=node, name=node.name, clamp=out.clamp)
    for move, axis, before in reversed(list(zip(moves, axes, axes[1:], strict=False))):
        y = moved_without(editor, move, y, before, axis, node)
    editor.reshape(y, out.shape, at=node, out=out.name)
    return True


def parts_along(editor: Editor, at: Node, name: str, axis: int) -> list[str] | None:
    """Returns the tensor at each index of an axis, without that axis.

    None, and no change, if the producers of the tensor do not lead to a Concat along the axis, or if other ops read a
    tensor between the Concat and this one.
    """
    size = editor[name].shape[axis]
    makers = [make for i in range(size) if (make := _part(editor, at, name, axis, i)) is not None]
    return [make() for make in makers] if len(makers) == size else None


def axis_before(editor: Editor, node: Node, axis: int) -> int | None:
    """The axis of a moving node's input that becomes ``axis`` of its output; None if no single axis does."""
    if node.op == "transpose":
        return int(node.params.perm[axis])
    old, new = editor[node.inputs[0]].shape, editor[node.outputs[0]].shape
    for (first, end), (low, high) in axis_groups(old, new):
        if low <= axis < high and math.prod(new[low:high]) == new[axis] > 1:
            return next((i for i in range(first, end) if old[i] == new[axis]), None)
    return None


def moved_without(editor: Editor, node: Node, x: str, before: int, axis: int, at: Node) -> str:
    """Writes the moving node for a tensor that lacks one axis, which is ``before`` in its input; returns the result."""
    if node.op == "transpose":
        perm = [i - (i > before) for i in node.params.perm if i != before]
        return editor.transpose(x, perm, at=at)
    shape = editor[node.outputs[0]].shape
    return editor.reshape(x, (*shape[:axis], *shape[axis + 1 :]), at=at)


def _part(editor: Editor, at: Node, name: str, axis: int, i: int) -> Make | None:
    node = editor.producer(name)
    if node is None or editor[name].clamp or editor.only_user(name) is None:
        return None
    if node.op == "concat":
        return _of_concat(editor, at, node, axis, i)
    if is_square(node):
        return _then(_part(editor, at, node.inputs[0], axis, i), lambda x: editor.emit("mul", (x, x), at=at))
    if node.op == "mul":
        return _of_product(editor, at, node, axis, i)
    if node.op == "slice":
        p = node.params
        inner = _part(editor, at, node.inputs[0], axis, p.starts[axis] + p.steps[axis] * i)
        rest = SliceParams(*((*v[:axis], *v[axis + 1 :]) for v in (p.starts, p.steps, p.sizes)))
        return _then(inner, lambda x: editor.emit("slice", (x,), rest, at=at))
    before = axis_before(editor, node, axis) if node.op in MOVES else None
    if before is None:
        return _split_off(editor, at, node, axis, i) if node.op == "reshape" else None
    inner = _part(editor, at, node.inputs[0], before, i)
    return _then(inner, lambda x: moved_without(editor, node, x, before, axis, at))


def _then(inner: Make | None, more: Callable[[str], str]) -> Make | None:
    return None if inner is None else lambda: more(inner())


def _of_concat(editor: Editor, at: Node, node: Node, axis: int, i: int) -> Make | None:
    joined = node.params.axis
    if joined != axis:
        makers = [make for name in node.inputs if (make := _part(editor, at, name, axis, i)) is not None]
        params = ConcatParams(joined - (joined > axis))
        whole = len(makers) == len(node.inputs)
        return (lambda: editor.emit("concat", [make() for make in makers], params, at=at)) if whole else None
    for name in node.inputs:
        size = editor[name].shape[axis]
        if i < size:
            return partial(_squeezed, editor, at, name, axis) if size == 1 else _part(editor, at, name, axis, i)
        i -= size
    return None


def _split_off(editor: Editor, at: Node, node: Node, axis: int, i: int) -> Make | None:
    """An index of an axis that comes of one axis of the reshape's input, as the first or the last part of it."""
    old, new = editor[node.inputs[0]].shape, editor[node.outputs[0]].shape
    first, low, high = next((f, low, high) for (f, _), (low, high) in axis_groups(old, new) if low <= axis < high)
    if old[first] != math.prod(new[low:high]) or new[axis] > PARTS:
        return None
    before, count = math.prod(new[low:axis]), math.prod(new[axis + 1 : high])
    if before > 1 and count > 1:
        return None
    start, step, size = (i * count, 1, count) if before == 1 else (i, new[axis], before)
    starts, steps = [0] * len(old), [1] * len(old)
    starts[first], steps[first] = start, step
    take = SliceParams(tuple(starts), tuple(steps), (*old[:first], size, *old[first + 1 :]))

    def make() -> str:
        x = editor.emit("slice", node.inputs, take, at=at)
        return editor.reshape(x, (*new[:axis], *new[axis + 1 :]), at=at)

    return make


def _squeezed(editor: Editor, at: Node, name: str, axis: int) -> str:
    shape, node = editor[name].shape, editor.producer(name)
    rest = (*shape[:axis], *shape[axis + 1 :])
    source = node.inputs[0] if node is not None and node.op == "reshape" else name
    return source if editor[source].shape == rest else editor.reshape(source, rest, at=at)


def _of_product(editor: Editor, at: Node, node: Node, axis: int, i: int) -> Make | None:
    """A product with a constant."""
    shape = editor[node.outputs[0]].shape
    constant = next((name for name in node.inputs if editor[name].is_const), "")
    x = next(name for name in node.inputs if name != constant)
    if not constant or editor[x].shape != shape:
        return None
    data = editor.data(constant)
    data = data.reshape((1,) * (len(shape) - data.ndim) + data.shape)
    factor = data.take(min(i, data.shape[axis] - 1), axis)
    inner = _part(editor, at, x, axis, i)
    return _then(inner, lambda y: editor.emit("mul", (y, editor.const(constant, factor)), at=at))
