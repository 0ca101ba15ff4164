"""Outliers: samples that reach far in many tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nmpconv.calib.observers import SamplePeaks
from nmpconv.calib.outliers import find_outliers

RNG = np.random.default_rng(3)
TENSORS, SAMPLES = 20, 40


def peaks(far: Mapping[int, float], tensors: int) -> SamplePeaks:
    """Peaks of SAMPLES samples, of which some are so many times as large in the first tensors."""
    table = RNG.uniform(0.5, 1, (TENSORS, SAMPLES)).astype(np.float32)
    for i, times in far.items():
        table[:tensors, i] *= times
    return SamplePeaks(dict(zip(map(str, range(TENSORS)), table, strict=True)))


def test_samples_that_reach_far_in_many_tensors() -> None:
    found = find_outliers(peaks({7: 10, 30: 50}, tensors=4))
    assert list(found) == [7, 30]
    assert np.allclose(list(found.values()), [10, 50], rtol=0.4)


def test_not_in_few_tensors_nor_by_little() -> None:
    assert not find_outliers(peaks({7: 100}, tensors=2))
    assert not find_outliers(peaks({7: 3}, tensors=TENSORS))


def test_as_many_as_that_are_usual() -> None:
    assert len(find_outliers(peaks(dict.fromkeys(range(4), 10), TENSORS))) == 4
    assert not find_outliers(peaks(dict.fromkeys(range(5), 10), TENSORS))


def test_none_where_nothing_is_known() -> None:
    assert not find_outliers(SamplePeaks())
    assert not find_outliers(SamplePeaks({"x": np.zeros(0, np.float32), "y": np.zeros(9, np.float32)}))
