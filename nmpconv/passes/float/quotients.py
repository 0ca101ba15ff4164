"""Quotients of two sums over the same row, as linear attention has them, of a row of length 1.

(q . a) / (q . b + e) does not change where q and e are multiplied by one number. A dot product with a short q is small
next to others in its tensor, and so would be the bits that it has left: the row q is normalized before.

1. divide of two slices of one product of matrices, along the axis of its columns; q may be either of its operands.
2. The same with a number e > 0 added to the divisor, up to EPSILON_MAX: it becomes one more element of q, so that it
   is divided by the same length. That also keeps a row of zeros apart from 0 / 0.
3. Where a and b are columns of K^T V with K >= 0, each feature of K is divided by its largest element first. Otherwise
   the sums of products are as large as K and V together: an image with a strong K leaves few bits to the others, or
   saturates, and a divisor that weak features make has hardly any. The features of q are multiplied by the same, over
   the largest of all (with e: and of 1), and the row is normalized again. Where b sums up K and q >= 0, no divisor is
   below 1 then: each feature has an element of 1, and a row of length 1 has a sum of at least 1.
4. Where the divisor is written as the sum of q K^T along its rows, it is q . b with b = K^T 1: V gets a column of ones,
   and the quotient is case 1 or 2.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.batch_matmul import swapped
from nmpconv.ops.concat import ConcatParams
from nmpconv.ops.lrn import SIZE_MAX, LrnParams
from nmpconv.ops.max_pool import MaxPoolParams
from nmpconv.ops.pad import PadParams
from nmpconv.ops.reshape import ReshapeParams
from nmpconv.ops.slice import SliceParams
from nmpconv.passes.float.squares import read, walk
from nmpconv.passes.rewrite import Editor, apply

EPSILON_MAX = 0.1  # a larger one is no guard against 0 / 0: next to it in a row, q may have no bits left
TINY = 1e-30  # the least number to divide a feature by


def run(graph: Graph) -> Graph:
    return apply(apply(graph, _join), _normalize)


def _join(editor: Editor, node: Node) -> bool:  # case 4
    top = editor.producer(node.inputs[0])
    walked = walk(editor, node.inputs[1]) if node.op == "divide" else None
    if walked is None or top is None or top.op != "batch_matmul":
        return False
    source, nodes = walked
    q, rows = top.inputs[0], editor[top.inputs[0]].shape[:-1]
    dots = editor.producer(source)
    product, turned = _turned(editor, top.inputs[1])
    sums = editor.producer(product)
    if dots is None or dots.op != "batch_matmul" or dots.inputs[0] != q or sums is None or sums.op != "batch_matmul":
        return False
    k, v = sums.inputs if turned else sums.inputs[::-1]  # K^T and V^T
    (first, odd), (other, even) = _turned(editor, k), _turned(editor, dots.inputs[1])
    between = [source, product, *top.outputs, *(n.outputs[0] for n in nodes)]
    if first != other or odd == even or any(editor.only_user(x) is None or editor[x].clamp for x in between):
        return False
    count = editor[source].shape[-1]
    reduction = read(editor, source, nodes, 1.0)
    if reduction is None or reduction[0] != (len(rows),) or abs(reduction[1] - count) > 1e-6 * count:
        return False
    if not 0 <= reduction[2] <= EPSILON_MAX or editor[v].is_const or editor[node.inputs[1]].shape != (*rows, 1):
        return False
    ones = editor.const(f"{node.name}.one", np.ones(1))
    rank, width = len(editor[v].shape), editor[v].shape[-2]
    pads = (0,) * (2 * rank - 3) + (1, 0, 0)  # a row behind the others
    wide = editor.emit("pad", (v, ones), PadParams(pads), at=sums)
    wide = editor.emit("batch_matmul", (wide, k), at=sums)
    wide = editor.emit("batch_matmul", (q, wide), at=top)
    divisor = _part(editor, node, wide, width, 1)
    if reduction[2]:
        epsilon = editor.const(f"{node.name}.epsilon", np.full((1,) * len(editor[divisor].shape), reduction[2]))
        divisor = editor.emit("add", (divisor, epsilon), at=node)
    editor.set(replace(node, inputs=(_part(editor, node, wide, 0, width), divisor)))
    return True


def _turned(editor: Editor, name: str, *, alone: bool = False) -> tuple[str, bool]:
    """Finds the matrix that this is, or is the transpose of. alone: only through transposes that nothing else reads."""
    turned = False
    while (node := editor.producer(name)) is not None and node.op == "transpose":
        if node.params.perm != swapped(len(node.params.perm)) or (alone and editor.only_user(name) is None):
            break
        name, turned = node.inputs[0], not turned
    return name, turned


def _normalize(editor: Editor, node: Node) -> bool:
    if node.op != "divide":
        return False
    top, bottom = (editor.producer(name) for name in node.inputs)
    if top is None or bottom is None:
        return False
    epsilon = 0.0
    if bottom.op == "add" and (term := _number(editor, bottom)) is not None:  # case 2
        bottom, epsilon = editor.producer(term[0]), term[1]
    if bottom is None or not 0 <= epsilon <= EPSILON_MAX or (bottom.op, top.op) != ("slice", "slice"):
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
    features = editor[q].shape[-1]
    length = features + (epsilon > 0)
    if editor[q].is_const or 2 * length - 1 > SIZE_MAX:
        return False
    if epsilon:
        number = editor.const(f"{node.name}.epsilon", np.array([epsilon]))
        pads = (*(0,) * (2 * len(editor[q].shape) - 1), 1)
        q = editor.emit("pad", (q, number), PadParams(pads), at=product)
    unit = _unit(editor, product, q)
    least = 1.0 if epsilon else TINY  # so that the number, of a row of length 1, stays within 1
    if (
        scaled := _scale_keys(editor, product.inputs[1 - side], (*editor[q].shape[:-1], features), least)
    ) is not None:  # case 3
        shares, largest = scaled
        rows = [editor.emit("mul", (_part(editor, product, unit, 0, features), shares), at=product, clamp=(-1.0, 1.0))]
        if epsilon:
            last = (_part(editor, product, unit, features, 1), largest)
            rows.append(editor.emit("divide", last, at=product, clamp=(0.0, 1.0)))
            rows = [editor.emit("concat", rows, ConcatParams(len(editor[q].shape) - 1), at=product)]
        unit = _unit(editor, product, *rows)
    divisor = bottom.outputs[0]
    if epsilon:
        rest = _part(editor, product, unit, features, 1)
        unit = _part(editor, product, unit, 0, features)
        if side == 1:  # a row of the product then is a column
            rest = editor.transpose(rest, swapped(len(editor[rest].shape)), at=node)
        divisor = editor.emit("add", (divisor, rest), at=node)
    inputs = [unit if i == side else name for i, name in enumerate(product.inputs)]
    editor.set(replace(editor.now(product), inputs=tuple(inputs)))
    editor.set(replace(node, inputs=(node.inputs[0], divisor)))
    return True


def _unit(editor: Editor, at: Node, rows: str) -> str:
    """Each row over its length."""
    size = 2 * editor[rows].shape[-1] - 1
    return editor.emit("lrn", (rows,), LrnParams(size, alpha=float(size), beta=0.5, bias=0.0), at=at)


def _scale_keys(editor: Editor, name: str, queries: tuple[int, ...], least: float) -> tuple[str, str] | None:
    """Divide each feature of K by its largest element. None where there is no K.

    Returns what the features were divided by, over the largest of them and of ``least``, [..., 1, features], and that
    largest one [..., 1, 1]. name: V^T K, whose last axis counts features. queries: the shape of q.
    """
    product, turned = _turned(editor, name, alone=True)
    node = editor.producer(product)
    if node is None or node.op != "batch_matmul" or editor.only_user(product) is None:
        return None
    place = 0 if turned else 1  # of the operand whose rows are the last axis
    source = name = node.inputs[place]
    while (above := editor.producer(source)) is not None and above.op == "transpose":
        source = above.inputs[0]
    clamp, (*outer, features, count) = editor[source].clamp, editor[name].shape
    if editor[name].is_const or clamp is None or clamp[0] < 0 or (*outer, features) != (*queries[:-2], queries[-1]):
        return None
    matrices = math.prod(outer)
    reach = _largest(editor, node, name, matrices * features, count, TINY)
    keys = editor.emit(
        "divide", (name, _reshaped(editor, node, reach, (*outer, features, 1))), at=node, clamp=(0.0, 1.0)
    )
    editor.set(replace(node, inputs=tuple(keys if i == place else other for i, other in enumerate(node.inputs))))
    largest = _reshaped(editor, node, _largest(editor, node, reach, matrices, features, least), (*outer, 1, 1))
    row = _reshaped(editor, node, reach, (*outer, 1, features))
    return editor.emit("divide", (row, largest), at=node, clamp=(0.0, 1.0)), largest


def _largest(editor: Editor, at: Node, x: str, rows: int, count: int, least: float) -> str:
    """The largest element of each row, and at least ``least``: [1, rows, 1, 1]."""
    y = editor.emit("max_pool", (_reshaped(editor, at, x, (1, rows, count, 1)),), MaxPoolParams(1, count), at=at)
    return editor.emit("requantize", (y,), at=at, clamp=(least, math.inf))


def _reshaped(editor: Editor, at: Node, x: str, shape: tuple[int, ...]) -> str:
    return editor.emit("reshape", (x,), ReshapeParams(shape), at=at)


def _number(editor: Editor, node: Node) -> tuple[str, float] | None:
    """(computed, number) of a sum with a number."""
    for x, constant in (node.inputs, node.inputs[::-1]):
        same = editor[x].shape == editor[node.outputs[0]].shape and editor[node.outputs[0]].clamp is None
        if same and editor[constant].is_const and editor[constant].size == 1 and not editor[x].is_const:
            return x, float(editor.data(constant).item())
    return None


def _whole(editor: Editor, part: Node, rows: int) -> bool:
    """Checks that a slice of a matrix has all of its rows, in order."""
    p, shape = part.params, editor[part.inputs[0]].shape
    return all(
        (start, step, size) == (0, 1, goal)
        for axis, (start, step, size, goal) in enumerate(zip(p.starts, p.steps, p.sizes, shape, strict=True))
        if axis != len(shape) - 3 - rows  # the other one of the last two
    )


def _is_new(editor: Editor, name: str) -> bool:
    """Checks that these are not rows that the pass itself normalized."""
    node = editor.producer(name)
    while node is not None and node.op in ("slice", "transpose"):
        node = editor.producer(node.inputs[0])
    return node is None or node.op != "lrn"


def _part(editor: Editor, at: Node, x: str, start: int, size: int) -> str:
    """Elements of the last axis."""
    shape = editor[x].shape
    params = SliceParams((*(0,) * (len(shape) - 1), start), (1,) * len(shape), (*shape[:-1], size))
    return editor.emit("slice", (x,), params, at=at)
