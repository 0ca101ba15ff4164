"""The bias that makes up for what rounding did to a layer, on one of two grids, and the factor that it lacks.

First the mean difference between the float pre-activation and the integer sums; then, since saturation makes that mean
blind to what the activation removes, the neighbour with the smallest error after the activation.

What a layer without a bias makes of 0 is 0, and a normalization behind it would make much of anything else. At 16 bits
such a layer gets a bias only where that is more than a step, and takes away a share WORTH of the error: the mean of
errors of which one is large is no bias.

Noise also makes differences smaller: what a Relu or HardSwish lets through on one side alone fills what was empty, and
gates see less of a contrast. A deep net may give 0.95 of the float model's differences, in all channels alike, which
the next layer's weights can make up for.
"""

from __future__ import annotations

import numpy as np

from nmpconv.base.fixed_point import round_half_up
from nmpconv.calib import native_sums
from nmpconv.ir import Quant

WORTH = 0.1
WEAK = 0.05  # of the energy of the errors less their means: the share from which on a factor is made up for
CHANCE = 4.0  # times what one of so many numbers would make by chance
LEAST, MOST = 0.8, 1.25  # what lies beyond is no matter of noise
ELEMENTS = 1 << 16  # of the rows that are looked at together, or one row


def on_output_grid(
    product: np.ndarray,
    shift: np.ndarray,
    wanted: np.ndarray,
    clamp: tuple[float, float],
    y: Quant,
    bare: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Biases [O] that are added after the shift, and the mean squared error [O] after the activation, in output steps.

    product: sums of integers, float64 [R, O]. shift: [O]. wanted: float32 [R, O], the pre-activation.
    clamp: of the activation. bare: channels [O] without a bias; none if not given. weights: of errors [R, O]; all alike
    if not given.
    """
    if weights is not None:
        return _weighted(product, shift, wanted, clamp, y, weights)
    scale = np.ldexp(1.0, -shift)
    first = round_half_up(native_sums.mean_difference(product, wanted, np.full(len(shift), 2.0**-y.exponent), scale))
    biases = [first, first - 1, first + 1]
    if bare is not None and y.bits == 16 and bare.any():
        biases.append(np.zeros_like(first))
    squares = native_sums.mean_squares(product, wanted, shift, clamp, (y.exponent, y.lo, y.hi), np.array(biases))
    bias, least = _least(np.array(biases[:3]), squares[:3])
    if len(biases) == 3:
        return bias, least
    plain = squares[3]
    unbiased = bare & ((np.abs(bias) <= 1) | (least > (1 - WORTH) * plain))
    return np.where(unbiased, 0, bias), np.where(unbiased, plain, least)


def _weighted(
    product: np.ndarray,
    shift: np.ndarray,
    wanted: np.ndarray,
    clamp: tuple[float, float],
    y: Quant,
    weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Biases whose weighted squared error is least."""
    goal = np.ldexp(wanted.astype(np.float64), -y.exponent)
    whole = weights.sum(axis=0)
    first = round_half_up((weights * (goal - np.ldexp(product, -shift))).sum(axis=0) / whole)
    goal = np.clip(goal, *np.ldexp(clamp, -y.exponent))
    sums = np.floor(np.ldexp(product, -shift) + np.where(shift > 0, 0.5, 0.0))
    biases = np.array([first, first - 1, first + 1])
    errors = [(weights * np.square(np.clip(sums + bias, y.lo, y.hi) - goal)).sum(axis=0) / whole for bias in biases]
    return _least(biases, np.array(errors))


def on_accumulator_grid(
    product: np.ndarray, shift: np.ndarray, wanted: np.ndarray, clamp: tuple[float, float], y: Quant
) -> tuple[np.ndarray, np.ndarray]:
    """The same for biases that are added to the sums before the shift, by which frameworks with s_x * s_w work."""
    to = np.ldexp(2.0**-y.exponent, shift)
    first = round_half_up(native_sums.mean_difference(product, wanted, to, np.ones(len(shift))))
    biases = [first + round_half_up(np.ldexp(np.float64(delta), shift)) for delta in (0, -1, 1, -0.5, 0.5)]
    grid = (y.exponent, y.lo, y.hi)
    return _least(
        np.array(biases), native_sums.mean_squares(product, wanted, shift, clamp, grid, np.array(biases), before=True)
    )


def _least(biases: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first bias with the smallest error of each channel, and that error; both [candidates, O]."""
    best = np.argmin(errors, axis=0)
    at = np.arange(len(best))
    return biases[best, at], errors[best, at]


def missing_factor(got: np.ndarray, wanted: np.ndarray) -> float:
    """The factor for all of what a layer gives [R, O] by which it changes as wanted [R, O] does; 1.0 where it need not
    be changed."""
    means = [part.mean(axis=0, dtype=np.float64) for part in (got, wanted)]
    common = energy = errors = 0.0
    together = max(ELEMENTS // max(means[0].size, 1), 1)
    for start in range(0, len(wanted), together):
        x, y = (part[start : start + together] - mean for part, mean in zip((got, wanted), means, strict=True))
        common, energy, errors = (
            sums + float(np.vdot(a, b)) for sums, a, b in ((common, x, y), (energy, y, y), (errors, y - x, y - x))
        )
    if common <= 0 or errors <= 0:
        return 1.0
    share, factor = (energy - common) ** 2 / (energy * errors), energy / common
    return factor if share > max(WEAK, CHANCE / wanted.size) and LEAST < factor < MOST else 1.0
