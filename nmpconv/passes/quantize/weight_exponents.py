"""Exponents of weights: for each output channel, or for the whole tensor, the one with the smallest squared error.

Source of the search: the isolated-MSE rule of the project's accuracy study; candidates are the smallest exponent
that holds the largest weight, and the next smaller ones, which clip it.
"""

from __future__ import annotations

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN

CANDIDATES = 3
SMALL = 1 << 14  # weights of a layer whose candidates are rounded at once

# Largest useful shift from the sum of products to the output, by (input bits, weight bits): weights so small that they
# would need more lie below a hundredth of an output step, and a kernel with a smaller one can start a 32-bit
# accumulator at the shifted bias.
SHIFT_USEFUL = {(8, 8): 20, (8, 16): 28, (16, 8): 28, (16, 16): 44}


def exponents(weights: np.ndarray, bits: int, per_tensor: bool, low: int, high: int) -> np.ndarray:
    """weights [O, N] in float64 -> int64 [O] exponents within [low, high]; an all-zero channel takes the lowest."""
    lo, hi = INT_MIN[bits], INT_MAX[bits]
    peak = np.abs(weights).max(axis=1)
    if per_tensor:
        peak = np.full_like(peak, peak.max())
    top = np.full(len(weights), low, dtype=np.int64)
    alive = peak > 0
    top[alive] = np.ceil(np.log2(peak[alive] / (hi + 0.5))).astype(np.int64)
    steps = np.ldexp(1.0, _within(top - np.arange(CANDIDATES)[:, None], low, high))[:, :, None]
    together = CANDIDATES if weights.size <= SMALL else 1  # calls of numpy are what small layers take
    parts = [steps[k : k + together] for k in range(0, CANDIDATES, together)]
    rounded = (_within(np.floor(weights / step + 0.5), lo, hi) * step for step in parts)
    errors = np.concatenate([np.square(each - weights).sum(axis=2) for each in rounded])
    if per_tensor:
        errors = np.repeat(errors.sum(axis=1, keepdims=True), len(weights), axis=1)
    return _within(top - np.argmin(errors, axis=0), low, high)


def nearest(weights: np.ndarray, exponent: np.ndarray, bits: int) -> np.ndarray:
    """Round half up to the grids of exponent [O]. [O, N] -> int64."""
    scaled = weights / np.ldexp(1.0, exponent)[:, None]
    return _within(np.floor(scaled + 0.5), INT_MIN[bits], INT_MAX[bits]).astype(np.int64)


def _within(x: np.ndarray, low: int, high: int) -> np.ndarray:
    """As np.clip, which takes as long as all else for the weights of a small layer."""
    return np.minimum(np.maximum(x, low), high)
