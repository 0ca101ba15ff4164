"""Factors of a row that are functions of one number multiply each other before they multiply the row.

Capsules squash x as x * n / (1 + n) / sqrt(n + e), n being the sum of squares of a row. From left to right that has a
product of three x in it, whose small values are lost beside the large ones.

1. x times and over factors of one shape, which has fewer elements than x, all of them functions of one tensor n, is
   x * f(n), as long as |f| is at most 1: no result is larger than x then. `fuse_table` makes a table of f.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.function import FUNCTIONS, evaluate
from nmpconv.ops.traits import ANY, Bounds
from nmpconv.passes.bounds import known
from nmpconv.passes.float.pointwise_subgraphs import cones, steps_of
from nmpconv.passes.rewrite import Editor, apply

_FAR = 2.0 ** np.arange(-40, 60, 0.125)
PROBES = np.concatenate([-_FAR[::-1], [0.0], _FAR])
ROUNDING = 1e-6


class Product(NamedTuple):
    """A node that multiplies or divides a row by a factor."""

    node: Node
    row: str
    factor: str


def run(graph: Graph) -> Graph:
    return apply(graph, partial(_join, known(graph, graph.given)))


def _join(limits: Mapping[str, Bounds], editor: Editor, node: Node) -> bool:
    products = _chain(editor, node)
    while len(products) > 1 and not _is_within_1(limits, editor, products):
        products = products[:-1]
    factors = [p.factor for p in reversed(products) if p.node.op == "mul"]
    if len(products) < 2 or not factors:
        return False
    first, out = products[-1].node, editor[node.outputs[0]]
    divisors = [p.factor for p in reversed(products) if p.node.op == "divide"]
    factor = reduce(lambda a, b: editor.emit("mul", (a, b), at=first), factors)
    factor = reduce(lambda a, b: editor.emit("divide", (a, b), at=first), divisors, factor)
    for product in products:
        editor.remove(product.node)
    editor.emit("mul", (products[-1].row, factor), at=node, name=node.name, out=out.name, clamp=out.clamp)
    return True


def _chain(editor: Editor, node: Node) -> list[Product]:
    """Finds the products that end with the node, the last one first, by factors of one shape."""
    products: list[Product] = []
    maker: Node | None = node
    while maker is not None and (product := _product(editor, maker)) is not None:
        if products and editor[product.factor].shape != editor[products[0].factor].shape:
            break
        products.append(product)
        is_only_here = editor.only_user(product.row) is not None and editor[product.row].clamp is None
        maker = editor.producer(product.row) if is_only_here and not editor.keeps_grid(product.row) else None
    return products


def _product(editor: Editor, node: Node) -> Product | None:
    if node.op not in ("mul", "divide") or editor.regrids(node):
        return None
    shape = editor[node.outputs[0]].shape
    for row, factor in (node.inputs, node.inputs[::-1])[: 1 + (node.op == "mul")]:
        constant = editor[row].is_const or editor[factor].is_const
        if not constant and editor[row].shape == shape and editor[factor].size < editor[row].size:
            return Product(node, row, factor)
    return None


def _is_within_1(limits: Mapping[str, Bounds], editor: Editor, products: Sequence[Product]) -> bool:
    """Checks that the factors are a function f of one tensor, and |f| <= 1."""
    functions = [_functions(editor, limits, product.factor) for product in products]
    for source in functions[0]:
        if all(source in others for others in functions):
            parts = [values[source] for values in functions]
            parts = [_inverse(part) if p.node.op == "divide" else part for p, part in zip(products, parts, strict=True)]
            return bool(np.max(np.abs(np.prod(parts, axis=0))) <= 1 + ROUNDING)
    return False


def _inverse(values: np.ndarray) -> np.ndarray:
    return FUNCTIONS["reciprocal"](values, 0.0, 0.0)


def _functions(editor: Editor, limits: Mapping[str, Bounds], name: str) -> dict[str, np.ndarray]:
    """Values of the tensor, by each tensor that it is a function of, at the probes that this may be."""
    node = editor.producer(name)
    subgraphs = [] if node is None else cones(editor, node, 1)
    values = {cone.x: evaluate(steps_of(editor, cone), _probes(limits, cone.x))[-1] for cone in subgraphs}
    return {name: _probes(limits, name), **values}


def _probes(limits: Mapping[str, Bounds], name: str) -> np.ndarray:
    return np.clip(PROBES, *limits.get(name, ANY))
