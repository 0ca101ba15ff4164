"""Sums over many rows while a model is quantized, in C: interpreter/python/fits.h.

Floats are added row after row, whatever the CPU: what is made of the sums depends on nothing but the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nmpconv import _nmp

TAPS_MAX = 511  # products of int8 and int16 whose sums fit int32, all of them the largest
ROWS_MAX = (1 << 17) - 1  # products of int8, likewise


def mean_difference(product: np.ndarray, wanted: np.ndarray, to: np.ndarray, of: np.ndarray) -> np.ndarray:
    """[O]: the mean over rows of wanted * to - product * of. product: float64 [R, O]; wanted: [R, O], as float32; to,
    of: [O]."""
    sums = np.empty(product.shape[1])
    _nmp.differences(_doubles(product), _floats(wanted), _doubles(to), _doubles(of), sums)
    return sums / len(product)


def mean_squares(
    product: np.ndarray,
    wanted: np.ndarray,
    shift: np.ndarray,
    clamp: tuple[float, float],
    grid: tuple[int, int, int],
    biases: np.ndarray,
    *,
    before: bool = False,
) -> np.ndarray:
    """[B, O]: the mean squared error of rsh(product, shift) + bias, saturated, in output steps.

    product: integers in float64 [R, O]. wanted: [R, O], as float32, which the activation clips to ``clamp``. shift:
    [O]. grid: exponent, least and largest integer of the output. biases: [3 or 4, O]. before: they are added before
    the shift, and are 5.
    """
    exponent, lo, hi = grid
    sums = np.empty(biases.shape)
    output = np.array([*clamp, 2.0**-exponent, lo, hi], np.float64)
    per = np.ldexp(1.0, -np.asarray(shift))
    _nmp.squares(_doubles(product), _floats(wanted), per, output, before, _doubles(biases), sums)
    return sums / len(product)


def moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums over rows [R, G, K] of int8: of x x^T [G, K, K], and of x [G, K]. int32; at most ROWS_MAX rows.

    Rows that lie as [R, K, G] are not copied, here and in `by_channel`.
    """
    count, groups, taps = rows.shape
    assert count <= ROWS_MAX
    products, totals = np.zeros((groups, taps, taps), np.int32), np.empty((groups, taps), np.int32)
    _nmp.moments(_planes(rows), products, totals)
    upper = np.triu_indices(taps, 1)
    products[:, upper[1], upper[0]] = products[:, upper[0], upper[1]]
    return products, totals


def by_channel(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows [R, G, K] of int8 or int16 times weights [G, K] of int16, K at most TAPS_MAX: float64 [R, G]."""
    sums = np.empty(rows.shape[:2])
    _nmp.by_channel(_planes(rows), np.ascontiguousarray(weights.T, np.int16), sums)
    return sums


def extremes(x: np.ndarray) -> np.ndarray:
    """float32 [N, 3, C] of x [N, R, C], R > 0: the least and the largest of each column, and the sum of its rows in
    their order. NaN where one is NaN."""
    table = np.empty((len(x), 3, x.shape[2]), np.float32)
    _nmp.extremes(_floats(x), table)
    return table


def binned(x: np.ndarray, scale: float, bins: int) -> tuple[np.ndarray, int]:
    """Counts the x in [i, i + 1) / scale, i from -bins / 2 [bins], and those that are 0. scale: a power of two."""
    counts = np.empty(bins, np.int64)
    return counts, _nmp.bins(_floats(x).reshape(-1), scale, counts)


def bin_errors(
    table: np.ndarray,
    ends: np.ndarray,
    steps: np.ndarray,
    limits: tuple[int, int],
    origins: np.ndarray | float = 0.0,
    saturated: float = 1.0,
) -> np.ndarray:
    """[S]: the sum over bins of weight times the mean of (t - quantized(t))^2 over t in the bin less an origin.

    table: float64 [4, n], lower and upper edges, widths and weights. ends: bool [n], False where the next bin begins at
    its end. steps, origins: [S], integers within limits. The error is what the integral from 0 grows by over the bin:
    every whole step adds step^3 / 12, and what is left at the distance r from its level r^3 / 3; what lies beyond half
    a step of the outermost levels counts ``saturated`` times.
    """
    errors, grids = np.empty(len(steps)), np.empty((3, len(steps)))
    grids[0], grids[1], grids[2] = steps, steps**3, origins
    _nmp.bin_errors(table, ends, grids, *limits, saturated, errors)
    return errors


def points(
    bins: np.ndarray, counts: np.ndarray, half: int, width: float, per_step: int, zeros: int, grids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, weight, sizes): points that stand for counts of bins, for each row of grids [2, R] as many as sizes [R] says.

    bins: [n], int64, ascending; bin b is [b - half, b + 1 - half) * width. grids: steps and reaches. A reach cuts the
    bins that it lies in. What is left of them has ``per_step`` points, evenly, in a step, at least one, and beyond the
    reach at most so many. The last point of each row is 0, and counts ``zeros``.
    """
    sizes, nothing, of = np.empty(grids.shape[1], np.int64), np.empty(0), (half, width, per_step, zeros)
    counts = _doubles(counts)
    _nmp.points(bins, counts, of, grids, sizes, nothing, nothing)
    x, weight = np.empty((2, int(sizes.sum())))
    _nmp.points(bins, counts, of, grids, sizes, x, weight)
    return x, weight, sizes


class PointGrids(NamedTuple):
    """Grids that points are rounded to: the first sizes[0] of them to those of row 0, and so on.

    sizes: int64 [G]. steps: [G, S]. origins: [G]. limits: the least and the largest level.
    """

    sizes: np.ndarray
    steps: np.ndarray
    origins: np.ndarray
    limits: tuple[int, int]

    def nearest(self, x: np.ndarray, table: np.ndarray | None = None) -> np.ndarray:
        """[S, n]: the nearest numbers to points [n] on the grids. table: [S, G, levels], what stands for these."""
        got = np.empty((self.steps.shape[1], len(x)))
        entries = np.empty(0) if table is None else _doubles(table).reshape(-1)
        _nmp.nearest(x, self.sizes, self.steps, self.origins, self.limits, entries, got)
        return got

    def errors_after(
        self, x: np.ndarray, weight: np.ndarray, signal: np.ndarray, got: np.ndarray, saturated: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sums of weight * signal^2 [G], and of weight * (signal - got)^2 [G, S], in eight lanes: the latter counts
        ``saturated`` times where the level nearest to x lies beyond the grid. x, weight, signal: [n]. got: [S, n]."""
        power, errors = np.empty(len(self.steps)), np.empty(self.steps.shape)
        signal, got = _doubles(signal), _doubles(got)
        _nmp.errors_after(x, weight, signal, got, *self[:4], saturated, power, errors)
        return power, errors


def round_columns(
    w: np.ndarray,
    goal: np.ndarray,
    shares: np.ndarray,
    step: np.ndarray,
    bias_step: float,
    limits: tuple[int, int],
    part: slice,
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds some columns of goals [G, O, K] for weights w, all float64: what one loses of w goes, times shares
    [G, K, K], into the goals of the part after it, which change.

    step: [G, O]; of column 0 it is bias_step, without limits. Returns the integers and what w loses, [G, O, columns of
    the part].
    """
    shape = (*w.shape[:2], part.stop - part.start)
    q, errors = np.empty(shape), np.empty(shape)
    ends = np.array([bias_step, *limits], np.float64)
    _nmp.round_columns(w, goal, shares, _doubles(step), ends, part.start, q, errors)
    return q, errors


def _planes(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows.transpose(0, 2, 1))


def _doubles(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, np.float64)


def _floats(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, np.float32)
