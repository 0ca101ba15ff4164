"""Counts that the instructions of an op grow with on any machine; `nmpconv.runtime.costs` knows what each count
costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np


@dataclass(frozen=True)
class Axis:
    """Axis of rows or columns that a window slides along."""

    size: int  # of the input
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int  # padding

    @cached_property
    def inside(self) -> int:
        """Taps that are no padding, of all places of the window."""
        first = np.arange(self.kernel) * self.dilation - self.before  # of each tap, at the first place
        return int(self._places(first, first).sum())

    @cached_property
    def whole(self) -> int:
        """Places of the window without padding."""
        first = np.array(-self.before)
        return int(self._places(first, first + (self.kernel - 1) * self.dilation))

    def _places(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Numbers of places where the first element, at the first place, is not before the input, nor the last one
        behind it."""
        begin = np.maximum(-(first // self.stride), 0)
        end = np.minimum((self.size - 1 - last) // self.stride + 1, self.out)
        return np.maximum(end - begin, 0)


@dataclass(frozen=True)
class Sums:
    """Sums of products of `k` factors: `channels` of them in each of `groups` for every pixel of the output.

    window: of rows, of columns. light: the share of pairs of channels with four neighbouring weights that are small
    together, wherever they are: at most 255 in all of int8, 65533 of int16.
    """

    images: int
    window: tuple[Axis, Axis]
    groups: int
    channels: int
    k: int
    light: float
    spread: bool = False  # zeros lie between the pixels

    @property
    def pixels(self) -> int:
        return self.images * prod(axis.out for axis in self.window)

    @property
    def taps(self) -> int:
        return prod(axis.kernel for axis in self.window)

    @property
    def padding(self) -> int:
        """Taps of an image's windows that are in the padding."""
        rows, columns = self.window
        return rows.out * columns.out * self.taps - rows.inside * columns.inside

    @property
    def edges(self) -> int:
        """Pixels of an image whose window holds padding."""
        rows, columns = self.window
        return rows.out * columns.out - rows.whole * columns.whole

    @property
    def by_channel(self) -> bool:
        return self.groups > 1 and self.channels == 1 and self.k == self.taps

    @property
    def direct(self) -> bool:
        """Pixels of the input are the factors as they lie there."""
        return self.groups == 1 and all(a.kernel == a.stride == 1 and not a.before for a in self.window)
