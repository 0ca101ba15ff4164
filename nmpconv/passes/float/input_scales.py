"""Let one layer normalize an input whose channels have different units.

An input is read by additions and products with a number for each channel, as exporters write (x - mean) * scale, and
no layer could take these up, for other readers of the result are sums, slices or Concats. Then everything between input
and result shares the grid of the largest unit. A layer has a scale for each of its channels, and lets
`quantize/input_grids.py` store each channel of the input on a grid of its own.

1. Such ops in a row become a depthwise 1x1 convolution. Their input is an input of the graph, or what ops that move its
   elements make of it. Raw pixels fill their grid, so they stay.
2. The channels are those along which the constants differ; where these are not the last axis, transposes go around.
3. The first op may broadcast the input, as to be compared with a centre for each class: a channel has several outputs,
   where channels have factors of their own.
4. What is squared next takes up, as roots, the factors of its squares: (x - mean)^2 / variance, as in naive Bayes. On a
   grid for all channels the squares of the largest unit would leave no bits for others.

Numbers that are one for all channels are left: they change no channel beside another.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.passes.float import layout
from nmpconv.passes.float.squares import is_square
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    merged = apply(apply(graph, partial(_root, graph.pixels)), partial(_merge, graph.pixels))
    return graph if merged.nodes == graph.nodes else layout.run(merged)


def _root(pixels: frozenset[str], editor: Editor, square: Node) -> bool:  # case 4
    if not is_square(square) or editor[square.inputs[0]].clamp is not None:
        return False
    x, out = square.inputs[0], square.outputs[0]
    product = editor.only_user(out)
    terms = None if product is None else _constant(editor, product)
    if product is None or terms is None or editor[out].clamp is not None or editor.only_user(x) is None:
        return False
    factor, term = terms[1:]
    if np.ptp(factor) == 0 or factor.min() < 0 or term.any() or not _is_normalized(editor, pixels, x):
        return False
    root = editor.emit("mul", (x, editor.const(f"{product.name}.root", np.sqrt(factor))), at=square)
    editor.remove(product)
    editor.set(replace(square, inputs=(root, root), outputs=product.outputs))
    return True


def _is_normalized(editor: Editor, pixels: frozenset[str], name: str) -> bool:
    """Checks for the result of such ops in a row."""
    node, first = editor.producer(name), name
    while node is not None and (terms := _constant(editor, node, broadcast=True)) is not None:
        name = terms[0]
        node = editor.producer(name)
    return name != first and _is_fed(editor, pixels, name)


def _merge(pixels: frozenset[str], editor: Editor, head: Node) -> bool:
    first = _constant(editor, head, broadcast=True)
    if first is None or not _is_fed(editor, pixels, first[0]):
        return False
    x, shape = first[0], editor[head.outputs[0]].shape
    size = (1,) * (len(shape) - len(editor[x].shape)) + editor[x].shape
    copies = tuple(i for i, most in enumerate(shape) if size[i] != most)
    axes = set[int]()
    scale, shift = np.ones([1] * len(shape)), np.zeros([1] * len(shape))
    row: list[Node] = []
    node: Node | None = head
    while node is not None and (terms := first if node is head else _constant(editor, node)) is not None:
        factor, term = terms[1:]
        differ = axes | {i for i, most in enumerate(factor.shape) if most > 1 and i not in copies}
        if len(differ) > 1 or (row and editor[row[-1].outputs[0]].clamp is not None):
            break
        axes, scale, shift = differ, scale * factor, shift * factor + term
        row.append(node)
        node = editor.only_user(node.outputs[0])
    if not axes or (np.ptp(scale) == 0 and (copies or np.ptp(shift) == 0)):
        return False
    (axis,) = axes
    count = shape[axis]
    out = editor[row[-1].outputs[0]]
    for done in row:
        editor.remove(done)
    others = [i for i in range(len(shape)) if i != axis and i not in copies]
    order = (*others, axis, *copies)  # of the layer's results
    below = editor.reshape(x, size, at=head) if size != editor[x].shape else x
    below = _turned(editor, below, (*(i for i in range(len(shape)) if i != axis), axis), head)
    if copies or len(size) != 4:
        flat = (1, 1, math.prod(size) // count, count)
        below = editor.reshape(below, flat, at=head) if editor[below].shape != flat else below
    each = [count if i == axis else shape[i] if i in copies else 1 for i in range(len(shape))]
    weights, bias = (np.broadcast_to(a, each).transpose(order).ravel() for a in (scale, shift))
    inputs = (
        below,
        editor.const(f"{head.name}.scale", weights.reshape(-1, 1, 1, 1)),
        editor.const(f"{head.name}.shift", bias),
    )
    params = Conv2DParams(groups=count)
    results, back = tuple(shape[i] for i in order), tuple(int(i) for i in np.argsort(order))
    turned = back != tuple(range(len(shape)))
    if not turned and editor[below].shape == results:
        editor.emit("conv2d", inputs, params, at=head, name=head.name, out=out.name, clamp=out.clamp)
        return True
    y = editor.emit("conv2d", inputs, params, at=head, name=head.name, clamp=out.clamp)
    if not turned:
        editor.reshape(y, results, at=head, out=out.name)
        return True
    y = editor.reshape(y, results, at=head) if editor[y].shape != results else y
    editor.transpose(y, back, at=head, out=out.name)
    return True


def _turned(editor: Editor, x: str, perm: tuple[int, ...], at: Node) -> str:
    return x if perm == tuple(range(len(perm))) else editor.transpose(x, perm, at=at)


def _constant(editor: Editor, node: Node, broadcast: bool = False) -> tuple[str, np.ndarray, np.ndarray] | None:
    """The operand x of an op that computes factor * x + term, and these, of the output's rank; None for other ops.

    broadcast: whether x may have fewer elements than the output.
    """
    if len(node.inputs) != 2 or not OPS[node.op].elementwise:
        return None
    shape = editor[node.outputs[0]].shape
    for place, (x, const) in enumerate((node.inputs, node.inputs[::-1])):
        value = editor[const]
        if editor[x].is_const or not value.is_const or not editor[x].shape:
            continue
        if editor[x].shape != shape and not broadcast:
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
