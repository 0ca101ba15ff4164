"""Let one layer normalize an input whose channels have different units.

An input is read by additions and products with a number for each channel, as exporters write (x - mean) * scale, and
no layer could take these up, for other readers of the result are sums, slices or Concats. Then everything between input
and result shares the grid of the largest unit. A layer has a scale for each of its channels, and lets
`quantize/input_grids.py` store each channel of the input on a grid of its own.

1. Such ops in a row become a depthwise 1x1 convolution. Their input is an input of the graph, or what ops that move its
   elements make of it. Raw pixels fill their grid, so they stay.
2. The channels are those along which the constants differ; where these are not the last axis, transposes go around.

Numbers that are one for all channels are left: they change no channel beside another.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.passes.float import layout
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    merged = apply(graph, partial(_merge, graph.pixels))
    return graph if merged.nodes == graph.nodes else layout.run(merged)


def _merge(pixels: frozenset[str], editor: Editor, head: Node) -> bool:
    first = _constant(editor, head)
    if first is None or not _is_fed(editor, pixels, first[0]):
        return False
    x = first[0]
    axes, shape = set[int](), editor[x].shape
    scale, shift = np.ones([1] * len(shape)), np.zeros([1] * len(shape))
    row: list[Node] = []
    node: Node | None = head
    while node is not None and (terms := _constant(editor, node)) is not None:
        factor, term = terms[1:]
        differ = axes | {i for i, size in enumerate(factor.shape) if size > 1}
        if len(differ) > 1 or (row and editor[row[-1].outputs[0]].clamp is not None):
            break
        axes, scale, shift = differ, scale * factor, shift * factor + term
        row.append(node)
        node = editor.only_user(node.outputs[0])
    if not axes or (np.ptp(scale) == 0 and np.ptp(shift) == 0):
        return False
    (axis,) = axes
    last, count = row[-1], shape[axis]
    out = editor[last.outputs[0]]
    for done in row:
        editor.remove(done)
    perm = (*(i for i in range(len(shape)) if i != axis), axis)
    turned = perm != tuple(range(len(shape)))
    below = editor.transpose(x, perm, at=head) if turned else x
    size = editor[below].shape
    flat = below if len(size) == 4 else editor.reshape(below, (1, 1, math.prod(size[:-1]), count), at=head)
    weights, bias = (np.broadcast_to(a, [count if i == axis else 1 for i in range(len(shape))]) for a in (scale, shift))
    inputs = (
        flat,
        editor.const(f"{head.name}.scale", weights.reshape(count, 1, 1, 1)),
        editor.const(f"{head.name}.shift", bias.reshape(count)),
    )
    params = Conv2DParams(groups=count)
    if not turned and flat == below:
        editor.emit("conv2d", inputs, params, at=head, name=head.name, out=out.name, clamp=out.clamp)
        return True
    y = editor.emit("conv2d", inputs, params, at=head, name=head.name, clamp=out.clamp)
    if not turned:
        editor.reshape(y, size, at=head, out=out.name)
        return True
    y = editor.reshape(y, size, at=head) if flat != below else y
    editor.transpose(y, tuple(int(i) for i in np.argsort(perm)), at=head, out=out.name)
    return True


def _constant(editor: Editor, node: Node) -> tuple[str, np.ndarray, np.ndarray] | None:
    """The operand x of an op that computes factor * x + term, and these, of x's rank; None for other ops."""
    if len(node.inputs) != 2 or not OPS[node.op].elementwise:
        return None
    for place, (x, const) in enumerate((node.inputs, node.inputs[::-1])):
        shape, value = editor[x].shape, editor[const]
        if editor[x].is_const or not value.is_const or editor[node.outputs[0]].shape != shape or not shape:
            continue
        data = editor.data(const).reshape([1] * (len(shape) - len(value.shape)) + list(value.shape))
        if (scale_shift := OPS[node.op].affine(place, data)) is not None:
            factor, term = (np.broadcast_to(a, data.shape) for a in scale_shift)
            return x, factor, term
    return None


def _is_fed(editor: Editor, pixels: frozenset[str], name: str) -> bool:
    """Checks that a tensor is an input of the graph, or elements of one."""
    while (node := editor.producer(name)) is not None:
        if OPS[node.op].grid != "same" or len(node.inputs) != 1 or editor[name].clamp is not None:
            return False
        name = node.inputs[0]
    return name in editor.inputs and name not in pixels
