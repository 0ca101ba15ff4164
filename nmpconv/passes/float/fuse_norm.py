"""Norms that are written out, through ops that keep sums of squares wide.

A tensor of squares has half as many bits for a small element as the element had; so has a sum of squares. Normalize and
lrn keep both in 64 bits. With M the mean of u^2 along some axes and a positive number V = a * M + b:

1. u / sqrt(V), u * V^-0.5 and u * (V^-0.5 * constant) become one normalization of u: `normalize` of x where
   u = x - mean(x), else `lrn`.
2. u^2 / V is the square of case 1.
3. u / (sqrt(V) + e) with b = 0 is z * t / (t + e / a), where z is case 1, 0 of 0, and t = mean(u * z) = sqrt(V) / a.
4. sum(p * q) / sqrt(V * W), V of p and W of q, is the sum of the product of p / sqrt(V) and q / sqrt(W).

u may have a constant factor. A lower bound of sqrt(V) that is next to nothing (1e-12), or an upper one of its inverse,
keeps 0 / 0 from happening; so does the bias of the normalization that takes its place, and what is above the bound does
not see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.average_pool import AveragePoolParams
from nmpconv.ops.lrn import SIZE_MAX, LrnParams
from nmpconv.ops.normalize import COUNT_MAX, NormalizeParams
from nmpconv.ops.reshape import ReshapeParams
from nmpconv.ops.transpose import TransposeParams
from nmpconv.passes.float.squares import FLOOR, Power, exponent, fits, is_floor, is_square, power_of, read, scalar, walk
from nmpconv.passes.rewrite import Editor, apply

NO_EPSILON = 1e-18  # of a normalization without one
NO_NORM = 1e-30  # a sum of squares that keeps 0 / 0 from happening
NOT_LINEAR = ("lookup", "divide", "requantize", "add", "sub")


def run(graph: Graph) -> Graph:
    return apply(graph, _divide, _multiply)


def _divide(editor: Editor, node: Node) -> bool:  # cases 1 to 4, written as quotients
    if node.op != "divide" or any(editor[name].is_const for name in node.inputs):
        return False
    top, bottom = node.inputs
    return _quotient(editor, node, top, bottom) or _shifted(editor, node, top, bottom) or _cosine(editor, node)


def _quotient(editor: Editor, node: Node, top: str, bottom: str) -> bool:  # cases 1 and 2
    power = power_of(editor, bottom)
    if power is None or power.root not in (0.5, 1.0):
        return False
    if power.root == 0.5:
        return _replace(editor, node, top, power)
    square = editor.producer(top)
    if square is None or not is_square(square) or not _alike(editor, square.inputs[0], power):
        return False
    z = _unit(editor, node, power._replace(root=0.5))
    if z is None:
        return False
    _put(editor, node, "mul", (z, z))
    return True


def _multiply(editor: Editor, node: Node) -> bool:  # case 1, written as a product
    if node.op != "mul":
        return False
    for top, inverse in (node.inputs, node.inputs[::-1]):
        for name, scale in ((inverse, ""), *_scaled(editor, inverse)):
            power = None if editor[name].is_const else power_of(editor, name)
            if power is not None and power.root == -0.5 and _replace(editor, node, top, power, scale):
                return True
    return False


def _scaled(editor: Editor, name: str) -> list[tuple[str, str]]:
    """(computed, constant) where the tensor is their product."""
    node = editor.producer(name)
    if node is None or node.op != "mul" or editor[name].clamp:
        return []
    return [(x, c) for x, c in (node.inputs, node.inputs[::-1]) if editor[c].is_const and not editor[x].is_const]


def _shifted(editor: Editor, node: Node, top: str, bottom: str) -> bool:  # case 3
    below = editor.producer(bottom)
    operands = None if below is None or below.op != "add" else scalar(editor, below)
    power = power_of(editor, operands[0]) if operands else None
    if operands is None or power is None or power.root != 0.5 or power.b > FLOOR**2 or operands[1] <= 0:
        return False
    factor = _factor(editor, top, power)
    power = power._replace(b=max(power.b, NO_NORM))
    z = None if factor is None or power.u not in editor.values else _unit(editor, node, power)
    if z is None:
        return False
    mean = _pooled(editor, node, editor.emit("mul", (power.u, z), at=node), power.axes)
    # Of one shape, the two have one reach and one grid: a rounding of the sum alone would be much of a small mean.
    epsilon = editor.const(f"{node.name}.epsilon", np.full((1,) * 4, operands[1] / power.a))
    total = editor.emit("add", (mean, epsilon), at=node)
    share = editor.emit("divide", (mean, total), at=node, clamp=(0.0, 1.0))
    share = _kept(editor, node, share, editor[power.u].shape, power.axes)
    scaled = editor.emit("mul", (z, factor), at=node) if factor else z
    _put(editor, node, "mul", (scaled, share))
    return True


def _cosine(editor: Editor, node: Node) -> bool:  # case 4
    product = _product_of_norms(editor, node.inputs[1])
    walked = walk(editor, node.inputs[0])
    if product is None or walked is None or any(n.op in NOT_LINEAR for n in walked[1]):
        return False
    source, nodes = walked
    above = editor.producer(source)
    links = [source, *(n.outputs[0] for n in nodes[:-1])]
    if above is None or above.op != "mul" or not nodes or any(editor.only_user(name) is None for name in links):
        return False
    shape = editor[node.outputs[0]].shape
    for first, second in (product, product[::-1]):
        if (first.u, second.u) != above.inputs or first.axes != second.axes:
            continue
        if not all(p.shape == shape and p.root == 0.5 for p in (first, second)):
            continue
        reduction = read(editor, source, nodes, 1.0)
        if reduction is None or reduction[0] != first.axes:
            continue
        units = [_unit(editor, above, p) for p in (first, second)]
        if units[0] is None or units[1] is None:
            return False
        editor.set(replace(above, inputs=(units[0], units[1])))
        last = editor.now(nodes[-1])
        out = editor[node.outputs[0]]
        editor.remove(node)
        editor.put(replace(out, clamp=out.clamp))
        editor.set(replace(last, outputs=(out.name,)))
        return True
    return False


def _product_of_norms(editor: Editor, name: str) -> tuple[Power, Power] | None:
    """The two of |p| * |q| or sqrt(p^2 * q^2), whatever is next to nothing left out."""
    rooted = False
    while (node := editor.producer(name)) is not None:
        if node.op == "requantize" and is_floor(editor, node) and not rooted:
            name = node.inputs[0]
        elif node.op == "lookup" and exponent(editor, node) == 0.5 and not rooted:
            name, rooted = node.inputs[0], True
        else:
            break
    if node is None or node.op != "mul" or editor[name].clamp or any(editor[n].is_const for n in node.inputs):
        return None
    first, second = (power_of(editor, n) for n in node.inputs)
    if first is None or second is None or first.root != second.root or first.root != (1.0 if rooted else 0.5):
        return None
    return first._replace(root=0.5), second._replace(root=0.5)


def _replace(editor: Editor, node: Node, top: str, power: Power, scale: str = "") -> bool:
    """Let the node's output be top / sqrt(V), times a constant."""
    factor = _factor(editor, top, power)
    if scale and not fits(editor[scale].shape, editor[node.outputs[0]].shape):
        return False
    z = None if factor is None else _unit(editor, node, power)
    if z is None:
        return False
    if scale and factor:
        z = editor.emit("mul", (z, scale), at=node)
    factor = factor or scale
    if factor:
        _put(editor, node, "mul", (z, factor))
    else:
        _put(editor, node, "requantize", (z,))
    return True


def _put(editor: Editor, node: Node, op: str, inputs: Sequence[str]) -> None:
    out = editor[node.outputs[0]]
    editor.remove(node)
    editor.emit(op, inputs, at=node, name=node.name, out=out.name, clamp=out.clamp)


def _factor(editor: Editor, name: str, power: Power) -> str | None:
    """The constant by which the tensor is u, "" for 1; None where it is not a multiple of u."""
    if _alike(editor, name, power):
        return ""
    node = editor.producer(name)
    if node is not None and node.op == "mul" and editor[name].clamp is None:
        for x, constant in (node.inputs, node.inputs[::-1]):
            if editor[constant].is_const and editor[x].shape == editor[name].shape and _alike(editor, x, power):
                return constant
    return None


def _alike(editor: Editor, name: str, power: Power) -> bool:
    """Checks that the tensor is the u of this power, or computed alike, and the power broadcasts against it."""
    shape = editor[power.u].shape
    if editor[name].is_const or not fits(power.shape, shape):
        return False
    if name == power.u:
        return True
    centred = _centred(editor, power.u)
    return centred is not None and centred == _centred(editor, name)


def _unit(editor: Editor, at: Node, power: Power) -> str | None:
    """u / sqrt(V); None where no op has room for so many squares."""
    count = math.prod(editor[power.u].shape[axis] for axis in power.axes)
    centred = _centred(editor, power.u)
    if centred is not None and centred[1] == power.axes:
        rank = len(editor[power.u].shape)
        if count > COUNT_MAX:
            return None
        scale = editor.const(f"{at.name}.scale", np.full((1,) * rank, power.a**-0.5))
        bias = editor.const(f"{at.name}.bias", np.zeros((1,) * rank))
        params = NormalizeParams(power.axes, eps=max(power.b / power.a, NO_EPSILON))
        return editor.emit("normalize", (centred[0], scale, bias), params, at=at)
    size = 2 * count - 1  # from every channel to every other
    if size > SIZE_MAX:
        return None
    x, shape, rank = power.u, editor[power.u].shape, len(editor[power.u].shape)
    perm = (*(axis for axis in range(rank) if axis not in power.axes), *power.axes)
    moved = tuple(shape[axis] for axis in perm)
    last = (*moved[: rank - len(power.axes)], count)
    if perm != tuple(range(rank)):
        x = editor.emit("transpose", (x,), TransposeParams(perm), at=at)
    if last != moved:
        x = editor.emit("reshape", (x,), ReshapeParams(last), at=at)
    y = editor.emit("lrn", (x,), LrnParams(size, alpha=power.a * size / count, beta=0.5, bias=power.b), at=at)
    if last != moved:
        y = editor.emit("reshape", (y,), ReshapeParams(moved), at=at)
    if perm != tuple(range(rank)):
        y = editor.emit("transpose", (y,), TransposeParams(tuple(int(i) for i in np.argsort(perm))), at=at)
    return y


def _kept(editor: Editor, at: Node, pooled: str, shape: Sequence[int], axes: tuple[int, ...]) -> str:
    """Reshapes the result of `_pooled` on a tensor of this shape to have these axes, of size 1."""
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return editor.emit("reshape", (pooled,), ReshapeParams(reduced), at=at)


def _pooled(editor: Editor, at: Node, x: str, axes: tuple[int, ...]) -> str:
    """The mean along these axes: [1, rows, 1, 1]."""
    shape, rank = editor[x].shape, len(editor[x].shape)
    perm = (*(axis for axis in range(rank) if axis not in axes), *axes)
    rows, count = math.prod(shape[axis] for axis in perm[: rank - len(axes)]), math.prod(shape[axis] for axis in axes)
    if perm != tuple(range(rank)):
        x = editor.emit("transpose", (x,), TransposeParams(perm), at=at)
    x = editor.emit("reshape", (x,), ReshapeParams((1, rows, count, 1)), at=at)
    return editor.emit("average_pool", (x,), AveragePoolParams(1, count), at=at)


def _centred(editor: Editor, name: str) -> tuple[str, tuple[int, ...]] | None:
    """x and the axes where the tensor is x - mean(x)."""
    node = editor.producer(name)
    if node is None or node.op != "sub" or editor[name].clamp or any(editor[n].is_const for n in node.inputs):
        return None
    x, mean = node.inputs
    walked = walk(editor, mean, x)
    if walked is None or walked[0] != x or editor[x].shape != editor[name].shape:
        return None
    reduction = read(editor, x, walked[1], 1.0)
    if reduction is None or not fits(editor[mean].shape, editor[x].shape):
        return None
    axes, a, b = reduction
    return (x, axes) if abs(a - 1) < 1e-6 and b == 0 else None
