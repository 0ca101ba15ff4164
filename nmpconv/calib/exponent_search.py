"""The exponent of an activation, chosen from its statistics on the grid of powers of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, INT_MIN
from nmpconv.calib import native_sums
from nmpconv.calib.histogram import HALF, PER_STEP, Histogram
from nmpconv.calib.observers import TensorStats

METHODS = ("mse", "mse4", "max", "kl", "percentile")
# How often the square of an error of saturation counts. Such errors have one sign and lie side by side, so they add up
# where errors of rounding cancel, and other samples go beyond what was seen.
SATURATED = {"mse4": 4.0}
STEPS_DOWN = 5  # how far below the exponent that clips nothing the search goes
SPIKE = 2.0**-10  # the width, in bins, that a bin of equal values is given
# 16 bits keep room for twice the expected range, since saturation would cost more than the bit; a hair less, for a
# range that ends at a power of two is not to lose another.
HEADROOM_16 = 2 * (1 - 2.0**-15)
# A function is flat where it stays within this fraction of its largest result: a quarter of a step of a 16-bit output.
FLAT = 2.0**-17
FLAT_POINTS = 4097
ZOOM = 64
POINTS = 2**14  # that functions are asked for at once, for each step of a grid
Function = Callable[[np.ndarray], np.ndarray]
Range = tuple[float, float]


class Table(NamedTuple):
    """A function that is applied next to values with these statistics. limits: the range in which it is wanted."""

    function: Function
    stats: TensorStats
    limits: Range


def smallest_exponent(lo: float, hi: float, bits: int) -> int:
    """The smallest exponent at which clipping costs [lo, hi] no more than rounding: half a step.

    [0, 127.5] fits 8 bits at exponent 0, [0, 255] at 1. A range of zeros alone gets -(bits - 1).
    """
    ratio = max(hi / (INT_MAX[bits] + 0.5), -lo / (0.5 - INT_MIN[bits]))
    if ratio <= 0:
        return 1 - bits
    mantissa, exponent = math.frexp(ratio)
    return min(max(exponent - (mantissa == 0.5), EXPONENT_MIN), EXPONENT_MAX)


def span(stats: TensorStats, bits: int, clamp: Range | None = None, *, room: bool = True) -> Range:
    """Range that the grid of a tensor is to hold: all that was seen, and at 16 bits room for what was not.

    The room is twice what the channels are expected to reach on other samples, measured from 0, or from the near end of
    a range that does not hold 0: kelvins from 276 to 290 need none up to 580. Nobody needs any beyond the clamp.
    room: False for the range seen alone.
    """
    lo, hi = (stats.min, stats.max) if stats.count else (0.0, 0.0)
    if bits == 16 and room and stats.peak > 0:
        rise = HEADROOM_16 * float(stats.reach().max()) / stats.peak
        near = lo if lo > 0 else min(hi, 0.0)
        lo, hi = near + (lo - near) * rise, near + (hi - near) * rise
        if clamp is not None:
            lo, hi = max(lo, min(clamp[0], 0.0)), min(hi, max(clamp[1], 0.0))
    return lo, hi


def top_exponent(
    limits: Range, bits: int, functions: Sequence[Function] = (), stats: TensorStats | None = None, factor: float = 1.0
) -> int:
    """The smallest exponent that clips nothing of the limits (see `span`) times ``factor``.

    At 16 bits, nothing but where all functions that follow are flat, by their results for values with these statistics.
    """
    ends = [limits]
    if bits == 16 and functions and stats is not None:
        ends = [_bent(function, *limits, FLAT * _largest(function, stats)) for function in functions]
    return max(smallest_exponent(lo * factor, hi * factor, bits) for lo, hi in ends)


def choose(
    stats: TensorStats,
    bits: int,
    method: str = "mse",
    *,
    percentile: float = 99.99,
    tables: Sequence[Table] = (),
    limits: Range | None = None,
) -> int:
    """The exponent for a tensor of 8 or 16 bits.

    method: "max" clips nothing; "mse" has the least mean squared error, "mse4" the same where saturation counts four
            times; "kl" loses the least information by Kullback and Leibler; "percentile" clips what lies beyond this
            percentile of |x|. 16 bits ignore it.
    tables: those that read the tensor, or parts of it, where nothing else does: errors are measured after them.
    limits: what the grid is to hold; that of these statistics, where none are given.
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is none of {METHODS}")
    top = top_exponent(span(stats, bits) if limits is None else limits, bits)
    if bits == 16 and tables:
        top = min(top, max(top_exponent(t.limits, bits, (t.function,), t.stats) for t in tables))
    exponents = _candidates(stats, bits, method, percentile, top)
    if len(exponents) == 1:
        return exponents[0]
    steps = np.ldexp(1.0, exponents)
    counts = SATURATED.get(method, 1.0)
    errors = (
        np.mean([Rounded(t.stats, counts).relative_errors(steps, bits, (t.function,)) for t in tables], axis=0)
        if tables
        else Rounded(stats, counts).relative_errors(steps, bits)
    )
    return exponents[int(np.argmin(errors))]


def expected_sqnr_db(
    stats: TensorStats | Rounded, exponent: float, bits: int, functions: Sequence[Function] = (), origin: float = 0.0
) -> float:
    """10 log10(signal / error) expected from quantizing a tensor alone with this exponent, or any other step
    2^exponent; inf when exact.

    functions: what is applied next, each for itself: the mean of the errors after them. origin: what the integer 0
    stands for.
    """
    rounded = stats if isinstance(stats, Rounded) else Rounded(stats)
    return _db(float(rounded.relative_errors(np.array([2.0**exponent]), bits, functions, origin)[0]))


def best_sqnrs_db(
    rounded: Rounded,
    exponents: Sequence[Sequence[float]],
    bits: int,
    functions: Sequence[Function],
    origins: np.ndarray,
) -> np.ndarray:
    """Returns the SQNR of the best exponent of each row, with the origin of the row."""
    steps = np.array([[2.0**e for e in row] for row in exponents])
    return np.array([_db(best) for best in rounded.errors_after(functions, steps, origins, bits).min(1).tolist()])


def grid_sqnrs_db(
    rounded: Rounded, steps: np.ndarray, origins: np.ndarray, bits: int, functions: Sequence[Function] = ()
) -> np.ndarray:
    """Returns the SQNR of each of these grids, [S], as `expected_sqnr_db` has it."""
    if functions:
        grids = [*zip(steps.tolist(), origins.tolist(), strict=True)]
        unlike = list(dict.fromkeys(grids))
        rows = np.array(unlike)
        each = dict(
            zip(unlike, rounded.errors_after(functions, rows[:, :1], rows[:, 1], bits)[:, 0].tolist(), strict=True)
        )
        errors = np.array([each[grid] for grid in grids])
    else:
        errors = rounded.relative_errors(steps, bits, (), origins)
    return np.where(errors > 0, -10 * np.log10(np.where(errors > 0, errors, 1.0)), np.inf)


def _db(error: float) -> float:
    return float(-10 * np.log10(error)) if error else np.inf


def _candidates(stats: TensorStats, bits: int, method: str, percentile: float, top: int) -> list[int]:
    """The exponents that the method leaves to the error, the largest first: it is taken when others are no better."""
    lo, hi = (stats.min, stats.max) if stats.count else (0.0, 0.0)
    if bits == 16:
        return [top]
    search = [e for e in range(top, top - STEPS_DOWN - 1, -1) if e >= EXPONENT_MIN]
    if method == "max":
        return [top]
    if method == "percentile":
        bound = _percentile(stats.histogram.clipped(lo, hi), percentile, stats.peak)
        return [min(top, smallest_exponent(-bound, bound, bits))]
    if method == "kl":
        histogram = stats.histogram.clipped(lo, hi)
        return [min(search, key=lambda e: _divergence(histogram, e, bits))]
    return search


def _largest(function: Function, stats: TensorStats) -> float:
    """The largest magnitude of its results for values with these statistics: 1 / x has larger ones beside them."""
    low, high, _ = stats.histogram.bins()
    x = np.clip((low + high) / 2, stats.min, stats.max)
    y = np.abs(function(np.append(x, 0.0) if stats.histogram.zeros or not x.size else x))
    return float(y.max())


def _bent(function: Function, lo: float, hi: float, allowed: float) -> Range:
    """[lo, hi] without the ends where the function is flat, changes by at most this: saturation costs nothing there."""
    x = np.linspace(lo, hi, FLAT_POINTS)
    y = function(x)
    first = np.argmax(np.abs(y - y[0]) > allowed)
    last = np.argmax(np.abs(y - y[-1])[::-1] > allowed)
    if first == 0:  # flat throughout
        return lo, hi
    low, high = float(x[first - 1]), float(x[len(x) - last])
    # Where little is left, these points are too far apart to tell where the function begins to bend.
    return _bent(function, low, high, allowed) if 0 < high - low < (hi - lo) / ZOOM else (low, high)


def _ratios(power: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """errors [G, S] over power [G]; inf for an error without a signal."""
    there = power != 0
    ratios = np.where(errors > 0, np.inf, 0.0)
    ratios[there] = errors[there] / power[there, None]
    return ratios


def _parts(sizes: Sequence[int]) -> Iterator[slice]:
    """Neighbours of at most POINTS together, or one."""
    start = total = 0
    for i, size in enumerate(sizes):
        if i > start and total + size > POINTS:
            yield slice(start, i)
            start, total = i, 0
        total += size
    yield slice(start, len(sizes))


class Rounded:
    """Rounding of values with these statistics. Who tries many grids keeps it: bins are prepared once.

    saturated: how often the square of an error of saturation counts.
    """

    def __init__(self, stats: TensorStats, saturated: float = 1.0) -> None:
        self.stats, self._saturated = stats, saturated

    @cached_property
    def key(self) -> Hashable:
        """Equal for statistics that all grids do the same to."""
        histogram = self.stats.histogram
        used = histogram.used
        counts = blake2b(used.tobytes() + histogram.counts[used].tobytes(), digest_size=16).digest()
        return counts, histogram.exponent, histogram.zeros, self.stats.min, self.stats.max, self._saturated

    def relative_errors(
        self, steps: np.ndarray, bits: int, functions: Sequence[Function] = (), origin: np.ndarray | float = 0.0
    ) -> np.ndarray:
        """Mean squares of the error over those of the signal at each step [S]; inf for an error without a signal.

        The mean of those after each function, where there are any: then all steps have one origin, else [S].
        """
        if functions:
            return self.errors_after(functions, np.array([steps]), np.array([origin]), bits)[0]
        power, errors = self._squares(steps, bits, origin)
        return _ratios(np.array([power]), errors[None])[0]

    def errors_after(
        self, functions: Sequence[Function], steps: np.ndarray, origins: np.ndarray, bits: int
    ) -> np.ndarray:
        """`relative_errors` of rows of steps [G, S], each with one origin [G], all in few calls of each function."""
        ratios = [_ratios(*self._squares_after(function, steps, origins, bits)) for function in functions]
        return ratios[0] if len(ratios) == 1 else np.asarray(np.mean(ratios, axis=0))

    def _squares_after(
        self, function: Function, steps: np.ndarray, origins: np.ndarray, bits: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `_squares`, of the results of a function: [G] and [G, S]."""
        # The points of a row reach a step beyond what its coarsest grid holds.
        limits = INT_MIN[bits], INT_MAX[bits]
        reaches = (1 - INT_MIN[bits]) * steps.max(1) + np.abs(origins)
        every, counts, sizes = _points(self.stats, np.array([steps.min(1), reaches]))
        bounds = np.append(0, np.cumsum(sizes)).tolist()
        steps, origins = np.ascontiguousarray(steps), np.ascontiguousarray(origins)
        sums, levels = [], np.arange(INT_MIN[bits], INT_MAX[bits] + 1.0)
        for part in _parts(sizes.tolist()):
            points = slice(bounds[part.start], bounds[part.stop])
            x, grids = every[points], native_sums.PointGrids(sizes[part], steps[part], origins[part], limits)
            if len(levels) * len(grids.sizes) < len(x):  # each of them is what many points come to
                real = grids.origins[:, None] + levels * grids.steps.T[:, :, None]
                got = grids.nearest(x, function(real.reshape(-1)))
            else:
                got = function(grids.nearest(x).reshape(-1)).reshape(-1, len(x))
            sums.append(grids.errors_after(x, counts[points], function(x), got, self._saturated))
        power, errors = zip(*sums, strict=True)
        return np.concatenate(power), np.concatenate(errors)

    def _squares(self, steps: np.ndarray, bits: int, origin: np.ndarray | float) -> tuple[float, np.ndarray]:
        """Sums of the squares of the signal, and of the error at each step [S]: exact for values spread evenly in bins.

        Most bins begin where the one before them ends.
        """
        bins = self._bins
        limits = INT_MIN[bits], INT_MAX[bits]
        error = native_sums.bin_errors(bins.table, bins.ends, steps, limits, origin, self._saturated)
        if zeros := self.stats.histogram.zeros:
            exact = np.floor(-origin / steps + 0.5)
            level = np.minimum(np.maximum(exact, limits[0]), limits[1])
            counts = np.where(level == exact, 1.0, self._saturated)
            error += zeros * (counts * (-origin - level * steps) ** 2)
        return bins.power, np.maximum(error, 0.0)

    @cached_property
    def _bins(self) -> _Bins:
        stats = self.stats
        low, high, weight = stats.histogram.bins()
        low, high = (np.minimum(np.maximum(x, stats.min), stats.max) for x in (low, high))
        # A bin whose values are all at one end of the range has no width; a narrow one stands for it.
        low = np.where(high - low > 0, low, low - SPIKE * stats.histogram.width)
        width = high - low
        ends = np.ones(len(low), bool)
        ends[:-1] = low[1:] != high[:-1]
        power = float(weight @ ((high * high + high * low + low * low) / 3))
        return _Bins(np.array([low, high, width, weight]), ends, power)


class _Bins(NamedTuple):
    """Bins of a histogram that are in use [n]. table: lower and upper edges, widths and weights [4, n]. ends: False
    where the next one begins at its end. power: of the values."""

    table: np.ndarray
    ends: np.ndarray
    power: float


def _points(stats: TensorStats, grids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`Histogram.points_of` within the range; a range narrower than a bin has its own, and not those of the bin, which
    would be as many as the bin has steps.
    """
    if stats.max - stats.min >= stats.histogram.width:
        x, weight, sizes = stats.histogram.points_of(grids)
        return np.clip(x, stats.min, stats.max), weight, sizes
    each = 1 + np.ceil(PER_STEP * (stats.max - stats.min) / grids[0]).astype(np.int64)
    total, zeros = float(stats.histogram.bins()[2].sum()), float(stats.histogram.zeros)
    rows = [np.append(np.linspace(stats.min, stats.max, many), 0.0) for many in each.tolist()]
    weights = [np.append(np.full(many, total / many), zeros) for many in each.tolist()]
    return np.concatenate(rows), np.concatenate(weights), each + 1


def _percentile(histogram: Histogram, percentile: float, peak: float) -> float:
    """The magnitude below which ``percentile`` % of the values lie, interpolated within its bin."""
    counts = histogram.counts[HALF:] + histogram.counts[HALF - 1 :: -1]
    wanted = histogram.total * percentile / 100 - histogram.zeros
    if wanted <= 0:
        return 0.0
    below = np.cumsum(counts)
    bin_ = min(int(np.searchsorted(below, wanted)), HALF - 1)
    inside = (wanted - (below[bin_] - counts[bin_])) / max(counts[bin_], 1)
    return float(min((bin_ + inside) * histogram.width, peak))


def _divergence(histogram: Histogram, exponent: int, bits: int) -> float:
    """KL(p || q): p has what is clipped in its outermost bins, q spreads each level evenly over its filled bins."""
    used = np.flatnonzero(histogram.counts)
    counts = np.append(histogram.counts[used], histogram.zeros).astype(np.float64)
    centres = np.append(histogram.edges(used + 0.5), 0.0)
    counts, centres = counts[counts > 0], centres[counts > 0]
    levels = np.floor(np.ldexp(centres, -exponent) + 0.5)
    inside = (levels >= INT_MIN[bits]) & (levels <= INT_MAX[bits])
    if not inside.any():
        return np.inf
    inside_counts = counts[inside]
    p = inside_counts.copy()
    p[centres[inside].argmin()] += counts[levels < INT_MIN[bits]].sum()
    p[centres[inside].argmax()] += counts[levels > INT_MAX[bits]].sum()
    _, group = np.unique(levels[inside], return_inverse=True)
    q = (np.bincount(group, weights=inside_counts) / np.bincount(group))[group]
    return float(np.sum(p / p.sum() * np.log(p / p.sum() * q.sum() / q)))
