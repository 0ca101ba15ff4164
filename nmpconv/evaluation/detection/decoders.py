"""Decoders of detectors' outputs, by the names that the field has for them.

A point is a cell of a grid; grids come in the order of their strides, cells row by row. The sources are the projects
that publish the models: their own post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nmpconv.errors import InputError

Arrays = Sequence[np.ndarray]
Size = tuple[int, int]  # height and width of the model's input in pixels

YOLO_ANCHORS = {  # width and height in pixels by stride: YOLOv5's and YOLOv7's default for COCO
    8: ((10, 13), (16, 30), (33, 23)),
    16: ((30, 61), (62, 45), (59, 119)),
    32: ((116, 90), (156, 198), (373, 326)),
}
YOLOV8_BINS, NANODET_BINS = 16, 8  # of the distribution of a box's side


LOGARITHM_MOST = 20.0  # of a side in strides: farther than any image


@dataclass(frozen=True)
class Decoder:
    """decode: boxes of the outputs of one image, in any order, before suppression. overlap: above which one is
    suppressed. takes: shapes of outputs, for messages."""

    decode: Callable[[Arrays, Size], np.ndarray]
    overlap: float
    takes: str

    def boxes(self, outputs: Arrays, size: Size) -> np.ndarray:
        """InputError for outputs of other shapes."""
        if not all(x.ndim >= 3 and x.shape[0] == 1 and x.size for x in outputs):
            raise InputError(f"outputs of shapes {_shapes(outputs)}")
        return self.decode(outputs, size)


def yolox(outputs: Arrays, size: Size) -> np.ndarray:
    """[1, points, 5 + classes]: centre relative to the point, logarithms of width and height, all in strides;
    objectness and classes with their sigmoid."""
    x = _rows(outputs, 6)
    points = _points(len(x), size)
    centre = (x[:, :2] + points[:, :2]) * points[:, 2:]
    return _boxes(_around(centre, _sides(x) * points[:, 2:]), x[:, 4:5] * x[:, 5:])


def yolov5(outputs: Arrays, size: Size) -> np.ndarray:
    """One output [1, n, 5 + classes] with decoded boxes; or a raw head a stride, [1, 3, h, w, 5 + classes] or
    [1, 3 * (5 + classes), h, w]."""
    if len(outputs) == 1 and outputs[0].ndim == 3:
        x = _rows(outputs, 6)
        return _boxes(_around(x[:, :2], x[:, 2:4]), x[:, 4:5] * x[:, 5:])
    return np.concatenate([_yolov5_head(head.astype(np.float64), size) for head in outputs])


def _yolov5_head(head: np.ndarray, size: Size) -> np.ndarray:
    if head.ndim == 4 and head.shape[1] % 3 == 0:
        head = head.reshape(1, 3, head.shape[1] // 3, *head.shape[2:]).transpose(0, 1, 3, 4, 2)
    if head.ndim != 5 or head.shape[1] != 3 or head.shape[4] < 6:
        raise InputError(f"a head of shape {list(head.shape)}")
    height, width = head.shape[2:4]
    stride = size[0] // height
    if stride not in YOLO_ANCHORS:
        raise InputError(f"a head of stride {stride}; anchors are known for {', '.join(map(str, YOLO_ANCHORS))}")
    x = _sigmoid(head[0])  # 3 x h x w x (5 + classes)
    centre = (2 * x[..., :2] - 0.5 + _cells(height, width).reshape(height, width, 2)) * stride
    sides = (2 * x[..., 2:4]) ** 2 * np.array(YOLO_ANCHORS[stride], np.float64)[:, None, None]
    scores = x[..., 4:5] * x[..., 5:]
    return _boxes(_around(centre.reshape(-1, 2), sides.reshape(-1, 2)), scores.reshape(-1, scores.shape[-1]))


def yolov8(outputs: Arrays, size: Size) -> np.ndarray:
    """One output [1, 4 + classes, n] with decoded boxes; or a raw head a stride, [1, 64 + classes, h, w]."""
    if len(outputs) == 1 and outputs[0].ndim == 3:
        x = outputs[0][0].T.astype(np.float64)
        if not 5 <= x.shape[1] < len(x):
            raise InputError(f"an output of shape {list(outputs[0].shape)}")
        return _boxes(_around(x[:, :2], x[:, 2:4]), x[:, 4:])
    return np.concatenate([_yolov8_head(head.astype(np.float64), size) for head in outputs])


def _yolov8_head(head: np.ndarray, size: Size) -> np.ndarray:
    if head.ndim != 4 or head.shape[1] <= 4 * YOLOV8_BINS:
        raise InputError(f"a head of shape {list(head.shape)}")
    height, width = head.shape[2:]
    stride = size[0] // height
    x = head[0].reshape(head.shape[1], -1).T
    sides = _expected(x[:, : 4 * YOLOV8_BINS], YOLOV8_BINS) * stride
    return _boxes(_between((_cells(height, width) + 0.5) * stride, sides), _sigmoid(x[:, 4 * YOLOV8_BINS :]))


def nanodet(outputs: Arrays, size: Size) -> np.ndarray:
    """[1, points, classes + 32], or for each stride [1, points, classes] and [1, points, 32]: classes with their
    sigmoid, then a distribution over 8 distances for each side. NanoDet has strides to 32 and measures from the middles
    of cells; NanoDet-Plus to 64, and from their corners."""
    sides_of = 4 * NANODET_BINS
    if len(outputs) == 1:
        x = _rows(outputs, sides_of + 1)
        scores, sides = x[:, :-sides_of], x[:, -sides_of:]
    else:
        wide = [x.reshape(-1, x.shape[-1]) for x in outputs if x.shape[-1] == sides_of]
        narrow = [x.reshape(-1, x.shape[-1]) for x in outputs if x.shape[-1] != sides_of]
        wide, narrow = (sorted(group, key=len, reverse=True) for group in (wide, narrow))
        if [len(x) for x in wide] != [len(x) for x in narrow] or len({x.shape[1] for x in narrow}) != 1:
            raise InputError(f"outputs of shapes {_shapes(outputs)}")
        scores, sides = (np.concatenate(group).astype(np.float64) for group in (narrow, wide))
    points = _points(len(sides), size)
    middle = 0.0 if points[-1, 2] > 32 else 0.5
    return _boxes(
        _between((points[:, :2] + middle) * points[:, 2:], _expected(sides, NANODET_BINS) * points[:, 2:]), scores
    )


def ultraface(outputs: Arrays, size: Size) -> np.ndarray:
    """[1, n, 2], the probabilities of background and face, and [1, n, 4], corners in parts of the image."""
    scores, corners = _pair(outputs, (2, 4))
    height, width = size
    return _boxes(corners * (width, height, width, height), scores[:, 1:])


def yunet(outputs: Arrays, size: Size) -> np.ndarray:
    """For each stride [1, points, 1] twice, the probabilities of a class and of an object, and [1, points, 4] as in
    YOLOX; landmarks, [1, points, 10], are left out. The score is the geometric mean of the two."""
    predictions = []
    for corners in sorted((x for x in outputs if x.shape[-1] == 4), key=lambda x: -x.size):
        probabilities = [x for x in outputs if x.shape[-1] == 1 and 4 * x.size == corners.size]
        if len(probabilities) != 2:
            raise InputError(f"outputs of shapes {_shapes(outputs)}")
        a, b = (np.clip(x.reshape(-1, 1).astype(np.float64), 0, 1) for x in probabilities)
        predictions.append(np.concatenate([corners.reshape(-1, 4).astype(np.float64), np.sqrt(a * b)], axis=1))
    if not predictions:
        raise InputError(f"outputs of shapes {_shapes(outputs)}")
    x = np.concatenate(predictions)
    points = _points(len(x), size)
    centre = (x[:, :2] + points[:, :2]) * points[:, 2:]
    return _boxes(_around(centre, _sides(x) * points[:, 2:]), x[:, 4:])


DECODERS: Mapping[str, Decoder] = {
    "nanodet": Decoder(nanodet, 0.6, "[1, points, classes + 32]"),
    "ultraface": Decoder(ultraface, 0.3, "[1, n, 2] and [1, n, 4]"),
    "yolov5": Decoder(yolov5, 0.6, "[1, n, 5 + classes] or raw heads [1, 3 * (5 + classes), h, w]"),
    "yolov8": Decoder(yolov8, 0.7, "[1, 4 + classes, n] or raw heads [1, 64 + classes, h, w]"),
    "yolox": Decoder(yolox, 0.65, "[1, points, 5 + classes]"),
    "yunet": Decoder(yunet, 0.3, "for each stride [1, points, 1] twice and [1, points, 4]"),
}


def _sides(x: np.ndarray) -> np.ndarray:
    """Width and height in strides, from logarithms in columns 2 and 3."""
    return np.exp(np.minimum(x[:, 2:4], LOGARITHM_MOST))


def _rows(outputs: Arrays, least: int) -> np.ndarray:
    """The only output [1, n, columns] as [n, columns]."""
    if len(outputs) != 1 or outputs[0].ndim != 3 or outputs[0].shape[0] != 1 or outputs[0].shape[2] < least:
        raise InputError(f"outputs of shapes {_shapes(outputs)}")
    return outputs[0][0].astype(np.float64)


def _pair(outputs: Arrays, columns: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs two outputs [1, n, columns], each as [n, columns], in the order of ``columns``."""
    groups = [[x for x in outputs if x.ndim == 3 and x.shape[2] == count] for count in columns]
    if len(outputs) != 2 or any(len(rows) != 1 for rows in groups) or outputs[0].shape[1] != outputs[1].shape[1]:
        raise InputError(f"outputs of shapes {_shapes(outputs)}")
    return groups[0][0][0].astype(np.float64), groups[1][0][0].astype(np.float64)


def _shapes(outputs: Arrays) -> str:
    return ", ".join(str(list(x.shape)) for x in outputs)


def _points(count: int, size: Size) -> np.ndarray:
    """[count, 3]: column, row and stride of each."""
    for strides in ((8, 16, 32), (8, 16, 32, 64)):
        grids = [(-(-size[0] // stride), -(-size[1] // stride), stride) for stride in strides]
        if sum(rows * columns for rows, columns, _ in grids) == count:
            cells = [(_cells(rows, columns), stride) for rows, columns, stride in grids]
            return np.concatenate([np.column_stack([xy, np.full(len(xy), stride)]) for xy, stride in cells])
    raise InputError(f"{count} points; an input of {size[1]}x{size[0]} has others at strides of 8 to 32 or 64")


def _cells(rows: int, columns: int) -> np.ndarray:
    """[rows * columns, 2]: column and row of each."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    return np.stack([x, y], axis=1).astype(np.float64)


def _expected(x: np.ndarray, bins: int) -> np.ndarray:
    """[n, 4 * bins] logits to [n, 4]: means of the distributions over 0, 1, ... (Generalized Focal Loss)."""
    x = x.reshape(len(x), 4, bins)
    odds = np.exp(x - x.max(axis=2, keepdims=True))
    return odds @ np.arange(bins) / odds.sum(axis=2)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _around(centre: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Corners of boxes given by their centres, and widths and heights."""
    return np.concatenate([centre - sides / 2, centre + sides / 2], axis=1)


def _between(point: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Corners of boxes given by distances of left, top, right and bottom to a point."""
    return np.concatenate([point - sides[:, :2], point + sides[:, 2:]], axis=1)


def _boxes(corners: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Each with its best class."""
    best = np.argmax(scores, axis=1)
    return np.column_stack([corners, scores[np.arange(len(best)), best], best])
