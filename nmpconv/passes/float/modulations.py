"""A layer that makes factors and addends of one modulation, as FiLM, AdaIN and adaLN have, becomes layers of its parts.

x * a + b has the factor of b. Where a and b are slices of one layer's result, they have one factor, so none is left
for x, and what is added to x has that of a, too.

1. A fully connected layer of one row of which only slices are read by anything but moves, where one of them, or its sum
   with a constant, is the factor of a product, and another one is added to this product: each slice is a layer of its
   own. No result is computed twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.passes.rewrite import MOVES, Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, partial(_split, graph.given.keys()))


def _split(on_grids: Set[str], editor: Editor, node: Node) -> bool:  # case 1
    out = node.outputs[0]
    if not on_grids.isdisjoint((out, *node.inputs[1:])):
        return False  # new names would have no grids
    if node.op != "fully_connected" or out in editor.outputs or editor[out].size != editor[out].shape[-1]:
        return False
    parts = dict(_parts(editor, out, np.arange(editor[out].size).reshape(editor[out].shape)))
    rows = [row for indices in parts.values() for row in indices.flat]
    if len(parts) < 2 or len(set(rows)) < len(rows) or not _modulates(editor, parts.keys()):
        return False
    weight, bias = (editor.data(name) for name in node.inputs[1:])
    for name, indices in parts.items():
        taken = indices.reshape(-1)
        constants = [editor.const(old, data[taken]) for old, data in zip(node.inputs[1:], (weight, bias), strict=True)]
        maker = editor.producer(name)
        assert maker is not None
        editor.remove(maker)
        y = editor.emit("fully_connected", (node.inputs[0], *constants), node.params, at=node, clamp=editor[out].clamp)
        editor.reshape(y, indices.shape, at=maker, name=maker.name, out=name)
    return True


def _parts(editor: Editor, name: str, indices: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yields tensors that moves and slices alone make of a tensor and something else reads, and the places of their
    elements in it."""
    readers = editor.users(name)
    if name in editor.outputs or not readers or any(reader.op not in (*MOVES, "slice") for reader in readers):
        yield name, indices
        return
    for reader in readers:
        if reader.op == "slice":
            p = reader.params
            places = (a + s * np.arange(n) for a, s, n in zip(p.starts, p.steps, p.sizes, strict=True))
            moved = indices[np.ix_(*places)]
        else:
            turned = indices.transpose(reader.params.perm) if reader.op == "transpose" else indices
            moved = turned.reshape(editor[reader.outputs[0]].shape)
        yield from _parts(editor, reader.outputs[0], moved)


def _modulates(editor: Editor, parts: Collection[str]) -> bool:
    """Checks for a product by one of these tensors, or its sum with a constant, to which another one is added."""
    for name in parts:
        for add in (node for node in _readers(editor, name) if node.op == "add"):
            products = [node for x in add.inputs if (node := _behind_moves(editor, x)) is not None and node.op == "mul"]
            factors = {_source(editor, x, parts) for product in products for x in product.inputs}
            if factors & (set(parts) - {name}):
                return True
    return False


def _readers(editor: Editor, name: str) -> Iterator[Node]:
    """The nodes that read a tensor, or what its data is moved to."""
    for node in editor.users(name):
        if node.op in MOVES:
            yield from _readers(editor, node.outputs[0])
        else:
            yield node


def _behind_moves(editor: Editor, name: str) -> Node | None:
    """The node whose result is moved here."""
    while (node := editor.producer(name)) is not None and node.op in MOVES:
        name = node.inputs[0]
    return node


def _source(editor: Editor, name: str, parts: Collection[str]) -> str:
    """The tensor that a factor is made of by moves and sums with constants, at most one of these parts."""
    while name not in parts and (node := editor.producer(name)) is not None and node.op in (*MOVES, "add"):
        computed = [x for x in node.inputs if editor[x].data is None]
        if len(computed) != 1:
            break
        name = computed[0]
    return name
