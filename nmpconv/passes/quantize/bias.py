"""The bias that makes up for what rounding did to a layer, on one of two grids.

First the mean difference between the float pre-activation and the integer sums; then, since saturation makes that mean
blind to what the activation removes, the neighbour with the smallest error after the activation.

What a layer without a bias makes of 0 is 0, and a normalization behind it would make much of anything else. At 16 bits
such a layer gets a bias only where that is more than a step, and takes away a share WORTH of the error: the mean of
errors of which one is large is no bias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from nmpconv.fixed import round_half_up
from nmpconv.ir import Quant

WORTH = 0.1
PART = 2**14  # numbers of which several arrays stay in the cache


def on_output_grid(
    sums: np.ndarray,
    shift: np.ndarray,
    wanted: np.ndarray,
    clamp: tuple[float, float],
    y: Quant,
    bare: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Biases [O] that are added after the shift, and the mean squared error [O] after the activation, in output steps.

    sums: integers [R, O]; those in float64 are overwritten. shift: [O]. wanted: float [R, O], the pre-activation.
    clamp: of the activation. bare: channels [O] without a bias; none if not given.
    """
    step, (low, high) = 2.0**y.exponent, clamp
    scaled = np.multiply(sums, np.ldexp(1.0, -shift), out=sums if sums.dtype == np.float64 else None)

    def difference(part: slice, out: np.ndarray) -> None:
        np.divide(wanted[part], step, out=out, dtype=np.float64)
        np.subtract(out, scaled[part], out=out)

    (mean,) = _means(scaled.shape, lambda part: [partial(difference, part)])
    first = round_half_up(mean)
    biases = [first, first - 1, first + 1]
    if bare is not None and y.bits == 16 and bare.any():
        biases.append(np.zeros_like(first))

    def errors(part: slice) -> list[Callable[[np.ndarray], None]]:
        shifted = scaled[part] + 0.5
        np.floor(shifted, out=shifted)  # exact: a sum has less than 48 bits before and behind the point
        goal = np.clip(wanted[part].astype(np.float64), low, high)
        goal /= step

        def error(bias: np.ndarray, out: np.ndarray) -> None:
            np.add(shifted, bias, out=out)
            np.clip(out, y.lo, y.hi, out=out)
            np.subtract(out, goal, out=out)
            np.square(out, out=out)

        return [partial(error, bias.astype(np.float64)) for bias in biases]

    found = np.array(_means(scaled.shape, errors))
    bias, least = _least(np.array(biases[:3]), found[:3])
    if len(biases) == 3:
        return bias, least
    plain = found[3]
    kept = bare & ((np.abs(bias) <= 1) | (least > (1 - WORTH) * plain))
    return np.where(kept, 0, bias), np.where(kept, plain, least)


def on_accumulator_grid(
    sums: np.ndarray, shift: np.ndarray, wanted: np.ndarray, goal: np.ndarray, y: Quant
) -> tuple[np.ndarray, np.ndarray]:
    """The same for biases that are added to the sums before the shift, by which frameworks with s_x * s_w work.

    sums: int64, exact in float64.
    """
    first = round_half_up((np.ldexp(wanted, shift) - sums).mean(axis=0))
    candidates = [first + round_half_up(np.ldexp(np.float64(delta), shift)) for delta in (0, -1, 1, -0.5, 0.5)]
    step, half = np.ldexp(1.0, -shift), np.where(shift > 0, 0.5, 0.0)
    exact = sums.astype(np.float64)

    def error(bias: np.ndarray, part: slice, out: np.ndarray) -> None:
        np.add(exact[part], bias, out=out)
        out *= step
        out += half
        np.floor(out, out=out)
        np.clip(out, y.lo, y.hi, out=out)
        out -= goal[part]
        np.square(out, out=out)

    errors = _means(sums.shape, lambda part: [partial(error, bias, part) for bias in candidates])
    return _least(np.array(candidates), np.array(errors))


def _means(
    shape: tuple[int, ...], parts: Callable[[slice], Sequence[Callable[[np.ndarray], None]]]
) -> list[np.ndarray]:
    """Means over the rows of arrays [R, O], row added after row, as `mean` does it, in parts that stay in the cache.

    parts: for some of the rows, what writes these of each array. The rows of one column are fewer than PART: alone,
    numpy adds them pairwise.
    """
    rows, columns = shape
    step = max(1, PART // columns)
    buffer = np.empty((min(step, rows) + 1, columns))  # in front of the rows: the sum of those before
    sums: list[np.ndarray] = []
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        for i, write in enumerate(parts(part)):
            out = buffer[1 : part.stop - start + 1]
            write(out)
            if start:
                buffer[0] = sums[i]
                sums[i] = np.add.reduce(buffer[: len(out) + 1], axis=0)
            else:
                sums.append(np.add.reduce(out, axis=0))
    return [total / rows for total in sums]


def _least(biases: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each channel the first bias with the smallest error, and that; both [candidates, O]."""
    best = np.argmin(errors, axis=0)
    at = np.arange(len(best))
    return biases[best, at], errors[best, at]
