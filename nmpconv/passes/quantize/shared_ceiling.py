"""One ceiling for the channels that several layers read from one grid.

Vector equalization balances a channel's reach against the weights that read it, for each layer by itself. Tensors that
Concats, slices and shuffles tie to each other share a grid, that of the largest channel of all. So a channel that is
right for its own reader may cost the others a bit.

1. Channels that reach beyond the ceiling are scaled down to it. They keep their own steps. The other channels get finer
   ones, and the weights that read the scaled channels coarser ones.
2. Candidates are 2^(-k / STEPS) times the largest reach. The one with the least noise is taken: the sum over all layers
   of the noise of activations and of weights, relative to the signal. With reach r, factor f and demand d of a layer's
   channels, these are ceiling^2 * sum (d/f)^2 and max (d/f)^2 * sum (r f)^2, the signal sum (d r)^2. A layer that
   reads a grid alone has the least noise with the factors that equalization gives it, so such a grid stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

STEPS, LOWEST = 8, 4  # ceilings in a factor of two, and how many such factors down
WORTH_DB = 1.0


class WeightedLayer(NamedTuple):
    """x: the tensor that it reads. demand [C]: what each channel claims of the weights' ranges, at most 1."""

    x: str
    demand: np.ndarray


class Classes(NamedTuple):
    """Channels that have one factor. ids [C], reach [C]: of each tensor, the class and the largest magnitude of its
    channels. free [n]: by class, whether its factor is to be chosen."""

    ids: Mapping[str, np.ndarray]
    reach: Mapping[str, np.ndarray]
    free: np.ndarray


def lowered(
    groups: Sequence[Sequence[str]], layers: Sequence[WeightedLayer], classes: Classes, factor: np.ndarray
) -> np.ndarray:
    """The factors [n] of all classes, those of `vector` before. groups: tensors that share a grid."""
    for group in groups:
        members = set(group)
        readers = [layer for layer in layers if layer.x in members]
        if len(readers) > 1:
            factor = _lowered(group, readers, classes, factor)
    return factor


def _lowered(
    group: Sequence[str], readers: Sequence[WeightedLayer], classes: Classes, factor: np.ndarray
) -> np.ndarray:
    reach = np.zeros(len(factor))
    for name in group:
        np.maximum.at(reach, classes.ids[name], classes.reach[name])
    top = (reach * factor).max()
    tried = [_below(top * 2.0 ** (-k / STEPS), reach, classes.free, factor) for k in range(LOWEST * STEPS + 1)]
    noise = [round(sum(_noise((reach * f).max(), reader, classes, f) for reader in readers), 6) for f in tried]
    best = int(np.argmin(noise))
    return tried[best] if noise[best] * 10 ** (WORTH_DB / 10) < noise[0] else factor


def _below(ceiling: float, reach: np.ndarray, free: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Case 1."""
    high = free & (reach * factor > ceiling)
    factors = factor.copy()
    factors[high] = ceiling / reach[high]
    return factors


def _noise(ceiling: float, layer: WeightedLayer, classes: Classes, factor: np.ndarray) -> float:
    """Case 2."""
    f, r = factor[classes.ids[layer.x]], classes.reach[layer.x]
    claimed = layer.demand / f
    signal = np.square(layer.demand * r).sum()
    noise = ceiling**2 * np.square(claimed).sum() + claimed.max() ** 2 * np.square(r * f).sum()
    return float(noise / signal) if signal > 0 else 0.0
