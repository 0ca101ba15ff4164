"""SQNR of quantized results against float ones. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAME_DB = 90.0  # of two float runs of one function; sums in another order leave 100 dB and more

T = TypeVar("T")


class Sqnr:
    """Signal-to-quantization-noise ratio over a set that is seen piece by piece. pieces: sums of squares of what was
    wanted and of the error, of each."""

    def __init__(self) -> None:
        self.pieces: list[tuple[float, float]] = []
        self._signal = 0.0
        self._noise = 0.0

    def add(self, wanted: ArrayLike, got: ArrayLike) -> None:
        """Takes in one piece; both have the same number of elements."""
        reference = np.asarray(wanted, dtype=np.float64).ravel()
        error = reference - np.asarray(got, dtype=np.float64).ravel()
        self.pieces.append((float(np.dot(reference, reference)), float(np.dot(error, error))))
        self._signal += self.pieces[-1][0]
        self._noise += self.pieces[-1][1]

    @property
    def db(self) -> float:
        """10 log10(sum wanted^2 / sum (wanted - got)^2): inf without any error, -inf when nothing was wanted."""
        return ratio_db(self._signal, self._noise)


def ratio_db(signal: float, noise: float) -> float:
    """The SQNR of two sums of squares, in dB."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def sqnr_db(wanted: ArrayLike, got: ArrayLike) -> float:
    """The SQNR of one array, in dB."""
    ratio = Sqnr()
    ratio.add(wanted, got)
    return ratio.db


def effects(signals: NDArray[np.float64], noises: NDArray[np.float64]) -> NDArray[np.float64]:
    """The effect of each sample on the mean SQNR of some outputs, to first order: dB [samples], of mean 0. The standard
    error of their mean is that of the SQNR; that of the difference of two conversions is that of the gain.

    signals, noises: sums of squares [outputs, samples].
    """
    known = (signals.sum(axis=1) > 0) & (noises.sum(axis=1) > 0)
    parts = [s / s.mean() - n / n.mean() for s, n in zip(signals[known], noises[known], strict=True)]
    return np.sum(parts, axis=0) * (10 / math.log(10) / len(parts)) if parts else np.zeros(signals.shape[1])


def each_db(signals: NDArray[np.float64], noises: NDArray[np.float64]) -> list[float]:
    """The SQNR of each sample, the mean over some outputs. signals, noises: sums of squares [outputs, samples]."""
    with np.errstate(divide="ignore"):
        known = 10 * np.log10(np.where(noises > 0, signals, 1)) - 10 * np.log10(np.where(noises > 0, noises, 1))
    return [mean_db(column) for column in np.where(noises > 0, known, math.inf).T.tolist()]


def mean_db(ratios: Iterable[float]) -> float:
    """The mean of those with an error: an exact one says nothing of the others. inf where all are exact, of at least
    one; -inf where one is -inf."""
    from statistics import fmean

    values = list(ratios)
    return fmean([ratio for ratio in values if ratio != math.inf] or values)


def gain(after: float, before: float) -> float:
    """By how much an SQNR or another metric rose; both may be infinite."""
    return 0.0 if after == before else after - before if math.isfinite(before) else -before


def score_count(shape: Sequence[int]) -> int:
    """Number of scores of a tensor that is one vector of them; 0 for any other."""
    return math.prod(shape) if sum(dim > 1 for dim in shape) == 1 else 0


def top_k(scores: ArrayLike, k: int) -> list[int]:
    """Indices of the k largest of a vector of scores, largest first; of equal ones the lower index first."""
    return top_k_rows([np.asarray(scores)], k)[0]


def top_k_rows(vectors: Sequence[NDArray[Any]] | NDArray[Any], k: int) -> list[list[int]]:
    """The same of several vectors of one length."""
    left = np.array(vectors, np.float64).reshape(len(vectors), -1)
    if not np.isfinite(left).all():
        return [[int(i) for i in np.argsort(-row, kind="stable")[:k]] for row in left]
    best = np.empty((len(left), min(k, left.shape[1])), np.intp)
    rows = np.arange(len(left))
    for i in range(best.shape[1]):
        best[:, i] = left.argmax(1)
        left[rows, best[:, i]] = -np.inf
    indices: list[list[int]] = best.tolist()
    return indices


def head(
    output: T,
    maker: Callable[[T], tuple[str, T] | None],
    softmax: str = "softmax",
    moves: Collection[str] = ("reshape",),
) -> T:
    """Returns the input of the final Softmax that makes an output, with or without reshapes behind it; else the output
    itself.

    maker: the op that makes a tensor and its first input, None for an input of the graph. softmax, moves: names of ops.
    """
    producer = maker(output)
    while producer is not None and producer[0] in moves:
        producer = maker(producer[1])
    return producer[1] if producer is not None and producer[0] == softmax else output
