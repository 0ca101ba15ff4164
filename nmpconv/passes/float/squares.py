"""Powers of the mean of a tensor's squares, as chains of ops compute them: a power of their mean.

What a chain of ops does to u^2 (which axes, a and b) is read off its values for random squares, since all of it is
linear up to one root.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from nmpconv.ir import Node
from nmpconv.passes.rewrite import Editor

FLOOR = 1e-5  # the largest lower bound of a norm that counts as next to nothing
BELOW = 2.0**-16  # of such a bound of V: the offset that stands for it, which norms above the bound do not see
TOLERANCE = 1e-9
SMALL = 2.0**-40  # squares at which the offset b is read off
DRAWS = 3  # of random squares: a sum with weights is a mean of one of them only
PARTS = 4  # of an axis along which squares are added, that are taken apart
LENGTH = 16  # nodes between u^2 and what is made of it


class Power(NamedTuple):
    """(a * mean of u^2 along the axes + b)^root. shape: of the tensor; it broadcasts against u, or has fewer axes."""

    u: str
    axes: tuple[int, ...]
    a: float
    b: float
    root: float
    shape: tuple[int, ...]


def power_of(editor: Editor, name: str) -> Power | None:
    """Returns the power of the mean of a tensor's squares that the tensor is."""
    walked = walk(editor, name)
    if walked is None:
        return None
    source, nodes = walked
    square = editor.producer(source)
    if square is None or not is_square(square) or editor[source].clamp:
        return None
    root, floor = 1.0, 0.0
    for node in nodes:
        if node.op == "requantize":
            low, high = editor[node.outputs[0]].clamp  # type: ignore[misc]
            if low > 0 if root < 0 else math.isfinite(high):  # the squares have an upper bound there
                return None
            floor = max(floor, (high if root < 0 else max(low, 0.0)) ** (1 / root))
        root *= exponent(editor, node)
    reduction = read(editor, source, nodes, root)
    if reduction is None or reduction[1] <= 0 or reduction[2] < 0:
        return None
    axes, a, b = reduction
    return Power(square.inputs[0], axes, a, max(b, floor * BELOW), root, editor[name].shape)


def walk(editor: Editor, name: str, stop: str = "") -> tuple[str, list[Node]] | None:
    """The tensor from which one chain of these ops leads to ``name``, and the chain downwards."""
    nodes: list[Node] = []
    while name != stop and len(nodes) < LENGTH:
        node = editor.producer(name)
        if node is None or not _passes(editor, node):
            break
        nodes.append(node)
        operands = scalar(editor, node)
        name = operands[0] if operands else node.inputs[-1 if node.op == "divide" else 0]
    return (name, nodes[::-1]) if nodes else None


def _passes(editor: Editor, node: Node) -> bool:
    """Checks that the chain may lead through this node."""
    if node.op == "requantize":
        return is_floor(editor, node) or is_ceiling(editor, node)
    if editor[node.outputs[0]].clamp:
        return False
    if node.op == "average_pool":
        p, (_, height, width, _) = node.params, editor[node.inputs[0]].shape
        plain = not any((p.pad_top, p.pad_left, p.pad_bottom, p.pad_right))
        return plain and (p.kernel_h, p.kernel_w) in ((height, width), (1, width))
    if node.op in ("lookup", "divide"):
        return exponent(editor, node) in (0.5, -0.5, -1.0)
    return node.op in ("reshape", "transpose", "gather", "fully_connected") or scalar(editor, node) is not None


def scalar(editor: Editor, node: Node) -> tuple[str, float] | None:
    """(computed, number) of an op with a number, whose result has the shape of the former."""
    if node.op not in ("add", "sub", "mul"):
        return None
    for x, constant in (node.inputs, node.inputs[::-1]):
        if editor[constant].is_const and editor[constant].size == 1 and not editor[x].is_const:
            if editor[x].shape != editor[node.outputs[0]].shape or (node.op == "sub" and x != node.inputs[0]):
                return None
            return x, float(editor.data(constant).item())
    return None


def exponent(editor: Editor, node: Node) -> float:
    """Exponent of a power of the input: a table, or a number over it. 1 for other ops, 0 for other tables and
    quotients."""
    if node.op == "divide":
        top = editor[node.inputs[0]]
        return (
            -1.0
            if top.is_const and top.size == 1 and editor[node.inputs[1]].shape == editor[node.outputs[0]].shape
            else 0.0
        )
    if node.op != "lookup":
        return 1.0
    p = node.params
    if (p.before, p.after) != (1.0, 1.0):
        return 0.0
    return {"sqrt": 0.5, "reciprocal": -1.0, "power": p.alpha}.get(p.function, 0.0)


def is_square(node: Node) -> bool:
    return node.op == "mul" and node.inputs[0] == node.inputs[1]


def is_floor(editor: Editor, node: Node) -> bool:
    clamp = editor[node.outputs[0]].clamp
    return clamp is not None and 0 <= clamp[0] <= FLOOR and math.isinf(clamp[1])


def is_ceiling(editor: Editor, node: Node) -> bool:
    """Checks for an upper bound that only an inverse of next to nothing reaches."""
    clamp = editor[node.outputs[0]].clamp
    return clamp is not None and clamp[0] <= 0 and clamp[1] >= 1 / FLOOR


def read(
    editor: Editor, source: str, nodes: Sequence[Node], root: float
) -> tuple[tuple[int, ...], float, float] | None:
    """axes, a and b with (a * mean of x along the axes + b)^root for what the chain makes of x; None: it is no such."""
    draws = np.random.default_rng(0).uniform(0.5, 1.5, (DRAWS, *editor[source].shape))
    many: list[np.ndarray] = []  # of the draws: what a doubled one adds
    b = None
    for x in draws:
        once, twice, small, smaller = (
            _evaluate(editor, source, nodes, k * x) ** (1 / root) for k in (1.0, 2.0, SMALL, SMALL / 2)
        )
        slopes, offsets = twice - once, 2 * smaller - small
        b = float(offsets.flat[0]) if b is None else b
        if not np.isfinite(slopes).all() or not np.allclose(offsets, b, rtol=1e-6, atol=TOLERANCE * SMALL):
            return None
        if not np.allclose(once - slopes, b, rtol=1e-6, atol=TOLERANCE * float(np.abs(once).max())):
            return None  # a curve
        many.append(slopes)
    assert b is not None
    for axes in _subsets([axis for axis, size in enumerate(draws.shape[1:]) if size > 1]):
        ratios = [_ratio(slopes, x, axes) for slopes, x in zip(many, draws, strict=True)]
        if not ratios[0].size:
            continue
        first = float(ratios[0][0])
        if all(np.allclose(ratio, first, rtol=TOLERANCE, atol=0) for ratio in ratios):
            # The last digits are those of the machine's arithmetic.
            a = float(f"{first:.9g}")
            return axes, a, float(f"{b:.9g}") if b > TOLERANCE * SMALL * a else 0.0
    return None


def _ratio(y: np.ndarray, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """y over the mean of x along the axes; nothing where the two do not fit."""
    mean = x.mean(axes, keepdims=True)
    if y.size == mean.size:
        return np.asarray(y.ravel() / mean.ravel())
    return np.asarray((y / mean).ravel()) if fits(y.shape, x.shape) else np.empty(0)


def _evaluate(editor: Editor, source: str, nodes: Sequence[Node], x: np.ndarray) -> np.ndarray:
    """The end of the chain where its beginning is x; floors and ceilings left out."""
    for node in nodes:
        shape = editor[node.outputs[0]].shape
        if node.op == "reshape":
            x = x.reshape(shape)
        elif node.op == "transpose":
            x = x.transpose(node.params.perm)
        elif node.op == "gather":
            x = np.take(x, node.params.index, node.params.axis)
        elif node.op == "average_pool":
            x = x.mean((1, 2) if node.params.kernel_h > 1 else 2, keepdims=True)
        elif node.op == "fully_connected":
            x = x @ editor.data(node.inputs[1]).T + editor.data(node.inputs[2])
        elif node.op == "lookup":
            x = x ** exponent(editor, node)
        elif node.op == "divide":
            x = editor.data(node.inputs[0]).item() / x
        elif (operands := scalar(editor, node)) is not None:
            number = operands[1]
            x = x * number if node.op == "mul" else x + number if node.op == "add" else x - number
    return x


def fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Checks that the first broadcasts to the second."""
    try:
        return np.broadcast_shapes(shape, other) == other
    except ValueError:
        return False


def _subsets(axes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(axes, n) for n in range(1, len(axes) + 1))
