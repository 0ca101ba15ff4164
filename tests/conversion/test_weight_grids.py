"""Exponents of weights against all exponents."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.passes.quantize.weight_exponents import exponents, nearest
from nmpconv.passes.quantize.widths import weight_bits

LOW, HIGH = -30, 12


def errors(weights: np.ndarray, bits: int, exponent: int) -> np.ndarray:
    """Squared error of each channel [O]."""
    q = np.clip(np.floor(weights / 2.0**exponent + 0.5), INT_MIN[bits], INT_MAX[bits])
    return np.square(q * 2.0**exponent - weights).sum(axis=1)


def made(kind: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scale = 2.0 ** rng.uniform(-8, 8, (24, 1))
    return (
        scale
        * {
            "normal": rng.normal(0, 1, (24, 40)),
            "uniform": rng.uniform(-1, 1, (24, 40)),
            "heavy": rng.laplace(0, 1, (24, 40)),
            "one-sided": np.abs(rng.normal(0, 1, (24, 40))),
        }[kind]
    )


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", ["normal", "uniform", "heavy", "one-sided"])
def test_least_error_per_channel(kind: str, bits: int) -> None:
    weights = made(kind, bits)
    tried = np.array([errors(weights, bits, e) for e in range(LOW, HIGH + 1)])
    found = exponents(weights, bits, False, LOW, HIGH)
    assert np.array_equal(found, LOW + np.argmin(tried, axis=0))
    assert len(set(found.tolist())) > 5


def test_clipping_may_pay() -> None:
    """One weight just above half the range of the largest: the grid below loses little of it."""
    weights = np.append(np.random.default_rng(0).uniform(-0.9, 0.9, 4000), 1.005)[None]
    assert exponents(weights, 8, False, LOW, HIGH)[0] == -7
    assert np.abs(weights).max() > 127.5 * 2.0**-7


@pytest.mark.parametrize("bits", [8, 16])
def test_least_error_per_tensor(bits: int) -> None:
    weights = made("normal", 1) * 0.1
    tried = [errors(weights, bits, e).sum() for e in range(LOW, HIGH + 1)]
    found = exponents(weights, bits, True, LOW, HIGH)
    assert set(found.tolist()) == {LOW + int(np.argmin(tried))}


def test_zeros_take_the_lowest() -> None:
    weights = made("normal", 2)
    weights[3] = 0
    found = exponents(weights, 8, False, LOW, HIGH)
    assert found[3] == LOW
    assert (np.delete(found, 3) > LOW).all()
    assert exponents(weights, 8, True, LOW, HIGH)[3] == exponents(weights, 8, True, LOW, HIGH)[0]
    assert (exponents(np.zeros((2, 3)), 8, True, LOW, HIGH) == LOW).all()


@pytest.mark.parametrize(("low", "high"), [(-3, 4), (-20, -9), (-9, -9), (5, 9)])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_limits(low: int, high: int, per_tensor: bool) -> None:
    weights = made("normal", 3)
    tried = np.array([errors(weights, 8, e) for e in range(low, high + 1)])
    if per_tensor:
        tried = np.repeat(tried.sum(axis=1, keepdims=True), len(weights), axis=1)
    assert np.array_equal(exponents(weights, 8, per_tensor, low, high), low + np.argmin(tried, axis=0))


def test_nearest_rounds_half_up_and_saturates() -> None:
    weights = np.array([[0.5, -0.5, 1.49, -1.51, 200, -200], [0.25, -0.25, 0.7, 0.74, 63.6, -70]])
    found = nearest(weights, np.array([0, -1]), 8)
    assert found.tolist() == [[1, 0, 1, -2, 127, -128], [1, 0, 1, 1, 127, -128]]
    assert nearest(weights, np.array([0, -1]), 16)[0].tolist() == [1, 0, 1, -2, 200, -200]


def test_bits_of_weights() -> None:
    assert [weight_bits(bits) for bits in ("8", "16", "a16w8")] == [8, 16, 8]
