"""A shortcut of a residual sum that pads channels with zeros is a 1x1 convolution. Its result has factors of
equalization and a grid of its own, where a Pad ties all stages of a net to each other.

1. A Pad of channels alone, with zeros, that only a sum reads: weights are 1 from each channel to itself.
2. Where the Pad alone reads a slice that takes every so many rows and columns, these are the strides.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, partial(_projected, graph))


def _projected(graph: Graph, editor: Editor, node: Node) -> bool:  # case 1
    out = node.outputs[0]
    reader = editor.only_user(out)
    if node.op != "pad" or reader is None or reader.op != "add" or {out, node.inputs[0]} & graph.given.keys():
        return False
    if len(node.params.pads) != 8 or any(node.params.pads[:-2]) or editor.data(node.inputs[1])[0] != 0:
        return False
    x, params, before = node.inputs[0], Conv2DParams(), node.params.pads[-2]
    slicing = editor.producer(x)
    if slicing is not None and editor.only_user(x) is not None and _is_strided(editor, slicing):  # case 2
        _, rows, columns, _ = slicing.params.steps
        x, params = slicing.inputs[0], Conv2DParams(stride_h=rows, stride_w=columns)
        editor.remove(slicing)
    own, total = editor[x].shape[-1], editor[out].shape[-1]
    weights = np.eye(total, own, -before)[:, None, None]
    constants = editor.const(f"{node.name}.weight", weights), editor.const(f"{node.name}.bias", np.zeros(total))
    editor.set(replace(node, op="conv2d", inputs=(x, *constants), params=params))
    return True


def _is_strided(editor: Editor, node: Node) -> bool:
    """Checks for a slice of rows and columns that a stride takes: from the first one on, all channels."""
    if node.op != "slice":
        return False
    p, (_, height, width, channels) = node.params, editor[node.inputs[0]].shape
    batch, rows, columns, step = p.steps
    whole = not any(p.starts) and batch == step == 1 and min(rows, columns) > 0
    return whole and p.sizes == (1, -(-height // rows), -(-width // columns), channels)
