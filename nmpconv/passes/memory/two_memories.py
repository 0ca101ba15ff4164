"""Gives each activation its place in a fast or in a slow memory, so that ops move few bytes in the slow one.

An op writes its output once and reads each input once, but for what windows share: that is the traffic, in bytes, and
what a Cortex-M4 does (docs/memory.md). A tensor lies in one memory for all of its life. Scratch lies in the fast one,
where it is not larger than that.

1. Tensors that share bytes in a plan of one memory (`plan_memory`) are one buffer, and go together.
2. Buffers are chosen as if the fast memory were never in pieces (`knapsack`), then placed. Where they find no places, a
   little less is chosen.
3. The fast memory is the beginning of the arena, as large as what is placed there; the slow one comes after it.
4. Where a step leaves room in the fast memory for the weights of its op, and these are read many times, the room for
   its scratch is so much larger: the interpreter copies them there first.

The bound is the traffic of the best choice of single tensors, which share all bytes that the format lets them share, if
the fast memory were never in pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from nmpconv.ir import ARENA_ALIGN, Graph
from nmpconv.ops import OPS
from nmpconv.ops.common.overlap import BANDS_MAX
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.memory.knapsack import Item, choose, most
from nmpconv.passes.memory.placement import Buffer, alive, place
from nmpconv.passes.memory.placement import bound as bound_of

LESS = 32  # part of the room of a step that is given up where what was chosen finds no places
BUDGET = 6_000_000  # of each (`placement.BUDGET`)


@dataclass(frozen=True)
class _Split:
    """traffic: bytes that are moved in the slow memory. fast, slow: bytes that are used of each. full: of each
    buffer that finds no place in the fast one the step with the most bytes alive.
    """

    traffic: int
    fast: int
    slow: int
    full: set[int]
    offsets: dict[str, int]
    rooms: dict[str, tuple[int, int]]


def run(graph: Graph, fast: int, scratch: Sequence[int]) -> Graph:
    """Sets offsets and what of the arena is fast. fast: bytes that there are of it; scratch: bytes of each op."""
    fast -= fast % ARENA_ALIGN
    best = min((_split(graph, placed, fast, scratch) for placed in (True, False)), key=lambda s: (s.traffic, s.slow))
    values = (replace(graph[name], offset=offset) for name, offset in best.offsets.items())
    least = bound(graph, fast, scratch)
    return replace(graph.with_values(*values), fast_bytes=best.fast, rooms=best.rooms, least_slow=least)


def traffic(graph: Graph) -> Counter[str]:
    """Bytes that ops write and read of each activation in a run."""
    moved = Counter[str]()
    for node in graph.nodes:
        if OPS[node.op].moves:
            out = graph[node.outputs[0]]
            moved[out.name] += out.nbytes
            counts = OPS[node.op].reads(node.params, graph.ins(node), out)
            for value, count in zip(graph.ins(node), counts, strict=True):
                if not value.is_const:
                    moved[value.name] += count * value.nbytes // value.size
    return moved


def slow_traffic(graph: Graph) -> int:
    """Bytes that ops of a planned graph move in the slow memory."""
    return sum(moved for name, moved in traffic(graph).items() if (graph[name].offset or 0) >= graph.fast_bytes)


def bound(graph: Graph, fast: int, scratch: Sequence[int]) -> int:
    """Bytes: no plan with so much fast memory moves fewer in the slow one."""
    moved, lives = traffic(graph), graph.lifetimes()
    names = [*lives]
    index = {name: i for i, name in enumerate(names)}
    over = {state.output for state in graph.states.values()}  # may lie on the state
    shares = _shares(graph, lives, placed=True)
    items = []
    for name in names:
        first, last = lives[name]
        size = 0 if name in over else _aligned(graph[name].nbytes)
        items.append(Item(size, first, last, moved[name], {index[x]: n for x, n in shares.get(name, {}).items()}))
    return sum(moved.values()) - most(items, _rooms(graph, fast, scratch))


def _shares(graph: Graph, lives: Mapping[str, tuple[int, int]], *, placed: bool) -> dict[str, dict[str, int]]:
    """Bytes that the result of an op may share with inputs that nobody reads later; placed: as parts of it, too."""
    single = [Buffer({name: 0}, _aligned(graph[name].nbytes), *life) for name, life in lives.items()]
    shares: dict[str, dict[str, int]] = {}
    for i, node in enumerate(graph.nodes):
        out = node.outputs[0]
        dying = {name for name in node.inputs if name in lives and lives[name][1] == i}
        shared = dict.fromkeys(dying & plan_memory.placed_inputs(graph, node).keys(), 0) if placed else {}
        if plan_memory.in_place(graph, node):
            shared[node.inputs[0]] = 0
        at = {name: _aligned(graph[name].nbytes) for name in shared if name in dying}
        for link in plan_memory.links_of(graph, single, {i: BANDS_MAX}):
            x = next(iter(single[link.x].offsets))
            at[x] = max(at.get(x, 0), link.saved(single))
        if at:
            shares[out] = at
    return shares


def _rooms(graph: Graph, fast: int, scratch: Sequence[int]) -> list[int]:
    """Bytes of the fast memory in each step, the first of which is step -1, that are left for tensors."""
    return [fast, *(fast - size if size <= fast else fast for size in scratch), fast]


def _split(graph: Graph, placed: bool, fast: int, scratch: Sequence[int]) -> _Split:
    moved = traffic(graph)
    items, members = _items(graph, placed, moved)
    rooms = _rooms(graph, fast, scratch)
    while True:
        chosen = {name for i in choose(items, rooms) for name in members[i]}
        split = _placed(graph, placed, chosen, fast, scratch)
        if not split.full:
            break
        for step in split.full:
            rooms[step + 1] -= max(rooms[step + 1] // LESS, ARENA_ALIGN)
    return replace(split, traffic=sum(moved.values()) - sum(moved[name] for name in chosen))


def _items(graph: Graph, placed: bool, moved: Mapping[str, int]) -> tuple[list[Item], list[tuple[str, ...]]]:
    """Tensors, and concatenations with what is joined, which go together; and their names."""
    joined = {node.outputs[0] for node in graph.nodes if placed and plan_memory.placed_inputs(graph, node)}
    states = {name for x, state in graph.states.items() for name in (x, state.output)}
    together = plan_memory.buffers_of(graph, placed=placed, together=lambda x, y: y in joined and not states & {x, y})
    together.sort(key=lambda buffer: (buffer.first, buffer.last))
    home = {name: i for i, buffer in enumerate(together) for name in buffer.offsets}
    shares: dict[int, dict[int, int]] = {}
    for out, sizes in _shares(graph, graph.lifetimes(), placed=False).items():
        y = home[out]
        for name, size in sizes.items():
            x = home[name]
            if x != y and together[x].last == together[y].first:
                shares.setdefault(y, {})[x] = size
    items = [
        Item(b.bytes, b.first, b.last, sum(moved[name] for name in b.offsets), shares.get(i, {}))
        for i, b in enumerate(together)
    ]
    return items, [tuple(b.offsets) for b in together]


def _placed(graph: Graph, placed: bool, chosen: Set[str], fast: int, scratch: Sequence[int]) -> _Split:
    """Tensors of each memory at their places. Where results lie over lines of their inputs, it is in few bands."""
    buffers = plan_memory.buffers_of(graph, placed=placed, together=lambda x, y: (x in chosen) == (y in chosen))
    hot = [i for i, size in enumerate(scratch) if 0 < size <= fast]
    inside = [buffer for buffer in buffers if chosen >= buffer.offsets.keys()]
    outside = [buffer for buffer in buffers if chosen.isdisjoint(buffer.offsets)]
    inside += [Buffer({}, _aligned(scratch[i]), i, i) for i in hot]
    bands = {}
    lives = alive(inside, len(graph.nodes))
    for step, live in enumerate(lives):
        if live > fast:
            saved = ((n, plan_memory.links_of(graph, inside, {step: n})) for n in plan_memory.BANDS)
            enough = (n for n, links in saved if live - sum(link.saved(inside) for link in links) <= fast)
            bands[step] = next(enough, BANDS_MAX)
    links = plan_memory.links_of(graph, inside, bands)
    offsets = place(inside, links, max(fast, bound_of(inside, links)), BUDGET) if inside else []
    peak = max((at + b.bytes for at, b in zip(offsets, inside, strict=True)), default=0)
    own = zip(hot, offsets[len(offsets) - len(hot) :], strict=True)
    rooms = {graph.nodes[i].name: (at, _aligned(scratch[i])) for i, at in own}
    rooms |= _with_weights(graph, [*zip(inside, offsets, strict=True)], fast, scratch)
    peak = max([peak, *(at + size for at, size in rooms.values())])
    out = [b for at, b in zip(offsets, inside, strict=True) if at + b.bytes > fast]
    full = {max(range(max(b.first, 0), min(b.last, len(lives) - 1) + 1), key=lambda step: lives[step]) for b in out}
    slow = [peak + at for at in place(outside, (), bound_of(outside, ()), BUDGET)] if outside else []
    ends = [at + b.bytes for at, b in zip(slow, outside, strict=True)]
    places = zip([*inside, *outside], [*offsets, *slow], strict=True)
    return _Split(
        0,
        peak,
        max(ends, default=peak) - peak,
        full,
        {name: start + at for buffer, start in places for name, at in buffer.offsets.items()},
        rooms,
    )


def _with_weights(
    graph: Graph, places: Sequence[tuple[Buffer, int]], fast: int, scratch: Sequence[int]
) -> dict[str, tuple[int, int]]:  # case 4
    """Place and bytes for scratch and weights, by the op. places: in the fast memory; scratch has no names."""
    rooms = {}
    for i, node in enumerate(graph.nodes):
        weights = OPS[node.op].repeated_weights(node.params, graph.ins(node), graph[node.outputs[0]])
        if weights is None:
            continue
        size, start = _aligned(scratch[i]) + _aligned(weights.nbytes), 0
        for at, end in sorted((at, at + b.bytes) for b, at in places if b.offsets and b.first <= i <= b.last):
            if at - start >= size:
                break
            start = max(start, end)
        if start + size <= fast:
            rooms[node.name] = start, size
    return rooms


def _aligned(size: int) -> int:
    return -(-size // ARENA_ALIGN) * ARENA_ALIGN
