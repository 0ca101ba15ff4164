"""Rounding with second moments: what it minimises, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.passes.quantize import gptq
from nmpconv.passes.quantize.gptq import round_weights
from nmpconv.passes.quantize.matrix_form import second_moment

DAMPING = 0.01


def correlated(seed: int, groups: int, k: int, rows: int = 300) -> np.ndarray:
    """Rows [R, G, K] of inputs that depend on each other, with a mean."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(0, 1, (groups, k, k)) / np.sqrt(k)
    return np.einsum("rgk,gkl->rgl", rng.normal(0, 1, (rows, groups, k)), mix) + rng.normal(0, 1, (groups, k))


def moment(rows: np.ndarray) -> np.ndarray:
    x = np.concatenate([np.ones((*rows.shape[:2], 1)), rows], axis=2)
    return np.einsum("rgk,rgl->gkl", x, x)


def nearest(weights: np.ndarray, step: np.ndarray, lo: int = -128, hi: int = 127) -> np.ndarray:
    return np.clip(np.floor(weights / step[:, :, None] + 0.5), lo, hi).astype(np.int64)


def cost(
    q: np.ndarray, weights: np.ndarray, bias: np.ndarray, hessian: np.ndarray, step: np.ndarray, bias_step: float
) -> np.ndarray:
    """The squared error of each output [G, O] over the rows, with the bias rounded to its grid."""
    of_bias = np.floor(bias / bias_step + 0.5) * bias_step - bias
    error = np.concatenate([of_bias[:, :, None], q * step[:, :, None] - weights], axis=2)
    return np.einsum("gok,gkl,gol->go", error, hessian, error)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_less_error_than_nearest(seed: int, groups: int) -> None:
    rng = np.random.default_rng(100 + seed)
    weights, bias = rng.normal(0, 1, (groups, 5, 20)), rng.normal(0, 1, (groups, 5))
    step = np.exp2(rng.integers(-4, -1, (groups, 5)))
    hessian = moment(correlated(seed, groups, 20))
    q = round_weights(weights, bias, hessian, step, 0.25, -128, 127, DAMPING)
    ours = cost(q, weights, bias, hessian, step, 0.25)
    plain = cost(nearest(weights, step), weights, bias, hessian, step, 0.25)
    assert ours.sum() < 0.7 * plain.sum()
    assert (np.abs(q * step[:, :, None] - weights) < 8 * step[:, :, None]).all()


def test_weights_make_up_for_the_rounded_bias() -> None:
    rng = np.random.default_rng(1)
    rows = 3 + 0.5 * rng.normal(0, 1, (400, 1, 10))
    weights, bias = rng.normal(0, 1, (1, 6, 10)), np.full((1, 6), 0.4)
    step = np.full((1, 6), 2.0**-6)
    q = round_weights(weights, bias, moment(rows), step, 1.0, -32768, 32767, DAMPING)

    def mean_error(found: np.ndarray) -> np.ndarray:
        return np.abs(((found * step[:, :, None] - weights) @ rows.mean(axis=0).T)[0, :, 0] - 0.4)

    assert mean_error(q).max() < 0.05
    assert mean_error(nearest(weights, step)).max() > 0.3


def test_dead_inputs_are_rounded_to_nearest() -> None:
    rng = np.random.default_rng(2)
    rows = correlated(2, 2, 9)
    rows[:, :, [0, 4]] = 0
    weights, bias = rng.normal(0, 1, (2, 4, 9)), np.zeros((2, 4))
    step = np.full((2, 4), 0.125)
    q = round_weights(weights, bias, moment(rows), step, 0.25, -128, 127, DAMPING)
    assert np.array_equal(q[:, :, [0, 4]], nearest(weights, step)[:, :, [0, 4]])
    silent = round_weights(weights, bias, moment(np.zeros_like(rows)), step, 0.25, -128, 127, DAMPING)
    assert np.array_equal(silent, nearest(weights, step))


def test_independent_inputs_are_rounded_to_nearest() -> None:
    rng = np.random.default_rng(3)
    weights = rng.normal(0, 1, (1, 4, 9))
    hessian = np.diag(rng.uniform(1, 50, 10))[None]
    step = np.full((1, 4), 0.125)
    q = round_weights(weights, rng.normal(0, 1, (1, 4)), hessian, step, 0.25, -128, 127, DAMPING)
    assert np.array_equal(q, nearest(weights, step))


def test_groups_do_not_mix() -> None:
    rng = np.random.default_rng(4)
    weights, bias, step = rng.normal(0, 1, (3, 4, 7)), rng.normal(0, 1, (3, 4)), np.exp2(rng.integers(-5, -1, (3, 4)))
    hessian = moment(correlated(4, 3, 7))
    together = round_weights(weights, bias, hessian, step, 0.5, -128, 127, DAMPING)
    for g in range(3):
        one = slice(g, g + 1)
        alone = round_weights(weights[one], bias[one], hessian[one], step[one], 0.5, -128, 127, DAMPING)
        assert np.array_equal(together[one], alone)


def test_blocks_are_only_for_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    weights, bias, step = rng.normal(0, 1, (1, 4, 50)), rng.normal(0, 1, (1, 4)), np.full((1, 4), 0.25)
    hessian = moment(correlated(5, 1, 50))
    whole = round_weights(weights, bias, hessian, step, 0.5, -128, 127, DAMPING)
    monkeypatch.setattr(gptq, "BLOCK", 7)
    assert np.array_equal(round_weights(weights, bias, hessian, step, 0.5, -128, 127, DAMPING), whole)


@pytest.mark.parametrize("size", [1, 9, 64, 65, 200])
def test_integers_are_those_by_the_inverse(size: int) -> None:
    """As the paper has it: errors over the diagonal of the inverse's factor, times its rows, off what is left."""
    h = moment(correlated(6, 2, size, 700))[:, 1:, 1:]
    factor = np.swapaxes(np.linalg.cholesky(np.linalg.inv(h)), 1, 2)
    w = np.random.default_rng(7).normal(0, 1, (2, 3, size))
    step, left, wanted = np.full((2, 3), 0.125), w.copy(), np.empty(w.shape)
    for j in range(size):
        scale = 0.5 if j == 0 else 0.125
        wanted[:, :, j] = np.floor(left[:, :, j] / scale + 0.5)
        wanted[:, :, j] = wanted[:, :, j] if j == 0 else np.clip(wanted[:, :, j], -16, 15)
        error = (left[:, :, j] - wanted[:, :, j] * scale) / factor[:, j, j, None]
        left -= error[:, :, None] * factor[:, None, j]
    assert np.array_equal(gptq._column_by_column(w, gptq._shares(h), step, 0.5, -16, 15), wanted)


def test_range() -> None:
    rng = np.random.default_rng(6)
    weights, bias, step = rng.normal(0, 1, (1, 8, 12)), np.zeros((1, 8)), np.full((1, 8), 0.25)
    hessian = moment(correlated(6, 1, 12))
    q = round_weights(weights, bias, hessian, step, 0.5, -8, 7, DAMPING)
    assert (q.min(), q.max()) == (-8, 7)
    ours, plain = (cost(found, weights, bias, hessian, step, 0.5) for found in (q, nearest(weights, step, -8, 7)))
    assert ours.sum() < plain.sum()  # what is clipped is made up for, too


def nearly_constant(k: int) -> np.ndarray:
    """The moment [1, K + 1, K + 1] of int16 inputs that hardly change, as the passes sum it: in float32."""
    rows = np.round(16384 * (1 + 0.001 * np.random.default_rng(8).normal(size=(40, 1, k)))).astype(np.int16)
    found = np.zeros((1, k + 1, k + 1))
    second_moment(rows, found)
    scale = np.full(k + 1, 2.0**-14)
    scale[0] = 1.0
    return found * scale[:, None] * scale


@pytest.mark.slow
def test_a_moment_that_is_not_positive_definite_is_damped_more() -> None:
    k = 2500
    rng = np.random.default_rng(9)
    weights, bias, step = rng.normal(0, 0.1, (1, 4, k)), rng.normal(0, 1, (1, 4)), np.full((1, 4), 2.0**-6)
    hessian = nearly_constant(k)
    assert np.linalg.eigvalsh(hessian[0])[0] < 0
    q = round_weights(weights, bias, hessian, step, 0.5, -128, 127, 0.01)
    assert (np.abs(q * step[:, :, None] - weights) < 8 * step[:, :, None]).all()
    ours, plain = (cost(found, weights, bias, hessian, step, 0.5) for found in (q, nearest(weights, step)))
    assert ours.sum() < 0.1 * plain.sum()


def test_damping_of_one_group_is_its_own() -> None:
    k = 500
    rng = np.random.default_rng(10)
    weights, bias, step = rng.normal(0, 0.1, (2, 3, k)), rng.normal(0, 1, (2, 3)), np.full((2, 3), 2.0**-6)
    good = moment(correlated(10, 1, k, 2 * k))
    both = np.concatenate([good, -np.ones_like(good)])
    q = round_weights(weights, bias, both, step, 0.5, -128, 127, DAMPING)
    alone = round_weights(weights[:1], bias[:1], good, step[:1], 0.5, -128, 127, DAMPING)
    assert np.array_equal(q[:1], alone)
    assert np.array_equal(q[1:], nearest(weights[1:], step[1:])), "nothing makes this one positive definite"
