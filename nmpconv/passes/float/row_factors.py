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
from nmpconv.ops.common.function import FUNCTIONS, evaluate
from nmpconv.ops.common.traits import ANY, Bounds
from nmpconv.passes.bounds import known
from nmpconv.passes.float.fuse_pointwise import PROBES
from nmpconv.passes.float.pointwise_subgraphs import DEPTH, cones, steps_of
from nmpconv.passes.rewrite import Editor, apply

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
    functions = [_functions(editor, limits, product.factor) for product in products] if len(products) > 1 else []
    for count in range(len(products), 1, -1):
        for first in range(len(products) - count + 1):
            part = slice(first, first + count)
            if _is_within_1(products[part], functions[part]):
                _write(editor, products[part])
                return True
    return False


def _write(editor: Editor, products: Sequence[Product]) -> None:
    last, first = products[0].node, products[-1].node
    factors, divisors = ([p.factor for p in reversed(products) if p.node.op == op] for op in ("mul", "divide"))
    factor = reduce(lambda a, b: editor.emit("mul", (a, b), at=first), factors)
    factor = reduce(lambda a, b: editor.emit("divide", (a, b), at=first), divisors, factor)
    out = editor[last.outputs[0]]
    for product in products:
        editor.remove(product.node)
    editor.emit("mul", (products[-1].row, factor), at=last, name=last.name, out=out.name, clamp=out.clamp)


def _chain(editor: Editor, node: Node) -> list[Product]:
    """Finds the products by factors of one shape of which the node is the last, the last one first."""
    last = _product(editor, node)
    if last is None or _goes_on(editor, last):
        return []
    products, maker = [last], _maker(editor, last)
    while maker is not None and editor[maker.factor].shape == editor[last.factor].shape and len(products) < DEPTH:
        products.append(maker)
        maker = _maker(editor, maker)
    return products


def _goes_on(editor: Editor, product: Product) -> bool:
    """Checks for a further product of the chain."""
    user = editor.only_user(product.node.outputs[0])
    after = None if user is None else _product(editor, user)
    if after is None or editor[after.factor].shape != editor[product.factor].shape:
        return False
    return (above := _maker(editor, after)) is not None and above.node is product.node


def _maker(editor: Editor, product: Product) -> Product | None:
    """Returns the product that is the row of this one, and of nothing else."""
    node = editor.producer(product.row)
    bare = editor[product.row].clamp is None and not editor.keeps_grid(product.row)
    return _product(editor, node) if node is not None and bare and editor.only_user(product.row) is not None else None


def _product(editor: Editor, node: Node) -> Product | None:
    if node.op != "mul" and (node.op != "divide" or node.params.down):
        return None
    shape = editor[node.outputs[0]].shape
    for row, factor in (node.inputs, node.inputs[::-1])[: 1 + (node.op == "mul")]:
        constant = editor[row].is_const or editor[factor].is_const
        if not constant and editor[row].shape == shape and editor[factor].size < editor[row].size:
            return Product(node, row, factor)
    return None


def _is_within_1(products: Sequence[Product], functions: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """Checks that the factors are a function f of one tensor, that |f| <= 1, and that one of them multiplies.

    functions: of each factor, as `_functions`.
    """
    common = [source for source in functions[0] if all(source in others for others in functions)]
    if not common or all(product.node.op == "divide" for product in products):
        return False
    values = [of[common[0]] for of in functions]
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [
            FUNCTIONS["reciprocal"](part, 0.0, 0.0) if product.node.op == "divide" else part
            for product, part in zip(products, values, strict=True)
        ]
        return bool(np.max(np.abs(np.prod(parts, axis=0))) <= 1 + ROUNDING)


def _functions(editor: Editor, limits: Mapping[str, Bounds], name: str) -> dict[str, np.ndarray]:
    """Values of the tensor, by each tensor that it is a function of, at the probes that this may be."""
    node = editor.producer(name)
    subgraphs = [] if node is None else cones(editor, node, 1)
    values = {cone.x: evaluate(steps_of(editor, cone), _probes(limits, cone.x))[-1] for cone in subgraphs}
    return {name: _probes(limits, name), **values}


def _probes(limits: Mapping[str, Bounds], name: str) -> np.ndarray:
    return np.clip(PROBES, *limits.get(name, ANY))
