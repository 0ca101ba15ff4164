"""Places and taps of windows: as they are counted one by one, and at once where there are many."""

from __future__ import annotations

from itertools import product

from nmpconv.ops.common.effort import Axis


def test_windows_are_counted() -> None:
    for size, out, kernel, stride, dilation, before in product(
        (1, 2, 5, 8), (1, 3, 7), (1, 2, 3, 5), (1, 2, 3), (1, 2, 3), (0, 1, 2, 4)
    ):
        axis = Axis(size, out, kernel, stride, dilation, before)
        inside = [
            sum(0 <= place * stride - before + tap * dilation < size for tap in range(kernel)) for place in range(out)
        ]
        assert (axis.inside, axis.whole) == (sum(inside), inside.count(kernel))


def test_places_are_not_visited() -> None:
    """So many would take days."""
    axis = Axis(10**12, 10**12, 3, 1, 1, 1)
    assert (axis.inside, axis.whole) == (3 * 10**12 - 2, 10**12 - 2)
