"""Knapsack over time: chooses items for a memory of limited bytes, each for its own steps, so that they are worth most.

The search goes through the steps in order. A state is the set of items in the memory at a step, with the worth of all
items taken so far. With up to WIDTH states the search is complete, and the best state at the end is optimal. With more,
there are two searches. The first goes on with the best states alone, and finds a choice. The second merges all other
states into one, with their common items and the worth of the best of them, and finds an upper bound of the worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WIDTH = 1000  # states that are kept after a step


@dataclass(frozen=True)
class Item:
    """bytes, in the steps first to last, both included. shares: bytes of earlier items, by their indices, that it lies
    on in its first step if both are taken.
    """

    bytes: int
    first: int
    last: int
    worth: int
    shares: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _State:
    """inside: items, as bits, that are in the memory now. taken: all that ever were."""

    inside: int
    bytes: int
    worth: int
    taken: int


def choose(items: Sequence[Item], rooms: Sequence[int]) -> set[int]:
    """Indices of items that fit. rooms: bytes for them in each step, the first of which is step -1."""
    best = _search(items, rooms, exceeding=False)
    return {i for i in range(len(items)) if best.taken >> i & 1}


def most(items: Sequence[Item], rooms: Sequence[int]) -> int:
    """A worth that no items that fit exceed; that of the best ones, where the search is complete."""
    return _search(items, rooms, exceeding=True).worth


def _search(items: Sequence[Item], rooms: Sequence[int], *, exceeding: bool) -> _State:
    come: dict[int, list[int]] = {}
    gone: dict[int, int] = {}
    for i, item in enumerate(items):
        come.setdefault(item.first, []).append(i)
        gone[item.last] = gone.get(item.last, 0) | 1 << i
    states = {0: _State(0, 0, 0, 0)}
    for step, room in enumerate(rooms, -1):
        for i in come.get(step, ()):
            states |= {child.inside: child for child in [_with(state, i, items[i]) for state in states.values()]}
        fits = [state for state in states.values() if state.bytes - _shared(state, come.get(step, ()), items) <= room]
        states = {}
        for state in fits:
            left = state.inside & ~gone.get(step, 0)
            if left not in states or states[left].worth < state.worth:
                states[left] = _State(left, _bytes(left, items), state.worth, state.taken)
        states = _narrow(states, items, exceeding)
    return max(states.values(), key=lambda state: state.worth)


def _with(state: _State, i: int, item: Item) -> _State:
    return _State(state.inside | 1 << i, state.bytes + item.bytes, state.worth + item.worth, state.taken | 1 << i)


def _shared(state: _State, come: Sequence[int], items: Sequence[Item]) -> int:
    """Bytes that items share that have just come."""
    return sum(
        shared
        for i in come
        if state.inside >> i & 1
        for other, shared in items[i].shares.items()
        if state.inside >> other & 1
    )


def _bytes(inside: int, items: Sequence[Item]) -> int:
    total = 0
    while inside:
        low = inside & -inside
        total += items[low.bit_length() - 1].bytes
        inside ^= low
    return total


def _narrow(states: dict[int, _State], items: Sequence[Item], exceeding: bool) -> dict[int, _State]:
    if len(states) <= WIDTH:
        return states
    ranked = sorted(states.values(), key=lambda state: (-state.worth, state.inside))
    survivors = {state.inside: state for state in ranked[: WIDTH - 1]}
    rest = ranked[WIDTH - 1 :]
    common = rest[0].inside
    for state in rest:
        common &= state.inside
    if exceeding:
        survivors.setdefault(common, _State(common, _bytes(common, items), rest[0].worth, 0))
        if survivors[common].worth < rest[0].worth:
            survivors[common] = _State(common, _bytes(common, items), rest[0].worth, 0)
    else:
        least = min(rest, key=lambda state: (state.bytes, -state.worth))  # there is always one that goes on
        survivors.setdefault(least.inside, least)
    return survivors
