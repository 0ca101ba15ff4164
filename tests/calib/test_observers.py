"""Statistics: exact where they say so, mergeable, and of one size however many samples there were."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from nmpconv.calib import observers
from nmpconv.calib.histogram import BINS, PER_STEP, Histogram
from nmpconv.calib.observers import CHANNELS_MAX, COUNTED, SamplePeaks, SampleSubset, TensorStats, observe

RNG = np.random.default_rng(4)
SAMPLES = [np.float32(10.0 ** RNG.integers(-3, 4)) * RNG.normal(size=(1, 6, 5, 7)).astype(np.float32) for _ in range(9)]


def stats_of(samples: list[np.ndarray]) -> TensorStats:
    stats = TensorStats()
    for x in samples:
        stats.merge(TensorStats.of(x))
    return stats


def same(a: Histogram, b: Histogram) -> bool:
    return (a.exponent, a.zeros) == (b.exponent, b.zeros) and bool((a.counts == b.counts).all())


def test_ranges_and_means_are_exact() -> None:
    stats, x = stats_of(SAMPLES), np.concatenate(SAMPLES)
    assert (stats.min, stats.max, stats.count) == (x.min(), x.max(), x.size)
    assert stats.peak == np.abs(x).max()
    assert np.isclose(stats.mean, x.mean(dtype=np.float64), rtol=1e-5)
    assert stats.channel_min is not None
    assert (stats.channel_min == x.min((0, 1, 2))).all()
    assert (stats.channel_max == x.max((0, 1, 2))).all()
    assert np.allclose(stats.channel_mean, x.mean((0, 1, 2), dtype=np.float64), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("cut", [0, 1, 4, 9])
def test_two_halves_equal_the_whole(cut: int) -> None:
    whole, first = stats_of(SAMPLES), stats_of(SAMPLES[:cut])
    first.merge(stats_of(SAMPLES[cut:]))
    assert same(first.histogram, whole.histogram)
    assert (first.min, first.max, first.count) == (whole.min, whole.max, whole.count)
    assert np.isclose(first.mean, whole.mean)
    assert (first.channel_max == whole.channel_max).all()
    assert np.allclose(first.channel_mean, whole.channel_mean)


def test_samples_together_are_those_one_by_one() -> None:
    together, one_by_one = TensorStats.of_samples(SAMPLES), stats_of(SAMPLES)
    assert same(together.histogram, one_by_one.histogram)
    for name in ("min", "max", "count", "samples", "channel_min", "channel_max"):
        assert np.array_equal(getattr(together, name), getattr(one_by_one, name)), name
    for name in ("mean", "channel_mean", "peak_mean", "peak_spread"):
        np.testing.assert_allclose(getattr(together, name), getattr(one_by_one, name), rtol=1e-12)


def test_small_tensors_of_a_large_net_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tensors of two samples are too many values for a group, but those of each are few."""

    class Engine:
        fetch = tuple(f"t{i}" for i in range(600))
        values = 600 * 512

        def run(self, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return dict.fromkeys(self.fetch, feed["x"])

    counts, of_samples = list[int](), TensorStats.of_samples
    monkeypatch.setattr(TensorStats, "of_samples", lambda some: counts.append(len(some)) or of_samples(some))
    assert 2 * Engine.values > observers.VALUES
    feeds = [{"x": RNG.normal(size=(1, 64, 8)).astype(np.float32)} for _ in range(9)]
    stats = observe(Engine(), feeds)  # type: ignore[arg-type]
    assert (counts.count(8), counts.count(1), len(counts)) == (600, 600, 1200)
    assert same(stats["t7"].histogram, stats_of([feed["x"] for feed in feeds]).histogram)


def test_samples_of_many_channels_and_of_other_shapes() -> None:
    wide = [RNG.normal(size=(1, CHANNELS_MAX + 1)).astype(np.float32) for _ in range(3)]
    together = TensorStats.of_samples(wide)
    assert together.channel_min is None
    np.testing.assert_allclose(together.peak_mean, [np.mean([np.abs(x).max() for x in wide])])
    unlike = TensorStats.of_samples([SAMPLES[0], SAMPLES[1][:, :2]])
    assert (unlike.samples, unlike.count) == (2, SAMPLES[0].size + SAMPLES[1][:, :2].size)


def test_large_tensors_are_not_counted_whole_together_either() -> None:
    samples = [RNG.normal(size=(1, COUNTED // 4 + 3, 7)).astype(np.float32) for _ in range(2)]
    assert same(TensorStats.of_samples(samples).histogram, stats_of(samples).histogram)


def test_the_order_of_samples_does_not_matter() -> None:
    assert same(stats_of(SAMPLES).histogram, stats_of(SAMPLES[::-1]).histogram)


def test_the_histogram_counts_what_it_says() -> None:
    x = np.concatenate(SAMPLES).ravel()
    x[::10] = 0
    h = Histogram.of(x, float(np.abs(x).max()))
    edges = h.edges(np.arange(BINS + 1))
    wanted, _ = np.histogram(x[x != 0].astype(np.float64), edges)
    assert (h.counts == wanted).all()
    assert (h.zeros, h.total) == ((x == 0).sum(), x.size)


@pytest.mark.parametrize("reach", [np.inf, 2.0, 0.3, 1e-3])
def test_points_stand_for_what_was_counted(reach: float) -> None:
    x = RNG.normal(size=20000).astype(np.float32)
    x[::10] = 0
    points, weight = Histogram.of(x, float(np.abs(x).max())).points(2.0**-12, reach)
    assert np.isclose(weight.sum(), x.size)
    assert np.isclose(weight @ points**2, np.square(x, dtype=np.float64).sum(), rtol=1e-3)
    near = np.sort(points[np.abs(points) < min(reach, 1.0) * 0.99])
    assert np.diff(near).max() <= 2.0**-12 / PER_STEP * (1 + 1e-9) or reach == 1e-3


def test_zeros_alone_are_one_point() -> None:
    points, weight = Histogram.of(np.zeros(7, np.float32), 0.0).points(0.5, 2.0)
    assert (points.tolist(), weight.tolist()) == ([0.0], [7.0])


@pytest.mark.parametrize("peak", [1.0, 1e3, 1e9])
def test_the_number_of_points_does_not_grow_with_the_range(peak: float) -> None:
    """Steps of 1/1000 up to 1, and values up to the peak."""
    x = np.linspace(-peak, peak, 10001).astype(np.float32)
    points, weight = Histogram.of(x, np.float32(peak)).points(1e-3, 1.0)
    assert len(points) <= 2 * PER_STEP * (1000 + BINS)
    assert (np.abs(points) < 1).sum() >= 2 * 1000 * PER_STEP
    assert np.isclose(weight.sum(), x.size)


@pytest.mark.parametrize("value", [1.0, -1.0, 0.5, 255.0, 1e-30, -3e38])
def test_powers_of_two_and_extremes_lie_inside(value: float) -> None:
    h = Histogram.of(np.array([value, value / 3], np.float32), abs(np.float32(value)))
    assert h.total == 2
    low, high, weight = h.bins()
    assert weight.sum() == 2
    assert low.min() <= np.float32(value) < high.max()


def test_zeros_and_what_is_too_small_for_any_grid() -> None:
    stats = stats_of([np.zeros((1, 4), np.float32), np.full((1, 4), 1e-38, np.float32)])
    assert stats.histogram.exponent is None
    assert stats.histogram.zeros == 8
    stats.merge(TensorStats.of(np.ones((1, 4), np.float32)))
    assert (stats.histogram.exponent, stats.histogram.total) == (1, 12)


def test_size_does_not_depend_on_the_number_of_samples() -> None:
    few, many = stats_of(SAMPLES[:3] * 2), stats_of(SAMPLES[:3] * 40)
    assert abs(len(pickle.dumps(many)) - len(pickle.dumps(few))) < 32


def test_large_tensors_are_counted_in_part_and_measured_in_full() -> None:
    x = RNG.normal(size=(1, 128, 100, 16)).astype(np.float32)
    x[0, 77, 55, 3] = 50.0
    stats = stats_of([x])
    assert stats.max == 50.0
    assert stats.count == x.size
    assert COUNTED * 0.9 < stats.histogram.total <= COUNTED
    low, high, weight = stats.histogram.bins()
    spread = np.sqrt(weight @ (((low + high) / 2) ** 2) / weight.sum())
    assert abs(spread - 1) < 0.02


def test_channels_are_dropped_where_they_are_too_many_or_differ() -> None:
    assert stats_of([np.ones((1, 5000), np.float32)]).channel_max is None
    mixed = stats_of([np.ones((1, 3), np.float32), np.ones((1, 4), np.float32)])
    assert mixed.channel_max is None
    assert mixed.count == 7


def test_nan_and_infinity_are_noticed() -> None:
    for bad in (np.nan, np.inf, -np.inf):
        x = SAMPLES[0].copy()
        x[0, 2, 3, 4] = bad
        assert not TensorStats.of(x).is_finite
    assert stats_of(SAMPLES).is_finite


@pytest.mark.parametrize("factor", [1.0, 1.37, 0.25, 3.0])
def test_scaled_statistics_are_those_of_the_scaled_tensor(factor: float) -> None:
    x = RNG.normal(size=(1, 64, 64, 4)).astype(np.float32) + 1
    scaled, wanted = stats_of([x]).scaled(factor), stats_of([x * np.float32(factor)])
    assert np.isclose(scaled.max, wanted.max)
    assert np.allclose(scaled.channel_min, wanted.channel_min)
    assert scaled.histogram.total == wanted.histogram.total
    coarse = [np.add.reduceat(s.histogram.grown(5).counts, np.arange(0, BINS, 16)) for s in (scaled, wanted)]
    assert np.abs(coarse[0] - coarse[1]).sum() < 0.05 * wanted.histogram.total


def test_clipping_moves_what_lies_outside_to_the_ends() -> None:
    h = stats_of(SAMPLES).histogram
    clipped = h.clipped(-100.0, 200.0)
    low, high, weight = clipped.bins()
    assert clipped.total == h.total
    assert low.min() <= -100.0 < high.min()
    assert low.max() <= 200.0 < high.max()
    assert weight[-1] == h.counts[h.edges(np.arange(BINS)) >= low.max()].sum()
    assert same(h.clipped(*_ends(h)), h)
    assert h.clipped(-1e6, 1e6).exponent == 20


def test_limits_clip_a_subset_of_the_samples_too() -> None:
    class Engine:
        values, fetch = 2, ("x",)

        def run(self, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return feed

    feeds = [{"x": np.array([[-9.0, i]], np.float32)} for i in range(6)]
    limits, subset = {"x": (np.array([-1.0, 0.0]), np.array([1.0, 3.0]))}, SampleSubset(frozenset((1, 2, 5)))
    observe(Engine(), feeds, limits=limits, subset=subset)  # type: ignore[arg-type]
    inside = [np.clip(feeds[i]["x"], *limits["x"]) for i in sorted(subset.indices)]
    wanted, stats = TensorStats.of_samples(inside), subset.stats["x"]
    assert (stats.min, stats.max, stats.mean, stats.count) == (-1, 3, wanted.mean, 6)
    assert same(stats.histogram, wanted.histogram)


def _ends(h: Histogram) -> tuple[float, float]:
    low, _, _ = h.bins()
    return float(low.min()), float(low.max())


def test_reach_is_of_samples_whatever_their_grouping() -> None:
    rng = np.random.default_rng(3)
    samples = [rng.normal(size=(1, 5, 5, 4)).astype(np.float32) * (1 + i % 3) for i in range(9)]
    parts = [TensorStats() for _ in range(3)]
    whole = TensorStats()
    for i, x in enumerate(samples):
        whole.merge(TensorStats.of(x))
        parts[i // 4].merge(TensorStats.of(x))
    joined = TensorStats()
    for part in parts:
        joined.merge(part)
    peaks = np.array([np.abs(x).max((0, 1, 2)) for x in samples])
    assert joined.samples == len(samples)
    assert joined.peak_mean is not None and joined.peak_spread is not None
    np.testing.assert_allclose(joined.peak_mean, peaks.mean(0))
    np.testing.assert_allclose(joined.peak_spread / (len(samples) - 1), peaks.var(0, ddof=1))
    np.testing.assert_allclose(joined.reach(), whole.reach())
    np.testing.assert_allclose(joined.scaled(3.0).reach(), 3 * whole.reach(), rtol=1e-6)


def test_reach_goes_beyond_what_varies_and_less_with_more_samples() -> None:
    def reach(peaks: list[float]) -> np.ndarray:
        stats = TensorStats()
        for peak in peaks:
            stats.merge(TensorStats.of(np.array([[1.0, peak], [-1.0, 0.0]], np.float32)))
        return stats.reach() / np.array([1.0, max(peaks)])

    few, many = reach([1.0, 2.0, 4.0, 1.0] * 4), reach([1.0, 2.0, 4.0, 1.0] * 100)
    assert few[0] == many[0] == 1
    assert few[1] > 1.2
    assert 1 <= many[1] < few[1]


def test_histograms_without_counts_share_their_zeros() -> None:
    empty, counted = Histogram(None, 3), Histogram.of(np.array([0.5, 0.0], np.float32), 0.5)
    assert empty.counts is Histogram().counts
    assert not empty.counts.flags.writeable
    for joined in (empty.merge(counted), counted.merge(empty)):
        assert (joined.exponent, joined.zeros, joined.total) == (counted.exponent, 4, 5)
    assert empty.merge(empty).total == 6


def test_reach_has_a_bound() -> None:
    stats = stats_of([np.zeros((1, 2), np.float32), np.full((1, 2), 3, np.float32)])
    np.testing.assert_array_equal(stats.reach(), [12, 12])


@pytest.mark.filterwarnings("error")
def test_a_grid_may_end_beyond_float32() -> None:
    """As that of a mask of -3.4e38, quantized by onnxruntime, does."""
    stats = stats_of(SAMPLES).clipped(-3.5e38, 1.0)
    assert stats.channel_min is not None
    assert stats.min == np.finfo(np.float32).min
    assert (stats.channel_min == stats_of(SAMPLES).channel_min).all()


@pytest.mark.parametrize("together", [1, 1 << 18])
def test_peaks_of_each_sample(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    class Engine:
        values, fetch = 6, ("x", "y")

        def run(self, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"x": feed["x"], "y": 0 * feed["x"]}

    monkeypatch.setattr(observers, "VALUES", together)
    monkeypatch.setattr(observers, "EACH", 1)
    feeds, peaks = [{"x": np.array([[-i, i / 2, 0.25]], np.float32)} for i in range(7)], SamplePeaks()
    for _ in range(2):
        observe(Engine(), feeds, peaks=peaks)  # type: ignore[arg-type]
        assert peaks.by_tensor["x"].tolist() == [0.25, 1, 2, 3, 4, 5, 6]
        assert not peaks.by_tensor["y"].any()
