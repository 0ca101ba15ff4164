"""DeformConv: pixels at places of its own for each tap, by GridSample, and a convolution of one pixel over all taps."""

from __future__ import annotations

from itertools import product

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode

TAPS_MAX = 49  # samplings of the image, one for each tap and group of offsets
_CHANNELS = np.array([1])


def deform_conv(node: OnnxNode, body: Body) -> None:
    """Source: ONNX, DeformConv-22. Offsets are pairs, of rows and columns, for each tap of each group of channels."""
    x, w, offset, b, mask = (node.input(place) for place in range(5))
    weights = body.to.array(w, "weights")
    (_, channels, *size), (*_, height, width) = body.shape(x), body.shape(offset)
    (_, _, *kernel), groups = weights.shape, node.integer("offset_group", 1)
    taps = list(product(range(groups), *map(range, kernel)))
    if len(size) != 2 or min(size) < 2 or len(taps) > TAPS_MAX:
        raise Unsupported(f"an image of {size}, {len(taps)} taps", hint=f"[N,C,H,W], at most {TAPS_MAX} taps")
    strides, dilations = (node.sides(name, 1, 2) for name in ("strides", "dilations"))
    top, left, *_ = node.integers("pads") or (0, 0, 0, 0)
    factors = 2 / (np.array(size) - 1)  # of pixels, in halves of the image
    starts = np.zeros((1, 2 * len(taps), height, width))
    for place, (_, row, column) in enumerate(taps):
        starts[0, 2 * place] = (np.arange(height) * strides[0] - top + row * dilations[0])[:, np.newaxis]
        starts[0, 2 * place + 1] = np.arange(width) * strides[1] - left + column * dilations[1]
    scale = np.tile(factors, len(taps)).reshape(1, -1, 1, 1)
    places = body("Mul", offset, scale.astype(np.float32))
    places = body("Add", places, (starts * scale - 1).astype(np.float32))
    share = channels // groups
    samples = []
    for place, (group, *_) in enumerate(taps):
        image = x if groups == 1 else _part(body, x, group * share, share)
        grid = body("Gather", places, np.array([2 * place + 1, 2 * place]), axis=1)
        grid = body("Transpose", grid, perm=[0, 2, 3, 1])
        sample = body("GridSample", image, grid, mode="linear", padding_mode="zeros", align_corners=1)
        samples.append(body("Mul", sample, _part(body, mask, place, 1)) if mask else sample)
    rows = _over_taps(weights, node.integer("group", 1), groups)
    body("Conv", body("Concat", *samples, axis=1), rows, *([b] if b else []), output=node.outputs[0])


def _part(body: Body, x: str, first: int, count: int) -> str:
    return body("Slice", x, np.array([first]), np.array([first + count]), _CHANNELS)


def _over_taps(weights: np.ndarray, group: int, offset_groups: int) -> np.ndarray:
    """[outputs, offset groups * taps * their channels, 1, 1], 0 for channels of other groups."""
    outputs, inputs, *kernel = weights.shape
    whole = np.zeros((outputs, inputs * group, *kernel), np.float32)
    for i, rows in enumerate(np.split(np.arange(outputs), group)):
        whole[rows, i * inputs : (i + 1) * inputs] = weights[rows]
    parts = whole.reshape(outputs, offset_groups, -1, *kernel).transpose(0, 1, 3, 4, 2)
    return parts.reshape(outputs, -1, 1, 1)


ALWAYS = {"DeformConv": deform_conv}
