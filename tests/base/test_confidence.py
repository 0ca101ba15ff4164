"""Intervals and tests of few samples, beside what they are in tables and in simulation."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.base.confidence import difference, luck, margin, proportion, student


def test_luck() -> None:
    won = np.array([True] * 5 + [False] * 3)
    assert luck(won, ~won) == pytest.approx((56 + 28 + 8 + 1) / 256)
    assert luck(won, won) == 1


def test_luck_of_very_many() -> None:
    won = np.arange(4000) < 2100
    assert 1e-3 < luck(won, ~won) < 1e-2
    assert luck(~won, won) == 1
    assert luck(np.ones(100_000, bool), np.zeros(100_000, bool)) < 1e-100


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(32, 34, 80.9, 98.4), (0, 10, 0.0, 27.8), (10, 10, 72.2, 100.0), (50, 100, 40.4, 59.6), (0, 0, 0.0, 100.0)],
)
def test_intervals_of_proportions(hits: int, count: int, low: float, high: float) -> None:
    assert proportion(hits, count) == (pytest.approx(low, abs=0.05), pytest.approx(high, abs=0.05))


def test_intervals_of_differences() -> None:
    """Fifty samples that only one has tell more than fifty of which each has half."""
    low, high = difference(50, 0, 50)
    assert 85 < low < 95 and high == 100
    assert difference(0, 50, 50) == (-high, -low)
    low, high = difference(25, 25, 50)
    assert low == -high and 25 < high < 30


@pytest.mark.parametrize(("freedom", "t"), [(2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (999, 1.962)])
def test_quantiles_of_student(freedom: int, t: float) -> None:
    assert student(freedom) == pytest.approx(t, rel=0.01)


@pytest.mark.parametrize(("freedom", "t"), [(20, 2.0859634), (30, 2.0422725), (60, 2.0002978)])
def test_the_expansion_is_close_from_twenty_samples_on(freedom: int, t: float) -> None:
    assert student(freedom) == pytest.approx(t, abs=5e-7)


def test_margins() -> None:
    assert margin([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5, rel=0.01)
    assert margin([1.0, 2.0]) is margin([1.0, np.inf, 2.0]) is None
    assert margin([2.0] * 5) == 0
