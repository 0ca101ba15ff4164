"""A histogram whose range grows by powers of two, so that any values fit and any two histograms merge exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nmpconv.calib import native_sums

BINS = 4096
HALF = BINS // 2
PER_STEP = 8  # points that stand for the values within one quantization step
TINY = 2.0**-100  # what no legal exponent can tell from zero counts as zero


NO_COUNTS = np.zeros(BINS, np.int64)
NO_COUNTS.setflags(write=False)


@dataclass(frozen=True)
class Histogram:
    """Counts over [-2^exponent, 2^exponent) in BINS equal bins; exact zeros are counted apart.

    exponent: the smallest that has every value strictly inside, so that the range, and with it every count, depends
    on the values alone and not on their order or grouping; None while there are none but zeros.
    """

    exponent: int | None = None
    zeros: int = 0
    counts: np.ndarray = field(default_factory=lambda: NO_COUNTS)

    @classmethod
    def of(cls, x: np.ndarray, peak: float) -> Histogram:
        """Counts float32 values; peak: at least their largest magnitude."""
        if peak < TINY:
            return cls(None, x.size)
        exponent = int(np.frexp(peak)[1])
        counts, zeros = native_sums.binned(x, HALF * 2.0**-exponent, BINS)
        counts[HALF] -= zeros
        return cls(exponent, zeros, counts)

    @cached_property
    def width(self) -> float:
        """Width of a bin; 0 while there are none."""
        return 0.0 if self.exponent is None else math.ldexp(1.0 / HALF, self.exponent)

    @property
    def total(self) -> int:
        return self.zeros + int(self.counts.sum())

    @cached_property
    def used(self) -> np.ndarray:
        """The bins in use, in ascending order."""
        return np.flatnonzero(self.counts)

    def grown(self, exponent: int) -> Histogram:
        """With a range of 2^exponent at least: neighbouring bins merged."""
        counts = self.counts
        have = exponent if self.exponent is None else self.exponent
        for _ in range(exponent - have):
            merged = counts[::2] + counts[1::2]
            counts = np.zeros(BINS, np.int64)
            counts[HALF // 2 : HALF // 2 * 3] = merged
        return Histogram(max(have, exponent), self.zeros, counts)

    def merge(self, other: Histogram) -> Histogram:
        """Adds the counts of both."""
        zeros = self.zeros + other.zeros
        if self.exponent is None or other.exponent is None:
            counted = other if self.exponent is None else self
            return Histogram(counted.exponent, zeros, counted.counts)
        top = max(self.exponent, other.exponent)
        return Histogram(top, zeros, self.grown(top).counts + other.grown(top).counts)

    def edges(self, bins: np.ndarray) -> np.ndarray:
        """The lower edges of these bins (fractions allowed), float64."""
        return (bins - HALF) * self.width

    def points(self, step: float, reach: float = np.inf) -> tuple[np.ndarray, np.ndarray]:
        """(x, weight), float64, that stand for the values: zero, and points spread evenly over every bin in use.

        step: the finest quantization step that is to be told apart.
        reach: the magnitude beyond which quantization saturates; there a bin has PER_STEP points at most.
        There are no more than 2 * PER_STEP * (reach / step + BINS) of them, whatever the range of the values.
        """
        return self.points_of(np.array([[step], [reach]]))[:2]

    def points_of(self, grids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`points` for each pair of a step and a reach [2, R], one after the other, and how many of each [R]."""
        counts = self.counts[self.used]
        return native_sums.points(self.used, counts, HALF, self.width, PER_STEP, self.zeros, grids)

    def bins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(lower edge, upper edge, weight), float64, of every bin in use; zeros are not in them."""
        return self.edges(self.used), self.edges(self.used + 1), self.counts[self.used].astype(np.float64)

    def scaled(self, factor: float) -> Histogram:
        """Histogram of the values times a factor > 0, taking them as spread evenly within their bins."""
        if factor == 1 or not self.used.size:
            return self
        first, last = int(self.used[0]), int(self.used[-1]) + 1
        old = self.edges(np.arange(first, last + 1)) * factor
        result = Histogram(int(np.frexp(max(-old[0], old[-1]))[1]), self.zeros, np.zeros(BINS, np.int64))
        low, high = math.floor(old[0] / result.width) + HALF, math.ceil(old[-1] / result.width) + HALF
        below = np.interp(result.edges(np.arange(low, high + 1)), old, np.append(0, np.cumsum(self.counts[first:last])))
        result.counts[low:high] = np.diff(np.rint(below).astype(np.int64))
        return result

    def clipped(self, lo: float, hi: float) -> Histogram:
        """Histogram of the values clipped to [lo, hi], with a range that holds both ends."""
        peak = max(abs(lo), abs(hi))
        wide = self.grown(int(np.frexp(peak)[1])) if peak >= TINY else self
        if wide.exponent is None:
            return wide
        ends = np.floor(np.array([lo, hi]) / wide.width).astype(np.int64) + HALF
        bins = np.clip(np.arange(BINS), *ends)
        counts = np.bincount(bins, weights=wide.counts, minlength=BINS).astype(np.int64)
        return Histogram(wide.exponent, self.zeros, counts)

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> Histogram:
        """Histogram of a function of the values, each taken as the middle of its bin."""
        low, high, counts = self.bins()
        middles, counts = np.append((low + high) / 2, 0.0), np.append(counts, self.zeros)
        y = np.asarray(function(middles[counts > 0]))
        counts = counts[counts > 0]
        zeros = int(counts[y == 0].sum())
        peak = float(np.abs(y).max(initial=0.0))
        if peak < TINY:
            return Histogram(None, self.total)
        y, counts = y[y != 0], counts[y != 0]
        result = Histogram(int(np.frexp(peak)[1]), zeros)
        bins = np.clip(np.floor(y / result.width).astype(np.int64) + HALF, 0, BINS - 1)
        return replace(result, counts=np.bincount(bins, weights=counts, minlength=BINS).astype(np.int64))
