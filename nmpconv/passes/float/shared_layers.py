"""One layer in place of many that have the same weights and read one tensor, index by index.

A recurrent net that was unrolled multiplies the input of each step by one matrix. `expand.recurrent` does that for all
steps at once; so does this pass, whatever wrote the steps (LSTMCell and GRUCell of torch, unroll=True of Keras). It
saves copies of weights; the results of all steps are alive together.

1. Each layer reads a slice of one index of an axis, which is not the last, and has the others whole. Between the two
   may be reshapes that keep the last axis.
2. Weights, biases and clamps are alike, and the indices are consecutive. The layer is that of all of them, and what
   each one made is a slice of its result.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.slice import SliceParams
from nmpconv.passes.rewrite import Clamp, Editor

LEAST = 3  # layers; two may have grids of their own

Alike = tuple[str, int, bytes, bytes, tuple[int, ...], Clamp | None]


def run(graph: Graph) -> Graph:
    editor, alike = Editor(graph), defaultdict[Alike, dict[int, list[Node]]](lambda: defaultdict(list))
    for node in graph.nodes:
        if node.op != "fully_connected" or not graph.given.keys().isdisjoint((*node.inputs, *node.outputs)):
            continue  # new names would have no grids
        if (source := _index(editor, node)) is not None:
            name, axis, index = source
            weights, bias = (np.asarray(graph[x].data).tobytes() for x in node.inputs[1:])
            out = graph[node.outputs[0]]
            alike[name, axis, weights, bias, out.shape, out.clamp][index].append(node)
    for (name, axis, *_), nodes in alike.items():
        if len(nodes) >= LEAST and max(nodes) - min(nodes) + 1 == len(nodes):
            _join(editor, name, axis, nodes)
    return editor.finish()


def _index(editor: Editor, node: Node) -> tuple[str, int, int] | None:  # case 1
    """The tensor that a layer reads one index of, the axis, and the index."""
    name = node.inputs[0]
    width = editor[name].shape[-1]
    while (maker := editor.producer(name)) is not None and maker.op == "reshape":
        name = maker.inputs[0]
        if editor[name].shape[-1:] != (width,) or editor[name].clamp is not None:
            return None
    if maker is None or maker.op != "slice" or editor[name].clamp is not None:
        return None
    p, whole = maker.params, editor[maker.inputs[0]].shape
    axes = [axis for axis, dim in enumerate(whole) if p.sizes[axis] != dim]
    if len(axes) != 1 or p.sizes[axes[0]] != 1 or axes[0] == len(whole) - 1:
        return None
    return maker.inputs[0], axes[0], p.starts[axes[0]]


def _join(editor: Editor, name: str, axis: int, nodes: dict[int, list[Node]]) -> None:  # case 2
    first, shape = min(nodes), editor[name].shape
    node = nodes[first][0]
    out = editor[node.outputs[0]]
    x = name if len(nodes) == shape[axis] else _slice(editor, name, axis, first, len(nodes), node)
    whole = editor.emit(node.op, (x, *node.inputs[1:]), node.params, at=node, clamp=out.clamp)
    if prod(shape[:axis]) == prod(out.shape[:-1]) == 1 < len(out.shape):  # one reshape in place of one for each
        axis = len(out.shape) - 2
        whole = editor.reshape(whole, (*out.shape[:axis], len(nodes), out.shape[-1]), at=node)
    shape = editor[whole].shape
    is_row = (*shape[:axis], 1, *shape[axis + 1 :]) == out.shape
    for index, layers in nodes.items():
        for layer in layers:
            editor.remove(layer)
            result, called = layer.outputs[0], layer.name
            part = _slice(editor, whole, axis, index - first, 1, layer, *((called, result) if is_row else ()))
            if not is_row:
                editor.reshape(part, out.shape, at=layer, name=called, out=result)


def _slice(editor: Editor, x: str, axis: int, start: int, size: int, at: Node, name: str = "", out: str = "") -> str:
    shape = editor[x].shape
    starts = tuple(start if i == axis else 0 for i in range(len(shape)))
    sizes = tuple(size if i == axis else dim for i, dim in enumerate(shape))
    return editor.emit("slice", (x,), SliceParams(starts, (1,) * len(shape), sizes), at=at, name=name, out=out)
