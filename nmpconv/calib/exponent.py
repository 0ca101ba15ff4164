"""The exponent of an activation, chosen from its statistics on the grid of powers of two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nmpconv.calib.histogram import HALF, Histogram
from nmpconv.calib.observers import TensorStats
from nmpconv.fixed import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, INT_MIN

METHODS = ("mse", "max", "kl", "percentile")
STEPS_DOWN = 5  # how far below the exponent that clips nothing the search goes
HEADROOM_16 = 2.0  # 16 bits keep room for twice the calibrated range: saturation would cost more than the bit
Function = Callable[[np.ndarray], np.ndarray]


def smallest_exponent(lo: float, hi: float, bits: int) -> int:
    """The smallest exponent at which clipping costs [lo, hi] no more than rounding: half a step.

    [0, 127.5] fits 8 bits at exponent 0, [0, 255] at 1. A range of zeros alone gets -(bits - 1).
    """
    ratio = max(hi / (INT_MAX[bits] + 0.5), -lo / (0.5 - INT_MIN[bits]))
    if ratio <= 0:
        return 1 - bits
    mantissa, exponent = np.frexp(ratio)
    return int(np.clip(exponent - (mantissa == 0.5), EXPONENT_MIN, EXPONENT_MAX))


def choose(
    stats: TensorStats,
    bits: int,
    method: str = "mse",
    *,
    percentile: float = 99.99,
    function: Function | None = None,
) -> int:
    """The exponent for a tensor of 8 or 16 bits.

    method: "max" clips nothing; "mse" has the least mean squared error; "kl" loses the least information by
            Kullback and Leibler; "percentile" clips what lies beyond this percentile of |x|. 16 bits ignore it.
    function: what is applied to the values next (a table), float64 arrays: "mse" measures after it.
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is none of {METHODS}")
    lo, hi = (stats.min, stats.max) if stats.count else (0.0, 0.0)
    if bits == 16:
        return smallest_exponent(lo * HEADROOM_16, hi * HEADROOM_16, bits)
    top = smallest_exponent(lo, hi, bits)
    if method == "max":
        return top
    if method == "percentile":
        bound = _percentile(stats.histogram.clipped(lo, hi), percentile, stats.absmax)
        return min(top, smallest_exponent(-bound, bound, bits))
    if method == "kl":
        histogram = stats.histogram.clipped(lo, hi)
        return min(_candidates(top), key=lambda e: _divergence(histogram, e, bits))
    return min(_candidates(top), key=lambda e: _relative_error(stats, 2.0**e, bits, function))


def _candidates(top: int) -> list[int]:
    """The exponents that are tried, the largest first: it is taken when others are no better."""
    return [e for e in range(top, top - STEPS_DOWN - 1, -1) if e >= EXPONENT_MIN]


def sqnr_db(stats: TensorStats, exponent: int, bits: int, function: Function | None = None) -> float:
    """10 log10(signal / error), expected from quantizing this tensor alone, after ``function``; inf when exact."""
    error = _relative_error(stats, 2.0**exponent, bits, function)
    return float(-10 * np.log10(error)) if error else np.inf


def best_error(stats: TensorStats, factor: float) -> float:
    """The least error / signal (mean squares) at which 8 bits hold the tensor times a factor > 0."""
    if not stats.absmax:
        return 0.0
    top = smallest_exponent(stats.min * factor, stats.max * factor, 8)
    return min(_relative_error(stats, 2.0**e / factor, 8, None) for e in _candidates(top))


def _relative_error(stats: TensorStats, step: float, bits: int, function: Function | None) -> float:
    """Mean squares of the error over those of the signal; inf for an error without a signal."""
    x, weight = stats.histogram.points(step)
    x = np.clip(x, stats.min, stats.max)
    quantized = np.clip(np.floor(x / step + 0.5), INT_MIN[bits], INT_MAX[bits]) * step
    signal, result = (x, quantized) if function is None else (function(x), function(quantized))
    error, power = float(weight @ (signal - result) ** 2), float(weight @ signal**2)
    return error / power if power else (np.inf if error else 0.0)


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
    levels = np.floor(np.ldexp(centres, -exponent) + 0.5).astype(np.int64)
    inside = (levels >= INT_MIN[bits]) & (levels <= INT_MAX[bits])
    if not inside.any():
        return np.inf
    kept = counts[inside]
    p = kept.copy()
    p[centres[inside].argmin()] += counts[levels < INT_MIN[bits]].sum()
    p[centres[inside].argmax()] += counts[levels > INT_MAX[bits]].sum()
    _, group = np.unique(levels[inside], return_inverse=True)
    q = (np.bincount(group, weights=kept) / np.bincount(group))[group]
    return float(np.sum(p / p.sum() * np.log(p / p.sum() * q.sum() / q)))
