"""Gives each activation its place in the arena, so that the arena is small.

A tensor is alive from the op that makes it (a graph input: from before the first) to its last reader (a graph output:
to the end), both included. A state of the graph is alive from before the first op to the end. Tensors that are alive
together lie apart, with four exceptions:

1. An op that works in place puts its output on its first input when both have as many elements and bytes and nobody
   needs the input afterwards. The two, and so whole chains, are one buffer. A reshape is an op in place.
2. The inputs of a concatenation along the outermost axis lie in its output, where nobody needs them afterwards. That
   claims the whole output early, so it is done only where the arena does not grow.
3. A convolution may be computed in bands of lines, each written where lines of the input were that nobody needs any
   more. A band is a call of the kernel, so there are as few as the room allows, and none where there is room enough.
4. What a state takes over lies on the state, where the state has been read when it is written.

Where the arena does not grow, a result is given its place before its op: PCs then write the channels of a concatenation
without a copy, and run a pointwise convolution together with the one before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nmpconv.ir import ARENA_ALIGN, Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.common.overlap import BANDS_MAX
from nmpconv.passes.memory.placement import Buffer, Overlap, alive, bound, place

CONV = "conv2d"  # what the core runs together with a 1x1 one behind it, or a concat
BANDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, BANDS_MAX)  # numbers of bands that are tried
BAND_MACS = 6000  # that one more band costs


@dataclass(frozen=True)
class Plan:
    """peak: bytes of the arena. extra: calls of kernels that bands add. offset by tensor."""

    peak: int
    extra: int
    offsets: Mapping[str, int]


@dataclass(frozen=True)
class Sharing:
    """Bytes that the tensors of a graph may share, by its nodes: `Graph.lifetimes`, `in_place`, `placed_inputs`."""

    lives: Mapping[str, tuple[int, int]]
    in_place: Sequence[bool]
    placed: Sequence[Mapping[str, int]]

    @staticmethod
    def of(graph: Graph) -> Sharing:
        rows = [(in_place(graph, node), placed_inputs(graph, node)) for node in graph.nodes]
        return Sharing(graph.lifetimes(), [row[0] for row in rows], [row[1] for row in rows])

    def with_changed(self, graph: Graph, nodes: Iterable[int]) -> Sharing:
        """Sharing of a graph with the same nodes, of which the tensors of some, by index, have other widths."""
        inside, placed = [*self.in_place], [*self.placed]
        for i in nodes:
            node = graph.nodes[i]
            inside[i], placed[i] = in_place(graph, node), placed_inputs(graph, node)
        return Sharing(self.lives, inside, placed)


def run(graph: Graph, room: int | None = None, *, share: float = 0.0) -> Graph:
    """Sets the offset of every activation.

    share: of all work, that bands may cost; with 0 results may have places early. room: bytes that it must fit in,
    whatever the bands cost; where that cannot be, the smallest arena.
    """
    plan = _smallest(graph, share)
    if room is not None and plan.peak > room:
        plan = min(plan, _overlapping(graph, max(room, lower_bound(graph, bands=BANDS_MAX))), key=lambda p: p.peak)
    elif share == 0:
        plan = _claimed(graph, plan)
    return graph.with_values(*(replace(graph[name], offset=offset) for name, offset in plan.offsets.items()))


def peak(graph: Graph) -> int:
    """Bytes of the arena of a planned graph."""
    return max(((value.offset or 0) + value.nbytes for value in graph.activations()), default=0)


def lower_bound(graph: Graph, *, bands: int = 1) -> int:
    """Bytes that are alive together, at worst: no plan with at most so many bands an op is smaller."""
    steps = dict.fromkeys(range(len(graph.nodes)), bands) if bands > 1 else {}
    return min(bound(buffers, links_of(graph, buffers, steps)) for buffers in _variants(graph))


def _smallest(graph: Graph, share: float) -> Plan:
    best = _apart(graph)
    macs = sum(OPS[n.op].macs(n.params, graph.ins(n), graph.outs(n)) for n in graph.nodes) if share else 0
    for bands in BANDS if share else ():
        plan = _overlapping(graph, lower_bound(graph, bands=bands))
        if plan.peak < best.peak and plan.extra * BAND_MACS <= share * macs:
            best = plan
    return best


def _apart(graph: Graph) -> Plan:
    variants = _variants(graph)
    return min(
        (_plan(buffers, graph) for buffers in (variants[:1] if variants[0] == variants[1] else variants)),
        key=lambda p: p.peak,
    )


def _overlapping(graph: Graph, room: int) -> Plan:
    """With the fewest bands at each step that lets what is alive fit."""
    plans = []
    for buffers in _variants(graph):
        bands: dict[int, int] = {}
        for step, live in enumerate(alive(buffers, len(graph.nodes))):
            if live > room:
                enough = (n for n in BANDS if live - _saved(graph, buffers, step, n) <= room)
                bands[step] = next(enough, BANDS_MAX)
        plans.append(_plan(buffers, graph, bands, room))
    return min(plans, key=lambda plan: plan.peak)


def _claimed(graph: Graph, plan: Plan) -> Plan:
    """A plan in which as many results as possible have their places early, with a peak that is not higher."""
    for buffers in _variants(graph):
        if bound(buffers, ()) > plan.peak:
            continue
        home = _home(buffers)
        live = alive(buffers, len(graph.nodes))
        claims = 0
        for name, step in _early(graph):
            buffer = buffers[home[name]]
            sooner = range(step, buffer.first)
            if all(live[i] + buffer.bytes <= plan.peak for i in sooner):
                for i in sooner:
                    live[i] += buffer.bytes
                buffers[home[name]] = replace(buffer, first=min(step, buffer.first))
                claims += 1
        if claims:
            replanned = _plan(buffers, graph, room=plan.peak)
            if replanned.peak <= plan.peak:
                return replanned
    return plan


def _early(graph: Graph) -> Iterator[tuple[str, int]]:
    """Results, and the op from which on their places had better be free."""
    for i, node in enumerate(graph.nodes):
        first = i
        if node.op == "concat" and node.params.axis == len(graph[node.outputs[0]].shape) - 1:
            parts = {*node.inputs}
            while first > 0 and graph.nodes[first - 1].op == CONV and graph.nodes[first - 1].outputs[0] in parts:
                first -= 1
        elif i > 0 and node.op == CONV and graph[node.inputs[1]].shape[1:3] == (1, 1):
            first -= graph.nodes[i - 1].op == CONV and graph.nodes[i - 1].outputs[0] == node.inputs[0]
        if first < i:
            yield node.outputs[0], first


def _saved(graph: Graph, buffers: Sequence[Buffer], step: int, bands: int) -> int:
    """Bytes that so many bands of a step save."""
    return sum(link.saved(buffers) for link in links_of(graph, buffers, {step: bands}))


def _plan(buffers: Sequence[Buffer], graph: Graph, bands: Mapping[int, int] | None = None, room: int = 0) -> Plan:
    """bands: of the steps whose output may share bytes with the input."""
    bands = bands or {}
    links = links_of(graph, buffers, bands)
    offsets = place(buffers, links, max(room, bound(buffers, links)))
    starts = zip(buffers, offsets, strict=True)
    at = {name: start + inside for buffer, start in starts for name, inside in buffer.offsets.items()}
    extra = sum(bands[buffers[link.y].first] - 1 for link in links)
    return Plan(max((start + graph[name].nbytes for name, start in at.items()), default=0), extra, at)


def _variants(graph: Graph) -> list[list[Buffer]]:
    """Buffers with case 2 and without."""
    sharing = Sharing.of(graph)
    return [buffers_of(graph, placed=placed, sharing=sharing) for placed in (True, False)]


def buffers_of(
    graph: Graph,
    *,
    placed: bool,
    together: Callable[[str, str], bool] = lambda x, y: True,
    sharing: Sharing | None = None,
    of: Collection[str] | None = None,
) -> list[Buffer]:
    """placed: case 2 is made use of. together: an input and a result of an op, whether they may share bytes. sharing:
    of the graph, where that is known. of: all tensors of the buffers that are wanted; None: of the graph."""
    sharing = sharing or Sharing.of(graph)
    lives = dict(sharing.lives)
    state_of = {state.output: x for x, state in graph.states.items() if lives[x][1] < lives[state.output][0]}  # case 4
    lives |= {name: (-1, len(graph.nodes)) for name in graph.states}
    taken = {*state_of.values()}
    wanted = graph.values if of is None else of
    chains: dict[str, dict[str, int]] = {
        name: {name: 0} for name in graph.inputs if name in wanted and name not in taken
    }
    steps = range(len(graph.nodes)) if of is None else sorted(lives[name][0] for name in of if lives[name][0] >= 0)
    for i in steps:
        node = graph.nodes[i]
        (out,) = node.outputs
        if out in state_of:
            chains[out] = {out: 0, state_of[out]: 0}
            continue
        chain = dict[str, int]()
        if sharing.in_place[i] and lives[node.inputs[0]][1] == i and together(node.inputs[0], out):
            chain = chains.pop(node.inputs[0])
        if placed:
            for name, offset in sharing.placed[i].items():
                if lives[name][1] == i and together(name, out):
                    part = chains.pop(name)
                    if offset == 0 and not chain:
                        chain = part
                    else:
                        chain |= {member: offset + at for member, at in part.items()}
        chains[out] = chain
        chain[out] = 0
    return [
        Buffer(
            chain,
            max(-(-(at + graph[name].nbytes) // ARENA_ALIGN) * ARENA_ALIGN for name, at in chain.items()),
            min(lives[name][0] for name in chain),
            max(lives[name][1] for name in chain),
        )
        for chain in chains.values()
    ]


def _home(buffers: Sequence[Buffer]) -> dict[str, int]:
    """The index of the buffer of each tensor."""
    return {name: i for i, buffer in enumerate(buffers) for name in buffer.offsets}


def in_place(graph: Graph, node: Node) -> bool:  # case 1
    """Checks that a result may lie on the first input, where nobody reads that later."""
    if not OPS[node.op].in_place:
        return False
    out, below = graph[node.outputs[0]], graph[node.inputs[0]]
    return not below.is_const and (out.size, out.nbytes) == (below.size, below.nbytes)


def placed_inputs(graph: Graph, node: Node) -> dict[str, int]:  # case 2
    """Inputs that may lie in the output, and the byte there; none that is read twice."""
    out = graph[node.outputs[0]]
    elements = OPS[node.op].placed_inputs(node.params, graph.ins(node), out)
    if not any(element is not None for element in elements):
        return {}
    reads = Counter(node.inputs)
    width = out.nbytes // out.size
    places = {name: element * width for name, element in zip(node.inputs, elements, strict=True) if element is not None}
    return {
        name: at
        for name, at in places.items()
        if not graph[name].is_const and at % ARENA_ALIGN == 0 and reads[name] == 1
    }


def links_of(graph: Graph, buffers: Sequence[Buffer], bands: Mapping[int, int]) -> list[Overlap]:  # case 3
    """Finds pairs of buffers that may overlap: at a step of ``bands`` one ends and the other begins, and the output of
    that op may share bytes with its input."""
    home = _home(buffers) if bands else {}
    links = []
    for step, most in bands.items():
        node = graph.nodes[step]
        below, out = graph[node.inputs[0]], graph[node.outputs[0]]
        lines = None if below.is_const or most < 2 else OPS[node.op].lines(node.params, graph.ins(node), out)
        distances = None if lines is None else lines.nearest(most)
        if distances is None:
            continue
        x, y = home[below.name], home[out.name]
        if buffers[x].last == step == buffers[y].first:
            moved = buffers[x].offsets[below.name] - buffers[y].offsets[out.name]
            links.append(Overlap(x, y, moved - distances[0], moved + distances[1]))
    return links
