"""Merge per-channel affine functions into the weights of a neighbouring convolution or fully connected.

A map y[i] = scale[i] * x[source[i]] + shift[i] on the last axis, all sources different, is one of

1. a 1x1 convolution with one weight per output (depthwise, or dense with one non-zero weight per row and column),
2. add, sub or mul (`Op.affine`) with a constant that has a value per channel or one for all.

It is merged

3. into the layer that computes x; moves that keep the channels may lie in between. If x is saturated, the map must be
   positive factors that change no bound but by one factor for all. If others read x, too, as in weighted sums of
   features, it must be one factor, and they must be layers or constant factors, which take up its inverse;
4. else into the layers that read y, if they all can take it and y is neither saturated nor an output. Padding stands
   for another value then, pad_x = (pad_y - shift) / scale. It must be no larger than x itself is, for it lies on the
   grid of x: a wider one would cost x bits. So only raw pixels take a padding before calibration tells what x reaches.
   A map of case 2 goes below moves that keep the channels, if layers read what these make.

A grouped convolution takes only maps that keep the channels' order. What cannot be merged stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.traits import Bounds
from nmpconv.ops.common.weighted import groups_of
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.passes.affine_maps import Affine, merge_into_reader, pad_before
from nmpconv.passes.rewrite import Editor, apply, intersect

FACTOR_BITS = 20  # of a factor whose inverse other readers take: they keep their digits, and a float is no infinity
PIXEL_RANGE = (-128.0, 127.5)  # what rounds to a pixel - 128


def run(graph: Graph, peaks: Mapping[str, float] | None = None) -> Graph:
    """peaks: the largest magnitude of activations, by name; those of raw pixels are known."""
    ranges = {name: (-peak, peak) for name, peak in (peaks or {}).items()}
    forward = partial(_forward, {**ranges, **dict.fromkeys(graph.pixels, PIXEL_RANGE)})
    if peaks is not None:  # a tensor that keeps its name keeps its statistics
        return apply(graph, partial(_backward, graph.given, False), forward)
    return apply(graph, partial(_backward, graph.given, True), partial(_below_move, graph.given), forward)


def affine(editor: Editor, node: Node) -> Affine | None:
    """The map that a node computes before its clamp; None if it is none of cases 1 and 2."""
    if node.op == "conv2d":
        return _from_conv(editor, node)
    return _from_constant(editor, node) if len(node.inputs) == 2 else None


def _from_conv(editor: Editor, node: Node) -> Affine | None:  # case 1
    groups = node.params.groups
    w = editor.data(node.inputs[1])
    outs, kh, kw, per_group = w.shape
    if replace(node.params, groups=1, dilation_h=1, dilation_w=1) != Conv2DParams() or (kh, kw) != (1, 1):
        return None
    rows, shift = w.reshape(outs, per_group), editor.data(node.inputs[2])
    if groups == outs and per_group == 1:
        return Affine(node.inputs[0], rows[:, 0], shift, np.arange(outs))
    taps = rows != 0
    if groups != 1 or outs != per_group or (taps.sum(0) != 1).any() or (taps.sum(1) != 1).any():
        return None
    source = taps.argmax(axis=1)
    return Affine(node.inputs[0], rows[np.arange(outs), source], shift, source)


def _from_constant(editor: Editor, node: Node) -> Affine | None:  # case 2
    for place, (x, const) in enumerate((node.inputs, node.inputs[::-1])):
        shape, value = editor[x].shape, editor[const]
        if editor[x].is_const or not value.is_const or editor[node.outputs[0]].shape != shape or not shape:
            continue
        if value.size not in (1, shape[-1]) or value.size != (value.shape[-1] if value.shape else 1):
            continue
        scale_shift = OPS[node.op].affine(place, np.broadcast_to(editor.data(const).ravel(), shape[-1:]))
        if scale_shift is not None:
            return Affine(x, *scale_shift, np.arange(shape[-1]))
    return None


def _backward(grids: Container[str], past_moves: bool, editor: Editor, node: Node) -> bool:  # case 3
    affine_map = affine(editor, node)
    if affine_map is None:
        return False
    between, first = list[Node](), node
    layer = editor.producer(affine_map.x)
    while past_moves and layer is not None and _keeps_channels(editor, layer) and _private(editor, layer):
        between, first = [*between, layer], layer
        layer = editor.producer(layer.inputs[0])
    if layer is None or layer.op not in WEIGHTED or (groups_of(layer) > 1 and not affine_map.keeps_order):
        return False
    x, out = editor[layer.outputs[0]], editor[node.outputs[0]]
    others = [user for user in editor.users(x.name) if user is not first]
    names = (x.name, *(move.outputs[0] for move in between))
    if (x.clamp is not None or between or others) and any(name in grids for name in names):
        return False  # the grid is that of the tensor as it is
    if out.clamp is not None and (between or others):
        return False  # moves cannot saturate; the clamp's own requantize will be raised above them
    if x.clamp is not None and not _scales(affine_map, x.clamp):
        return False
    if x.name in editor.outputs or (others and not _scales(affine_map, (1.0, 1.0))):
        return False
    if others and abs(math.log2(affine_map.scale[0])) > FACTOR_BITS:
        return False
    inverse = affine_map._replace(x=x.name, scale=1 / affine_map.scale) if others else affine_map
    if not all(_multiplies(editor, user) or _takes(editor, user, x.name, inverse, (0.0, 0.0)) for user in others):
        return False
    for user in others:
        if _multiplies(editor, user):
            constant = next(name for name in user.inputs if name != x.name)
            rest = editor.const(constant, editor.data(constant) * inverse.scale[0])
            editor.set(replace(user, inputs=(x.name, rest)))
        else:
            merge_into_reader(editor, user, inverse)
    w, b = editor.data(layer.inputs[1]), editor.data(layer.inputs[2])
    scale = affine_map.scale.reshape(-1, *[1] * (w.ndim - 1))
    inputs = (
        layer.inputs[0],
        editor.const(layer.inputs[1], w[affine_map.source] * scale),
        editor.const(layer.inputs[2], b[affine_map.source] * affine_map.scale + affine_map.shift),
        *layer.inputs[3:],
    )
    editor.remove(node)
    factor = float(affine_map.scale[0])
    clamp = None if x.clamp is None else (x.clamp[0] * factor, x.clamp[1] * factor)
    editor.set(replace(layer, inputs=inputs))
    editor.put(replace(x, clamp=clamp))
    last = editor.now(between[0] if between else layer)
    editor.put(replace(editor[affine_map.x], name=out.name, clamp=intersect(editor[affine_map.x].clamp, out.clamp)))
    editor.set(replace(last, outputs=node.outputs))
    editor.rename_uses(affine_map.x, out.name)
    return True


def _multiplies(editor: Editor, node: Node) -> bool:
    """Checks for constant factors."""
    return node.op == "mul" and any(editor[name].is_const for name in node.inputs)


def _keeps_channels(editor: Editor, node: Node) -> bool:
    """Checks for a move of whole rows of channels."""
    before, after = editor[node.inputs[0]].shape, editor[node.outputs[0]].shape
    if node.op == "transpose":
        return bool(node.params.perm[-1] == len(before) - 1)
    if node.op == "gather":
        return len(node.inputs) == 1 and bool(node.params.axis != len(before) - 1)
    return node.op == "reshape" and after[-1:] == before[-1:]


def _scales(affine_map: Affine, clamp: tuple[float, float]) -> bool:
    """Checks that a map of what is saturated is a saturated one, with bounds that are the same in all channels."""
    scale = affine_map.scale
    alike = all(bound in (0.0, -math.inf, math.inf) for bound in clamp) or bool((scale == scale[0]).all())
    return alike and affine_map.keeps_order and bool((scale > 0).all()) and not affine_map.shift.any()


def _private(editor: Editor, node: Node) -> bool:
    return editor.only_user(node.outputs[0]) is not None


def _below_move(grids: Container[str], editor: Editor, node: Node) -> bool:  # case 4
    affine_map = affine(editor, node)
    out, move = editor[node.outputs[0]], editor.only_user(node.outputs[0])
    if affine_map is None or node.op == "conv2d" or out.clamp is not None or move is None or out.name in grids:
        return False
    if not _keeps_channels(editor, move) or not _feeds_layers(editor, move):
        return False
    y = editor[move.outputs[0]]
    lines = (1,) * (len(y.shape) - 1)
    const = next(name for name in node.inputs if name != affine_map.x)
    const = editor.const(const, editor.data(const).reshape(*lines, -1))
    editor.remove(node)
    editor.remove(move)
    moved = editor.fresh(y.name)
    editor.emit(move.op, (affine_map.x, *move.inputs[1:]), move.params, at=move, name=move.name, out=moved)
    inputs = [moved if name == affine_map.x else const for name in node.inputs]
    editor.emit(node.op, inputs, node.params, at=move, name=node.name, out=y.name)
    return True


def _feeds_layers(editor: Editor, move: Node) -> bool:
    y = move.outputs[0]
    users = editor.users(y)
    layers = all(
        (user.op in WEIGHTED and user.inputs[0] == y) or (_keeps_channels(editor, user) and _feeds_layers(editor, user))
        for user in users
    )
    return bool(users) and layers and y not in editor.outputs


def _forward(ranges: Mapping[str, Bounds], editor: Editor, node: Node) -> bool:  # case 4
    affine_map = affine(editor, node)
    out = editor[node.outputs[0]]
    users = editor.users(out.name)
    is_last = out.name in editor.outputs or not users or editor.keeps_integers(out.name)
    if affine_map is None or out.clamp is not None or is_last:
        return False
    allowed = ranges.get(affine_map.x, (0.0, 0.0))
    if not all(_takes(editor, user, out.name, affine_map, allowed) for user in users):
        return False
    for user in users:
        merge_into_reader(editor, user, affine_map)
    editor.remove(node)
    return True


def _takes(editor: Editor, layer: Node, name: str, affine_map: Affine, allowed: Bounds) -> bool:
    if layer.op not in WEIGHTED or layer.inputs[0] != name or name in layer.inputs[1:]:
        return False
    if groups_of(layer) > 1 and not affine_map.keeps_order:
        return False
    pad = pad_before(editor, layer, affine_map)
    if pad is not None and WEIGHTED[layer.op].border is None:  # zeros between pixels stand for no value of a map
        return False
    return pad is None or bool(np.all((allowed[0] <= pad) & (pad <= allowed[1])))
