"""Three-dimensional convolutions and pools on [N,C,D,H,W], by two-dimensional ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops.onnx_node import OnnxNode

RANK = 5


def _is_volume(node: OnnxNode, to: Importer) -> bool:
    return len(to[node.input(0)].shape) == RANK


def conv(node: OnnxNode, body: Body) -> None:
    """The slices that a depth of the output sees become channels: one 2d convolution, its batch the depths."""
    x, w = node.input(0), _weights(node, body)
    size, kernel = body.shape(x)[2:], w.shape[2:]
    strides, dilations = (node.sides(name, 1, 3) for name in ("strides", "dilations"))
    pads = _padding(node, size, kernel, strides, dilations)
    depths = (size[0] + sum(pads[0]) - (kernel[0] - 1) * dilations[0] - 1) // strides[0] + 1
    if depths < 1:
        raise Invalid(f"a kernel of depth {kernel[0]} for depth {size[0]}")
    index = np.arange(depths)[:, None] * strides[0] + np.arange(kernel[0]) * dilations[0] - pads[0][0]
    flat = w.reshape(w.shape[0], -1, *kernel[1:])
    attributes: dict[str, Any] = {"strides": strides[1:], "dilations": dilations[1:]}
    attributes |= {"pads": [p[i] for i in (0, 1) for p in pads[1:]]}
    _by_depth(node, body, "Conv", index, flat, {**attributes, "group": node.integer("group", 1)})


def conv_transpose(node: OnnxNode, body: Body) -> None:
    """The slices that a depth of the output is made from become channels of a 2d transposed convolution."""
    x, w = node.input(0), _weights(node, body)
    size, kernel = body.shape(x)[2:], w.shape[2:]
    strides, dilations = (node.sides(name, 1, 3) for name in ("strides", "dilations"))
    more = node.sides("output_padding", 0, 3)
    if node.integers("output_shape") or node.text("auto_pad", "NOTSET") != "NOTSET":
        raise Unsupported("output_shape or auto_pad in three dimensions", hint="pads and output_padding")
    pads = node.integers("pads") or (0,) * 6
    depths = (size[0] - 1) * strides[0] + (kernel[0] - 1) * dilations[0] + 1 + more[0] - pads[0] - pads[3]
    reached = np.arange(depths)[:, None] + pads[0] - np.arange(kernel[0]) * dilations[0]
    index = np.where(reached % strides[0] == 0, reached // strides[0], -1)
    flat = w.reshape(-1, w.shape[1], *kernel[1:]) if kernel[0] == 1 else _deep(w)
    attributes: dict[str, Any] = {"strides": strides[1:], "dilations": dilations[1:], "output_padding": more[1:]}
    attributes |= {"pads": [pads[1], pads[2], pads[4], pads[5]]}
    _by_depth(node, body, "ConvTranspose", index, flat, {**attributes, "group": node.integer("group", 1)})


def _deep(w: np.ndarray) -> np.ndarray:
    """[C,O,KD,KH,KW] as [C*KD,O,KH,KW]."""
    return w.transpose(0, 2, 1, 3, 4).reshape(-1, w.shape[1], *w.shape[3:])


def _by_depth(
    node: OnnxNode, body: Body, kind: str, index: np.ndarray, w: np.ndarray, attributes: dict[str, Any]
) -> None:
    """The 2d op on the slices x[:, :, index], [OD,KD], as C*KD channels; what lies outside of x is 0."""
    x, b = node.input(0), node.input(2)
    n, channels, depth, height, width = body.shape(x)
    outside = (index < 0) | (index >= depth)
    if outside.any():
        x = body("Pad", x, np.array([0, 0, 0, 0, 0, 0, 0, 1, 0, 0]))
        index = np.where(outside, depth, index)
    seen = body("Gather", x, index, axis=2)  # [N,C,OD,KD,H,W]
    turned = body("Transpose", seen, perm=[0, 2, 1, 3, 4, 5])
    flat = body("Reshape", turned, np.array([n * len(index), channels * index.shape[1], height, width]))
    y = body(kind, flat, np.ascontiguousarray(w), *([b] if b else []), **attributes)
    _, o, oh, ow = body.shape(y)
    apart = body("Reshape", y, np.array([n, len(index), o, oh, ow]))
    body("Transpose", apart, perm=[0, 2, 1, 3, 4], output=node.outputs[0])


def _weights(node: OnnxNode, body: Body) -> np.ndarray:
    w = body.to.array(node.input(1), "weight")
    if w.ndim != RANK:
        raise Invalid(f"weights {list(w.shape)} for x of {RANK} dimensions", hint="as many dimensions")
    node.kernel_shape(w.shape[2:])
    return w


def _padding(
    node: OnnxNode, size: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Before and after each axis."""
    pads = node.integers("pads") or (0,) * 6
    axes = zip(size, kernel, strides, dilations, pads[:3], pads[3:], strict=True)
    return [node.padding(*axis)[:2] for axis in axes]


def pool(node: OnnxNode, body: Body) -> None:
    """Over H and W with C*D channels, then over D: a maximum of maxima, a mean of means, as each window is a box."""
    body.only_outputs(0)
    x = node.input(0)
    n, channels, depth, height, width = body.shape(x)
    kernel = node.integers("kernel_shape") or ()
    if len(kernel) != 3:
        raise Invalid(f"kernel_shape {list(kernel)} for 3 dimensions")
    common = {name: value for name, value in node.attributes.items() if name in _COMMON}
    strides, dilations = (node.sides(name, 1, 3) for name in ("strides", "dilations"))
    pads = node.integers("pads") or (0,) * 6

    def along(*axes: int) -> dict[str, Any]:
        """The attributes for some axes; where there is only one, of a window of width 1 beside it."""
        more = [1] * (2 - len(axes))
        return {
            **common,
            "kernel_shape": [*(kernel[i] for i in axes), *more],
            "strides": [*(strides[i] for i in axes), *more],
            **({"pads": [p for side in (0, 3) for p in (*(pads[side + i] for i in axes), *(0 for _ in more))]}),
            **({"dilations": [*(dilations[i] for i in axes), *more]} if max(dilations) > 1 else {}),
        }

    plane = body("Reshape", x, np.array([n, channels * depth, height, width]))
    plane = body(node.op_type, plane, **along(1, 2))
    oh, ow = body.shape(plane)[2:]
    columns = body("Reshape", plane, np.array([n, channels, depth, oh * ow]))
    columns = body(node.op_type, columns, **along(0))
    body("Reshape", columns, np.array([n, channels, body.shape(columns)[2], oh, ow]), output=node.outputs[0])


_COMMON = ("auto_pad", "ceil_mode", "count_include_pad", "storage_order")


def global_pool(node: OnnxNode, body: Body) -> None:
    kind = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}[node.op_type]
    body(kind, node.input(0), np.array([2, 3, 4]), output=node.outputs[0], keepdims=1)


def batch_norm(node: OnnxNode, body: Body) -> None:
    body.only_outputs(0)
    x = node.input(0)
    n, channels, depth, height, width = body.shape(x)
    plane = body("Reshape", x, np.array([n, channels, depth * height, width]))
    normalized = body("BatchNormalization", plane, *node.inputs[1:], epsilon=node.number("epsilon", 1e-5))
    body("Reshape", normalized, np.array(body.shape(x)), output=node.outputs[0])


FORMS = {
    "AveragePool": ((_is_volume, pool),),
    "BatchNormalization": ((lambda node, to: _is_volume(node, to) and not node.is_training, batch_norm),),
    "Conv": ((_is_volume, conv),),
    "ConvTranspose": ((_is_volume, conv_transpose),),
    "GlobalAveragePool": ((_is_volume, global_pool),),
    "GlobalMaxPool": ((_is_volume, global_pool),),
    "MaxPool": ((_is_volume, pool),),
}
