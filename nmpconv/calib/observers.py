"""Statistics of every tensor, gathered while samples stream by: mergeable, of a size that does not depend on their
number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce

import numpy as np

from nmpconv.base.progress import Progress, silent
from nmpconv.base.thread_pool import each
from nmpconv.calib import native_sums
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.histogram import Histogram
from nmpconv.errors import InputError

CHANNELS_MAX = 4096  # tensors with a longer last axis have no channel ranges
RISE, RISE_MAX, RISE_FREE = 20.0, 2.25, 0.25  # see `TensorStats.reach`
DEAD = 2.0**-24  # of the largest peak: what float32 loses beside it, and no grid of 16 bits holds
TINY = 1e-30  # stands for 0 in a denominator; what is less is nothing
NEAR = 2.0**-12  # of a limit: what two float32 runs of one function may differ by
VALUES, EACH = 1 << 18, 1 << 12  # of a group of samples, which are measured together: of all tensors, or of each
TOGETHER, TENSORS = 8, 1 << 13  # groups whose statistics are in memory, and of how many tensors if not of one group
COUNTED = 1 << 16  # values of one tensor and sample that enter the histogram; the other statistics see all


def alive(peaks: np.ndarray) -> np.ndarray:
    """Returns True for each channel whose largest magnitude (peaks, [C]) counts beside the others'.

    Weight decay leaves weights of 1e-41 in channels that training gave up.
    """
    return np.asarray(peaks > max(DEAD * peaks.max(initial=0.0), TINY))


class OutOfRange(InputError):
    """A float model with numbers beyond float32, or beyond all grids."""


@dataclass
class TensorStats:
    """Statistics of one activation tensor over samples.

    min, max, mean, count: of all values. histogram: of a fixed choice of rows where a tensor is large.
    channel_min, channel_max (float32), channel_mean (float64): [C] of the last axis; None where it is too long.
    samples: how many. peak_mean, peak_spread (float64): mean over samples of a channel's largest magnitude, and the sum
    of its squared deviations from that; [C], or [1] of the whole tensor where the axis is too long. None: not known.
    sample_peaks (float32): [samples], the largest magnitude in each; None where statistics were merged.
    """

    min: float = np.inf
    max: float = -np.inf
    count: int = 0
    mean: float = 0.0
    histogram: Histogram = field(default_factory=Histogram)
    channel_min: np.ndarray | None = None
    channel_max: np.ndarray | None = None
    channel_mean: np.ndarray | None = None
    samples: int = 0
    peak_mean: np.ndarray | None = None
    peak_spread: np.ndarray | None = None
    sample_peaks: np.ndarray | None = None

    @classmethod
    def of(cls, x: np.ndarray) -> TensorStats:
        """Statistics of one sample's tensor, float32 [..., C]."""
        return cls.of_samples([x])

    @classmethod
    def of_samples(cls, tensors: Sequence[np.ndarray]) -> TensorStats:
        """Statistics of a tensor in some samples, float32 [..., C]: small ones take less work together."""
        first, count = tensors[0], len(tensors)
        if not all(x.shape == first.shape for x in tensors):
            return reduce(cls.merged, map(cls.of, tensors))
        together = first[np.newaxis] if count == 1 else np.stack(tensors)
        every = np.ascontiguousarray(together, np.float32).reshape(count, -1, first.shape[-1] if first.ndim else 1)
        if not every.size:
            return cls()
        _, n, width = every.shape
        # Several rows side by side make the inner loops long where channels are few.
        fold = next(f for f in (64, 32, 16, 8, 4, 2, 1) if n % f == 0 and (f == 1 or f * width <= 4096))
        table = native_sums.extremes(every.reshape(count, n // fold, fold * width)).reshape(count, 3, fold, width)
        least, largest = table[:, 0].min(1), table[:, 1].max(1)
        low, high = least.min(0), largest.max(0)
        with np.errstate(over="ignore", invalid="ignore"):  # masks of -3e38
            mean = np.add.reduce(table[:, 2].sum(1, dtype=np.float64) / n) / count
            peaks = np.maximum(np.abs(least), np.abs(largest)).astype(np.float64)
            peaks = peaks if width <= CHANNELS_MAX else peaks.max(1, keepdims=True)
            stats = cls(float(low.min()), float(high.max()), every.size, float(mean.mean()), samples=count)
            stats.peak_mean = np.add.reduce(peaks) / count
            stats.peak_spread = np.add.reduce((peaks - stats.peak_mean) ** 2)
            stats.sample_peaks = peaks.max(1).astype(np.float32)
        if width <= CHANNELS_MAX:
            stats.channel_min, stats.channel_max, stats.channel_mean = low, high, mean
        if stats.is_finite:
            counted = every if n * width <= COUNTED else every[:, _counted_rows(n, max(COUNTED // width, 1))]
            stats.histogram = Histogram.of(counted, stats.peak)
        return stats

    @property
    def peak(self) -> float:
        """The largest magnitude; 0 without samples."""
        return max(abs(self.min), abs(self.max)) if self.count else 0.0

    @property
    def is_finite(self) -> bool:
        """Checks that no value was NaN or infinite."""
        return not self.count or bool(np.isfinite(self.min) and np.isfinite(self.max))

    @classmethod
    def merged(cls, *parts: TensorStats | None) -> TensorStats:
        """Statistics of the samples of all parts, which stay as they are; of one part that has any, this itself."""
        living = [part for part in parts if part is not None and part.count]
        if len(living) == 1:
            return living[0]
        stats = cls()
        for part in living:
            stats.merge(part)
        return stats

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
            with np.errstate(over="ignore", invalid="ignore"):
                self.channel_mean = _joined(lambda a, b: a + (b - a) * share, self.channel_mean, other.channel_mean)
        self._merge_peaks(other)
        # Unlike Python's, numpy's minimum and maximum propagate a NaN.
        self.min, self.max = float(np.minimum(self.min, other.min)), float(np.maximum(self.max, other.max))
        self.mean += (other.mean - self.mean) * share
        self.count += other.count
        self.histogram = self.histogram.merge(other.histogram)

    def _merge_peaks(self, other: TensorStats) -> None:
        """Means and squared deviations of two sets (Chan, Golub and LeVeque, 1979)."""
        if not self.samples:
            self.peak_mean, self.peak_spread = other.peak_mean, other.peak_spread
        elif self.peak_mean is None or other.peak_mean is None or self.peak_mean.shape != other.peak_mean.shape:
            self.peak_mean = self.peak_spread = None
        else:
            assert self.peak_spread is not None
            assert other.peak_spread is not None
            share, apart = other.samples / (self.samples + other.samples), other.peak_mean - self.peak_mean
            self.peak_spread = self.peak_spread + other.peak_spread + apart**2 * share * self.samples
            self.peak_mean = self.peak_mean + apart * share
        self.sample_peaks = None
        self.samples += other.samples

    def reach(self) -> np.ndarray:
        """Largest magnitude expected of unseen samples, by channel [C], or [1] where channels are not known.

        A channel whose peak varies between samples exceeds the largest one so far more often, and by more; the more
        samples there were, the less. With n samples, and the peak's mean and standard deviation m and s, that is

            2^(min(RISE / n * log2(1 + s / m), RISE_MAX) - RISE_FREE), but at least 1,

        times the largest so far. The constants are measured: with 16 samples, hardly a tensor of 15 nets, channels
        balanced or not, went beyond twice this on others.
        """
        if self.channel_min is None or self.channel_max is None:
            seen = np.array([self.peak])
        else:
            seen = np.maximum(np.abs(self.channel_min), np.abs(self.channel_max)).astype(np.float64)
        if self.peak_mean is None or self.peak_spread is None or self.peak_mean.shape != seen.shape or self.samples < 2:
            return seen
        deviation = np.sqrt(self.peak_spread / (self.samples - 1))
        relative = deviation / np.maximum(self.peak_mean, np.finfo(np.float64).tiny)
        rise = np.minimum(RISE / self.samples * np.log2(1 + relative), RISE_MAX)
        return np.asarray(seen * 2 ** np.maximum(rise - RISE_FREE, 0))

    @property
    def room(self) -> float:
        """Factor by which other samples may exceed the largest magnitude so far, in the channel that goes farthest."""
        return float(self.reach().max()) / self.peak if self.peak > 0 else 1.0

    def clipped(self, low: float, high: float) -> TensorStats:
        """With this range: what was counted outside lies at its ends. Grids of masks go beyond float32."""
        ends = np.finfo(np.float32)
        low, high = max(low, float(ends.min)), min(high, float(ends.max))
        first, last = (None if c is None else np.clip(c, low, high) for c in (self.channel_min, self.channel_max))
        histogram = self.histogram.clipped(low, high)
        return replace(self, min=low, max=high, histogram=histogram, channel_min=first, channel_max=last)

    def ends(self, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The range of each channel [C] times its factor; that of the whole tensor where channels are not known.

        A range that was widened by hand is widened in the channel that had reached the farthest.
        """
        low, high = (
            np.full(len(factor), end) if seen is None else seen.astype(np.float64)
            for end, seen in ((self.min, self.channel_min), (self.max, self.channel_max))
        )
        low[np.argmin(low)], high[np.argmax(high)] = min(self.min, low.min()), max(self.max, high.max())
        return low * factor, high * factor

    def within(self, low: np.ndarray, high: np.ndarray) -> TensorStats:
        """With these ranges of its channels [C]."""
        known = self.channel_min is not None
        ends = (low.astype(np.float32), high.astype(np.float32)) if known else (None, None)
        return replace(self, min=float(low.min()), max=float(high.max()), channel_min=ends[0], channel_max=ends[1])

    def scaled(self, factor: float) -> TensorStats:
        """Statistics of the tensor times a factor > 0."""
        return TensorStats(
            self.min * factor,
            self.max * factor,
            self.count,
            self.mean * factor,
            self.histogram.scaled(factor),
            _times(self.channel_min, factor),
            _times(self.channel_max, factor),
            _times(self.channel_mean, factor),
            self.samples,
            _times(self.peak_mean, factor),
            _times(self.peak_spread, factor**2),
        )

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> TensorStats:
        """Statistics of a function that has its extremes at the ends of the range; of channels nothing is known."""
        low, high, mean = (float(function(np.asarray(x))) for x in (self.min, self.max, self.mean))
        histogram = self.histogram.mapped(function)
        return TensorStats(min(low, high), max(low, high), self.count, mean, histogram, samples=self.samples)

    def reaching(self, x: np.ndarray) -> TensorStats:
        """With a range that holds these values, too."""
        return replace(self, min=min(self.min, float(x.min())), max=max(self.max, float(x.max())))


def _times(array: np.ndarray | None, factor: float) -> np.ndarray | None:
    return None if array is None else (array * factor).astype(array.dtype)


def _joined(
    how: Callable[[np.ndarray, np.ndarray], np.ndarray], a: np.ndarray | None, b: np.ndarray | None
) -> np.ndarray | None:
    return None if a is None or b is None or a.shape != b.shape else how(a, b)


def _beyond(stats: TensorStats, low: np.ndarray, high: np.ndarray) -> bool:
    """Checks that a channel goes beyond its limits by more than float32 makes of them."""
    room = NEAR * np.maximum(np.abs(low), np.abs(high))
    first, last = (
        np.asarray(end if seen is None else seen)
        for end, seen in ((stats.min, stats.channel_min), (stats.max, stats.channel_max))
    )
    return bool(np.any(first < low - room) or np.any(last > high + room))


@lru_cache(maxsize=256)
def _counted_rows(n: int, wanted: int) -> np.ndarray:
    """The rows that enter the histogram: the same for all samples, so that statistics merge exactly."""
    return np.sort(np.random.default_rng(n).permutation(n)[:wanted])


@dataclass
class SampleSubset:
    """Samples whose statistics are gathered apart, too. stats: by tensor, empty until `observe` sets them."""

    indices: frozenset[int]
    stats: dict[str, TensorStats] = field(default_factory=dict)

    def of(self, indices: Sequence[int], tensors: Sequence[np.ndarray], whole: TensorStats) -> TensorStats:
        """Statistics of a tensor in those of some samples that belong to the subset. whole: in all of them."""
        inside = [x for i, x in zip(indices, tensors, strict=True) if i in self.indices]
        if len(inside) == len(tensors):
            return whole
        return TensorStats.of_samples(inside) if inside else TensorStats()


@dataclass
class SamplePeaks:
    """Largest magnitudes of each sample. by_tensor: float32 [samples], empty until `observe` sets it."""

    by_tensor: dict[str, np.ndarray] = field(default_factory=dict)

    def begin(self, names: Iterable[str], samples: int) -> None:
        """Forgets what was seen before."""
        self.by_tensor = {name: np.zeros(samples, np.float32) for name in names}

    def add(self, name: str, indices: range, stats: TensorStats) -> None:
        """Takes the peaks of a tensor in some samples."""
        self.by_tensor[name][indices.start : indices.stop] = (
            stats.peak if stats.sample_peaks is None else stats.sample_peaks
        )


def observe(
    engine: FloatEngine,
    feeds: Sequence[Mapping[str, np.ndarray]],
    names: Iterable[str] | None = None,
    progress: Progress = silent,
    limits: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    subset: SampleSubset | None = None,
    peaks: SamplePeaks | None = None,
) -> dict[str, TensorStats]:
    """Run every sample and gather statistics of the tensors ``names`` that the engine fetches (None: of all).

    limits: least and largest value of each channel [C] by name; what lies beyond counts as that. subset: samples that
    count twice. peaks: gets those of each sample. OutOfRange when the float model itself gives NaN or infinity.
    """
    stats = {name: TensorStats() for name in (engine.fetch if names is None else names)}
    apart = {name: TensorStats() for name in stats}
    if subset is not None:
        subset.stats = apart
    if peaks is not None:
        peaks.begin(stats, len(feeds))

    def measured(indices: range) -> dict[str, tuple[TensorStats, TensorStats]]:
        runs, by_name = [engine.run(feeds[i]) for i in indices], dict[str, tuple[TensorStats, TensorStats]]()
        for name in stats:
            tensors = [run[name] for run in runs]
            statistics = TensorStats.of_samples(tensors)
            if not statistics.is_finite:
                worst = next(i for i, x in zip(indices, tensors, strict=True) if not np.isfinite(x).all())
                raise OutOfRange(
                    f"the float model gives NaN or infinity in the tensor {name!r} for sample {worst}",
                    hint="check the preprocessing and that the model runs in onnxruntime",
                )
            if limits and name in limits and _beyond(statistics, *limits[name]):
                tensors = [np.clip(x, *limits[name]) for x in tensors]
                statistics = TensorStats.of_samples(tensors)
            by_name[name] = statistics, TensorStats() if subset is None else subset.of(indices, tensors, statistics)
        return by_name

    count = max(1, max(VALUES, EACH * len(stats)) // max(engine.values, 1))
    groups = [range(start, min(start + count, len(feeds))) for start in range(0, len(feeds), count)]
    together = max(1, min(TOGETHER, TENSORS // max(len(stats), 1)))
    for start in range(0, len(groups), together):
        chunk = groups[start : start + together]
        for group, by_name in zip(chunk, each(measured, chunk), strict=True):
            for name, (every, inside) in by_name.items():
                if peaks is not None:
                    peaks.add(name, group, every)
                stats[name].merge(every)
                apart[name].merge(inside)
            for i in group:
                progress("calibrate", i + 1, len(feeds))
    return stats
