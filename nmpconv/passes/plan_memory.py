"""Where in the arena each activation lies, so that the arena is small.

A tensor is alive from the op that makes it (a graph input: from before the first) to its last reader (a graph output:
to the end), both included. Tensors that are alive together lie apart, with two exceptions:

1. An op that works in place puts its output on its first input when both have as many elements and bytes and nobody
   needs the input afterwards. The two, and so whole chains, are one buffer. A reshape is an op in place.
2. The inputs of a concatenation along the outermost axis lie in its output, where nobody needs them afterwards. That
   claims the whole output early, so it is done only where the arena does not grow.

Buffers are placed one by one, at the lowest offset that is free for all their life. Which order makes the smallest
arena is searched: a few sorted orders, then moves of the buffer that sticks out, until the lower bound is reached or
the budget is spent. The search is seeded: the same graph gets the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS

ALIGN = 16  # of every offset, in bytes
BUDGET = 3_000_000  # pairs of buffers that the search may compare


@dataclass(frozen=True)
class Buffer:
    """Tensors that share bytes, by their offset in the buffer, and when: op indices, first and last included; -1 is
    before the first op.
    """

    offsets: Mapping[str, int]
    bytes: int
    first: int
    last: int


def run(graph: Graph) -> Graph:
    """Sets the offset of every activation."""
    plans = [_plan(_buffers(graph, parts=parts)) for parts in (True, False)]
    places = min(plans, key=lambda plan: plan[0])[1]
    return graph.with_values(*(replace(graph[name], offset=offset) for name, offset in places.items()))


def lower_bound(graph: Graph) -> int:
    """Bytes of the buffers that are alive together, at worst: no plan is smaller."""
    return min(_bound(_buffers(graph, parts=parts)) for parts in (True, False))


def _plan(buffers: Sequence[Buffer]) -> tuple[int, dict[str, int]]:
    """Peak, and the offset of every tensor."""
    peak, offsets = _search(buffers, _bound(buffers))
    placed = zip(buffers, offsets, strict=True)
    return peak, {name: start + at for buffer, start in placed for name, at in buffer.offsets.items()}


def _buffers(graph: Graph, *, parts: bool) -> list[Buffer]:
    lives = graph.lifetimes()
    chains: dict[str, dict[str, int]] = {name: {name: 0} for name in graph.inputs}
    for i, node in enumerate(graph.nodes):
        (out,) = node.outputs
        chain = {out: 0}
        if _in_place(graph, node) and lives[node.inputs[0]][1] == i:
            chain |= chains.pop(node.inputs[0])
        if parts:
            for name, offset in _parts(graph, node).items():
                if lives[name][1] == i:
                    chain |= {member: offset + at for member, at in chains.pop(name).items()}
        chains[out] = chain
    return [
        Buffer(
            chain,
            max(-(-(at + graph[name].nbytes) // ALIGN) * ALIGN for name, at in chain.items()),
            min(lives[name][0] for name in chain),
            max(lives[name][1] for name in chain),
        )
        for chain in chains.values()
    ]


def _in_place(graph: Graph, node: Node) -> bool:  # case 1
    out, below = graph[node.outputs[0]], graph[node.inputs[0]]
    fits = not below.is_const and (out.size, out.nbytes) == (below.size, below.nbytes)
    return OPS[node.op].in_place and fits


def _parts(graph: Graph, node: Node) -> dict[str, int]:  # case 2
    """Inputs that may lie in the output, and the byte there; none that is read twice."""
    out = graph[node.outputs[0]]
    found = OPS[node.op].parts(node.params, graph.ins(node), out)
    width = out.nbytes // out.size
    return {
        name: part * width
        for name, part in zip(node.inputs, found, strict=True)
        if part is not None and not graph[name].is_const and part * width % ALIGN == 0 and node.inputs.count(name) == 1
    }


def _bound(buffers: Sequence[Buffer]) -> int:
    # The most is alive when some buffer has just come.
    return max((sum(b.bytes for b in buffers if b.first <= t <= b.last) for t in {b.first for b in buffers}), default=0)


def _search(buffers: Sequence[Buffer], bound: int) -> tuple[int, list[int]]:
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
    return peak, offsets


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
