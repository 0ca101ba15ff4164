"""Remove transposes and reshapes by moving them towards the outputs until they meet their inverse.

Down, until nothing changes:

1. transpose after transpose: one transpose, or none.
2. reshape after reshape: one, or none. A transpose that moves only axes of size 1 counts as a reshape next to one.
3. transpose before requantize or lookup: the op first. So with slice, softmax, gather, pad and normalize, whose axes
   are renamed, and with a pool, whose window stays on H and W.
4. transpose before add, sub, minimum, maximum, mul or concat: the op first, when that leaves less to transpose on its
   inputs. Constants are transposed here and now.
5. reshape before requantize or lookup: the op first.
6. transpose before a reshape that neither splits nor merges what the transpose tore apart: the reshape first.
7. transpose, a reshape that only merges axes, transpose: the second one above the reshape, which leaves one of them.
8. transpose, flattening reshape, fully_connected: the weights' columns are permuted instead.

Then, once:

9. A transpose that moves only axes of size 1 becomes a reshape.
10. An op of an input and a constant, such as a normalization, goes below the transpose or reshape that alone reads it,
    if that only adds and removes axes of size 1: there its constants lie along the channels, for layers to take up.

This ends: 1, 2, 7 and 8 remove a node, 3, 5 and 6 move one towards the outputs, 4 lessens what is above its node, first
in bytes, then in transposes, then in transposes to NCHW; that can only grow by moves further up, which end likewise.
Values keep the names of the ONNX tensors that they hold the elements of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.reshape import ReshapeParams
from nmpconv.ops.transpose import TransposeParams
from nmpconv.passes.rewrite import MOVES, Editor, apply, axis_groups, restore_names

Perm = tuple[int, ...]
TO_NCHW = (0, 3, 1, 2)


def run(graph: Graph) -> Graph:
    sinks = (_sink, _sink_joined, _sink_reshape, _sink_past_reshape)
    down = apply(graph, _merge, _merge_reshapes, *sinks, _merge_around_reshape, _into_weights, moves=True)
    return restore_names(apply(apply(down, _below_move, moves=True), _relabel, _merge_reshapes, moves=True))


def _inverse(perm: Perm) -> Perm:
    return tuple(int(i) for i in np.argsort(perm))


def _compose(first: Perm, second: Perm) -> Perm:
    return tuple(first[p] for p in second)


def _moves_data(perm: Perm, shape: Sequence[int]) -> bool:
    """Checks that axes of size > 1 change their order. shape: before the transpose."""
    moved = [p for p in perm if shape[p] > 1]
    return moved != sorted(moved)


def _above(editor: Editor, name: str, op: str) -> Node | None:
    """The node of this op that computes a value."""
    producer = editor.producer(name)
    return producer if producer is not None and producer.op == op else None


def _swap(editor: Editor, node: Node, inputs: Sequence[str], params: Any, below: str, below_params: Any) -> bool:
    """Let the node read other inputs; ``below`` (transpose or reshape) then makes its old output from the new one."""
    out = editor[node.outputs[0]]
    editor.remove(node)
    moved = editor.fresh(out.name)
    editor.emit(node.op, inputs, params, at=node, name=node.name, out=moved, clamp=out.clamp)
    editor.emit(below, (moved,), below_params, at=node, out=out.name)
    return True


def _merge(editor: Editor, node: Node) -> bool:  # case 1
    if node.op != "transpose":
        return False
    perm, source = node.params.perm, node.inputs[0]
    above = _above(editor, source, "transpose")
    if above is not None:
        perm, source = _compose(above.params.perm, perm), above.inputs[0]
    if perm == tuple(range(len(perm))):
        editor.set(replace(node, inputs=(source,), params=TransposeParams(perm)))
        return editor.bypass(editor.now(node)) or above is not None
    if above is None:
        return False
    editor.set(replace(node, inputs=(source,), params=TransposeParams(perm)))
    return True


def _is_reshape(editor: Editor, node: Node | None) -> bool:
    if node is None or node.op not in MOVES:
        return False
    return node.op == "reshape" or not _moves_data(node.params.perm, editor[node.inputs[0]].shape)


def _merge_reshapes(editor: Editor, node: Node) -> bool:  # case 2
    above = editor.producer(node.inputs[0])
    if not _is_reshape(editor, node):
        return False
    source, shape = node.inputs[0], editor[node.outputs[0]].shape
    if above is not None and _is_reshape(editor, above) and "reshape" in (node.op, above.op):
        source = above.inputs[0]
    merged = source != node.inputs[0]
    if merged:
        editor.set(replace(node, op="reshape", inputs=(source,), params=ReshapeParams(shape)))
    if node.op != "transpose" and editor[source].shape == shape and editor.bypass(editor.now(node)):
        return True
    return merged


def _sink(editor: Editor, node: Node) -> bool:  # case 3
    above = _above(editor, node.inputs[0], "transpose")
    if above is None:
        return False
    perm, op = above.params.perm, OPS[node.op]
    params = None if op.joins else op.renamed(node.params, perm)
    if params is None:
        return False
    constants = []
    for name in node.inputs[1:]:
        alike = len(editor[name].shape) == len(perm)
        constants.append(editor.const(name, editor.data(name).transpose(_inverse(perm))) if alike else name)
    return _swap(editor, node, (above.inputs[0], *constants), params, "transpose", above.params)


def _sink_joined(editor: Editor, node: Node) -> bool:  # case 4
    if not OPS[node.op].joins:
        return False
    perms = [t.params.perm for name in node.inputs if (t := _above(editor, name, "transpose")) is not None]
    for perm in dict.fromkeys(perms):
        here = tuple(range(len(perm)))
        if len(perm) != len(editor[node.outputs[0]].shape):
            continue
        if _cost(editor, node, _inverse(perm)) < _cost(editor, node, here):
            moved = {name: _untranspose(editor, node, name, perm) for name in dict.fromkeys(node.inputs)}
            params = OPS[node.op].renamed(node.params, perm)
            inputs = [moved[name] for name in node.inputs]
            return _swap(editor, node, inputs, params, "transpose", TransposeParams(perm))
    return False


def _cost(editor: Editor, node: Node, further: Perm) -> tuple[int, int, int]:
    """Bytes, transposes and transposes to NCHW right above a node, once its inputs are transposed further."""
    size = count = to_nchw = 0
    for name in dict.fromkeys(node.inputs):
        if editor[name].is_const:
            continue
        above = _above(editor, name, "transpose")
        if above is not None and len(above.params.perm) != len(further):
            above = None
        source = editor[name if above is None else above.inputs[0]]
        perm = further if above is None else _compose(above.params.perm, further)
        size += source.nbytes * _moves_data(perm, _padded(source.shape, len(further)))
        count += perm != tuple(range(len(perm)))
        to_nchw += perm == TO_NCHW
    return size, count, to_nchw


def _padded(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The shape with leading axes of size 1, as numpy broadcasts it."""
    return (1,) * (rank - len(shape)) + tuple(shape)


def _untranspose(editor: Editor, node: Node, name: str, perm: Perm) -> str:
    """The value that the transpose makes ``name`` from."""
    value, back = editor[name], _inverse(perm)
    above = _above(editor, name, "transpose")
    if above is not None and above.params.perm == perm:
        return above.inputs[0]
    if value.is_const and value.size == 1 and OPS[node.op].elementwise:
        return name
    shape = _padded(value.shape, len(perm))
    if value.is_const:
        return editor.const(name, editor.data(name).reshape(shape).transpose(back))
    if shape != value.shape:
        name = editor.reshape(name, shape, at=node, out=editor.fresh(name))
    return editor.transpose(name, back, at=node, out=editor.fresh(name))


def _sink_reshape(editor: Editor, node: Node) -> bool:  # case 5
    above = _above(editor, node.inputs[0], "reshape")
    if above is None or OPS[node.op].joins or not OPS[node.op].elementwise:
        return False
    return _swap(editor, node, above.inputs, node.params, "reshape", above.params)


def _sink_past_reshape(editor: Editor, node: Node) -> bool:  # case 6
    above = _above(editor, node.inputs[0], "transpose")
    if above is None or node.op != "reshape" or _is_reshape(editor, above):
        return False
    source, perm = editor[above.inputs[0]], above.params.perm
    groups = axis_groups([source.shape[p] for p in perm], node.params.shape)
    solid = [axis for axis, size in enumerate(source.shape) if size > 1]
    moved = [[solid.index(p) for p in perm[start:stop] if p in solid] for (start, stop), _ in groups]
    if any(axes != list(range(axes[0], axes[0] + len(axes))) for axes in moved if axes):
        return False
    order = sorted(range(len(groups)), key=lambda i: moved[i][0] if moved[i] else -1)
    axes = [axis for i in order for axis in range(*groups[i][1])]
    shape = tuple(node.params.shape[axis] for axis in axes)
    back = TransposeParams(_inverse(tuple(axes)))
    return _swap(editor, node, above.inputs, ReshapeParams(shape), "transpose", back)


def _merge_around_reshape(editor: Editor, node: Node) -> bool:  # case 7
    if node.op != "transpose":
        return False
    reshape = _above(editor, node.inputs[0], "reshape")
    if reshape is None or editor.only_user(node.inputs[0]) is None:
        return False
    first = _above(editor, reshape.inputs[0], "transpose")
    if first is None or editor.only_user(reshape.inputs[0]) is None:
        return False
    groups = axis_groups(editor[reshape.inputs[0]].shape, reshape.params.shape)
    if any(stop - start != 1 for _, (start, stop) in groups):
        return False
    above = tuple(axis for p in node.params.perm for axis in range(*groups[p][0]))
    moved = _compose(first.params.perm, above)
    out = editor[node.outputs[0]]
    for gone in (node, reshape, first):
        editor.remove(gone)
    value = editor.transpose(first.inputs[0], moved, at=first)
    editor.reshape(value, out.shape, at=reshape, name=node.name, out=out.name)
    return True


def _into_weights(editor: Editor, node: Node) -> bool:  # case 8
    if node.op != "fully_connected":
        return False
    flatten = _above(editor, node.inputs[0], "reshape")
    if flatten is None or flatten.params.shape[-1] != math.prod(flatten.params.shape):
        return False
    transpose = _above(editor, flatten.inputs[0], "transpose")
    if transpose is None:
        return False
    source = editor[transpose.inputs[0]]
    columns = np.arange(source.size).reshape(source.shape).transpose(transpose.params.perm).ravel()
    weights = np.empty((editor[node.inputs[1]].shape[0], source.size))
    weights[:, columns] = editor.data(node.inputs[1])
    flat = editor.reshape(source.name, flatten.params.shape, at=flatten)
    editor.set(replace(node, inputs=(flat, editor.const(node.inputs[1], weights), node.inputs[2])))
    return True


def _relabel(editor: Editor, node: Node) -> bool:  # case 9
    if node.op != "transpose" or not _is_reshape(editor, node):
        return False
    editor.set(replace(node, op="reshape", params=ReshapeParams(editor[node.outputs[0]].shape)))
    return True


def _below_move(editor: Editor, node: Node) -> bool:  # case 10
    above = editor.producer(node.inputs[0])
    if node.op not in MOVES or above is None or not OPS[above.op].elementwise or len(above.inputs) != 2:
        return False
    fed = [name for name in above.inputs if not editor[name].is_const]
    moved, out = editor[above.outputs[0]], editor[node.outputs[0]]
    if len(fed) != 1 or editor[fed[0]].shape != moved.shape or editor.only_user(moved.name) is None:
        return False
    if not _is_fed(editor, fed[0]) or out.name in editor.outputs or moved.clamp is not None:
        return False
    constant = next(name for name in above.inputs if editor[name].is_const)
    data = editor.data(constant).reshape(_padded(editor[constant].shape, len(moved.shape)))
    if node.op == "transpose":
        data = data.transpose(node.params.perm)
    elif _long(moved.shape) == _long(out.shape):
        sizes = [data.shape[i] for i, whole in enumerate(moved.shape) if whole > 1]
        data = data.reshape([sizes.pop(0) if whole > 1 else 1 for whole in out.shape])
    else:
        return False
    editor.remove(node)
    editor.remove(above)
    x = editor.emit(node.op, (fed[0],), node.params, at=above, name=node.name, out=editor.fresh(fed[0]))
    inputs = tuple(x if name == fed[0] else editor.const(constant, data) for name in above.inputs)
    editor.emit(above.op, inputs, above.params, at=node, name=above.name, out=out.name, clamp=out.clamp)
    return True


def _is_fed(editor: Editor, name: str) -> bool:
    """Checks that a tensor is an input of the graph, perhaps moved, or behind such ops of a constant."""
    while (node := editor.producer(name)) is not None:
        fed = [other for other in node.inputs if not editor[other].is_const]
        if len(fed) != 1 or not (node.op in MOVES or OPS[node.op].elementwise):
            return False
        name = fed[0]
    return name in editor.inputs


def _long(shape: Sequence[int]) -> list[int]:
    """The sizes of the axes that order the elements."""
    return [size for size in shape if size > 1]
