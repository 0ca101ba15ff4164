"""The bias that makes up for what rounding did to a layer, on one of two grids.

First the mean difference between the float pre-activation and the integer sums; then, since saturation makes that mean
blind to what the activation removes, the neighbour with the smallest error after the activation.

What a layer without a bias makes of 0 is 0, and a normalization behind it would make much of anything else. At 16 bits
such a layer gets a bias only where that is more than a step, and takes away a share WORTH of the error: the mean of
errors of which one is large is no bias.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nmpconv.fixed import round_half_up, rsh
from nmpconv.ir import Quant

WORTH = 0.1


def on_output_grid(
    sums: np.ndarray,
    shift: np.ndarray,
    wanted: np.ndarray,
    goal: np.ndarray,
    y: Quant,
    bare: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Biases [O] that are added after the shift, and the mean squared error [O] after the activation, in output steps.

    sums: integers [R, O] in float64. shift: [O]. wanted, goal: float [R, O] pre-activation and activation, in output
    steps. bare: channels [O] without a bias; none if not given.
    """
    scaled = np.ldexp(sums, -shift)
    first = round_half_up((wanted - scaled).mean(axis=0))
    shifted = np.floor(scaled + 0.5, out=scaled)  # exact: a sum has less than 48 bits before and behind the point
    candidates = [first + delta for delta in (0, -1, 1)]
    bias, error = _best(((b, shifted + b) for b in candidates), goal, y)
    if bare is None or y.bits != 16 or not bare.any():
        return bias, error
    none, plain = _best([(np.zeros_like(bias), shifted)], goal, y)
    kept = bare & ((np.abs(bias) <= 1) | (error > (1 - WORTH) * plain))
    return np.where(kept, none, bias), np.where(kept, plain, error)


def on_accumulator_grid(
    sums: np.ndarray, shift: np.ndarray, wanted: np.ndarray, goal: np.ndarray, y: Quant
) -> tuple[np.ndarray, np.ndarray]:
    """The same for biases that are added to the sums before the shift, by which frameworks with s_x * s_w work.

    sums: int64.
    """
    first = round_half_up((np.ldexp(wanted, shift) - sums).mean(axis=0))
    candidates = [first + round_half_up(np.ldexp(np.float64(delta), shift)) for delta in (0, -1, 1, -0.5, 0.5)]
    return _best(((b, rsh(sums + b, shift).astype(np.float64)) for b in candidates), goal, y)


def _best(tried: Iterable[tuple[np.ndarray, np.ndarray]], goal: np.ndarray, y: Quant) -> tuple[np.ndarray, np.ndarray]:
    """Of each channel, the first of the (bias, unsaturated output, which is overwritten) with the smallest error."""
    biases, errors = [], []
    for bias, out in tried:
        np.clip(out, y.lo, y.hi, out=out)
        out -= goal
        biases.append(bias)
        errors.append(np.square(out, out=out).mean(axis=0))
    best = np.argmin(errors, axis=0)
    at = np.arange(len(best))
    return np.array(biases)[best, at], np.array(errors)[best, at]
