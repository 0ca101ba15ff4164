"""Computes a stretch of the graph in bands of rows, so that its large activations never exist as a whole.

Each band of the stretch's result is computed from the rows that it needs, overlapping ones again in the next band, and
the bands are concatenated. The same integers come out; what it costs is the rows that are computed twice. Known as
patch-based inference (Lin et al., MCUNetV2, 2021).

1. A node computes the rows that its readers need, together; a reader that needs fewer gets a slice of them.
2. Padding stays at the border of the image: a band inside has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS
from nmpconv.ops.concat import ConcatParams
from nmpconv.ops.slice import SliceParams
from nmpconv.passes.memory import plan_memory

NODES = 24  # most nodes of a stretch that is tried

Rows = tuple[int, int]  # first, behind the last


@dataclass(frozen=True)
class Stretch:
    """Nodes [first, last) and the one tensor of theirs that others read."""

    first: int
    last: int
    result: str


def run(graph: Graph, max_bytes: int, fuse: Callable[[Graph], Graph] = lambda graph: graph) -> Graph:
    """The graph with the least work whose plan of activations fits into max_bytes; itself where results over their own
    inputs are enough (plan_memory).

    fuse: the pass that comes next, by which tensors go: plans are those of what it makes of a graph. Raises
    Unsupported, with the smallest that would do, when none does.
    """
    best, smallest = None, plan_memory.peak(plan_memory.run(fuse(graph), max_bytes))
    if smallest <= max_bytes:
        return graph
    for candidate in _candidates(graph):
        if best is not None and _work(candidate) >= _work(best):
            continue
        fused = fuse(candidate)
        bound = plan_memory.lower_bound(fused)
        if bound > max_bytes and bound >= smallest:
            continue
        peak = _peak(fused)
        smallest = min(smallest, peak)
        if peak <= max_bytes:
            best = candidate
    if best is None:
        raise Unsupported(
            f"activations need {smallest} bytes at least, in bands of rows, and {max_bytes} are allowed",
            hint=f"--max-ram {smallest}, a smaller input, or 8 bits",
        )
    return best


def _peak(graph: Graph) -> int:
    return plan_memory.peak(plan_memory.run(graph))


def _work(graph: Graph) -> int:
    return sum(OPS[n.op].macs(n.params, graph.ins(n), graph.outs(n)) for n in graph.nodes)


def _candidates(graph: Graph) -> Iterator[Graph]:
    """Stretches from every start, in bands of half the rows, a third, ... down to one row."""
    for stretch in _stretches(graph):
        height = graph[stretch.result].shape[1]
        for rows in sorted({-(-height // count) for count in range(2, height + 1)}, reverse=True):
            yield split(graph, stretch, rows)


def _stretches(graph: Graph) -> Iterator[Stretch]:
    users, outputs = graph.consumers(), frozenset(graph.outputs)
    place = {node.name: i for i, node in enumerate(graph.nodes)}
    for first in range(len(graph.nodes)):
        for last in range(first + 1, min(first + NODES, len(graph.nodes)) + 1):
            node = graph.nodes[last - 1]
            if not _splits(graph, node):
                break
            results = [
                out
                for inner in graph.nodes[first:last]
                for out in inner.outputs
                if out in outputs or any(place[user.name] >= last for user in users[out])
            ]
            if last - first > 1 and len(results) == 1 and graph[results[0]].shape[1] > 1:
                yield Stretch(first, last, results[0])


def _splits(graph: Graph, node: Node) -> bool:
    """Checks that rows of the output depend on rows of the inputs alone."""
    shape = graph[node.outputs[0]].shape
    if len(shape) != 4 or shape[0] != 1:
        return False
    if OPS[node.op].elementwise:
        return all(v.shape == shape or (v.is_const and _repeats(v.shape)) for v in graph.ins(node))
    return OPS[node.op].window(node.params, graph.ins(node)) is not None


def _repeats(shape: Sequence[int]) -> bool:
    return len(shape) < 3 or shape[-3] == 1


def split(graph: Graph, stretch: Stretch, rows: int) -> Graph:
    """The stretch in bands of so many rows of its result."""
    inner = graph.nodes[stretch.first : stretch.last]
    height = graph[stretch.result].shape[1]
    nodes: list[Node] = []
    values: dict[str, Value] = dict(graph.values)
    for node in inner:
        for out in node.outputs:
            del values[out]
    bands = []
    for number, start in enumerate(range(0, height, rows)):
        band = _Band(graph, inner, number)
        bands.append(band.compute(stretch.result, (start, min(start + rows, height))))
        nodes += band.nodes
        values.update(band.values)
    whole = graph[stretch.result]
    nodes.append(Node("concat", f"{whole.name}@", tuple(bands), (whole.name,), ConcatParams(axis=1)))
    values[whole.name] = replace(whole, clamp=None)  # the bands are saturated
    before, after = graph.nodes[: stretch.first], graph.nodes[stretch.last :]
    return replace(graph, nodes=(*before, *nodes, *after), values=values)


class _Band:
    """The nodes and values of one band; names get its number."""

    def __init__(self, graph: Graph, inner: Sequence[Node], number: int) -> None:
        self.graph = graph
        self.inner = inner
        self.number = number
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}

    def compute(self, result: str, rows: Rows) -> str:
        """Adds what makes these rows of the result and returns their name."""
        needed = self._needed(result, rows)
        have: dict[str, tuple[str, Rows]] = {}
        for node in self.inner:
            out = node.outputs[0]
            if out not in needed:
                continue
            inputs = []
            for name in node.inputs:
                value = self.graph[name]
                if value.is_const:
                    inputs.append(name)
                    continue
                source = have.get(name, (name, (0, value.shape[1])))
                inputs.append(self._rows(name, source, _read(node, value, self.graph, needed[out])))
            params = _params(node, self.graph, needed[out])
            output = self._value(out, needed[out])
            self.nodes.append(Node(node.op, f"{node.name}@{self.number}", tuple(inputs), (output,), params))
            have[out] = (output, needed[out])
        return have[result][0]

    def _needed(self, result: str, rows: Rows) -> dict[str, Rows]:
        """Rows of every computed tensor: the rows that the readers need together."""
        needed = {result: rows}
        for node in reversed(self.inner):
            if node.outputs[0] not in needed:
                continue
            for value in self.graph.ins(node):
                if not value.is_const:
                    first, last = _read(node, value, self.graph, needed[node.outputs[0]])
                    old = needed.get(value.name, (first, last))
                    needed[value.name] = (min(first, old[0]), max(last, old[1]))
        return needed

    def _value(self, name: str, rows: Rows) -> str:
        value = self.graph[name]
        shape = (1, rows[1] - rows[0], *value.shape[2:])
        copy = replace(value, name=f"{name}@{self.number}", shape=shape)
        self.values[copy.name] = copy
        return copy.name

    def _rows(self, name: str, source: tuple[str, Rows], rows: Rows) -> str:
        """These rows of what there is."""
        there, (first, last) = source
        if rows == (first, last):
            return there
        value = self.graph[name]
        shape = (1, rows[1] - rows[0], *value.shape[2:])
        part = replace(value, name=f"{name}@{self.number}[{rows[0]}:{rows[1]}]", shape=shape, clamp=None)
        if part.name not in self.values:
            self.values[part.name] = part
            params = SliceParams((0, rows[0] - first, 0, 0), (1, 1, 1, 1), part.shape)
            self.nodes.append(Node("slice", part.name, (there,), (part.name,), params))
        return part.name


def _reach(node: Node, graph: Graph, rows: Rows) -> Rows:
    """The rows that these rows of the output see, those in the padding included."""
    window = OPS[node.op].window(node.params, graph.ins(node))
    assert window is not None
    kernel, dilation = window
    p = node.params
    return rows[0] * p.stride_h - p.pad_top, (rows[1] - 1) * p.stride_h - p.pad_top + (kernel - 1) * dilation + 1


def _read(node: Node, value: Value, graph: Graph, rows: Rows) -> Rows:
    if OPS[node.op].elementwise:
        return rows
    first, last = _reach(node, graph, rows)
    return max(first, 0), min(last, value.shape[1])


def _params(node: Node, graph: Graph, rows: Rows) -> object:  # case 2
    if OPS[node.op].elementwise:
        return node.params
    first, last = _reach(node, graph, rows)
    height = graph[node.inputs[0]].shape[1]
    return replace(node.params, pad_top=max(-first, 0), pad_bottom=max(last - height, 0))
