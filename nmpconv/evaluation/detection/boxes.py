"""Overlap of boxes, and which of many that overlap are kept."""

from __future__ import annotations

import numpy as np

LEFT, TOP, RIGHT, BOTTOM, SCORE, CLASS = range(6)
KEPT_MOST = 1000  # boxes of an image


def areas(boxes: np.ndarray) -> np.ndarray:
    """Areas of boxes [n, 4 or more], in square pixels: [n]. One whose ends are exchanged has none."""
    return np.maximum(boxes[:, RIGHT] - boxes[:, LEFT], 0) * np.maximum(boxes[:, BOTTOM] - boxes[:, TOP], 0)


def intersections(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Areas that two lists of boxes share: [len(a), len(b)]."""
    width = np.minimum(a[:, None, RIGHT], b[None, :, RIGHT]) - np.maximum(a[:, None, LEFT], b[None, :, LEFT])
    height = np.minimum(a[:, None, BOTTOM], b[None, :, BOTTOM]) - np.maximum(a[:, None, TOP], b[None, :, TOP])
    return np.maximum(width, 0) * np.maximum(height, 0)


def overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union: [len(a), len(b)]; 0 of two boxes without area."""
    shared = intersections(a, b)
    union = areas(a)[:, None] + areas(b)[None, :] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def non_maximum_suppression(boxes: np.ndarray, score: float, overlap: float) -> np.ndarray:
    """Selects boxes with at least this score, best first, that overlap no kept one of their class by more (greedy
    non-maximum suppression)."""
    left = boxes[boxes[:, SCORE] >= score]
    left = left[np.argsort(-left[:, SCORE], kind="stable")]
    detections: list[np.ndarray] = []
    while len(left) and len(detections) < KEPT_MOST:
        best, left = left[0], left[1:]
        detections.append(best)
        left = left[(left[:, CLASS] != best[CLASS]) | (overlaps(left, best[None])[:, 0] <= overlap)]
    return np.array(detections).reshape(-1, 6)
