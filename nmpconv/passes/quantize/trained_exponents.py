"""Exponents of activations that training changes: the tensors that move together, and a graph with other exponents.

1. Tensors on one grid move together; so do a convolution and the sum that it is rounded with (`residual_operands`).
2. Inputs, integers that the model takes or returns, grids that a faithful graph keeps, and outputs whose parts have
   grids of their own stay where they are, with all that shares their grid.
3. An exponent beyond what the ops around it allow is raised, as by `legalize`.
4. Behind an origin an exponent is not lowered: the origin stays, and the end of the range that it was chosen for, where
   a Relu has its zeros, would move towards it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.ops.op import quant_of
from nmpconv.passes import residual_operands
from nmpconv.passes.quantize import legalize
from nmpconv.passes.quantize.shared_grids import grid_groups


def groups(graph: Graph, exempt: Collection[str] = ()) -> list[tuple[str, ...]]:
    """Groups of activations whose exponent is free, in graph order. graph: RANGED. exempt: names that stay."""
    of = {name: {name} for group in grid_groups(graph) for name in group}
    for a, b in _ties(graph):
        if of[a] is not of[b]:
            of[a] |= of[b]
            of.update(dict.fromkeys(of[b], of[a]))
    fixed = {*graph.inputs, *graph.plain_ports(), *exempt, *(graph.given if graph.faithful else ())}
    fixed |= {value.name for value in graph.activations() if value.shifts is not None}
    candidates = dict.fromkeys(tuple(sorted(group, key=list(of).index)) for group in of.values())
    return [group for group in candidates if fixed.isdisjoint(group)]


def _ties(graph: Graph) -> Iterator[tuple[str, str]]:
    """Pairs of tensors that stay on one grid, besides those of `grid_groups`."""
    for node in graph.nodes:
        if OPS[node.op].grid == "same":
            yield from ((name, node.outputs[0]) for name in OPS[node.op].moved(node.inputs) if not graph[name].is_const)
    for residual in residual_operands.found(graph).values():
        yield residual.layer.outputs[0], residual.add.outputs[0]


def run(graph: Graph, exponents: Mapping[str, int]) -> Graph:
    """A RANGED graph of the same nodes with these exponents, by the names of activations, or larger legal ones."""
    producers = graph.producers()
    group_of = {name: group for group in groups(graph) for name in group}
    fresh = []
    for name, exponent in exponents.items():
        tied = group_of.get(name, (name,))  # of one exponent, which all of their ops have to allow
        ends = [OPS[producers[member].op].exponents for member in tied if member in producers]
        origins = [quant_of(graph[member]).exponent for member in tied if graph[member].origin]
        low, high = max([*origins, *(end[0] for end in ends)]), min(end[1] for end in ends)
        fresh.append(legalize.with_exponent(graph[name], min(max(exponent, low), high)))
    return legalize.raised(graph.with_values(*fresh))
