"""Rounding of many floats to a grid, in C where that is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmpconv import _nmp
from nmpconv.base import fixed_point

NORMAL = 126  # of exponents: 2^e and 2^-e are normal numbers of float32


def on_grid(x: NDArray[Any], exponent: int, lo: int, hi: int, dtype: str) -> tuple[NDArray[Any], bool]:
    """`fixed_point.quantize` in ``dtype``, and whether all numbers are finite: NaN becomes any integer. Of float32 in
    C, in float32, where it is exact for 16 bits."""
    if x.dtype != np.float32 or np.dtype(dtype).itemsize > 2 or abs(exponent) > NORMAL:
        with np.errstate(invalid="ignore"):
            return fixed_point.quantize(x, exponent, lo, hi).astype(dtype), bool(np.isfinite(x).all())
    integers = np.empty(x.shape, dtype)
    finite = _nmp.on_grid(np.ascontiguousarray(x).ravel(), 2.0**-exponent, lo, hi, integers.reshape(-1))
    return integers, finite
