"""Decoders read what a detector with these boxes would give: outputs are written here from boxes, by other formulas."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.cli.shared_flags import DecoderChoice
from nmpconv.errors import InputError
from nmpconv.evaluation.detection.boxes import CLASS, SCORE
from nmpconv.evaluation.detection.decoders import DECODERS, YOLO_ANCHORS

SIZE = (64, 96)  # height, width
STRIDES = (8, 16, 32)
CLASSES = 3


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def grids(strides: tuple[int, ...] = STRIDES) -> list[tuple[int, int, int]]:
    """(stride, row, column) of every point."""
    return [(s, y, x) for s in strides for y in range(SIZE[0] // s) for x in range(SIZE[1] // s)]


def wanted(rng: np.random.Generator, strides: tuple[int, ...] = STRIDES) -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom of a box around the middle of every point's cell."""
    boxes = []
    for stride, y, x in grids(strides):
        left, top, right, bottom = rng.uniform(0.5, 2.5, 4) * stride
        boxes.append(
            (
                (x + 0.5) * stride - left,
                (y + 0.5) * stride - top,
                (x + 0.5) * stride + right,
                (y + 0.5) * stride + bottom,
            )
        )
    return boxes


def test_four_strides() -> None:
    """As NanoDet has them; the sizes are no multiples of all strides."""
    count = sum(-(-64 // s) * -(-96 // s) for s in (8, 16, 32, 64))
    rows = np.zeros((1, count, 5))
    boxes = DECODERS["yolox"].boxes([np.concatenate([rows, np.ones((1, count, 1))], axis=2)], SIZE)
    assert sorted(set((boxes[:, 2] - boxes[:, 0]).tolist())) == [8, 16, 32, 64]


def check(name: str, outputs: list[np.ndarray], boxes: list, scores: np.ndarray) -> None:
    """scores: [boxes, classes], of each the best one counts."""
    found = DECODERS[name].boxes([x.astype(np.float32) for x in outputs], SIZE)
    assert found.shape == (len(boxes), 6)
    np.testing.assert_allclose(found[:, :4], boxes, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(found[:, SCORE], scores.max(axis=1), rtol=1e-4)
    assert found[:, CLASS].tolist() == scores.argmax(axis=1).tolist()


def logit(p: np.ndarray | float) -> np.ndarray | float:
    return np.log(p / (1 - np.asarray(p)))


def centred(box: tuple[float, ...]) -> tuple[float, float, float, float]:
    left, top, right, bottom = box
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


def yolox_row(box: tuple[float, ...], point: tuple[int, int, int]) -> list[float]:
    (cx, cy, w, h), (stride, y, x) = centred(box), point
    return [cx / stride - x, cy / stride - y, np.log(w / stride), np.log(h / stride)]


def test_yolox(rng: np.random.Generator) -> None:
    boxes, scores = wanted(rng), rng.uniform(0.1, 1, (len(grids()), CLASSES))
    rows = [[*yolox_row(b, p), 0.5, *s] for b, p, s in zip(boxes, grids(), scores, strict=True)]
    check("yolox", [np.array([rows])], boxes, scores * 0.5)


def test_yunet(rng: np.random.Generator) -> None:
    boxes, scores = wanted(rng), rng.uniform(0.1, 1, (len(grids()), 1))
    sides = np.array([yolox_row(b, p) for b, p in zip(boxes, grids(), strict=True)])
    strides = np.array([stride for stride, _, _ in grids()])
    outputs = []
    for stride in STRIDES:
        at = strides == stride
        outputs += [scores[at][None], np.full((1, at.sum(), 1), 0.25), sides[at][None], np.zeros((1, at.sum(), 10))]
    check("yunet", outputs, boxes, np.sqrt(scores * 0.25))


def test_ultraface(rng: np.random.Generator) -> None:
    boxes, scores = wanted(rng), rng.uniform(0.1, 1, (len(grids()), 1))
    parts = np.array(boxes) / (SIZE[1], SIZE[0], SIZE[1], SIZE[0])
    check("ultraface", [np.concatenate([1 - scores, scores], axis=1)[None], parts[None]], boxes, scores)


def test_yolov5_decoded(rng: np.random.Generator) -> None:
    boxes, scores = wanted(rng), rng.uniform(0.1, 1, (len(grids()), CLASSES))
    rows = [[*centred(b), 0.5, *s] for b, s in zip(boxes, scores, strict=True)]
    check("yolov5", [np.array([rows])], boxes, scores * 0.5)


@pytest.mark.parametrize("flat", [False, True])
def test_yolov5_raw(rng: np.random.Generator, flat: bool) -> None:
    heads, boxes, scores = [], [], []
    for stride in STRIDES:
        height, width = SIZE[0] // stride, SIZE[1] // stride
        head = np.zeros((1, 3, height, width, 5 + CLASSES))
        for a, y, x in np.ndindex(3, height, width):
            (dx, dy), (gw, gh), p = rng.uniform(-0.4, 1.4, 2), rng.uniform(0.2, 3.5, 2), rng.uniform(0.1, 0.9, CLASSES)
            (w, h), (cx, cy) = np.array(YOLO_ANCHORS[stride][a]) * (gw, gh), ((x + dx) * stride, (y + dy) * stride)
            boxes.append((cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2))
            scores.append(p * 0.5)
            sides = [(dx + 0.5) / 2, (dy + 0.5) / 2, gw**0.5 / 2, gh**0.5 / 2]
            head[0, a, y, x] = logit(np.array([*sides, 0.5, *p]))
        heads.append(head.transpose(0, 1, 4, 2, 3).reshape(1, -1, height, width) if flat else head)
    check("yolov5", heads, boxes, np.array(scores))


def test_yolov8_decoded(rng: np.random.Generator) -> None:
    boxes, scores = wanted(rng), rng.uniform(0.1, 1, (len(grids()), CLASSES))
    rows = [[*centred(b), *s] for b, s in zip(boxes, scores, strict=True)]
    check("yolov8", [np.array(rows).T[None]], boxes, scores)


def spread(distance: float, bins: int) -> np.ndarray:
    """Logits of a distribution whose mean is this: two neighbours share it."""
    below = int(distance)
    odds = np.full(bins, 1e-12)
    odds[below], odds[below + 1] = 1 - (distance - below), distance - below
    return np.log(np.maximum(odds, 1e-12))


def distances(box: tuple[float, ...], point: tuple[int, int, int], middle: float, bins: int) -> np.ndarray:
    stride, y, x = point
    px, py = (x + middle) * stride, (y + middle) * stride
    sides = np.array([px - box[0], py - box[1], box[2] - px, box[3] - py]) / stride
    return np.concatenate([spread(side, bins) for side in sides])


def test_yolov8_raw(rng: np.random.Generator) -> None:
    boxes, scores = wanted(rng), rng.uniform(0.1, 0.9, (len(grids()), CLASSES))
    rows = np.array([[*distances(b, p, 0.5, 16), *logit(s)] for b, p, s in zip(boxes, grids(), scores, strict=True)])
    strides = np.array([stride for stride, _, _ in grids()])
    heads = [rows[strides == s].T.reshape(1, -1, SIZE[0] // s, SIZE[1] // s) for s in STRIDES]
    check("yolov8", heads, boxes, scores)


@pytest.mark.parametrize("whole", [False, True])
def test_nanodet(rng: np.random.Generator, whole: bool) -> None:
    boxes, scores = wanted(rng), rng.uniform(0.1, 0.9, (len(grids()), CLASSES))
    sides = np.array([distances(b, p, 0.5, 8) for b, p in zip(boxes, grids(), strict=True)])
    strides = np.array([stride for stride, _, _ in grids()])
    apart = [rows[strides == s][None] for rows in (scores, sides) for s in STRIDES]
    check("nanodet", [np.concatenate([scores, sides], axis=1)[None]] if whole else apart, boxes, scores)


def test_nanodet_plus_measures_from_corners(rng: np.random.Generator) -> None:
    count = sum(-(-SIZE[0] // s) * -(-SIZE[1] // s) for s in (8, 16, 32, 64))
    sides = np.tile(np.concatenate([spread(1.5, 8)] * 4), (count, 1))
    found = DECODERS["nanodet"].boxes([np.concatenate([np.full((count, 1), 0.5), sides], axis=1)[None]], SIZE)
    assert found[1, :4] == pytest.approx([8 - 12, -12, 8 + 12, 12], abs=1e-3)
    assert found[-1, :4] == pytest.approx([64 - 96, -96, 64 + 96, 96], abs=1e-2)
    assert set(np.rint(found[:, 2] - found[:, 0])) == {24, 48, 96, 192}


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("yolox", [(1, 127, 8)], "127 points"),
        ("yolox", [(1, 126, 8), (1, 126, 8)], r"shapes \[1, 126, 8\], \[1, 126, 8\]"),
        ("yolov5", [(1, 7, 8, 12)], r"\[1, 7, 8, 12\]"),
        ("yolov5", [(1, 20, 8, 12)], r"\[1, 20, 8, 12\]"),
        ("yolov5", [(1, 24, 16, 24)], "stride 4"),
        ("yolov8", [(1, 4, 126)], r"\[1, 4, 126\]"),
        ("yolov8", [(1, 64, 8, 12)], r"\[1, 64, 8, 12\]"),
        ("nanodet", [(1, 126, 3), (1, 96, 32)], r"\[1, 96, 32\]"),
        ("ultraface", [(1, 126, 2), (1, 126, 5)], r"\[1, 126, 5\]"),
        ("yunet", [(1, 96, 1), (1, 96, 4)], r"\[1, 96, 1\]"),
        ("yunet", [(1, 96, 1)], r"\[1, 96, 1\]"),
    ],
)
def test_outputs_that_are_none(name: str, shapes: list[tuple[int, ...]], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        DECODERS[name].boxes([np.zeros(shape) for shape in shapes], SIZE)


def test_all_names_are_known_without_them():
    assert list(DECODERS) == [one.value for one in DecoderChoice]
