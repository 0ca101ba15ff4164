"""Average precision as COCO defines it (https://cocodataset.org/#detection-eval), over boxes of any size.

For each class and each least overlap of 0.5, 0.55, ... 0.95: detections, best first, each take the truth that they
overlap most and that none before took. Precision at 101 levels of recall is the highest at that recall or beyond. The
average over levels, overlaps and classes that have truth is AP; that at an overlap of 0.5 is AP50. Truth that is a
crowd counts neither for nor against: a detection that has at least that part of its own area in it is left out.
"""

from __future__ import annotations

import numpy as np

from nmpconv.evaluation.detection.boxes import CLASS, SCORE, areas, intersections, overlaps

LEAST_OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
FOUND_MOST = 100
TRUTH_CLASS, TRUTH_CROWD = 4, 5


class Precision:
    """Over images that are added one by one. most: detections of a class in an image that count; COCO's 100."""

    def __init__(self, most: int = FOUND_MOST) -> None:
        self._most = most
        self.images: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, detections: np.ndarray, truth: np.ndarray) -> None:
        """detections: boxes. truth: [n, 6], left, top, right, bottom, class, and 1 where it is a crowd, else 0."""
        self.images.append((detections, truth))

    def result(self) -> tuple[float, float]:
        """AP and AP50 in percent; nan where no image has truth."""
        classes = {number for _, truth in self.images for number in truth[truth[:, TRUTH_CROWD] == 0, TRUTH_CLASS]}
        table = [self._of(number) for number in sorted(classes)]
        if not table:
            return float("nan"), float("nan")
        means = 100 * np.mean(table, axis=0)
        return float(means.mean()), float(means[0])

    def ap50(self, without: tuple[int, int] | None) -> float:
        """AP50 in percent. without: (i, n) leaves every nth image from the ith on out."""
        subset = Precision(self._most)
        subset.images = [x for i, x in enumerate(self.images) if without is None or i % without[1] != without[0]]
        return subset.result()[1]

    def _of(self, number: float) -> np.ndarray:
        """Average precision of one class at each least overlap."""
        scores, hits, left_out, wanted = [], [], [], 0
        for every, truth in self.images:
            truth = truth[truth[:, TRUTH_CLASS] == number]
            detections = every[every[:, CLASS] == number]
            detections = detections[np.argsort(-detections[:, SCORE], kind="stable")][: self._most]
            hit, out = _matched(detections, truth)
            scores.append(detections[:, SCORE])
            hits.append(hit)
            left_out.append(out)
            wanted += int(np.sum(truth[:, TRUTH_CROWD] == 0))
        order = np.argsort(-np.concatenate(scores), kind="stable")
        rows = zip(np.concatenate(hits, axis=1)[:, order], np.concatenate(left_out, axis=1)[:, order], strict=True)
        return np.array([_area(hit[~out], wanted) for hit, out in rows])


def _area(hits: np.ndarray, wanted: int) -> float:
    """Mean precision over RECALLS. hits: whether each detection is right, best first; wanted: how many truths."""
    right = np.cumsum(hits)
    precision = right / np.arange(1, len(hits) + 1)
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.searchsorted(right / wanted, RECALLS, side="left")
    return float(np.sum(highest[at[at < len(hits)]]) / len(RECALLS))


def _matched(detections: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[least overlaps, detections]: which are right, and which are left out. detections: best first."""
    crowd = truth[:, TRUTH_CROWD] == 1
    plain, crowds = truth[~crowd], truth[crowd]
    part = overlaps(detections, plain)
    inside = intersections(detections, crowds) / np.maximum(areas(detections), np.finfo(float).tiny)[:, None]
    covered = inside.max(axis=1, initial=0.0)
    hits, left_out = np.zeros((2, len(LEAST_OVERLAPS), len(detections)), bool)
    for i, least in enumerate(LEAST_OVERLAPS):
        free = np.ones(len(plain), bool)
        for j, row in enumerate(part):
            fits = np.where(free, row, -1.0)
            best = len(fits) - 1 - int(np.argmax(fits[::-1])) if len(fits) else -1  # of equal ones the last
            if best >= 0 and fits[best] >= least:
                free[best], hits[i, j] = False, True
            else:
                left_out[i, j] = bool(len(crowds)) and covered[j] >= least
    return hits, left_out
