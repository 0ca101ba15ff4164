"""The sums that are made in C against numpy, which adds rows one after the other, too: to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.base.fixed_point import rsh
from nmpconv.calib import native_sums


class Rows:
    """Products, what they should have been, shifts of both signs; a layer with an activation."""

    def __init__(self, outs: int, rows: int = 700) -> None:
        self.rng = np.random.default_rng(outs)
        self.shift = self.rng.integers(-3, 12, outs)
        self.product = self.rng.integers(-(2**13), 2**13, (rows, outs)) << np.maximum(self.shift - 6, 0)
        self.wanted = self.rng.normal(0, 40, (rows, outs)).astype(np.float32)


@pytest.mark.parametrize("outs", [2, 63, 64, 200])
def test_mean_difference(outs: int) -> None:
    x = Rows(outs)
    to, of = x.rng.normal(0, 1, (2, outs))
    expected = np.add.reduce(x.wanted * to - x.product * of, axis=0) / len(x.product)
    assert np.array_equal(native_sums.mean_difference(x.product, x.wanted, to, of), expected)


@pytest.mark.parametrize(("before", "count"), [(False, 3), (False, 4), (True, 5)])
@pytest.mark.parametrize("outs", [2, 65, 200])
def test_mean_squares(outs: int, before: bool, count: int) -> None:
    x = Rows(outs)
    biases, (exponent, lo, hi) = x.rng.integers(-30, 31, (count, outs)), (-2, -100, 90)
    goal = np.clip(x.wanted.astype(np.float64), -11.0, np.inf) / 2.0**exponent
    expected = []
    for bias in biases:
        q = rsh(x.product + bias, x.shift) if before else rsh(x.product, x.shift) + bias
        expected.append(np.add.reduce(np.square(np.clip(q, lo, hi) - goal), axis=0) / len(goal))
    grid = exponent, lo, hi
    found = native_sums.mean_squares(x.product, x.wanted, x.shift, (-11.0, np.inf), grid, biases, before=before)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("taps", [1, 7, 9, 25])
@pytest.mark.parametrize("groups", [1, 40])
def test_moments(taps: int, groups: int) -> None:
    rows = np.random.default_rng(taps).integers(-128, 128, (333, groups, taps)).astype(np.int8)
    rows[:, 0] = -128
    products, totals = native_sums.moments(rows)
    x = rows.astype(np.int64)
    assert np.array_equal(products, np.einsum("rgk,rgl->gkl", x, x))
    assert np.array_equal(totals, x.sum(axis=0))


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("taps", [1, 9, 25])
def test_by_channel(taps: int, dtype: type) -> None:
    rng, ends = np.random.default_rng(taps), np.iinfo(dtype)
    rows = rng.integers(ends.min, ends.max + 1, (50, 33, taps)).astype(dtype)
    weights = rng.integers(-(2**15), 2**15, (33, taps))
    rows[0], weights[0] = ends.min, -(2**15)
    assert np.array_equal(
        native_sums.by_channel(rows, weights), np.einsum("rgk,gk->rg", rows.astype(np.int64), weights)
    )


@pytest.mark.parametrize(("groups", "outs", "columns"), [(1, 5, 70), (40, 1, 10), (3, 4, 9)])
def test_round_columns(groups: int, outs: int, columns: int) -> None:
    """Each column by numpy: the integer, what the weight loses, and shares of that in the goals that are left."""
    rng = np.random.default_rng(columns)
    w, goal = rng.normal(0, 1, (2, groups, outs, columns))
    shares = rng.normal(0, 1, (groups, columns, columns))
    step = np.exp2(rng.integers(-6, -4, (groups, outs)))
    expected, part = goal.copy(), slice(0, columns - 3)
    q, errors = np.zeros((2, groups, outs, part.stop))
    for j in range(part.stop):
        scale = np.full((groups, outs), 0.5) if j == 0 else step
        q[:, :, j] = np.floor(expected[:, :, j] / scale + 0.5)
        q[:, :, j] = q[:, :, j] if j == 0 else np.clip(q[:, :, j], -20, 20)
        errors[:, :, j] = w[:, :, j] - q[:, :, j] * scale
        later = slice(j + 1, part.stop)
        expected[:, :, later] += errors[:, :, j, None] * shares[:, None, j, later]
    found, found_errors = native_sums.round_columns(w, goal, shares, step, 0.5, (-20, 20), part)
    assert np.array_equal(found, q)
    assert np.array_equal(found_errors, errors)
    assert np.array_equal(goal, expected)
    assert np.abs(q[:, :, 1:]).max() == 20


def test_the_largest_sums_fit() -> None:
    """All elements the least of their types, as many as are allowed."""
    rows = np.full((1, 2, native_sums.TAPS_MAX), -128, np.int8)
    weights = np.full((2, native_sums.TAPS_MAX), -(2**15), np.int16)
    assert native_sums.by_channel(rows, weights).tolist() == [[native_sums.TAPS_MAX * 2.0**22] * 2]
    products, totals = native_sums.moments(np.full((native_sums.ROWS_MAX, 1, 1), -128, np.int8))
    assert (products.item(), totals.item()) == (native_sums.ROWS_MAX * 2**14, -native_sums.ROWS_MAX * 128)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (50, 200)])
def test_extremes(shape: tuple[int, int]) -> None:
    every = np.random.default_rng(shape[1]).normal(0, 100, (3, *shape)).astype(np.float32)
    x = every[1]
    assert np.array_equal(native_sums.extremes(every)[1], [x.min(0), x.max(0), x.sum(0)])
    for value in (np.nan, np.inf, -np.inf):
        x[shape[0] // 2, 0] = value
        x[-1, -1] = value
        assert np.array_equal(native_sums.extremes(every)[1], [x.min(0), x.max(0), x.sum(0)], equal_nan=True)


@pytest.mark.parametrize("count", [0, 1, 1000, 2501])
def test_binned(count: int) -> None:
    """Numbers at the end count in the last bin, as in numpy. 2,501 are three tiles, the last one odd."""
    x = np.random.default_rng(count).uniform(-8, 8, count).astype(np.float32)
    x[::5], x[1::7] = 0, np.round(x[1::7])
    x[2:3], x[3:4], x[4:5] = -8, np.nextafter(np.float32(8), np.float32(0)), 8
    counts, zeros = native_sums.binned(x, 2.0, 32)
    assert np.array_equal(counts, np.histogram(x, np.arange(-8, 8.5, 0.5))[0])
    assert zeros == np.count_nonzero(x == 0)


@pytest.mark.parametrize("saturated", [1.0, 4.0])
@pytest.mark.parametrize("limits", [(-128, 127), (-32768, 32767)])
def test_bin_errors(limits: tuple[int, int], saturated: float) -> None:
    """As numpy has them, bit by bit, in sums of eight lanes; some bins lie side by side."""
    edges, steps = np.sort(np.random.default_rng(1).normal(0, 30, 1001)), np.array([0.25, 0.1, 1.0])
    low, high = edges[:-1], edges[1:].copy()
    ends = np.ones(1000, bool)
    ends[:-1] = np.random.default_rng(2).uniform(size=999) < 0.3
    high[ends] -= (high - low)[ends] / 3

    def integral(x):
        level = np.clip(np.floor(x / steps[:, None] + 0.5), *limits)
        left = x - level * steps[:, None]
        near = np.clip(left, -steps[:, None] / 2, steps[:, None] / 2)
        third = saturated * (left * left * left) - (saturated - 1) * (near * near * near)
        return level * (steps**3)[:, None] / 12 + third / 3

    weight, origins = np.random.default_rng(3).uniform(0, 9, 1000), np.array([0.0, 3.7, -2.1])
    each = np.array([np.diagonal(integral(x - origins[:, None, None])) for x in (low, high)]).transpose(0, 2, 1)
    errors = weight * ((each[1] - each[0]) / (high - low))
    expected = [sum(np.add.reduce(row.reshape(-1, 8), 0)) for row in errors]
    bins = np.array([low, high, high - low, weight])
    assert np.array_equal(native_sums.bin_errors(bins, ends, steps, limits, origins, saturated), expected)


@pytest.mark.parametrize("reach", [np.inf, 3.0, 0.7531, 0.0001])
def test_points_are_spread_evenly(reach: float) -> None:
    """As numpy does it, step by step: bins that the reach cuts are two, and coarse beyond it."""
    half, width, per_step = 64, 2.0**-5, 8
    bins = np.flatnonzero(np.random.default_rng(3).random(2 * half) < 0.7)
    bins = np.union1d(bins, [half - 1, half, half + 24])  # where the reaches lie
    counts = np.random.default_rng(4).integers(1, 99, len(bins))
    rows = []
    for step in (2.0**-9, 0.3, 0.017):
        edges = [half + sign * reach / width for sign in (-1, 1)]
        start = np.union1d(bins, [edge for edge in edges if np.floor(edge) in bins])
        place = np.floor(start).astype(np.int64)
        size = np.minimum(place + 1, np.append(start[1:], np.inf)) - start
        many = np.maximum(1, np.ceil(per_step * width / step * size))
        beyond = np.abs(start + size / 2 - half) * width > reach
        many = np.where(beyond, np.minimum(many, per_step), many).astype(np.int64)
        within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + 0.5
        x = (np.repeat(start, many) + within / np.repeat(many, many) * np.repeat(size, many) - half) * width
        weight = np.repeat(counts[np.searchsorted(bins, place)] * size / many, many)
        rows.append((step, np.append(x, 0.0), np.append(weight, 5.0)))
    grids = np.array([[step for step, *_ in rows], [reach] * len(rows)])
    x, weight, sizes = native_sums.points(bins, counts, half, width, per_step, 5, grids)
    assert sizes.tolist() == [len(x) for _, x, _ in rows]
    assert np.array_equal(x, np.concatenate([x for _, x, _ in rows]))
    assert np.array_equal(weight, np.concatenate([weight for *_, weight in rows]))


@pytest.mark.parametrize("limits", [(-128, 127), (-32768, 32767)])
def test_points_on_grids(limits: tuple[int, int]) -> None:
    """As numpy has them, bit by bit, in sums of eight lanes; the table of a function stands for the function."""
    rng, sizes = np.random.default_rng(6), np.array([16, 1, 0, 75])
    x, weight = rng.normal(0, 40, sizes.sum()), rng.uniform(0, 9, sizes.sum())
    steps, origins = rng.uniform(0.05, 0.3, (4, 3)), rng.normal(0, 9, 4)
    grids = native_sums.PointGrids(sizes, steps, origins, limits)
    row = np.repeat(np.arange(4), sizes)
    exact = np.floor((x - origins[row]) / steps[row].T + 0.5)
    level = np.clip(exact, *limits)
    got = grids.nearest(x)
    assert np.array_equal(got, origins[row] + level * steps[row].T)
    levels = np.arange(limits[0], limits[1] + 1.0)
    table = np.tanh(origins[:, None] + levels * steps.T[:, :, None])
    assert np.array_equal(grids.nearest(x, table), np.tanh(got))
    signal = x * 1.5
    power, errors = grids.errors_after(x, weight, signal, got, 4.0)
    squares = weight * ((signal - got) ** 2 * np.where(level == exact, 1.0, 4.0))
    assert (level != exact).any() == (limits[1] == 127)
    for i in range(4):
        lanes = np.zeros((8, 4))
        for k, column in enumerate(np.vstack([weight * signal**2, squares])[:, row == i].T):
            lanes[k % 8] += column
        assert np.array_equal([power[i], *errors[i]], sum(lanes))


@pytest.mark.parametrize("end", [20.0, -20.0])
def test_bin_errors_are_integrals(end: float) -> None:
    """Summed up in small steps; levels end at 7.75 and -8, half of which counts as rounding."""
    t = np.linspace(0, end, 400001)
    exact = np.floor((t[1:] + t[:-1]) / 0.5 + 0.5)
    level = np.clip(exact, -32, 31)
    counts = np.where(level == exact, 1.0, 4.0)
    expected = np.sum(counts * ((t[1:] + t[:-1]) / 2 - level * 0.25) ** 2) * abs(end) / 400000
    bins = np.array([[min(end, 0.0)], [max(end, 0.0)], [1.0], [1.0]])
    found = native_sums.bin_errors(bins, np.array([True]), np.array([0.25]), (-32, 31), saturated=4.0)
    assert found.item() == pytest.approx(expected, rel=1e-6)
