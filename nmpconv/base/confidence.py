"""Confidence of figures that were measured on few samples. All intervals have 95 %."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb

import numpy as np

Z = 1.959964  # standard deviations of a normal distribution that hold 95 %
LEAST = 3  # samples that an interval of a mean takes
LUCK = 1e-3  # that answers are right more often by luck: less than that, and people are asked
MANY = 1000  # samples beyond which binomial coefficients are no floats


def proportion(hits: int, count: int) -> tuple[float, float]:
    """The interval of a proportion in %, after Wilson (1927). hits: of ``count`` samples."""
    if not count:
        return 0.0, 100.0
    share, extra = hits / count, Z**2 / count
    centre = (share + extra / 2) / (1 + extra)
    half = math.sqrt(extra * (share * (1 - share) + extra / 4)) / (1 + extra)
    return 100 * max(centre - half, 0.0), 100 * min(centre + half, 1.0)


def counted(hits: int, count: int, claim: str) -> str:
    """A proportion for people: "32 of 34 images agree (81 to 98 %)"."""
    low, high = proportion(hits, count)
    return f"{hits} of {count} {claim} ({low:.0f} to {high:.0f} %)"


def difference(wins: int, losses: int, count: int) -> tuple[float, float]:
    """The interval of the difference of two proportions of the same samples, in points, after Agresti and Min (2005).
    wins, losses: samples of ``count`` that only the one and only the other has."""
    share_won, share_lost = (wins + 0.5) / (count + 2), (losses + 0.5) / (count + 2)
    change = share_won - share_lost
    half = Z * math.sqrt((share_won + share_lost - change**2) / (count + 2))
    return 100 * max(change - half, -1.0), 100 * min(change + half, 1.0)


def jackknife(whole: float, without: Sequence[float]) -> float | None:
    """Half the interval of a figure of a set, after Tukey (1958). without: the figure of the set less each of several
    equal groups; None with fewer than LEAST of them, or where one is not finite."""
    figures = np.asarray(without, np.float64)
    count = len(figures)
    if count < LEAST or not np.isfinite(figures).all() or not math.isfinite(whole):
        return None
    error = math.sqrt((count - 1) / count * float(np.sum((figures - figures.mean()) ** 2)))
    return student(count - 1) * error


def margin(values: Sequence[float] | np.ndarray) -> float | None:
    """Half the interval of a mean; None with fewer than LEAST values, or where one is not finite."""
    array = np.asarray(values, np.float64)
    if len(array) < LEAST or not np.isfinite(array).all():
        return None
    return float(student(len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array)))


def student(freedom: int) -> float:
    """Standard errors that hold 95 %: the quantile of Student's t by the expansion of Fisher and Cornish (1960), right
    to 3 % from 2 degrees of freedom on."""
    z = Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(terms))


def luck(first: np.ndarray, other: np.ndarray) -> float:
    """Probability that the first answers are this much more often right by luck alone.

    It is the sign test on samples where exactly one answer is right; above MANY of them, Hoeffding's bound. first,
    other: right or not, bool [samples].
    """
    wins, losses = int((first & ~other).sum()), int((other & ~first).sum())
    count = wins + losses
    if count > MANY:
        return math.exp(-((wins - losses) ** 2) / (2 * count)) if wins > losses else 1.0
    return sum(comb(count, k) for k in range(wins, count + 1)) / float(2**count)
