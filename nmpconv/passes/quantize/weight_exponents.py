"""Exponents of weights: for each output channel, or for the whole tensor, the one with the smallest squared error.

Source of the search: the isolated-MSE rule of the project's accuracy study; candidates are the smallest exponent
that holds the largest weight, and the next smaller ones, which clip it.
"""

from __future__ import annotations

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN

CANDIDATES = 3

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
    errors = []
    for k in range(CANDIDATES):
        step = np.ldexp(1.0, _within(top - k, low, high))[:, None]
        rounded = _within(np.floor(weights / step + 0.5), lo, hi) * step
        errors.append(np.square(rounded - weights).sum(axis=1))
    stacked = np.array(errors)
    if per_tensor:
        stacked = np.repeat(stacked.sum(axis=1, keepdims=True), len(weights), axis=1)
    return _within(top - np.argmin(stacked, axis=0), low, high)


def nearest(weights: np.ndarray, exponent: np.ndarray, bits: int) -> np.ndarray:
    """Round half up to the grids of exponent [O]. [O, N] -> int64."""
    scaled = weights / np.ldexp(1.0, exponent)[:, None]
    return _within(np.floor(scaled + 0.5), INT_MIN[bits], INT_MAX[bits]).astype(np.int64)


def _within(x: np.ndarray, low: int, high: int) -> np.ndarray:
    """As np.clip, which takes as long as all else for the weights of a small layer."""
    return np.minimum(np.maximum(x, low), high)
