"""Statistics of a tensor that is stored less a constant, its origin (`ir.Value.origin`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nmpconv.calib.histogram import BINS, HALF, Histogram
from nmpconv.calib.observers import TensorStats


def less(stats: TensorStats, origin: float) -> TensorStats:
    """Statistics of x - origin. What is known by channel is left out."""
    if origin == 0 or not stats.count:
        return stats
    low, high = stats.min - origin, stats.max - origin
    histogram = _moved(stats.histogram, origin, max(-low, high))
    return TensorStats(low, high, stats.count, stats.mean - origin, histogram)


def _moved(old: Histogram, origin: float, peak: float) -> Histogram:
    """Its values are spread evenly within their bins; zeros are all at -origin. peak: the largest magnitude."""
    new = Histogram(int(np.frexp(peak)[1]))
    counts = np.zeros(BINS, np.int64)
    if old.exponent is not None:
        edges = np.arange(BINS + 1)
        below = np.interp(new.edges(edges) + origin, old.edges(edges), np.append(0, np.cumsum(old.counts)))
        below[0], below[-1] = 0, old.counts.sum()
        counts = np.diff(np.rint(below).astype(np.int64))
    if old.zeros:
        counts[np.clip(int(np.floor(-origin / new.width)) + HALF, 0, BINS - 1)] += old.zeros
    return replace(new, counts=counts)
