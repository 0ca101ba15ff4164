"""Buffers, each alive for some steps, to offsets in an arena that is small.

Buffers are placed one by one, at the lowest offset that is free for all their life. Which order makes the smallest
arena is searched: a few sorted orders, then moves of the buffer that sticks out, until the lower bound is reached or
the budget is spent. The search is seeded: the same buffers get the same places. Thousands of buffers that are all alive
together are placed in the order of time, without a search.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate
from math import inf

BUDGET = 3_000_000  # pairs of buffers that the search may compare
PAIRS_MOST = 1_000_000  # that are alive together, up to which there is a search
PLANS_KEPT = 8  # results of the search: of two variants of a graph, with two widths of tensors and two rooms

# By buffer that is alive together with one: the open interval, from its offset, where that one may not begin.
Meets = Mapping[int, tuple[int, int]]
Plan = tuple[int, list[int], list[int]]  # peak, offsets, and the order that gives them


@dataclass(frozen=True)
class Buffer:
    """Tensors that share bytes, by their offset in the buffer, and when: op indices, first and last included; -1 is
    before the first op.
    """

    offsets: Mapping[str, int]
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Overlap:
    """Buffers x and y, by index, that may share bytes in the one step where x ends and y begins: y begins not within
    (low, high) of x.
    """

    x: int
    y: int
    low: int
    high: int

    def saved(self, buffers: Sequence[Buffer]) -> int:
        """Bytes that the two take less than one beside the other, at best."""
        x, y = buffers[self.x].bytes, buffers[self.y].bytes
        return x + y - min(max(at + y, x) - min(at, 0) for at in (self.low, self.high))


def alive(buffers: Sequence[Buffer], steps: int) -> list[int]:
    """Bytes that are alive in each of the steps, one beside the other."""
    change = [0] * (steps + 1)
    for b in buffers:
        change[min(max(b.first, 0), steps)] += b.bytes
        change[min(b.last + 1, steps)] -= b.bytes
    return [*accumulate(change[:steps])]


def bound(buffers: Sequence[Buffer], links: Sequence[Overlap]) -> int:
    """Bytes that are alive together, at worst: no arena is smaller."""
    # The most is alive when some buffer has just come.
    saved = {buffers[link.y].first: link.saved(buffers) for link in links}
    come, gone = Counter[int](), Counter[int]()
    for b in buffers:
        come[b.first] += b.bytes
        gone[b.last + 1] += b.bytes
    most = now = 0
    for step in sorted(come.keys() | gone.keys()):
        now += come[step] - gone[step]
        if step in come:
            most = max(most, now - saved.get(step, 0))
    return most


def place(buffers: Sequence[Buffer], links: Sequence[Overlap], room: int, budget: int = BUDGET) -> list[int]:
    """Offsets. No smaller arena than `room` is looked for."""
    bare = tuple((b.bytes, b.first, b.last) for b in buffers)
    return list(_placed(bare, tuple(links), room, budget))


@lru_cache(PLANS_KEPT)
def _placed(bare: Sequence[tuple[int, int, int]], links: Sequence[Overlap], room: int, budget: int) -> Sequence[int]:
    """Offsets of buffers by their bytes and their times: the candidates of a conversion have the same."""
    buffers = [Buffer({}, *numbers) for numbers in bare]
    if _pairs(buffers) > PAIRS_MOST:
        return _in_time(buffers)
    meets = _meets(buffers, links)
    keys: list[Callable[[int], tuple[int, ...]]] = [
        lambda i: (-buffers[i].bytes, buffers[i].first),
        lambda i: (-buffers[i].bytes * (buffers[i].last - buffers[i].first + 1), buffers[i].first),
        lambda i: (-_pressure(buffers, meets, i), -buffers[i].bytes, buffers[i].first),
        lambda i: (buffers[i].first, -buffers[i].bytes),
    ]
    orders = (sorted(range(len(buffers)), key=key) for key in keys)
    least = bound(buffers, links)
    peak, offsets, order = _first_best(((*_in_order(buffers, meets, o), o) for o in orders), least)
    return _searched(buffers, meets, (peak, offsets, order), room, budget // (1 + sum(map(len, meets))))


def _searched(buffers: Sequence[Buffer], meets: Sequence[Meets], plan: Plan, room: int, rounds: int) -> list[int]:
    """Offsets after so many moves of a buffer in the order, of which those stay that make the peak no higher."""
    peak, offsets, order = plan
    ends = [offset + b.bytes for offset, b in zip(offsets, buffers, strict=True)]
    rank: list[float] = [0] * len(order)
    for place, i in enumerate(order):
        rank[i] = place
    dice = random.Random(0)
    for _ in range(rounds):
        if peak <= room:
            break
        moved = max(order, key=ends.__getitem__) if dice.random() < 0.5 else dice.choice(order)
        old, new = int(rank[moved]), dice.randrange(len(order))
        changed = _replaced(buffers, meets, (peak, offsets, rank), moved, new + (0.5 if new > old else -0.5))
        if changed is None:
            continue
        for i, offset in changed.items():
            offsets[i], ends[i] = offset, offset + buffers[i].bytes
        order.insert(new, order.pop(old))
        for place in range(min(old, new), max(old, new) + 1):
            rank[order[place]] = place
        peak = max(ends)
    return offsets


def _replaced(
    buffers: Sequence[Buffer],
    meets: Sequence[Meets],
    plan: tuple[int, Sequence[int], list[float]],
    moved: int,
    to: float,
) -> dict[int, int] | None:
    """New offsets where a buffer is moved to another rank in the order; None where the peak would be higher.

    plan: peak, offsets, and the rank of each buffer. Only buffers behind a change are placed again.
    """
    peak, offsets, rank = plan
    low, high = sorted((rank[moved], to))
    old, rank[moved] = rank[moved], to
    waiting = [(rank[j], j) for j in (moved, *meets[moved]) if j == moved or low < rank[j] < high]
    heapify(waiting)
    queued, changed = {j for _, j in waiting}, dict[int, int]()
    try:
        while waiting:
            own, i = heappop(waiting)
            before = ((changed.get(j, offsets[j]), ends) for j, ends in meets[i].items() if rank[j] < own)
            offset = _lowest((at + first, at + last) for at, (first, last) in before)
            if offset + buffers[i].bytes > peak:
                return None
            if offset != offsets[i]:
                changed[i] = offset
                later = [j for j in meets[i] if rank[j] > own and j not in queued]
                queued.update(later)
                for j in later:
                    heappush(waiting, (rank[j], j))
    finally:
        rank[moved] = old
    return changed


def _pairs(buffers: Sequence[Buffer]) -> int:
    """Number of pairs of buffers that are alive together."""
    ends = sorted(b.last for b in buffers)
    starts = sorted(b.first for b in buffers)
    return sum(i - bisect_left(ends, first) for i, first in enumerate(starts))


def _in_time(buffers: Sequence[Buffer]) -> list[int]:
    """Offsets when the buffers are placed as they come, each in the lowest gap."""
    offsets = [0] * len(buffers)
    gaps: list[tuple[int, float]] = [(0, inf)]  # start and end, in their order
    live: list[tuple[int, int]] = []  # a heap: when a buffer goes, and its index
    for i in sorted(range(len(buffers)), key=lambda i: (buffers[i].first, -buffers[i].bytes)):
        b = buffers[i]
        while live and live[0][0] < b.first:
            gone = heappop(live)[1]
            start, end = offsets[gone], float(offsets[gone] + buffers[gone].bytes)
            k = bisect_left(gaps, (start, end))
            if gaps[k][0] == end:
                end = gaps.pop(k)[1]
            if k > 0 and gaps[k - 1][1] == start:
                k -= 1
                start = gaps.pop(k)[0]
            gaps.insert(k, (start, end))
        k = next(k for k, (start, end) in enumerate(gaps) if end - start >= b.bytes)
        offsets[i], end = gaps[k]
        gaps[k : k + 1] = [(offsets[i] + b.bytes, end)] if end > offsets[i] + b.bytes else []
        heappush(live, (b.last, i))
    return offsets


def _first_best(plans: Iterable[Plan], least: int) -> Plan:
    """The first of those with the smallest peak; none is looked at after one of the least peak."""
    best = None
    for plan in plans:
        if best is None or plan[0] < best[0]:
            best = plan
        if best[0] <= least:
            break
    assert best is not None
    return best


def _meets(buffers: Sequence[Buffer], links: Sequence[Overlap]) -> list[Meets]:
    met: list[dict[int, tuple[int, int]]] = [{} for _ in buffers]
    open_: list[int] = []  # those that had come and were not gone when the last one came
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].first):
        b = buffers[i]
        open_ = [j for j in open_ if buffers[j].last >= b.first]
        for j in open_:
            met[i][j] = (-b.bytes, buffers[j].bytes)
            met[j][i] = (-buffers[j].bytes, b.bytes)
        open_.append(i)
    for link in links:
        met[link.y][link.x] = (link.low, link.high)
        met[link.x][link.y] = (-link.high, -link.low)
    return [*met]


def _pressure(buffers: Sequence[Buffer], meets: Sequence[Meets], i: int) -> int:
    """Bytes of a buffer and of all that it meets."""
    return buffers[i].bytes + sum(buffers[j].bytes for j in meets[i])


def _in_order(buffers: Sequence[Buffer], meets: Sequence[Meets], order: Sequence[int]) -> tuple[int, list[int]]:
    """Peak and offsets when the buffers are placed in this order, each at the lowest free offset."""
    offsets, peak = [-1] * len(buffers), 0
    for i in order:
        offset = _lowest(
            (offsets[j] + low, offsets[j] + high) for j, (low, high) in meets[i].items() if offsets[j] >= 0
        )
        offsets[i] = offset
        peak = max(peak, offset + buffers[i].bytes)
    return peak, offsets


def _lowest(taken: Iterable[tuple[int, int]]) -> int:
    """The lowest offset outside of these open intervals."""
    offset = 0
    for start, end in sorted(taken):
        if start >= offset:
            break
        offset = max(offset, end)
    return offset
