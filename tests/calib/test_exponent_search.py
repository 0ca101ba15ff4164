"""Chosen exponents against brute force on the values themselves."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.base.fixed_point import dequantize, quantize
from nmpconv.calib.exponent_search import (
    METHODS,
    STEPS_DOWN,
    Function,
    Rounded,
    Table,
    best_sqnrs_db,
    choose,
    expected_sqnr_db,
    smallest_exponent,
    span,
)
from nmpconv.calib.observers import TensorStats

RNG = np.random.default_rng(5)
N = 40000
DISTRIBUTIONS = {
    "normal": RNG.normal(size=N),
    "relu": np.maximum(RNG.normal(size=N), 0),
    "relu6": np.clip(RNG.normal(size=N) * 5, 0, 6),
    "laplace": RNG.laplace(size=N) * 0.01,
    "heavy": RNG.standard_t(2, size=N),
    "outlier": np.append(RNG.normal(size=N - 1), 60.0),
    "uniform": RNG.uniform(-3, 1, size=N),
    "shifted": RNG.normal(size=N) + 9,
    "pixels": RNG.integers(0, 256, size=N).astype(float),
    "negative": -np.abs(RNG.normal(size=N)),
}


def stats_of(x: np.ndarray) -> TensorStats:
    return TensorStats.of(x.astype(np.float32).reshape(1, -1, 8))


def tables(stats: TensorStats, bits: int, *functions: Function) -> list[Table]:
    return [Table(function, stats, span(stats, bits)) for function in functions]


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def brute(x: np.ndarray, exponent: int, bits: int, function=lambda v: v, saturated: float = 1.0) -> float:
    """Measured SQNR in dB, where errors of saturation count so many times."""
    x = x.astype(np.float32).astype(np.float64)
    limit = 2 ** (bits - 1)
    real = dequantize(quantize(x, exponent, -limit, limit - 1), exponent)
    counts = np.where(np.abs(x - real) > 2.0 ** (exponent - 1), saturated, 1.0)
    error = np.mean(counts * (function(x) - function(real)) ** 2)
    return float(10 * np.log10(np.mean(function(x) ** 2) / error)) if error else np.inf


def candidates(x: np.ndarray) -> list[int]:
    top = smallest_exponent(x.min(), x.max(), 8)
    return [top - k for k in range(STEPS_DOWN + 1)]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("function", [None, silu])
@pytest.mark.parametrize(("method", "saturated"), [("mse", 1), ("mse4", 4)])
def test_mse_finds_the_best_measured_exponent(name: str, function, method: str, saturated: int) -> None:
    x = DISTRIBUTIONS[name]
    seen = stats_of(x)
    choice = choose(seen, 8, method, tables=tables(seen, 8, function) if function else ())
    measured = {e: brute(x, e, 8, function or (lambda v: v), saturated) for e in candidates(x)}
    assert measured[choice] >= max(measured.values()) - 0.05
    if name != "pixels" and saturated == 1:
        assert abs(expected_sqnr_db(seen, choice, 8, [function] if function else ()) - measured[choice]) < 0.3


@pytest.mark.parametrize("name", sorted(set(DISTRIBUTIONS) - {"pixels"}))
@pytest.mark.parametrize("bits", [8, 16])
def test_expected_errors_are_those_measured(name: str, bits: int) -> None:
    x = DISTRIBUTIONS[name]
    for exponent in candidates(x) if bits == 8 else [choose(stats_of(x), 16)]:
        wanted = brute(x, exponent, bits)
        assert abs(expected_sqnr_db(stats_of(x), exponent, bits) - wanted) < 0.5, (exponent, wanted)


@pytest.mark.parametrize("function", [None, silu])
def test_where_saturation_counts_more_less_saturates(function) -> None:
    rng = np.random.default_rng(0)
    x = np.append(rng.normal(size=N - 160), rng.normal(size=160) * 8)
    seen = stats_of(x)
    after = tables(seen, 8, function) if function else ()
    plain, less = choose(seen, 8, tables=after), choose(seen, 8, "mse4", tables=after)
    assert less == plain + 1
    functions = [function] if function else ()
    assert expected_sqnr_db(seen, plain, 8, functions) > expected_sqnr_db(seen, less, 8, functions)


def test_a_choice_after_a_function_ignores_what_it_flattens() -> None:
    x = np.where(RNG.random(N) < 0.3, RNG.uniform(-60, -20, N), RNG.normal(size=N) * 2)
    plain, after = choose(seen := stats_of(x), 8), choose(seen, 8, tables=tables(seen, 8, silu))
    assert after < plain
    assert brute(x, after, 8, silu) > brute(x, plain, 8, silu) + 3


@pytest.mark.parametrize(
    ("lo", "hi", "exponent"),
    [
        (0, 127, 0),
        (0, 127.5, 0),
        (0, 127.6, 1),
        (0, 255, 1),
        (0, 256, 2),
        (-128, 127, 0),
        (-128.5, 0, 0),
        (-129, 0, 1),
        (-1, 1, -6),
        (0, 6, -4),
        (0, 0, -7),
        (0, 1e-30, -64),
        (0, 3e38, 63),
    ],
)
def test_the_smallest_exponent_that_clips_nothing(lo: float, hi: float, exponent: int) -> None:
    assert smallest_exponent(lo, hi, 8) == exponent


def test_sixteen_bits_keep_room_for_twice_the_range() -> None:
    for method in METHODS:
        assert choose(stats_of(np.linspace(-1, 1, 80)), 16, method) == -14
        assert choose(stats_of(np.linspace(-0.9, 0.99, 80)), 16, method) == -14
    assert choose(stats_of(np.linspace(-0.4, 0.5, 80)), 16) == -15


def test_sixteen_bits_keep_no_room_where_a_function_is_flat() -> None:
    x = stats_of(np.linspace(-40, 14, 80))
    assert choose(x, 16) == -8
    for functions, exponent in (((silu,), -10), ((np.tanh,), -12), ((np.tanh, silu), -10), ((lambda t: 0 * t,), -8)):
        assert choose(x, 16, tables=tables(x, 16, *functions)) == exponent


def test_a_pole_that_no_value_comes_near_flattens_nothing() -> None:
    """1 / x^2 is huge next to 0, against which all of its results here look alike."""
    x = stats_of(np.concatenate([np.linspace(-2, -0.5, 80), np.linspace(0.5, 2, 80)]))
    found = choose(x, 16, tables=tables(x, 16, lambda t: 1 / np.maximum(t * t, 1e-30)))
    assert found == choose(x, 16)


@pytest.mark.parametrize("bits", [8, 16])
def test_tables_of_parts_are_measured_on_what_they_read(bits: int) -> None:
    """Only the smallest of 10 times normal numbers matter behind a tanh; the square reads others."""
    wide, narrow = RNG.normal(size=N) * 10, RNG.normal(size=N)
    parts = (*tables(stats_of(wide), bits, np.tanh), *tables(stats_of(narrow), bits, np.square))
    found = choose(stats_of(np.concatenate([wide, narrow])), bits, tables=parts)
    assert found == {8: -5, 16: -11}[bits]
    both = tables(stats_of(wide), bits, np.tanh, np.square)
    assert choose(stats_of(wide), bits, tables=both) > found


@pytest.mark.parametrize("spread", [30.0, 3e3, 3e6, 3e30])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_function_that_saturates_far_inside_costs_no_memory(spread: float, bits: int) -> None:
    seen: list[int] = []

    def tanh(x: np.ndarray) -> np.ndarray:
        seen.append(len(x))
        return np.tanh(x)

    stats = stats_of(RNG.normal(size=N) * spread)
    choice = choose(stats, bits, tables=tables(stats, bits, tanh))
    assert max(seen) <= 1.1e6
    assert bits == 8 or choice == -12


@pytest.mark.parametrize("percentile", [50, 90, 99, 99.9, 100])
@pytest.mark.parametrize("name", ["normal", "relu", "heavy", "shifted", "outlier"])
def test_percentile_holds_that_share(name: str, percentile: float) -> None:
    x = DISTRIBUTIONS[name]
    exponent = choose(stats_of(x), 8, "percentile", percentile=percentile)
    bound = np.percentile(np.abs(x), percentile) / 127.5
    assert 2.0**exponent >= bound * 0.95 or exponent == smallest_exponent(x.min(), x.max(), 8)
    assert percentile == 50 or 2.0**exponent < 2 * bound * 1.05


def test_a_narrow_range_far_from_0_costs_no_memory() -> None:
    """A bin of these values has 8 million points, 2,000 of them within the range."""
    x = 10 + 2.0**-12 * RNG.uniform(-1, 1, N)
    seen: list[int] = []

    def plain(values: np.ndarray) -> np.ndarray:
        seen.append(len(values))
        return values - 10

    step = 2.0**-19
    exponents = [[-19 - k for k in range(6)]]
    found = best_sqnrs_db(Rounded(stats_of(x)), exponents, 8, (plain,), np.array([10.0]))[0]
    error = np.rint((x - 10) / step) * step - (x - 10)
    assert found == pytest.approx(10 * np.log10(np.square(x - 10).mean() / np.square(error).mean()), abs=0.3)
    assert max(seen) <= 70_000


@pytest.mark.parametrize(("bits", "count"), [(8, 40), (8, N), (16, 400)])
@pytest.mark.parametrize("saturated", [1.0, 4.0])
def test_many_grids_are_measured_as_one(bits: int, count: int, saturated: float) -> None:
    """Grids share calls of the function, which change no bit of the errors."""
    calls: list[int] = []

    def counted(values: np.ndarray) -> np.ndarray:
        calls.append(len(values))
        return silu(values)

    rounded = Rounded(stats_of(DISTRIBUTIONS["normal"][:count]), saturated)
    steps = 2.0 ** (RNG.uniform(-6, -3, (30, 1)) - np.arange(3)) * 2.0 ** (8 - bits)
    origins = RNG.uniform(-1, 1, 30)
    together = rounded.errors_after((counted, np.tanh), steps, origins, bits)
    few = len(calls)
    rows = [rounded.relative_errors(row, bits, (counted, np.tanh), at) for row, at in zip(steps, origins, strict=True)]
    assert np.array_equal(together, rows)
    assert few == 2 if count == 40 else few <= len(calls) / 2


def test_max_clips_nothing_and_kl_drops_outliers() -> None:
    stats = stats_of(DISTRIBUTIONS["outlier"])
    top = smallest_exponent(0, 60, 8)
    assert choose(stats, 8, "max") == top
    assert choose(stats, 8, "kl") < top
    assert choose(stats_of(DISTRIBUTIONS["uniform"]), 8, "kl") >= smallest_exponent(-3, 1, 8) - 1


@pytest.mark.parametrize("method", METHODS)
def test_constant_and_empty_tensors(method: str) -> None:
    assert choose(TensorStats(), 8, method) == -7
    zeros = choose(stats_of(np.zeros(80)), 8, method)
    assert (zeros, expected_sqnr_db(stats_of(np.zeros(80)), zeros, 8)) == (-7, np.inf)
    constant = choose(stats_of(np.full(80, 3.3)), 8, method)
    assert abs(expected_sqnr_db(stats_of(np.full(80, 3.3)), constant, 8) - brute(np.full(80, 3.3), constant, 8)) < 0.5


def test_unknown_methods_are_a_bug() -> None:
    with pytest.raises(ValueError, match="median"):
        choose(TensorStats(), 8, "median")


@pytest.mark.parametrize(("low", "high"), [(276.0, 290.0), (-290.0, -276.0)])
def test_room_far_from_zero_is_measured_from_the_near_end(low: float, high: float) -> None:
    """Numbers from 276 to 290 need no room up to 580."""
    stats = TensorStats.of(np.linspace(low, high, 99, dtype=np.float32))
    farthest = max(map(abs, span(stats, 16)))
    assert 290 + 0.9 * (high - low) < farthest < 290 + 1.1 * (high - low)
    around = TensorStats.of(np.linspace(-3, 5, 99, dtype=np.float32))
    assert span(around, 16) == pytest.approx((-6, 10), rel=1e-3)
