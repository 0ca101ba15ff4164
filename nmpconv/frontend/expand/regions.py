"""RoiAlign of constant boxes: a mean of bilinear samples is a sum over rows of sums over columns.

Its mode max takes the largest of the samples' terms, each a pixel times its share, which is the largest over rows of
the largest over columns, as no share is negative. So do ONNX's reference and onnxruntime.
"""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode

ADAPTIVE_MAX = 2**12  # samples along an axis of a cell, where the box's size tells them


def roi_align(node: OnnxNode, body: Body) -> None:
    """y [boxes, C, h, w]: of mode avg rows @ x @ columns for each box. Source: ONNX, RoiAlign-16."""
    x = node.input(0)
    boxes = body.to.array(node.input(1), "boxes").astype(np.float64)
    images = body.to.integers(node.input(2), "batch indices")
    if boxes.ndim != 2 or boxes.shape[1] != 4 or len(images) != len(boxes) or not len(boxes):
        raise Invalid(f"boxes of shape {list(boxes.shape)}, batch indices {list(images)}", hint="[n,4] and [n]")
    mode = node.text("mode", "avg")
    if mode not in POOLED:
        raise Invalid(f"mode {mode!r}", hint=" or ".join(POOLED))
    if any(images) or body.shape(x)[0] != 1:
        raise Unsupported("boxes of several images", hint="a batch of 1")
    half = node.opset >= 16 and node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    cells = node.integer("output_height", 1), node.integer("output_width", 1)
    scaled = boxes * node.number("spatial_scale", 1.0) - (0.5 if half else 0.0)
    results = []
    for left, top, right, bottom in scaled:
        y = x
        for axis, low, high in ((2, top, bottom), (3, left, right)):
            count, size = cells[axis - 2], body.shape(x)[axis]
            terms = _terms(low, high, count, size, node.integer("sampling_ratio", 0), whole=half)
            y = POOLED[mode](body, y, axis, *terms)
        results.append(y)
    body("Concat", *results, axis=0, output=node.outputs[0])


def _means(body: Body, x: str, axis: int, pixels: np.ndarray, shares: np.ndarray) -> str:
    """The mean of each cell's samples along an axis of x [1, C, H, W]."""
    cells, terms = pixels.shape
    weights = np.zeros((cells, body.shape(x)[axis]), np.float32)
    np.add.at(weights, (np.arange(cells)[:, None], pixels), shares / (terms // 2))
    return body("MatMul", weights, x) if axis == 2 else body("MatMul", x, np.ascontiguousarray(weights.T))


def _largest(body: Body, x: str, axis: int, pixels: np.ndarray, shares: np.ndarray) -> str:
    """The largest of each cell's terms along an axis of x [1, C, H, W]."""
    terms = pixels.shape[1]
    taken = body("Gather", x, pixels.reshape(-1), axis=axis)
    along, window = ((-1, 1), [terms, 1]) if axis == 2 else ((-1,), [1, terms])
    return body("MaxPool", body("Mul", taken, shares.reshape(along)), kernel_shape=window, strides=window)


def _terms(
    low: float, high: float, cells: int, size: int, samples: int, *, whole: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels, and their shares, of each cell's samples: two of each [cells, 2 samples]. samples: of a cell, 0 for one a
    pixel. whole: whether a box may be narrower than a pixel."""
    extent = high - low if whole else max(high - low, 1.0)
    count = samples if samples > 0 else int(np.ceil(extent / cells))
    if count > ADAPTIVE_MAX:
        raise Unsupported(f"a box of {extent:g} pixels", hint="a sampling_ratio")
    if count < 1:
        return np.zeros((cells, 2), np.int64), np.zeros((cells, 2), np.float32)
    at = low + extent / cells * (np.arange(cells)[:, None] + (np.arange(count) + 0.5) / count)
    inside, at = (at >= -1) & (at <= size), np.clip(at, 0, size - 1)
    first = np.minimum(at.astype(int), size - 1)
    share = at - first
    pixels = np.concatenate([first, np.minimum(first + 1, size - 1)], axis=1)
    return pixels, np.concatenate([inside * (1 - share), inside * share], axis=1).astype(np.float32)


POOLED = {"avg": _means, "max": _largest}
ALWAYS = {"RoiAlign": roi_align}
