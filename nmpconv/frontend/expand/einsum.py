"""Einsum: sums of products over named axes, as transposes and one matrix product for each two operands."""

from __future__ import annotations

from string import ascii_letters

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode


def einsum(node: OnnxNode, body: Body) -> None:
    """From left to right: what neither the result nor a later operand names is summed up as soon as it can be."""
    ranks = [len(body.shape(name)) for name in node.inputs]
    terms, result = _parsed(node.text("equation", ""), ranks)
    operands = [_diagonal(body, name, term) for name, term in zip(node.inputs, terms, strict=True)]
    x, letters = operands[0]
    for i, other in enumerate(operands[1:], start=1):
        later = result + "".join(terms[i + 1 :])
        x, letters = _product(body, (x, letters), other, later)
    x, letters = _summed(body, x, letters, result)
    if letters == result:
        return body.rename(x)
    body("Transpose", x, perm=[letters.index(letter) for letter in result], output=node.outputs[0])
    return None


def _parsed(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of the operands' axes and of the result's; an ellipsis stands for letters that are not used."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Invalid(f"{len(terms)} terms in {equation!r} for {len(ranks)} inputs")
    counts = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    free = "".join(letter for letter in ascii_letters if letter not in equation)[: max(counts)]
    terms = [
        term.replace("...", free[len(free) - count :] if count else "")
        for term, count in zip(terms, counts, strict=True)
    ]
    if not arrow:
        once = sorted(letter for letter in set(left) - set(".,") if left.count(letter) == 1)
        result = "..." + "".join(once)
    result = result.replace("...", free)
    if any(len(term) != rank for term, rank in zip(terms, ranks, strict=True)) or not set(result) <= set(
        "".join(terms)
    ):
        raise Invalid(f"equation {equation!r} for inputs of {ranks} axes")
    if len(set(result)) < len(result):
        raise Unsupported(f"an axis that comes twice in the result of {equation!r}", hint="each axis once")
    return terms, result


def _diagonal(body: Body, x: str, letters: str) -> tuple[str, str]:
    """Takes the elements with the same index on both, where an axis comes twice in a term."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first, second = letters.index(letter), letters.rindex(letter)
            rest = [axis for axis in range(len(letters)) if axis not in (first, second)]
            shape = body.shape(x)
            size = shape[first]
            if shape[second] != size:
                raise Invalid(f"'{letter}' has the sizes {size} and {shape[second]} in one term", hint="one size")
            moved = body("Transpose", x, perm=[*rest, first, second])
            flat = body("Reshape", moved, np.array([*(shape[axis] for axis in rest), size * size]))
            x = body("Gather", flat, np.arange(size) * (size + 1), axis=len(rest))
            letters = "".join(letters[axis] for axis in rest) + letter
    return x, letters


def _summed(body: Body, x: str, letters: str, needed: str) -> tuple[str, str]:
    """Without the axes that nothing needs any more."""
    gone = [axis for axis, letter in enumerate(letters) if letter not in needed]
    if not gone:
        return x, letters
    return body("ReduceSum", x, np.array(gone), keepdims=0), "".join(c for c in letters if c in needed)


def _product(body: Body, a: tuple[str, str], b: tuple[str, str], later: str) -> tuple[str, str]:
    """(tensor, letters) of the product of two, summed over what only they have."""
    a, b = _broadcast(body, a, b), _broadcast(body, b, a)
    (x, left), (y, right) = _summed(body, *a, later + b[1]), _summed(body, *b, later + a[1])
    shared = [letter for letter in left if letter in right]
    batch = "".join(letter for letter in shared if letter in later)
    summed = "".join(letter for letter in shared if letter not in later)
    rows = "".join(letter for letter in left if letter not in right)
    columns = "".join(letter for letter in right if letter not in left)
    if not summed:
        return _outer(body, (x, left), (y, right), batch + rows + columns)
    sizes = dict(zip(left + right, body.shape(x) + body.shape(y), strict=True))
    x = _arranged(body, x, left, (*batch, *(rows if not batch else [rows]), summed), sizes)
    y = _arranged(body, y, right, (*batch, summed, columns), sizes)
    product = body("MatMul", x, y)
    letters = batch + rows + columns
    return body("Reshape", product, np.array([sizes[letter] for letter in letters], np.int64)), letters


def _broadcast(body: Body, a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
    """a without axes of size 1 that are longer in b: each of b's elements meets the one that a has."""
    (x, left), (y, right) = a, b
    sizes, others = body.shape(x), dict(zip(right, body.shape(y), strict=True))
    gone = [i for i, letter in enumerate(left) if sizes[i] == 1 and others.get(letter, 1) != 1]
    if not gone:
        return a
    return body("Squeeze", x, np.array(gone)), "".join(letter for i, letter in enumerate(left) if i not in gone)


def _outer(body: Body, a: tuple[str, str], b: tuple[str, str], letters: str) -> tuple[str, str]:
    """Nothing is summed: a product of tensors that broadcast."""
    wide = []
    for x, own in (a, b):
        order = [letter for letter in letters if letter in own]
        if order != list(own):
            x = body("Transpose", x, perm=[own.index(letter) for letter in order])
        missing = [axis for axis, letter in enumerate(letters) if letter not in own]
        wide.append(body("Unsqueeze", x, np.array(missing)) if missing else x)
    return body("Mul", *wide), letters


def _arranged(body: Body, x: str, letters: str, groups: tuple[str, ...], sizes: dict[str, int]) -> str:
    """x with its axes in the order of the groups, and each group as one axis."""
    order = "".join(groups)
    if order != letters:
        x = body("Transpose", x, perm=[letters.index(letter) for letter in order])
    shape = [int(np.prod([sizes[letter] for letter in group], dtype=np.int64)) for group in groups]
    return x if tuple(shape) == body.shape(x) else body("Reshape", x, np.array(shape))


ALWAYS = {"Einsum": einsum}
