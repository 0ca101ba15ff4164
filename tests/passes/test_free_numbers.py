"""Origins: which number what is tied together gets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from nmpconv.calib.exponent_search import Rounded
from nmpconv.calib.observers import TensorStats
from nmpconv.passes.quantize import offsets


def moved(peak: float, share: float = 1.0, low: float = 0.0, weight: float = 1.0, seed: int = 0) -> offsets._Moved:
    """A tensor that a free number moves: half a bell from low, or a whole one; the last sample is the peak."""
    bell = np.random.default_rng(seed).normal(0, peak / 5, 20_000)
    values = np.clip(np.abs(bell) if low == 0 else bell, low, peak)
    values[-2:] = low, peak
    stats = TensorStats.of(values.astype(np.float32)[:, np.newaxis])
    return offsets._Moved(Rounded(stats, 1.0), 0.0, share, (), weight)


@pytest.mark.parametrize("peaks", [(4.6, 5.4), (3.1, 3.9, 3.5), (6.5, 7.0, 7.5, 7.9)])
def test_tied_tensors_start_at_the_least_integer(peaks: Sequence[float]) -> None:
    """Every other candidate was left out of several tensors', and with them the one that fits them all."""
    number = offsets._best([moved(peak, seed=i) for i, peak in enumerate(peaks)])
    assert math.log2(number).is_integer()


def test_the_layer_that_pays_for_a_chain_keeps_a_bit() -> None:
    """It is stored with the number on top, on a grid of 2^-4 up to 6.2 or so and of 2^-3 from there on."""
    last = moved(1.7, -1.0, -1.6)
    number = offsets._best([*(moved(13.0, weight=3.0, seed=i) for i in range(6)), last])
    assert 5.5 < number < 128 / 16 - 1.7
    assert offsets._best([moved(13.0, weight=3.0, seed=i) for i in range(6)]) == 8.0


def test_few_tensors_stand_for_each_side_of_a_chain() -> None:
    rows = {**{f"r{i}": {"r": 1.0} for i in range(20)}, "last": {"r": -1.0}}
    assert offsets._telling([*rows], rows, "r") == {**{f"r{i}": 20 / 7 for i in range(0, 20, 3)}, "last": 1.0}
