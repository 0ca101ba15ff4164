"""A requantize before a Concat, so that what is small in it keeps its own grid for its other readers.

All tensors of a Concat share one grid, that of the largest.

1. With 16 bits, a tensor that needs a grid finer by MARGIN bits is brought to that grid before the Concat.
2. Not where nothing but what moves data reads it: nobody would see its own grid.
3. Not with 8 bits: a requantize costs time, and a result that is better than 8 bits hold helps little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nmpconv.calib.exponent import span, top_exponent
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.requantize import requantize
from nmpconv.passes.quantize.grids import grid_groups, joins_grids

MARGIN = 4  # bits, 24 of the 90 dB of a 16-bit grid


def run(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int]
) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
    """The float graph with the requantizes, and the statistics and widths with those of their results."""
    if 16 not in bits.values() or not any(map(joins_grids, graph.nodes)):
        return graph, stats, bits
    whole = _by_member(grid_groups(graph))
    alone = _by_member(grid_groups(graph, concats=False))
    needed = {name: top_exponent(span(stats[name], bits[name], graph[name].clamp), bits[name]) for name in whole}
    read = _read(graph)
    nodes: list[Node] = []
    copies: dict[str, str] = {}
    for node in graph.nodes:
        names = list(node.inputs)
        for i, name in enumerate(names if joins_grids(node) else ()):
            if graph[name].is_const or bits[name] != 16 or read.isdisjoint(alone[name]):
                continue
            if max(needed[n] for n in alone[name]) + MARGIN <= max(needed[n] for n in whole[name]):
                names[i] = f"{node.name}.input{i}"
                copies[names[i]] = name
                nodes.append(requantize(names[i], name, names[i]))
        nodes.append(replace(node, inputs=tuple(names)))
    fresh = [replace(graph[name], name=copy, clamp=None) for copy, name in copies.items()]
    return (
        replace(graph.with_values(*fresh), nodes=tuple(nodes)),
        {**stats, **{copy: stats[name] for copy, name in copies.items()}},
        {**bits, **{copy: bits[name] for copy, name in copies.items()}},
    )


def _by_member(groups: list[list[str]]) -> dict[str, list[str]]:
    return {name: group for group in groups for name in group}


def _read(graph: Graph) -> set[str]:
    """The tensors that something is computed from, not only moved, and the results."""
    return {*graph.outputs, *(name for node in graph.nodes if OPS[node.op].grid != "same" for name in node.inputs)}
