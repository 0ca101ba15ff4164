"""Quotients of two sums over the same row, as linear attention has them, of a row of length 1.

(q . a) / (q . b + e) does not change where q and e are multiplied by one number. A dot product with a short q is small
next to others in its tensor, and so would be the bits that it has left: the row q is normalized before.

1. divide of two slices of one product of matrices, along the axis of its columns; q may be either of its operands.
2. The same with a number e > 0 added to the divisor: it becomes one more element of q, so that it is divided by the
   same length. That also keeps a row of zeros apart from 0 / 0.
3. Where a and b are columns of K^T V with K >= 0, K is divided by its largest element first: the sums of products are
   as large as K and V together, so images with a strong K would leave few bits to the others, and saturate.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.lrn import SIZE_MAX, LrnParams
from nmpconv.ops.max_pool import MaxPoolParams
from nmpconv.ops.pad import PadParams
from nmpconv.ops.reshape import ReshapeParams
from nmpconv.ops.slice import SliceParams
from nmpconv.ops.transpose import TransposeParams
from nmpconv.passes.rewrite import Editor, apply

TINY = 1e-30  # the least number to divide K by


def run(graph: Graph) -> Graph:
    return apply(graph, _normalize)


def _normalize(editor: Editor, node: Node) -> bool:
    if node.op != "divide":
        return False
    top, bottom = (editor.producer(name) for name in node.inputs)
    if top is None or bottom is None:
        return False
    epsilon = 0.0
    if bottom.op == "add" and (found := _number(editor, bottom)) is not None:  # case 2
        bottom, epsilon = editor.producer(found[0]), found[1]
    if bottom is None or epsilon < 0 or (bottom.op, top.op) != ("slice", "slice"):
        return False
    product = editor.producer(top.inputs[0])
    if product is None or product.op != "batch_matmul" or top.inputs[0] != bottom.inputs[0]:
        return False
    if any(editor[name].clamp for name in (product.outputs[0], top.outputs[0], bottom.outputs[0], node.inputs[1])):
        return False
    if {user.name for user in editor.users(product.outputs[0])} != {top.name, bottom.name}:
        return False
    for side in (0, 1):
        rows = -2 if side == 0 else -1  # the axis of the product that counts the rows of q
        if all(_whole(editor, part, rows) for part in (top, bottom)) and _is_new(editor, product.inputs[side]):
            return _rewrite(editor, node, product, bottom, side, epsilon)
    return False


def _rewrite(editor: Editor, node: Node, product: Node, bottom: Node, side: int, epsilon: float) -> bool:
    q = product.inputs[side]
    shape = editor[q].shape
    length = shape[-1] + (epsilon > 0)
    if editor[q].is_const or 2 * length - 1 > SIZE_MAX:
        return False
    if epsilon:
        number = editor.const(f"{node.name}.epsilon", np.array([epsilon]))
        pads = (*(0,) * (2 * len(shape) - 1), 1)
        q = editor.emit("pad", (q, number), PadParams(pads), at=product)
    size = 2 * length - 1
    unit = editor.emit("lrn", (q,), LrnParams(size, alpha=float(size), beta=0.5, bias=0.0), at=product)
    divisor = bottom.outputs[0]
    largest = _scale_keys(editor, product.inputs[1 - side])  # case 3
    if epsilon:
        last = _part(editor, product, unit, shape[-1], 1)
        unit = _part(editor, product, unit, 0, shape[-1])
        if largest:
            last = editor.emit("divide", (last, largest), at=node, clamp=(0.0, 1.0))
        if side == 1:  # a row of the product then is a column
            swapped = TransposeParams((*range(len(shape) - 2), len(shape) - 1, len(shape) - 2))
            last = editor.emit("transpose", (last,), swapped, at=node)
        divisor = editor.emit("add", (divisor, last), at=node)
    inputs = [unit if i == side else name for i, name in enumerate(product.inputs)]
    editor.set(replace(product, inputs=tuple(inputs)))
    editor.set(replace(node, inputs=(node.inputs[0], divisor)))
    return True


def _scale_keys(editor: Editor, name: str) -> str:
    """Divide K by its largest element in each matrix, which is returned, [..., 1, 1]; "" where there is no K."""
    node = editor.producer(name)
    while node is not None and node.op == "transpose" and editor.only_user(node.outputs[0]) is not None:
        node = editor.producer(node.inputs[0])
    if node is None or node.op != "batch_matmul" or editor.only_user(node.outputs[0]) is None:
        return ""
    for side, name in enumerate(node.inputs):
        source, shape = name, editor[name].shape
        while (above := editor.producer(source)) is not None and above.op == "transpose":
            source = above.inputs[0]
        clamp = editor[source].clamp
        if editor[name].is_const or clamp is None or clamp[0] < 0 or shape[:-2] != editor[node.outputs[0]].shape[:-2]:
            continue
        matrices, count = math.prod(shape[:-2]), shape[-2] * shape[-1]
        flat = editor.emit("reshape", (name,), ReshapeParams((1, matrices, count, 1)), at=node)
        largest = editor.emit("max_pool", (flat,), MaxPoolParams(1, count), at=node)
        largest = editor.emit("requantize", (largest,), at=node, clamp=(TINY, math.inf))
        largest = editor.emit("reshape", (largest,), ReshapeParams((*shape[:-2], 1, 1)), at=node)
        keys = editor.emit("divide", (name, largest), at=node, clamp=(0.0, 1.0))
        editor.set(replace(node, inputs=tuple(keys if i == side else other for i, other in enumerate(node.inputs))))
        return largest
    return ""


def _number(editor: Editor, node: Node) -> tuple[str, float] | None:
    """(computed, number) of a sum with a number."""
    for x, constant in (node.inputs, node.inputs[::-1]):
        same = editor[x].shape == editor[node.outputs[0]].shape and editor[node.outputs[0]].clamp is None
        if same and editor[constant].is_const and editor[constant].size == 1 and not editor[x].is_const:
            return x, float(editor.data(constant).item())
    return None


def _whole(editor: Editor, part: Node, rows: int) -> bool:
    """Whether a slice of a matrix has all of its rows, in order."""
    p, shape = part.params, editor[part.inputs[0]].shape
    return all(
        (start, step, size) == (0, 1, goal)
        for axis, (start, step, size, goal) in enumerate(zip(p.starts, p.steps, p.sizes, shape, strict=True))
        if axis != len(shape) - 3 - rows  # the other one of the last two
    )


def _is_new(editor: Editor, name: str) -> bool:
    """Whether these are not rows that the pass itself normalized."""
    node = editor.producer(name)
    while node is not None and node.op in ("slice", "transpose"):
        node = editor.producer(node.inputs[0])
    return node is None or node.op != "lrn"


def _part(editor: Editor, at: Node, x: str, start: int, size: int) -> str:
    """Elements of the last axis."""
    shape = editor[x].shape
    params = SliceParams((*(0,) * (len(shape) - 1), start), (1,) * len(shape), (*shape[:-1], size))
    return editor.emit("slice", (x,), params, at=at)
