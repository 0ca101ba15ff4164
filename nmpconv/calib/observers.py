"""What is kept of every tensor while samples stream by: mergeable, of a size that does not depend on their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from nmpconv.calib.engine import Engine
from nmpconv.calib.histogram import Histogram
from nmpconv.errors import InputError

Progress = Callable[[str, int, int], None]  # stage, done, total

CHANNELS_MAX = 4096  # tensors with a longer last axis have no channel ranges
COUNTED = 1 << 16  # values of one tensor and sample that enter the histogram; the other statistics see all


@dataclass
class TensorStats:
    """Statistics of one activation tensor over samples.

    min, max, mean, count: of all values. histogram: of a fixed choice of rows where a tensor is large.
    channel_min, channel_max (float32), channel_mean (float64): [C] of the last axis; None where it is too long.
    """

    min: float = np.inf
    max: float = -np.inf
    count: int = 0
    mean: float = 0.0
    histogram: Histogram = field(default_factory=Histogram)
    channel_min: np.ndarray | None = None
    channel_max: np.ndarray | None = None
    channel_mean: np.ndarray | None = None

    @classmethod
    def of(cls, x: np.ndarray) -> TensorStats:
        """Of one sample's tensor, float32 [..., C]."""
        rows = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, x.shape[-1] if x.ndim else 1)
        if not rows.size:
            return cls()
        n, width = rows.shape
        # Several rows side by side make the inner loops long where channels are few.
        fold = next(f for f in (64, 32, 16, 8, 4, 2, 1) if n % f == 0 and (f == 1 or f * width <= 4096))
        wide = rows.reshape(n // fold, fold * width)
        low = wide.min(0).reshape(fold, width).min(0)
        high = wide.max(0).reshape(fold, width).max(0)
        mean = wide.sum(0).reshape(fold, width).sum(0, dtype=np.float64) / n
        stats = cls(float(low.min()), float(high.max()), rows.size, float(mean.mean()))
        if width <= CHANNELS_MAX:
            stats.channel_min, stats.channel_max, stats.channel_mean = low, high, mean
        if stats.is_finite:
            counted = rows if rows.size <= COUNTED else rows[_counted_rows(n, max(COUNTED // width, 1))]
            stats.histogram = Histogram.of(counted, stats.peak)
        return stats

    @property
    def peak(self) -> float:
        """The largest magnitude; 0 without samples."""
        return max(abs(self.min), abs(self.max)) if self.count else 0.0

    @property
    def is_finite(self) -> bool:
        """Whether no value was NaN or infinite."""
        return not self.count or bool(np.isfinite(self.min) and np.isfinite(self.max))

    def merge(self, other: TensorStats) -> None:
        """Take in another's samples. Channels are kept while both have as many."""
        if not other.count:
            return
        share = other.count / (self.count + other.count)
        if not self.count:
            self.channel_min, self.channel_max = other.channel_min, other.channel_max
            self.channel_mean = other.channel_mean
        else:
            self.channel_min = _joined(np.minimum, self.channel_min, other.channel_min)
            self.channel_max = _joined(np.maximum, self.channel_max, other.channel_max)
            self.channel_mean = _joined(lambda a, b: a + (b - a) * share, self.channel_mean, other.channel_mean)
        # Unlike Python's, numpy's minimum and maximum propagate a NaN.
        self.min, self.max = float(np.minimum(self.min, other.min)), float(np.maximum(self.max, other.max))
        self.mean += (other.mean - self.mean) * share
        self.count += other.count
        self.histogram = self.histogram.merge(other.histogram)

    def clipped(self, low: float, high: float) -> TensorStats:
        """With this range: what was counted outside lies at its ends."""
        first, last = (None if c is None else np.clip(c, low, high) for c in (self.channel_min, self.channel_max))
        histogram = self.histogram.clipped(low, high)
        return TensorStats(low, high, self.count, self.mean, histogram, first, last, self.channel_mean)

    def scaled(self, factor: float) -> TensorStats:
        """Of the tensor times a factor > 0."""
        channels = (self.channel_min, self.channel_max, self.channel_mean)
        return TensorStats(
            self.min * factor,
            self.max * factor,
            self.count,
            self.mean * factor,
            self.histogram.scaled(factor),
            *(None if c is None else (c * factor).astype(c.dtype) for c in channels),
        )


def _joined(
    how: Callable[[np.ndarray, np.ndarray], np.ndarray], a: np.ndarray | None, b: np.ndarray | None
) -> np.ndarray | None:
    return None if a is None or b is None or a.shape != b.shape else how(a, b)


@lru_cache(maxsize=256)
def _counted_rows(n: int, wanted: int) -> np.ndarray:
    """The rows that enter the histogram: the same for all samples, so that statistics merge exactly."""
    return np.sort(np.random.default_rng(n).permutation(n)[:wanted])


def observe(
    engine: Engine,
    feeds: Sequence[Mapping[str, np.ndarray]],
    names: Iterable[str] | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> dict[str, TensorStats]:
    """Run every sample and gather statistics of the tensors ``names`` that the engine fetches (None: of all).

    InputError when the float model itself gives NaN or infinity.
    """
    stats = {name: TensorStats() for name in (engine.fetch if names is None else names)}
    for i in range(len(feeds)):
        tensors = engine.run(feeds[i])
        for name, tensor_stats in stats.items():
            measured = TensorStats.of(tensors[name])
            if not measured.is_finite:
                raise InputError(
                    f"the float model gives NaN or infinity in the tensor {name!r} for sample {i}",
                    hint="check the preprocessing and that the model runs in onnxruntime",
                )
            tensor_stats.merge(measured)
        progress("calibrate", i + 1, len(feeds))
    return stats
