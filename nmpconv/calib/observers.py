"""What is kept of every tensor while samples stream by: mergeable, of a size that does not depend on their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.histogram import Histogram
from nmpconv.errors import InputError
from nmpconv.ir import Graph

CHANNELS_MAX = 4096  # tensors with a longer last axis have no channel ranges
COUNTED = 1 << 16  # values of one tensor and sample that enter the histogram; the other statistics see all


@dataclass(frozen=True)
class Channels:
    """Ranges (float32) and means (float64) of the last axis, [C] each."""

    min: np.ndarray
    max: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True)
class TensorStats:
    """Statistics of one activation tensor over samples; `TensorStats()` is that of none.

    min, max, mean, count: of all values. histogram: of a fixed choice of rows where a tensor is large.
    channels: None where the last axis is too long.
    """

    min: float = np.inf
    max: float = -np.inf
    count: int = 0
    mean: float = 0.0
    histogram: Histogram = field(default_factory=Histogram)
    channels: Channels | None = None

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
        if not stats.is_finite:
            return stats
        counted = rows if rows.size <= COUNTED else rows[_counted_rows(n, max(COUNTED // width, 1))]
        channels = Channels(low, high, mean) if width <= CHANNELS_MAX else None
        return replace(stats, histogram=Histogram.of(counted, stats.absmax), channels=channels)

    @property
    def is_finite(self) -> bool:
        """Whether no value was NaN or infinite: minimum and maximum propagate a NaN."""
        return not self.count or bool(np.isfinite(self.min) and np.isfinite(self.max))

    @property
    def absmax(self) -> float:
        """The largest magnitude; 0 without samples."""
        return max(abs(self.min), abs(self.max)) if self.count else 0.0

    @property
    def channel_absmax(self) -> np.ndarray:
        """The largest magnitude of each channel, [C]; the tensor's, [1], where channels are not known."""
        if self.channels is None:
            return np.array([self.absmax], np.float32)
        return np.asarray(np.maximum(np.abs(self.channels.min), np.abs(self.channels.max)))

    def merge(self, other: TensorStats) -> TensorStats:
        """Of the samples of both. Channels are kept when both have as many."""
        if not (self.count and other.count):
            return self if self.count else other
        share = other.count / (self.count + other.count)
        a, b, channels = self.channels, other.channels, None
        if a is not None and b is not None and a.min.shape == b.min.shape:
            mean = a.mean + (b.mean - a.mean) * share
            channels = Channels(np.minimum(a.min, b.min), np.maximum(a.max, b.max), mean)
        return TensorStats(
            min(self.min, other.min),
            max(self.max, other.max),
            self.count + other.count,
            self.mean + (other.mean - self.mean) * share,
            self.histogram.merge(other.histogram),
            channels,
        )

    def scaled(self, factor: float) -> TensorStats:
        """Of the tensor times a factor > 0."""
        c = self.channels
        return TensorStats(
            self.min * factor,
            self.max * factor,
            self.count,
            self.mean * factor,
            self.histogram.scaled(factor),
            None if c is None else Channels(c.min * np.float32(factor), c.max * np.float32(factor), c.mean * factor),
        )


@lru_cache(maxsize=256)
def _counted_rows(n: int, wanted: int) -> np.ndarray:
    """The rows that enter the histogram: the same for all samples, so that statistics merge exactly."""
    return np.sort(np.random.default_rng(n).permutation(n)[:wanted])


def observe(
    graph: Graph,
    feeds: Sequence[Mapping[str, np.ndarray]],
    names: Iterable[str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, TensorStats]:
    """Statistics of these activations over all samples. progress: samples done, samples in total.

    InputError when the float model itself gives NaN or infinity.
    """
    stats = {name: TensorStats() for name in names}
    engine = FloatEngine(graph, list(stats))
    for i in range(len(feeds)):
        tensors = engine.run(feeds[i])
        for name in stats:
            stats[name] = stats[name].merge(TensorStats.of(tensors[name]))
            if not stats[name].is_finite:
                raise InputError(
                    f"the float model gives NaN or infinity in the tensor {name!r} for sample {i}",
                    hint="check the preprocessing and that the model runs in onnxruntime",
                )
        progress(i + 1, len(feeds))
    return stats
