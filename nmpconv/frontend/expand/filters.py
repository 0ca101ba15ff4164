"""Convolutions whose weights or biases are computed, and sums of blocks as such of constant ones."""

from __future__ import annotations

from math import prod

import numpy as np

from nmpconv.errors import Invalid
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops.conv_transpose import transposed_padding
from nmpconv.ops.onnx_node import OnnxNode


def _is_computed(node: OnnxNode, to: Importer) -> bool:
    return not to.is_const(node.input(1))


def _has_computed_bias(node: OnnxNode, to: Importer) -> bool:
    return bool(node.input(2)) and not to.is_const(node.input(2))


def with_sum(node: OnnxNode, body: Body) -> None:
    """The bias is added."""
    b, rank = node.input(2), len(body.shape(node.input(0)))
    y = body(node.op_type, *node.inputs[:2], **node.attributes)
    body("Add", y, body("Reshape", b, np.array([1, -1, *(1 for _ in range(rank - 2))])), output=node.outputs[0])


def _is_of_constants(node: OnnxNode, to: Importer) -> bool:
    return all(map(to.is_const, node.inputs[:2])) and _has_computed_bias(node, to)


def constant_product(node: OnnxNode, body: Body) -> None:
    """A Gemm whose sum alone is computed, as that of a first state is: its product is a constant."""
    attributes = {name: number for name, number in node.attributes.items() if name != "beta"}
    product = body("Gemm", *node.inputs[:2], **attributes)
    beta = node.number("beta", 1.0)
    c = node.input(2) if beta == 1 else body("Mul", node.input(2), beta)
    body("Add", product, c, output=node.outputs[0])


def conv(node: OnnxNode, body: Body) -> None:
    """Products of matrices: weights [G,O/G,C/G*K] by patches [N,G,C/G*K,P], P places in the output, G groups."""
    x, w, b = (node.input(i) for i in range(3))
    n, channels, *size = body.shape(x)
    out_channels, per_group, *kernel = body.shape(w)
    groups = node.integer("group", 1)
    if len(kernel) != len(size) or channels != per_group * groups or out_channels % groups:
        shapes = f"weights {list(body.shape(w))} for x {list(body.shape(x))} in {groups} groups"
        raise Invalid(shapes, hint="[O,C/groups,...], groups divide O")
    node.kernel_shape(tuple(kernel))
    patches, places = _patches(node, body, x, size, kernel)
    columns = body("Reshape", patches, np.array([n, groups, per_group * prod(kernel), prod(places)]))
    rows = body("Reshape", w, np.array([1, groups, out_channels // groups, per_group * prod(kernel)]))
    y = body("MatMul", rows, columns)
    shape = np.array([n, out_channels, *places])
    if not b:
        body("Reshape", y, shape, output=node.outputs[0])
        return
    y = body("Reshape", y, shape)
    body("Add", y, body("Reshape", b, np.array([1, out_channels, *(1 for _ in size)])), output=node.outputs[0])


def conv_transpose(node: OnnxNode, body: Body) -> None:
    """A convolution of x with zeros between and around its pixels, by the turned weights."""
    x, w, b = (node.input(i) for i in range(3))
    size, (channels, per_group, *kernel) = body.shape(x)[2:], body.shape(w)
    groups = node.integer("group", 1)
    if len(kernel) != len(size) or channels != body.shape(x)[1] or channels % groups:
        shapes = f"weights {list(body.shape(w))} for x {list(body.shape(x))} in {groups} groups"
        raise Invalid(shapes, hint="[C,O/groups,...], groups divide C")
    node.kernel_shape(tuple(kernel))
    around = transposed_padding(node, size, kernel)
    for axis, (length, stride) in enumerate(zip(size, node.sides("strides", 1, len(size)), strict=True), start=2):
        x = _spread(body, x, axis, length, stride)
    if any(map(any, around)):
        x = body("Pad", x, np.array([0, 0, *(low for low, _ in around), 0, 0, *(high for _, high in around)]))
    for axis, length in enumerate(kernel, start=2):
        w = body("Gather", w, np.arange(length)[::-1], axis=axis)
    apart = body("Reshape", w, np.array([groups, channels // groups, per_group, *kernel]))
    turned = body("Transpose", apart, perm=[0, 2, 1, *range(3, 3 + len(kernel))])
    w = body("Reshape", turned, np.array([groups * per_group, channels // groups, *kernel]))
    dilations = node.sides("dilations", 1, len(size))
    body("Conv", x, w, *([b] if b else []), group=groups, dilations=dilations, output=node.outputs[0])


def _cuts(node: OnnxNode, to: Importer) -> list[tuple[int, int]]:
    """For each axis how much of the result pads cut off at both ends beyond what the kernel adds."""
    kernel = to.array(node.input(1), "weight").shape[2:]
    size = to[node.input(0)].shape[2:]
    if not kernel or len(kernel) != len(size):
        return []
    return [(max(-low, 0), max(-high, 0)) for low, high in transposed_padding(node, size, kernel)]


def _is_cut(node: OnnxNode, to: Importer) -> bool:
    return any(map(any, _cuts(node, to)))


def cut(node: OnnxNode, body: Body) -> None:
    """Pads that the kernel reaches; a Slice takes the rest of what they cut off."""
    cuts = _cuts(node, body.to)
    size, kernel = body.shape(node.input(0))[2:], body.shape(node.input(1))[2:]
    rank, dilation = len(kernel), node.sides("dilations", 1, len(kernel))
    around = transposed_padding(node, size, kernel)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    pads = [max(r - max(side[i], 0), 0) for i in (0, 1) for r, side in zip(reach, around, strict=True)]
    more = [max(high - r, 0) for r, (_, high) in zip(reach, around, strict=True)]
    attributes = {name: node.attributes[name] for name in ("strides", "dilations", "group") if name in node.attributes}
    y = body("ConvTranspose", *node.inputs, pads=pads, output_padding=more, **attributes)
    shape = body.shape(y)[2:]
    ends = [length - high for length, (_, high) in zip(shape, cuts, strict=True)]
    if any(end <= low for end, (low, _) in zip(ends, cuts, strict=True)):
        raise Invalid(f"pads that leave nothing of {list(shape)}")
    starts = np.array([low for low, _ in cuts])
    body("Slice", y, starts, np.array(ends), np.arange(2, 2 + rank), output=node.outputs[0])


def _spread(body: Body, x: str, axis: int, length: int, stride: int) -> str:
    """With stride - 1 zeros between what is side by side along an axis."""
    if stride == 1 or length == 1:
        return x
    shape = list(body.shape(x))
    apart = body("Unsqueeze", x, np.array([axis + 1]))
    filled = body(
        "Pad",
        apart,
        np.array([0] * (len(shape) + 1) + [stride - 1 if i == axis + 1 else 0 for i in range(len(shape) + 1)]),
    )
    shape[axis] = length * stride
    wide = body("Reshape", filled, np.array(shape))
    return body("Slice", wide, np.array([0]), np.array([(length - 1) * stride + 1]), np.array([axis]))


def _patches(node: OnnxNode, body: Body, x: str, size: list[int], kernel: list[int]) -> tuple[str, list[int]]:
    """[N,C,K,P], what each element of the kernel meets, and how many places there are along each axis."""
    n, channels = body.shape(x)[:2]
    rank = len(size)
    strides, dilations = (node.sides(name, 1, rank) for name in ("strides", "dilations"))
    pads = node.integers("pads") or (0,) * 2 * rank
    axes = zip(size, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    around = [node.padding(*axis)[:2] for axis in axes]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    places = [
        (length + sum(pad) - span) // stride + 1
        for length, pad, span, stride in zip(size, around, spans, strides, strict=True)
    ]
    if min(places) < 1:
        raise Invalid(f"a kernel of {kernel} for {size}")
    if any(map(any, around)):
        x = body("Pad", x, np.array([0, 0, *(low for low, _ in around), 0, 0, *(high for _, high in around)]))
    met = []
    for place in np.ndindex(*kernel):
        starts = np.array(place) * dilations
        ends = starts + (np.array(places) - 1) * strides + 1
        part = body("Slice", x, starts, ends, np.arange(2, 2 + rank), np.array(strides))
        met.append(body("Reshape", part, np.array([n, channels, 1, prod(places)])))
    return body("Concat", *met, axis=2) if len(met) > 1 else met[0], places


def col2im(node: OnnxNode, body: Body) -> None:
    """Blocks side by side are moved. Sums of blocks that overlap are a transposed convolution of each channel, with a
    weight of 1 for each place of its block."""
    x, size, block = node.input(0), *(body.to.integers(node.input(i), role) for i, role in ((1, "size"), (2, "block")))
    rank, area = len(size), prod(block)
    n, rows, columns = body.shape(x)
    strides, dilations = (node.sides(name, 1, rank) for name in ("strides", "dilations"))
    pads = node.integers("pads") or (0,) * (2 * rank)
    reach = [
        length + before + after - dilation * (side - 1) - 1
        for length, before, after, dilation, side in zip(size, pads[:rank], pads[rank:], dilations, block, strict=True)
    ]
    places = [left // stride + 1 for left, stride in zip(reach, strides, strict=True)]
    if min(reach) < 0 or rows % area or columns != prod(places):
        raise Invalid(f"blocks {list(block)} of {list(size)} for x {[n, rows, columns]}", hint="[N,C*block,blocks]")
    whole = [number * side for number, side in zip(places, block, strict=True)]
    if [*strides] == [*block] and [*size] == whole and not any(pads):
        apart = body("Reshape", x, np.array([n, rows // area, *block, *places]))
        order = [0, 1, *(axis for i in range(rank) for axis in (2 + rank + i, 2 + i))]
        y = body("Transpose", apart, perm=order)
        body("Reshape", y, np.array([n, rows // area, *size]), output=node.outputs[0])
        return
    spread = body("Reshape", x, np.array([n, rows, *places]))
    weights = np.tile(np.eye(area, dtype=np.float32).reshape(area, 1, *block), (rows // area, *(1,) * (rank + 1)))
    rest = [left % stride for left, stride in zip(reach, strides, strict=True)]
    how = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": rest, "group": rows // area}
    body("ConvTranspose", spread, weights, output=node.outputs[0], **how)


ALWAYS = {"Col2Im": col2im}
FORMS = {
    "Gemm": ((_is_of_constants, constant_product),),
    "Conv": ((_is_computed, conv), (_has_computed_bias, with_sum)),
    "ConvTranspose": ((_is_computed, conv_transpose), (_has_computed_bias, with_sum), (_is_cut, cut)),
}
