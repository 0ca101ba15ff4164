"""A requantize before a Concat, so that what is small beside it keeps its own grid for its other readers.

All tensors of a Concat share one grid: the grid of the largest. Concats with a common tensor share one, too. The pass
visits Concats from the smallest to the largest.

1. With 16 bits, an input gets a requantize if a tensor on its grid, as earlier Concats left it, would lose MARGIN bits.
2. An input that only ops that move data read gets none: no op would see its own grid.
3. With 8 bits, an input gets none: a requantize costs time, and precision beyond 8 bits helps little.
4. With any bits, an index by which an op reads gets one, unless all inputs of the Concat are whole numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nmpconv.calib.exponent_search import span, top_exponent
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.requantize import requantize
from nmpconv.passes.bounds import whole
from nmpconv.passes.quantize.shared_grids import grid_groups, joins_grids

MARGIN = 4  # bits, 24 of the 90 dB of a 16-bit grid


def run(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int]
) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
    """The float graph with the requantizes, and the statistics and widths with those of their results."""
    if not any(map(joins_grids, graph.nodes)) or (16 not in bits.values() and not _indices(graph)):
        return graph, stats, bits
    return with_requantizes(graph, stats, bits, _cuts(graph, stats, bits))


def with_requantizes(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], cuts: Collection[tuple[str, str]]
) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
    """`run` with these. cuts: (node, input); an input that a node reads twice has one requantize."""
    if not cuts:
        return graph, stats, bits
    nodes: list[Node] = []
    copies: dict[str, str] = {}
    for node in graph.nodes:
        names = list(node.inputs)
        for i, name in enumerate(names):
            if (node.name, name) in cuts:
                names[i] = copy = f"{node.name}.input{node.inputs.index(name)}"
                if copy not in copies:
                    copies[copy] = name
                    nodes.append(requantize(copy, name, copy))
        nodes.append(replace(node, inputs=tuple(names)))
    fresh = [replace(graph[name], name=copy, clamp=None) for copy, name in copies.items()]
    return (
        replace(graph.with_values(*fresh), nodes=tuple(nodes)),
        {**stats, **{copy: stats[name] for copy, name in copies.items()}},
        {**bits, **{copy: bits[name] for copy, name in copies.items()}},
    )


def _cuts(graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int]) -> set[tuple[str, str]]:
    """(node, input) of Concats whose input is to be requantized."""
    concats = [(_parts(graph, node), node) for node in graph.nodes if joins_grids(node)]
    if not concats:
        return set()
    groups = {name: set(group) for group in grid_groups(graph, concats=False) for name in group}
    tied = {name: group[0] for group in grid_groups(graph) for name in group}
    tops = {name: top_exponent(span(stats[name], bits[name], graph[name].clamp), bits[name]) for name in groups}
    own = {name: max(tops[member] for member in group) for name, group in groups.items()}
    computed = read(graph)
    cuts: set[tuple[str, str]] = set()
    indices, numbers = _indices(graph), whole(graph)
    for parts, node in sorted(concats, key=lambda row: max(own[name] for name in row[0])):
        needed = {name: max(own[member] for member in groups[name]) for name in parts}
        top, out = max(needed.values()), parts[0]
        for name in parts[1:]:
            if indices & groups[name] and not all(part in numbers for part in parts):
                cuts.add((node.name, name))  # case 4
                continue
            if groups[name] is groups[out] or tied[name] != tied[out]:
                continue
            finest = min((own[member] for member in computed & groups[name]), default=top)
            if bits[name] == 16 and needed[name] < top and finest + MARGIN <= top:
                cuts.add((node.name, name))
                continue
            groups[out] |= groups[name]
            groups.update(dict.fromkeys(groups[name], groups[out]))
    return cuts


def _indices(graph: Graph) -> set[str]:
    """Whole numbers by which an op chooses among the elements of another tensor."""
    pairs = ((OPS[node.op], node) for node in graph.nodes)
    return {node.inputs[op.places] for op, node in pairs if op.grid == "same" and op.places is not None}


def _parts(graph: Graph, node: Node) -> list[str]:
    """The result of a Concat, and the tensors that it joins."""
    return [node.outputs[0], *dict.fromkeys(name for name in node.inputs if not graph[name].is_const)]


def read(graph: Graph) -> set[str]:
    """The tensors that something is computed from, not only moved, and the results."""
    moved = {node.name: OPS[node.op].moved(node.inputs) if OPS[node.op].grid == "same" else [] for node in graph.nodes}
    return {*graph.outputs, *(name for node in graph.nodes for name in node.inputs if name not in moved[node.name])}
