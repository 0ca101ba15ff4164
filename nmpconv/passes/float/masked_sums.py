"""Masks of attention move behind the sums that read them, where Softmaxes alone read the result, moved or not.

The importer hides a score by taking the smaller one of it and MASKED (`nmpconv.frontend.expand.masks`). What a bias by
position adds to that would take the range of the mask, too, and the depth of the mask would depend on it.

1. minimum(x, mask) + bias is minimum(x + bias, mask): what is hidden counts for nothing either way.
2. minimum(minimum(x, mask), other) is the minimum of x and of what either hides.
3. On the way to a sum the mask passes axes of length 1 that are put in front.
4. A mask that is computed, moved or not, and subtracted is added: x - m * 1e4 is x + m * -1e4, as
   `passes.quantize.attention_masks` knows it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.softmax import MASKED, OPEN
from nmpconv.passes.rewrite import MOVES, Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, _moved, _added)


def _moved(editor: Editor, node: Node) -> bool:
    mask = _mask(editor, node)
    reader = editor.only_user(node.outputs[0])
    if not mask or reader is None or editor[node.outputs[0]].clamp or reader.inputs.count(node.outputs[0]) > 1:
        return False
    if not is_for_softmax(editor, reader.outputs[0]):
        return False
    (x,) = (name for name in node.inputs if name != mask)
    (out,) = reader.outputs
    if reader.op == "add" and editor[out].clamp is None:  # case 1
        terms = tuple(x if name == node.outputs[0] else name for name in reader.inputs)
        editor.remove(node)
        editor.remove(reader)
        scores = editor.emit("add", terms, at=reader)
        editor.emit("minimum", (scores, mask), at=reader, name=reader.name, out=out)
        return True
    if (
        reader.op == "reshape" and editor[out].shape == _raised(editor, node, out) and _feeds(editor, out, "add")
    ):  # case 3
        editor.remove(node)
        editor.remove(reader)
        scores = editor.emit("reshape", (x,), reader.params, at=reader)
        editor.emit("minimum", (scores, mask), at=reader, name=reader.name, out=out)
        return True
    if other := _mask(editor, reader):  # case 2
        joined = editor.const(mask, np.minimum(editor.data(mask), editor.data(other)))
        editor.remove(node)
        editor.set(replace(reader, inputs=(x, joined)))
        return True
    return False


def _added(editor: Editor, node: Node) -> bool:  # case 4
    product, moves = editor.producer(node.inputs[1]) if node.op == "sub" else None, list[Node]()
    while product is not None and product.op in MOVES and editor.only_user(product.outputs[0]):
        moves.append(product)
        product = editor.producer(product.inputs[0])
    if product is None or product.op != "mul" or not editor.only_user(product.outputs[0]):
        return False
    m, factor = sorted(product.inputs, key=lambda name: editor[name].is_const)
    (out,) = node.outputs
    if editor[m].is_const or not editor[factor].is_const or editor[product.outputs[0]].clamp:
        return False
    if editor[out].clamp or editor.data(factor).min() < 1 or not is_for_softmax(editor, out):
        return False
    editor.remove(node)
    mask = editor.emit("mul", (m, editor.const(factor, -editor.data(factor))), at=product)
    for move in reversed(moves):
        mask = editor.emit(move.op, (mask,), move.params, at=move)
    editor.emit("add", (node.inputs[0], mask), at=node, name=node.name, out=out)
    return True


def is_for_softmax(editor: Editor, name: str) -> bool:
    """Checks that only a Softmax reads a value, moved or not, and sums with it."""
    node = editor.only_user(name)
    while node is not None and (node.op in (*MOVES, "add") or _mask(editor, node)):
        node = editor.only_user(node.outputs[0])
    return node is not None and node.op == "softmax"


def _raised(editor: Editor, node: Node, out: str) -> tuple[int, ...]:
    """The shape of a node's result with as many axes as another tensor."""
    shape = editor[node.outputs[0]].shape
    return (1,) * (len(editor[out].shape) - len(shape)) + shape


def _feeds(editor: Editor, name: str, op: str) -> bool:
    reader = editor.only_user(name)
    return reader is not None and reader.op == op


def _mask(editor: Editor, node: Node) -> str:
    """The name of the mask that is an operand; none where it is no such minimum."""
    if node.op != "minimum":
        return ""
    constants = (name for name in node.inputs if editor[name].is_const)
    return next((name for name in constants if set(np.unique(editor.data(name))) == {MASKED, OPEN}), "")
