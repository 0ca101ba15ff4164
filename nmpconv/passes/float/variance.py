"""Variances that are computed as a mean of squares less the square of the mean, as means of squared deviations.

E[x^2] - E[x]^2 is a small difference of large numbers where the mean is not near 0: the grids of both terms are as
coarse as the terms, and the difference has the error of both. E[(x - m)^2] with m = E[x] is the same number, of terms
that are no larger than they need to be; `fuse_norm` then knows normalizations by it.

1. A - B, where A = a * E[x^2] + b, B = c * E[x]^2 along the same axes, and a = c: what makes A of x^2 makes the
   difference of (x - m)^2.
2. sum(w * x^2) - sum(w * x)^2, where w is a softmax along that axis, so that its elements add up to 1, likewise:
   sum(w * (x - m)^2).
3. x * w + (b - m * w), as TensorFlow and JAX write what follows: (x - m) * w + b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.passes.float.squares import is_square, read, scalar, walk
from nmpconv.passes.rewrite import MOVES, Editor, apply

TOLERANCE = 1e-6  # of a / c: 1 / n is rounded to float32
LINEAR = ("reshape", "transpose", "gather", "average_pool", "fully_connected", "add", "sub", "mul")


class _Square(NamedTuple):
    """factor * tensor^2, element by element."""

    tensor: str
    factor: float


def run(graph: Graph) -> Graph:
    return apply(graph, _centre, _shift)


def _centre(editor: Editor, node: Node) -> bool:
    if node.op != "sub" or any(editor[name].is_const for name in node.inputs):
        return False
    first, second = node.inputs
    out, above = editor[node.outputs[0]], walk(editor, first)
    square = _square(editor, second)
    if above is None or square is None or editor[first].shape != out.shape or not _linear(above[1]):
        return False
    source, nodes = above
    maker = editor.producer(source)
    if maker is None or maker.op != "mul" or editor[source].clamp:
        return False
    reduction = read(editor, source, nodes, 1.0)
    if reduction is None or reduction[1] <= 0:
        return False
    axes, a, _ = reduction
    if is_square(maker):  # case 1
        x, weights = maker.inputs[0], ""
        mean = _mean(editor, square.tensor, x, axes)
    else:  # case 2
        weighted = _weighted_square(editor, maker)
        if weighted is None:
            return False
        x, weights = weighted
        mean = _weighted_mean(editor, square.tensor, x, weights, axes)
        a /= math.prod(editor[source].shape[axis] for axis in axes)  # of a sum
    if mean is None or abs(a / (square.factor * mean[1] ** 2) - 1) > TOLERANCE:
        return False
    m = _kept(editor, node, square.tensor, editor[x].shape, axes, mean[1])
    d = editor.emit("sub", (x, m), at=node)
    y = editor.emit("mul", (d, d), at=node)
    if weights:
        y = editor.emit("mul", (weights, y), at=node)
    editor.remove(node)
    for i, link in enumerate(nodes):
        inputs = [y if name == source else name for name in link.inputs]
        source = link.outputs[0]
        last = i == len(nodes) - 1
        name, result, clamp = (node.name, out.name, out.clamp) if last else ("", "", None)
        y = editor.emit(link.op, inputs, link.params, at=node, name=name, out=result, clamp=clamp)
    return True


def _shift(editor: Editor, node: Node) -> bool:  # case 3
    if node.op != "add":
        return False
    for product, rest in _turned(node):
        above, difference = editor.producer(product), editor.producer(rest)
        if above is None or difference is None or above.op != "mul" or difference.op != "sub":
            continue
        below = editor.producer(difference.inputs[1])
        links = (product, rest, difference.inputs[1])
        if below is None or below.op != "mul" or any(editor[n].clamp or not editor.only_user(n) for n in links):
            continue
        for (x, w), (m, v) in ((p, q) for p in _turned(above) for q in _turned(below)):
            shape, mean_shape = editor[x].shape, editor[m].shape
            axes = tuple(axis for axis, size in enumerate(shape) if mean_shape[axis : axis + 1] == (1,) and size > 1)
            if w != v or not axes or len(mean_shape) != len(shape) or editor[x].is_const:
                continue
            scaled_mean = _mean(editor, m, x, axes)
            if scaled_mean is None or abs(scaled_mean[1] - 1) > TOLERANCE:
                continue
            out = editor[node.outputs[0]]
            scaled = editor.emit("mul", (editor.emit("sub", (x, m), at=node), w), at=node)
            editor.remove(node)
            inputs = (scaled, difference.inputs[0])
            editor.emit("add", inputs, at=node, name=node.name, out=out.name, clamp=out.clamp)
            return True
    return False


def _turned(node: Node) -> tuple[tuple[str, ...], ...]:
    """The two inputs in either order."""
    return node.inputs, node.inputs[::-1]


def _linear(nodes: Sequence[Node]) -> bool:
    return all(node.op in LINEAR for node in nodes)


def _square(editor: Editor, name: str) -> _Square | None:
    """Returns the tensor whose square, times a number, this one is; None: there is no such."""
    walked, factor = walk(editor, name), 1.0
    if walked is not None:
        name, nodes = walked
        for node in nodes:
            number = scalar(editor, node)
            if node.op == "mul" and number is not None:
                factor *= number[1]
            elif node.op not in MOVES:
                return None
    product = editor.producer(name)
    if product is None or product.op != "mul" or editor[name].clamp or any(editor[n].is_const for n in product.inputs):
        return None
    if is_square(product):
        return _Square(product.inputs[0], factor)
    for scaled, other in _turned(product):  # m * (m * c)
        above = editor.producer(scaled)
        number = None if above is None or above.op != "mul" or editor[scaled].clamp else scalar(editor, above)
        if number is not None and number[0] == other:
            return _Square(other, factor * number[1])
    return None


def _mean(editor: Editor, name: str, x: str, axes: tuple[int, ...]) -> tuple[str, float] | None:
    """The tensor and c where it is c * (mean of x along these axes)."""
    walked = walk(editor, name, x)
    if walked is None or walked[0] != x or not _linear(walked[1]):
        return None
    reduction = read(editor, x, walked[1], 1.0)
    return (
        (name, reduction[1])
        if reduction is not None and reduction[0] == axes and reduction[2] == 0 and reduction[1]
        else None
    )


def _weighted_square(editor: Editor, node: Node) -> tuple[str, str] | None:
    """x and w of w * x^2 or x * (w * x); w is a softmax of the shape of x or broadcasts to it."""
    for first, other in _turned(node):
        above = editor.producer(first)
        if above is None or above.op != "mul" or editor[first].clamp:
            continue
        if is_square(above) and _is_softmax(editor, other):
            return above.inputs[0], other
        for x, w in _turned(above):
            if x == other and _is_softmax(editor, w):
                return x, w
    return None


def _is_softmax(editor: Editor, name: str) -> bool:
    node = editor.producer(name)
    return node is not None and node.op == "softmax"


def _weighted_mean(editor: Editor, name: str, x: str, weights: str, axes: tuple[int, ...]) -> tuple[str, float] | None:
    """The tensor and c where it is c * (sum of w * x along the axis of the softmax)."""
    walked = walk(editor, name)
    product = None if walked is None else editor.producer(walked[0])
    if walked is None or product is None or product.op != "mul" or set(product.inputs) != {x, weights}:
        return None
    softmax = editor.producer(weights)
    shape = editor[x].shape
    if softmax is None or editor[weights].clamp or editor[walked[0]].clamp or editor[walked[0]].shape != shape:
        return None
    axis = softmax.params.axis + len(shape) - len(editor[weights].shape)
    if axes != (axis,) or editor[weights].shape[softmax.params.axis] != shape[axis] or not _linear(walked[1]):
        return None
    reduction = read(editor, walked[0], walked[1], 1.0)
    if reduction is None or reduction[0] != axes or reduction[2] != 0 or not reduction[1]:
        return None
    return name, reduction[1] / shape[axis]


def _kept(editor: Editor, at: Node, mean: str, shape: Sequence[int], axes: tuple[int, ...], factor: float) -> str:
    """The mean itself, with size 1 along the axes."""
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    if abs(factor - 1) > TOLERANCE:
        number = editor.const(f"{at.name}.scale", np.full((1,) * len(editor[mean].shape), 1 / factor))
        mean = editor.emit("mul", (mean, number), at=at)
    return mean if editor[mean].shape == reduced else editor.reshape(mean, reduced, at=at)
