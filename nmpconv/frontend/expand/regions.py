"""RoiAlign of constant boxes: a mean of bilinear samples is a sum over rows of sums over columns."""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode

ADAPTIVE_MAX = 2**12  # samples along an axis of a cell, where the box's size tells them


def roi_align(node: OnnxNode, body: Body) -> None:
    """y [boxes, C, h, w]: rows @ x @ columns for each box. Source: ONNX, RoiAlign-16."""
    x = node.input(0)
    boxes = body.to.array(node.input(1), "boxes").astype(np.float64)
    images = body.to.integers(node.input(2), "batch indices")
    if boxes.ndim != 2 or boxes.shape[1] != 4 or len(images) != len(boxes) or not len(boxes):
        raise Invalid(f"boxes of shape {list(boxes.shape)}, batch indices {list(images)}", hint="[n,4] and [n]")
    if node.text("mode", "avg") != "avg":
        raise Unsupported("mode max", hint="avg")
    if any(images) or body.shape(x)[0] != 1:
        raise Unsupported("boxes of several images", hint="a batch of 1")
    half = node.opset >= 16 and node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    cells = node.integer("output_height", 1), node.integer("output_width", 1)
    scaled = boxes * node.number("spatial_scale", 1.0) - (0.5 if half else 0.0)
    results = []
    for left, top, right, bottom in scaled:
        rows, columns = (
            _means(low, high, count, size, node.integer("sampling_ratio", 0), whole=half)
            for low, high, count, size in zip((top, left), (bottom, right), cells, body.shape(x)[2:], strict=True)
        )
        results.append(body("MatMul", body("MatMul", rows, x), np.ascontiguousarray(columns.T)))
    body("Concat", *results, axis=0, output=node.outputs[0])


def _means(low: float, high: float, cells: int, size: int, samples: int, *, whole: bool) -> np.ndarray:
    """Weights of pixels in the mean of each cell's samples [cells, size]. samples: of a cell, 0 for one a pixel. whole:
    whether a box may be narrower than a pixel."""
    extent = high - low if whole else max(high - low, 1.0)
    count = samples if samples > 0 else int(np.ceil(extent / cells))
    if count > ADAPTIVE_MAX:
        raise Unsupported(f"a box of {extent:g} pixels", hint="a sampling_ratio")
    weights = np.zeros((cells, size), np.float32)
    if count < 1:
        return weights
    at = low + extent / cells * (np.arange(cells)[:, None] + (np.arange(count) + 0.5) / count)
    inside, at = (at >= -1) & (at <= size), np.clip(at, 0, size - 1)
    first = np.minimum(at.astype(int), size - 1)
    share = at - first
    cell = np.broadcast_to(np.arange(cells)[:, None], at.shape)
    np.add.at(weights, (cell, first), inside * (1 - share) / count)
    np.add.at(weights, (cell, np.minimum(first + 1, size - 1)), inside * share / count)
    return weights


ALWAYS = {"RoiAlign": roi_align}
