"""Counts that the instructions of an op grow with on any machine; `nmpconv.runtime.costs` knows what each count
costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Axis:
    """Axis of rows or columns that a window slides along."""

    size: int  # of the input
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int  # padding

    @property
    def inside(self) -> int:
        """Taps that are no padding, of all places of the window."""
        return sum(self._inside(place) for place in range(self.out))

    @property
    def whole(self) -> int:
        """Places of the window without padding."""
        return sum(self._inside(place) == self.kernel for place in range(self.out))

    def _inside(self, place: int) -> int:
        first = place * self.stride - self.before
        return sum(0 <= first + tap * self.dilation < self.size for tap in range(self.kernel))


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
