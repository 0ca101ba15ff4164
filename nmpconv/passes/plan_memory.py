"""Where in the arena each activation lies, so that the arena is small.

A tensor is alive from the op that makes it (a graph input: from before the first) to its last reader (a graph output:
to the end), both included. Tensors that are alive together lie apart, with one exception:

1. An op that works in place puts its output on its first input when both have as many elements and bytes and nobody
   needs the input afterwards. The two, and so whole chains, are one buffer. A reshape is an op in place.

Buffers are placed one by one, at the lowest offset that is free for all their life. Which order makes the smallest
arena is searched: a few sorted orders, then moves of the buffer that sticks out, until the lower bound is reached or
the budget is spent. The search is seeded: the same graph gets the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nmpconv.ir import Graph
from nmpconv.ops import OPS

ALIGN = 16  # of every offset, in bytes
BUDGET = 3_000_000  # pairs of buffers that the search may compare


@dataclass(frozen=True)
class Buffer:
    """Tensors that share their bytes, and when: op indices, first and last included; -1 is before the first op."""

    names: tuple[str, ...]
    bytes: int
    first: int
    last: int


def run(graph: Graph) -> Graph:
    """Sets the offset of every activation."""
    buffers = _buffers(graph)
    offsets = _search(buffers, _bound(buffers))
    placed = [(name, offset) for buffer, offset in zip(buffers, offsets, strict=True) for name in buffer.names]
    return graph.with_values(*(replace(graph[name], offset=offset) for name, offset in placed))


def lower_bound(graph: Graph) -> int:
    """Bytes of the buffers that are alive together, at worst: no plan is smaller."""
    return _bound(_buffers(graph))


def _buffers(graph: Graph) -> list[Buffer]:
    lives = graph.lifetimes()
    chains: dict[str, list[str]] = {name: [name] for name in graph.inputs}
    for i, node in enumerate(graph.nodes):
        out, *others = node.outputs
        value, below = graph[out], graph[node.inputs[0]]
        fits = not others and not below.is_const and (value.size, value.nbytes) == (below.size, below.nbytes)
        if OPS[node.op].in_place and fits and lives[below.name][1] == i:
            chains[out] = chains.pop(below.name)
            chains[out].append(out)
        else:
            chains.update({name: [name] for name in node.outputs})
    return [
        Buffer(tuple(names), -(-graph[names[0]].nbytes // ALIGN) * ALIGN, lives[names[0]][0], lives[names[-1]][1])
        for names in chains.values()
    ]


def _bound(buffers: Sequence[Buffer]) -> int:
    # The most is alive when some buffer has just come.
    return max((sum(b.bytes for b in buffers if b.first <= t <= b.last) for t in {b.first for b in buffers}), default=0)


def _search(buffers: Sequence[Buffer], bound: int) -> list[int]:
    indices = range(len(buffers))
    meets = [
        [j for j in indices if buffers[j].first <= b.last and b.first <= buffers[j].last and buffers[j] is not b]
        for b in buffers
    ]
    orders = [
        sorted(indices, key=lambda i: (-buffers[i].bytes, buffers[i].first)),
        sorted(indices, key=lambda i: (-buffers[i].bytes * (buffers[i].last - buffers[i].first + 1), buffers[i].first)),
        sorted(indices, key=lambda i: (-_pressure(buffers, meets, i), -buffers[i].bytes, buffers[i].first)),
        sorted(indices, key=lambda i: (buffers[i].first, -buffers[i].bytes)),
    ]
    peak, offsets, order = min(((*_place(buffers, meets, order), order) for order in orders), key=lambda plan: plan[0])
    dice = random.Random(0)
    for _ in range(BUDGET // (1 + sum(map(len, meets)))):
        if peak == bound:
            break
        highest = max(order, key=lambda i: offsets[i] + buffers[i].bytes)
        moved = highest if dice.random() < 0.5 else dice.choice(order)
        candidate = [i for i in order if i != moved]
        candidate.insert(dice.randrange(len(order)), moved)
        new_peak, new_offsets = _place(buffers, meets, candidate)
        if new_peak <= peak:
            peak, offsets, order = new_peak, new_offsets, candidate
    return offsets


def _pressure(buffers: Sequence[Buffer], meets: Sequence[Sequence[int]], i: int) -> int:
    """Bytes of a buffer and of all that it meets."""
    return buffers[i].bytes + sum(buffers[j].bytes for j in meets[i])


def _place(buffers: Sequence[Buffer], meets: Sequence[Sequence[int]], order: Sequence[int]) -> tuple[int, list[int]]:
    """Peak and offsets when the buffers are placed in this order, each at the lowest free offset."""
    offsets, peak = [-1] * len(buffers), 0
    for i in order:
        offset, size = 0, buffers[i].bytes
        for start, end in sorted((offsets[j], offsets[j] + buffers[j].bytes) for j in meets[i] if offsets[j] >= 0):
            if start >= offset + size:
                break
            offset = max(offset, end)
        offsets[i] = offset
        peak = max(peak, offset + size)
    return peak, offsets
