"""Rounding of weights that spreads each rounding error over the weights not yet rounded.

Algorithm: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2022,
with the bias as a feature that is always 1: it is rounded first, on the output's grid, and the weights make up for it.
In the form of Chee et al., "QuIP", 2023, the same integers by a factor of the hessian itself, without its inverse.
"""

from __future__ import annotations

import numpy as np

from nmpconv.calib import native_sums

BLOCK = 64
FLOOR = 1e-5  # of the largest moment: the least that is added to the diagonal
# Moments of int16 are summed in float32: their eigenvalues are off by about NOISE of the trace, and may be negative.
NOISE = 2.0**-24
MORE, TRIES = 8.0, 8  # how the damping grows where the factor fails, and how often


def round_weights(
    weights: np.ndarray,
    bias: np.ndarray,
    hessian: np.ndarray,
    step: np.ndarray,
    bias_step: float,
    lo: int,
    hi: int,
    damping: float,
) -> np.ndarray:
    """Integer weights that minimise the error of weights @ x + bias over the rows that made the hessian.

    weights: [G, O, K] of G groups. bias: [G, O]. step: [G, O], the weights' scale. bias_step: the output's scale.
    hessian: [G, K+1, K+1], float64: sum of x x^T, x = (1, inputs in real units). lo, hi: the weights' integer range.
    damping: fraction of the mean variance that is added to the diagonal; dead inputs make the hessian singular without.
    A group whose hessian has no factor then gets more, from the trace, and nearest rounding where nothing helps.
    Returns int64 [G, O, K].
    """
    groups, outs, k = weights.shape
    # Of the inputs less their means, which the bias takes up: moments about 0 would grow with an input's origin.
    count, sums = hessian[:, :1, 0], hessian[:, 0, 1:]
    diagonal = np.maximum(np.einsum("gii->gi", hessian)[:, 1:] - sums**2 / np.maximum(count, 1), 0.0)
    order = np.argsort(-diagonal, axis=1, kind="stable")
    at = np.arange(groups)[:, None]
    w = np.concatenate(
        [bias[:, :, None], weights[at[:, :, None], np.arange(outs)[None, :, None], order[:, None, :]]], axis=2
    )
    full = np.concatenate([np.zeros((groups, 1), dtype=np.int64), order + 1], axis=1)
    h = hessian[at[:, :, None], full[:, :, None], full[:, None, :]]
    del hessian  # of a wide layer it takes 42 MB
    # Without the floor, inputs that never change would be as good as the bias and as each other.
    damp = (
        np.maximum(damping * diagonal.mean(axis=1), FLOOR * np.maximum(h.max(axis=(1, 2)), -h.min(axis=(1, 2)))) + 1e-12
    )
    index = np.arange(1, k + 1)
    h[:, index, index] += damp[:, None]
    h[:, 0, 0] += 1e-6 * h[:, 0, 0] + 1e-12
    q = _column_by_column(w.astype(np.float64), _shares(h), step, bias_step, lo, hi)
    result = np.empty((groups, outs, k), dtype=np.int64)
    result[at[:, :, None], np.arange(outs)[None, :, None], order[:, None, :]] = q[:, :, 1:].astype(np.int64)
    return result


def _shares(h: np.ndarray) -> np.ndarray:
    """The factor S of h = S D S^T, upper triangular with a diagonal of 1, where D is diagonal. [G, N, N] -> [G, N, N].

    An error in column i moves column j by S[i, j] of it. With the order of the axes reversed, h = L L^T gives h = R R^T
    with R upper triangular, and S is R over its diagonal.
    """
    turned = h[:, ::-1, ::-1]
    try:
        lower = np.linalg.cholesky(turned)
    except np.linalg.LinAlgError:  # of one group or more
        lower = np.stack([_damped_factor(group) for group in turned])
    upper = np.ascontiguousarray(lower[:, ::-1, ::-1])
    upper /= np.einsum("gii->gi", upper)[:, None, :].copy()
    return upper


def _damped_factor(h: np.ndarray) -> np.ndarray:
    """The Cholesky factor of one matrix [N, N] with as much more on its diagonal as it takes; of 1 where no damping
    helps, so that each weight is rounded by itself."""
    size = len(h)
    more = 0.0
    for _ in range(TRIES):
        try:
            return np.linalg.cholesky(h + more * np.eye(size))
        except np.linalg.LinAlgError:
            more = max(MORE * more, NOISE * float(np.trace(h)))
    return np.eye(size)


def _column_by_column(
    w: np.ndarray, shares: np.ndarray, step: np.ndarray, bias_step: float, lo: int, hi: int
) -> np.ndarray:
    """Integers [G, O, K+1], the bias first; what rounding takes from a column goes into those after it.

    w: [G, O, K+1]. shares: [G, K+1, K+1], how much of it. The others as above.
    """
    columns = w.shape[2]
    q, goal = np.empty(w.shape), w.copy()
    for start in range(0, columns, BLOCK):
        end = min(start + BLOCK, columns)
        part = slice(start, end)
        q[:, :, part], errors = native_sums.round_columns(w, goal, shares, step, bias_step, (lo, hi), part)
        goal[:, :, end:] += errors @ shares[:, part, end:]
    return q
