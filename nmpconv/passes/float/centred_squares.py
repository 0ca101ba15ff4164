"""Sums of a x^2 + b x over a row, as sums of squared distances from the vertices, and a constant.

Exporters of Gaussian mixtures and of distances from centres expand a (x - m)^2. Far from 0 the expanded terms are large
and their sum is small, so it has the errors of their grids. The sum of (r (x - m))^2, r^2 = |a| and m = -b / 2a, has
terms of the size of the result.

1. A sum or difference of linear functions of x and of x^2, all of one row, however they are reshaped, scaled and
   shifted by constants. All numbers a have the same sign, and each result has several.
2. Not of polynomials whose vertices lie anywhere: the constant must be half to one and a half times what the squares
   are at 0, so that most of it cancels.
3. Not where the distances would have more than LARGEST elements: the expanded form is two products.
"""

from __future__ import annotations

import math

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.passes.float.squares import is_square
from nmpconv.passes.rewrite import Editor, apply

LARGEST = 2**14
NUMBERS = 2**20  # of a matrix of factors
DEPTH = 16  # ops between x and the sum
_LINEAR = ("reshape", "transpose", "fully_connected", "add", "sub", "mul")


def run(graph: Graph) -> Graph:
    return apply(graph, _centred)


def _centred(editor: Editor, node: Node) -> bool:
    out = editor[node.outputs[0]]
    x = _squared(editor, node, DEPTH) if node.op in ("add", "sub") else ""
    if not x or editor[x].size * out.size > LARGEST or editor[x].size ** 2 > NUMBERS:
        return False
    terms = _polynomials(editor, out.name, x, DEPTH)
    if terms is None:
        return False
    b, a, c = np.split(terms.reshape(out.size, -1), (editor[x].size, 2 * editor[x].size), axis=1)
    if not b.any() or (b[a == 0] != 0).any() or (a != 0).sum(axis=1).min() < 2 or len(set(np.sign(a[a != 0]))) > 1:
        return False
    vertices = b / np.where(a == 0, 1.0, -2 * a) + 0.0
    at_0 = (a * vertices**2).sum(axis=1)
    if (np.abs(c[:, 0] - at_0) > np.abs(at_0) / 2).any():
        return False
    row = editor.reshape(x, (1, 1, editor[x].size), at=node)
    distances = editor.emit("sub", (row, editor.const(f"{node.name}.vertices", vertices[None])), at=node)
    scale = editor.const(f"{node.name}.scale", np.sqrt(np.abs(a))[None])
    scaled = editor.emit("mul", (distances, scale), at=node)
    squares = editor.emit("mul", (scaled, scaled), at=node)
    sign = editor.const(f"{node.name}.sign", np.full((1, a.shape[1]), np.sign(a.sum())))
    sums = editor.emit("fully_connected", (squares, sign, editor.const(f"{node.name}.bias", np.zeros(1))), at=node)
    rest = editor.const(f"{node.name}.rest", (c[:, 0] - at_0).reshape(out.shape))
    sums = editor.reshape(sums, out.shape, at=node)
    editor.remove(node)
    editor.emit("add", (sums, rest), at=node, name=node.name, out=out.name, clamp=out.clamp)
    return True


def _squared(editor: Editor, node: Node, depth: int) -> str:
    """The tensor whose square an operand of the sum is made of; none where there is no one or where it has rows."""
    computed = [name for name in node.inputs if not editor[name].is_const]
    if len(computed) == 1:
        above = editor.producer(computed[0])
        if above is None or above.op not in ("add", "sub", "reshape") or not depth:
            return ""
        return _squared(editor, above, depth - 1)
    ends = [_end(editor, name, DEPTH) for name in node.inputs]
    for end, other in (ends, ends[::-1]):
        square = editor.producer(end)
        if square is not None and is_square(square) and editor[end].clamp is None and end != other:
            x = square.inputs[0]
            return x if editor[x].size == math.prod(editor[x].shape[-1:]) else ""
    return ""


def _end(editor: Editor, name: str, depth: int) -> str:
    """The tensor of which this one is a linear function, as far up as that is a square."""
    node = editor.producer(name)
    if node is None or not depth or is_square(node) or node.op not in _LINEAR:
        return name
    operands = [n for n in node.inputs[: 1 if node.op == "fully_connected" else 2] if not editor[n].is_const]
    return _end(editor, operands[0], depth - 1) if len(operands) == 1 else name


def _polynomials(editor: Editor, name: str, x: str, depth: int, root: bool = True) -> np.ndarray | None:
    """Factors of x and of x^2, and what is added, by element: [*shape, 2 * size of x + 1]; None: it is no such."""
    value, size = editor[name], editor[x].size
    if value.is_const:
        return np.concatenate([np.zeros((*value.shape, 2 * size)), editor.data(name)[..., None]], axis=-1)
    if name == x:
        return np.eye(size, 2 * size + 1).reshape(*value.shape, -1)
    node = editor.producer(name)
    if not root and (value.clamp or editor.keeps_grid(name)):
        return None
    if node is None or not depth or node.op not in _LINEAR or value.size * size > NUMBERS:
        return None
    if node.op == "mul" and node.inputs == (x, x):
        return np.eye(size, 2 * size + 1, size).reshape(*value.shape, -1)
    first = _polynomials(editor, node.inputs[0], x, depth - 1, root=False)
    if first is None:
        return None
    if node.op == "reshape":
        return first.reshape(*value.shape, -1)
    if node.op == "transpose":
        return first.transpose(*node.params.perm, len(value.shape))
    if node.op == "fully_connected":
        product = np.einsum("...fq,kf->...kq", first, editor.data(node.inputs[1]), optimize=True)
        product[..., -1] += editor.data(node.inputs[2])
        return product
    second = _polynomials(editor, node.inputs[1], x, depth - 1, root=False)
    if second is None:
        return None
    if node.op == "mul":
        constant = [editor[n].is_const for n in node.inputs]
        if not any(constant):
            return None
        return first * second[..., -1:] if constant[1] else first[..., -1:] * second
    return first + second if node.op == "add" else first - second
