"""Rounding and saturation, the twin of interpreter/src/fixed.h: the only two places where they are written.

Arrays are int64 (or exact integers in float64); every function is exact for the ranges in FORMAT.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64 = NDArray[np.int64]

INT_MIN = {8: -(2**7), 16: -(2**15), 32: -(2**31)}
INT_MAX = {8: 2**7 - 1, 16: 2**15 - 1, 32: 2**31 - 1}

# Legal ranges of the format (FORMAT.md); the runtime refuses anything outside.
EXPONENT_MIN, EXPONENT_MAX = -64, 63
SHIFT_MIN, SHIFT_MAX = -15, 47
SPREAD_MAX = 30  # largest difference of the exponents of two operands, or of a mean's input and output
RANK_MAX = 6


def rsh(a: ArrayLike, s: int | Int64) -> Int64:
    """floor((a + 2^(s-1)) / 2^s) for s > 0, a for s = 0, a * 2^-s for s < 0: round half up.

    a: integers, |a| < 2^62; s: a shift or an array of shifts that broadcasts against a.
    """
    a64 = np.asarray(a, dtype=np.int64)
    s64 = np.asarray(s, dtype=np.int64)
    right = np.maximum(s64, 0)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    return ((a64 + half) >> right) << np.maximum(-s64, 0)


def div(num: Int64, den: Int64) -> Int64:
    """floor(num / den + 1/2), den > 0: a quotient rounded half up. |num| and den below 2^61."""
    return (2 * num + den) // (2 * den)


def sat(a: ArrayLike, lo: int, hi: int) -> Int64:
    """min(max(a, lo), hi)."""
    return np.minimum(np.maximum(np.asarray(a, dtype=np.int64), lo), hi)


def round_half_up(x: ArrayLike) -> Int64:
    """floor(x + 1/2) of float64, computed without the double rounding of x + 0.5."""
    x64 = np.asarray(x, dtype=np.float64)
    floor = np.floor(x64)
    return (floor + (x64 - floor >= 0.5)).astype(np.int64)


def quantize(x: ArrayLike, exponent: int | Int64, lo: int, hi: int) -> Int64:
    """sat(round_half_up(x / 2^exponent)): float to the grid of an exponent."""
    scaled = np.ldexp(np.asarray(x, dtype=np.float64), -np.asarray(exponent, dtype=np.int64))
    return round_half_up(np.clip(scaled, lo, hi))


def dequantize(q: ArrayLike, exponent: int | Int64) -> NDArray[np.float64]:
    """q * 2^exponent in float64, exact."""
    return np.multiply(q, np.ldexp(1.0, np.asarray(exponent, dtype=np.int64)), dtype=np.float64)
