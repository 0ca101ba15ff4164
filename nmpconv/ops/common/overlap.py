"""Bytes that an output may share with the input that it is computed from, line by line (FORMAT.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from nmpconv.ir import ARENA_ALIGN

BANDS_MAX = 64


@dataclass(frozen=True)
class Lines:
    """`outputs` lines of y bytes; line i sees `extent` lines of x bytes from line i * stride - before on, those that
    there are of `inputs`.
    """

    x: int
    y: int
    inputs: int
    outputs: int
    stride: int = 1
    before: int = 0
    extent: int = 1

    def bands(self, at: int) -> int | None:
        """In how many bands the output is computed that begins so many bytes after x; None: it may not lie there."""
        if self.extent <= self.before or (self.outputs - 1) * self.stride - self.before >= self.inputs:
            return None  # a window in the padding
        down = self._count(at, up=False)
        return self._count(at, up=True) if down is None else down

    def nearest(self, bands: int) -> tuple[int, int] | None:
        """The least distances at which so many bands are enough: y begins before x, and after it; None: nowhere."""
        return _nearest(self, bands)

    def _search(self, bands: int) -> tuple[int, int] | None:
        """`nearest`, of lines that were not asked about before."""
        if self.bands(self.x * self.inputs) is None:
            return None
        before = self._least(self.y * self.outputs, lambda d: self._count(-d, up=False), bands)
        after = self._least(self.x * self.inputs, lambda d: self._count(d, up=True), bands)
        return before, after

    def _least(self, apart: int, count: Callable[[int], int | None], bands: int) -> int:
        low, high = -(self.y * self.outputs // ARENA_ALIGN) - 1, -(-apart // ARENA_ALIGN)  # too near, enough
        while high - low > 1:
            middle = (low + high) // 2
            bands_needed = count(middle * ARENA_ALIGN)
            low, high = (low, middle) if bands_needed is not None and bands_needed <= bands else (middle, high)
        return high * ARENA_ALIGN

    def _count(self, at: int, *, up: bool) -> int | None:
        done = 0
        for count in range(BANDS_MAX + 1):
            if done == self.outputs:
                return count
            done, before = self._next(at, done, up=up), done
            if done <= before:
                return None
        return None

    def _next(self, at: int, done: int, *, up: bool) -> int:
        """Number of lines that are done after the largest band that touches nothing which it or a later one reads."""
        if up:
            end = (self.outputs - done - 1) * self.stride - self.before + self.extent
            return self.outputs - max(-((at - self.x * min(end, self.inputs)) // self.y), 0)
        first = max(done * self.stride - self.before, 0)
        return min((self.x * first - at) // self.y, self.outputs)


@lru_cache(4096)
def _nearest(lines: Lines, bands: int) -> tuple[int, int] | None:
    """`Lines.nearest`, once for all layers of one shape."""
    return lines._search(bands)
