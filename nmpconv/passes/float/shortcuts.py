"""A shortcut of a residual sum that pads channels with zeros is a 1x1 convolution. Its result has factors of
equalization and a grid of its own, where a Pad ties all stages of a net to each other.

1. A Pad of channels alone, with zeros, that only a sum reads: weights are 1 from each channel to itself.
2. Where the Pad alone reads a slice that takes every so many rows and columns, these are the strides.

All are left as they are where the convolutions would add more than a share of the graph's weights or work, as where
every block of a net adds a few channels.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.passes.rewrite import Editor, apply

SHARE = 0.04  # of the graph's weights, and of its multiply-accumulates, that all of them may add
FEW = 4096  # of either, that they may add to any graph


def run(graph: Graph) -> Graph:
    return apply(graph, partial(_projected, graph)) if _are_cheap(graph) else graph


def _are_cheap(graph: Graph) -> bool:
    editor = Editor(graph)
    pads = [node for node in graph.nodes if _is_shortcut(graph, editor, node)]
    sizes = [graph[node.inputs[0]].shape[-1] * graph[node.outputs[0]].shape[-1] for node in pads]
    pixels = [prod(graph[node.outputs[0]].shape[:-1]) for node in pads]
    weights = sum(value.size for value in graph.values.values() if value.is_const)
    macs = sum(OPS[node.op].macs(node.params, graph.ins(node), graph.outs(node)) for node in graph.nodes)
    added = sum(size * count for size, count in zip(sizes, pixels, strict=True))
    return sum(sizes) <= max(FEW, SHARE * weights) and added <= max(FEW, SHARE * macs)


def _is_shortcut(graph: Graph, editor: Editor, node: Node) -> bool:
    out = node.outputs[0]
    reader = editor.only_user(out)
    if node.op != "pad" or reader is None or reader.op != "add" or {out, node.inputs[0]} & graph.given.keys():
        return False
    pads = node.params.pads
    return len(pads) == 8 and not any(pads[:-2]) and bool(editor.data(node.inputs[1])[0] == 0)


def _projected(graph: Graph, editor: Editor, node: Node) -> bool:  # case 1
    if not _is_shortcut(graph, editor, node):
        return False
    out = node.outputs[0]
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
