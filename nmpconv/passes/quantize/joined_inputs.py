"""A requantize before a Concat for inputs of the model that other ops compute from, too, so that these are free of it.

Coordinates beside their sines, or frames beside their smoothed ones, are on one grid, and wide only if all are. An
input of its own has its best grid, and 16 bits for what is computed from it, while the Concat has 8.

1. Of an input that is no image, and of what only moves its data: where something is computed from it beside the Concat.
2. Only if the Concat joins it with something computed. Inputs that are stored by channel or in steps stay, since layers
   behind the Concat take these up.

At 16 bits there is none (see `requantize_concat`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.passes.quantize import requantize_concat
from nmpconv.passes.quantize.shared_grids import grid_groups, joins_grids


def run(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], taken: Collection[str] = ()
) -> tuple[Graph, dict[str, TensorStats], Mapping[str, int]]:
    """The float graph with the requantizes, and the statistics and widths with those of their results.

    taken: inputs that stay as they are.
    """
    concats = [node for node in graph.nodes if joins_grids(node)]
    if not concats:
        return graph, dict(stats), bits
    fixed = {*graph.pixels, *graph.plain_ports(), *graph.given, *taken}
    fixed |= {name for name in graph.inputs if graph[name].shifts is not None}
    moved = _moved(graph)
    read = requantize_concat.read(graph)
    alone = {name: group for group in grid_groups(graph, concats=False) for name in group}
    cuts = set[tuple[str, str]]()
    for node in concats:
        parts = [name for name in dict.fromkeys(node.inputs) if not graph[name].is_const]
        if all(name in moved for name in parts):
            continue
        cuts |= {
            (node.name, name)
            for name in parts
            if name in moved and fixed.isdisjoint(alone[name]) and not read.isdisjoint(alone[name])
        }
    graph, stats, bits = requantize_concat.with_requantizes(graph, stats, bits, cuts)
    return graph, dict(stats), bits


def _moved(graph: Graph) -> set[str]:
    """Inputs, and what holds elements of inputs and constants alone."""
    moved = set(graph.inputs)
    for node in graph.nodes:
        op = OPS[node.op]
        if op.grid == "same" and all(name in moved or graph[name].is_const for name in op.moved(node.inputs)):
            moved.update(node.outputs)
    return moved
