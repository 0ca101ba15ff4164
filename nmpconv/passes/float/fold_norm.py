"""Merge what follows a normalization into its scale and bias.

1. add, sub or mul with a constant (`Op.affine`), after a normalize that nobody else reads and that does not saturate.
2. The same with a reshape in between, as after a group normalization: the reshape goes after it.
3. reshape, normalize over the last axis, reshape back, as exporters write group normalization: the groups get an axis
   of their own, so that transposes can pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nmpconv.base.fixed_point import RANK_MAX
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.rewrite import Editor, apply, axis_groups


def run(graph: Graph) -> Graph:
    return apply(graph, _merge, _pass_reshape, _split)


class _Affine(NamedTuple):
    """scale * x + shift; x and constant are names, scale and shift have the constant's shape."""

    x: str
    constant: str
    scale: np.ndarray
    shift: np.ndarray


def _operands(editor: Editor, node: Node) -> _Affine | None:
    """(computed, constant) of an affine op (`Op.affine`), whose result has the shape of the former."""
    if len(node.inputs) != 2:
        return None
    for place, (x, constant) in enumerate((node.inputs, node.inputs[::-1])):
        same = editor[x].shape == editor[node.outputs[0]].shape
        if not same or editor[x].is_const or not editor[constant].is_const:
            continue
        if (scale_shift := OPS[node.op].affine(place, editor.data(constant))) is not None:
            return _Affine(x, constant, *scale_shift)
    return None


def _producer(editor: Editor, name: str, op: str) -> Node | None:
    """The node of this op that computes a value for one reader only, unsaturated."""
    node = editor.producer(name)
    plain = node is not None and node.op == op and editor[name].clamp is None
    return node if plain and editor.only_user(name) is not None else None


def _merge(editor: Editor, node: Node) -> bool:  # case 1
    operands = _operands(editor, node)
    norm = _producer(editor, operands.x, "normalize") if operands else None
    if operands is None or norm is None:
        return False
    rank = len(editor[norm.inputs[0]].shape)
    scale, shift = (a.reshape((1,) * (rank - a.ndim) + a.shape) for a in (operands.scale, operands.shift))
    w, b = (editor.data(name) for name in norm.inputs[1:])
    merged = np.broadcast_arrays(w * scale, b * scale + shift)
    constants = [editor.const(name, array) for name, array in zip(norm.inputs[1:], merged, strict=True)]
    editor.remove(node)
    editor.set(replace(norm, inputs=(norm.inputs[0], *constants), outputs=node.outputs))
    return True


def _pass_reshape(editor: Editor, node: Node) -> bool:  # case 2
    operands = _operands(editor, node)
    reshape = _producer(editor, operands.x, "reshape") if operands else None
    if operands is None or reshape is None or _producer(editor, reshape.inputs[0], "normalize") is None:
        return False
    source, out = editor[reshape.inputs[0]], editor[node.outputs[0]]
    data = _reshaped(editor.data(operands.constant), source.shape, out.shape)
    if data is None:
        return False
    constant = editor.const(operands.constant, data)
    inputs = [source.name if name == operands.x else constant for name in node.inputs]
    editor.remove(node)
    editor.remove(reshape)
    moved = editor.emit(node.op, inputs, node.params, at=node, name=node.name, clamp=out.clamp)
    editor.reshape(moved, out.shape, at=node, out=out.name)
    return True


def _reshaped(data: np.ndarray, old: Sequence[int], new: Sequence[int]) -> np.ndarray | None:
    """Reshapes ``data``, which broadcasts against the old shape, to broadcast against the new one."""
    sizes = (1,) * (len(new) - data.ndim) + data.shape
    shape: list[int] = []
    for (a, b), (c, d) in axis_groups(old, new):
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
    x = editor.reshape(before.inputs[0], split, at=node)
    ones = (1,) * (len(split) - 3)
    constants = [
        editor.const(name, (data := editor.data(name)).reshape(*data.shape, *ones)) for name in node.inputs[1:]
    ]
    params = replace(node.params, axes=tuple(range(2, len(split))))
    editor.remove(node)
    y = editor.emit("normalize", (x, *constants), params, at=node, name=node.name)
    editor.set(replace(after, inputs=(y,)))
    return True
