"""Average precision: by hand, and against the implementation of COCO's authors."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

from nmpconv.evaluation.detection.boxes import areas, non_maximum_suppression, overlaps
from nmpconv.evaluation.detection.precision import Precision

BOX = [10.0, 10.0, 50.0, 50.0]


def found(*rows: tuple[list[float], float, int]) -> np.ndarray:
    return np.array([[*box, score, number] for box, score, number in rows]).reshape(-1, 6)


def truth(*rows: tuple[list[float], int, int]) -> np.ndarray:
    return np.array([[*box, number, crowd] for box, number, crowd in rows]).reshape(-1, 6)


def moved(right: float) -> list[float]:
    return [BOX[0] + right, BOX[1], BOX[2] + right, BOX[3]]


def test_overlaps() -> None:
    a, b = np.array([BOX]), np.array([moved(20), moved(40), [30.0, 30.0, 20.0, 20.0]])
    assert overlaps(a, b).tolist() == [[800 / 2400, 0, 0]]
    assert areas(b).tolist() == [1600, 1600, 0]


def test_suppression_keeps_the_best_of_a_class() -> None:
    boxes = found((moved(1), 0.5, 0), (BOX, 0.9, 0), (moved(1), 0.6, 1), (moved(30), 0.3, 0), (moved(60), 0.1, 0))
    assert non_maximum_suppression(boxes, 0.2, 0.5)[:, 4].tolist() == [0.9, 0.6, 0.3]


def test_half_of_the_truth_is_found() -> None:
    """Precision is 1 to a recall of 1/2, so at 51 of 101 levels."""
    made = Precision()
    made.add(found((BOX, 0.9, 0)), truth((BOX, 0, 0), (moved(100), 0, 0)))
    assert made.result() == pytest.approx((100 * 51 / 101, 100 * 51 / 101))


def test_a_wrong_box_before_the_right_one_halves_precision() -> None:
    made = Precision()
    made.add(found((moved(100), 0.9, 0), (BOX, 0.8, 0)), truth((BOX, 0, 0)))
    assert made.result() == pytest.approx((50, 50))


def test_an_overlap_counts_up_to_itself() -> None:
    """38 of 42 pixels overlap: 0.9047 is enough for 9 of the 10 least overlaps."""
    made = Precision()
    made.add(found((moved(2), 0.9, 3)), truth((BOX, 3, 0)))
    assert made.result() == pytest.approx((90, 100))


def test_a_second_box_of_one_truth_is_wrong() -> None:
    made = Precision()
    made.add(found((BOX, 0.9, 0), (BOX, 0.8, 0), (moved(60), 0.7, 0)), truth((BOX, 0, 0), (moved(60), 0, 0)))
    assert made.result()[1] == pytest.approx(100 * (51 + 50 * 2 / 3) / 101)


def test_without_truth_there_is_nothing_to_say() -> None:
    made = Precision()
    made.add(found((BOX, 0.9, 0)), truth())
    assert np.isnan(made.result()).all()


@pytest.mark.parametrize("seed", range(4))
def test_as_cocos_authors_compute_it(seed: int) -> None:
    """Random boxes near random truth with crowds, equal scores, and classes that only one side has."""
    coco = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    rng = np.random.default_rng(seed)
    made, annotations, detections = Precision(), [], []
    for image in range(1, 13):
        corners = rng.uniform(0, 300, (rng.integers(0, 9), 2))
        wanted = np.column_stack(
            [
                corners,
                corners + rng.uniform(10, 90, corners.shape),
                rng.integers(0, 3, len(corners)),
                corners[:, 0] < 40,
            ]
        )
        near = np.repeat(wanted[:, :4], 3, axis=0)
        near = np.concatenate([near + rng.normal(0, 3, near.shape), rng.uniform(0, 300, (70, 4))])
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        scores = np.round(rng.uniform(0, 1, len(near)), 1)
        got = np.column_stack([near, scores, [*np.repeat(wanted[:, 4], 3), *rng.integers(0, 4, 70)]])
        made.add(got, wanted)
        for left, top, right, bottom, number, crowd in wanted.tolist():
            size = [right - left, bottom - top]
            one = {"image_id": image, "category_id": int(number), "bbox": [left, top, *size], "area": size[0] * size[1]}
            annotations.append({**one, "iscrowd": int(crowd), "id": len(annotations) + 1})
        for left, top, right, bottom, score, number in got.tolist():
            box = [left, top, right - left, bottom - top]
            detections.append({"image_id": image, "category_id": int(number), "bbox": box, "score": score})
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = coco.COCO()
        theirs.dataset = {
            "images": [{"id": image} for image in range(1, 13)],
            "annotations": annotations,
            "categories": [{"id": number} for number in range(4)],
            "info": {},
        }
        theirs.createIndex()
        judge = evaluation.COCOeval(theirs, theirs.loadRes(detections), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    assert 0.05 < judge.stats[0] < 0.9
    assert made.result() == pytest.approx(100 * judge.stats[:2], abs=1e-9)
