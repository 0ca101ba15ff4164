"""Merge what follows a normalization into its scale and bias.

1. add, sub or mul with a constant, after a normalize that nobody else reads and that does not saturate.
2. The same with a reshape in between, as after a group normalization: the reshape goes after it.
3. reshape, normalize over the last axis, reshape back, as exporters write group normalization: the groups get an axis
   of their own, so that transposes can pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nmpconv.fixed import RANK_MAX
from nmpconv.ir import Graph, Node
from nmpconv.ops.reshape import ReshapeParams
from nmpconv.passes.rewrite import Editor, apply, blocks


def run(graph: Graph) -> Graph:
    return apply(graph, _merge, _pass_reshape, _split)


def _operands(editor: Editor, node: Node) -> tuple[str, str] | None:
    """(computed, constant) of an element-wise op with a constant, whose result has the shape of the former."""
    if node.op not in ("add", "sub", "mul"):
        return None
    for x, constant in (node.inputs, node.inputs[::-1]):
        same = editor[x].shape == editor[node.outputs[0]].shape
        if same and not editor[x].is_const and editor[constant].is_const:
            return x, constant
    return None


def _producer(editor: Editor, name: str, op: str) -> Node | None:
    """The node of this op that computes a value for one reader only, unsaturated."""
    node = editor.producer(name)
    plain = node is not None and node.op == op and editor[name].clamp is None
    return node if plain and editor.only_user(name) is not None else None


def _merge(editor: Editor, node: Node) -> bool:  # case 1
    found = _operands(editor, node)
    norm = _producer(editor, found[0], "normalize") if found else None
    if found is None or norm is None:
        return False
    rank = len(editor[norm.inputs[0]].shape)
    data = editor.data(found[1])
    data = data.reshape((1,) * (rank - data.ndim) + data.shape)
    w, b = (editor.data(name) for name in norm.inputs[1:])
    if node.op == "mul":
        w, b = w * data, b * data
    elif node.op == "add":
        b = b + data
    elif found[0] == node.inputs[0]:
        b = b - data
    else:
        w, b = -w, data - b
    constants = [
        editor.const(name, array) for name, array in zip(norm.inputs[1:], np.broadcast_arrays(w, b), strict=True)
    ]
    editor.remove(node)
    editor.set(replace(norm, inputs=(norm.inputs[0], *constants), outputs=node.outputs))
    return True


def _pass_reshape(editor: Editor, node: Node) -> bool:  # case 2
    found = _operands(editor, node)
    reshape = _producer(editor, found[0], "reshape") if found else None
    if found is None or reshape is None or _producer(editor, reshape.inputs[0], "normalize") is None:
        return False
    source, out = editor[reshape.inputs[0]], editor[node.outputs[0]]
    data = _reshaped(editor.data(found[1]), source.shape, out.shape)
    if data is None:
        return False
    constant = editor.const(found[1], data)
    inputs = [source.name if name == found[0] else constant for name in node.inputs]
    editor.remove(node)
    editor.remove(reshape)
    moved = editor.emit(node.op, inputs, node.params, at=node, name=node.name, clamp=out.clamp)
    editor.emit("reshape", (moved,), ReshapeParams(out.shape), at=node, out=out.name)
    return True


def _reshaped(data: np.ndarray, old: Sequence[int], new: Sequence[int]) -> np.ndarray | None:
    """What broadcasts against the old shape as ``data`` does against the new one."""
    sizes = (1,) * (len(new) - data.ndim) + data.shape
    shape: list[int] = []
    for (a, b), (c, d) in blocks(old, new):
        if all(size == 1 for size in sizes[c:d]):
            shape += [1] * (b - a)
        elif sizes[c:d] == tuple(new[c:d]):
            shape += old[a:b]
        else:
            return None
    return data.reshape(shape)


def _split(editor: Editor, node: Node) -> bool:  # case 3
    if node.op != "normalize" or node.params.axes != (2,) or len(editor[node.inputs[0]].shape) != 3:
        return False
    before, out = editor.producer(node.inputs[0]), node.outputs[0]
    after = editor.only_user(out)
    if before is None or after is None or before.op != "reshape" or after.op != "reshape" or editor[out].clamp:
        return False
    shape, (n, groups, _) = editor[before.inputs[0]].shape, editor[out].shape
    if len(shape) < 3 or len(shape) >= RANK_MAX or shape[0] != n or shape[1] % groups:
        return False
    if after.params.shape != shape or any(editor[name].shape[2] != 1 for name in node.inputs[1:]):
        return False
    split = (n, groups, shape[1] // groups, *shape[2:])
    x = editor.emit("reshape", before.inputs, ReshapeParams(split), at=node)
    ones = (1,) * (len(split) - 3)
    constants = [
        editor.const(name, (data := editor.data(name)).reshape(*data.shape, *ones)) for name in node.inputs[1:]
    ]
    params = replace(node.params, axes=tuple(range(2, len(split))))
    editor.remove(node)
    y = editor.emit("normalize", (x, *constants), params, at=node, name=node.name)
    editor.set(replace(after, inputs=(y,)))
    return True
