"""Tensors that only logarithms of sums read, directly or through layers, sums, multiples and moves of data.

A tensor that saturates by a factor s changes the logarithm by log(s), which is little beside its range. A number below
one step loses its logarithm altogether. So at 16 bits these tensors have the range that was seen, without headroom.
"""

from __future__ import annotations

from nmpconv.ir import Graph
from nmpconv.ops import scales_along
from nmpconv.ops.sum_lookup import SumLookupParams
from nmpconv.passes.quantize.score_headroom import is_logarithm


def tensors(graph: Graph) -> set[str]:
    """Names of the tensors. Those at the model's ports have the grids of signals that the caller brings."""
    names: set[str] = set()
    consumers, ports = graph.consumers(), {*graph.inputs, *graph.outputs}
    for node in reversed(graph.nodes):
        for name in node.inputs:
            users = consumers[name]
            if graph[name].is_const or name in ports:
                continue
            if all(
                is_logarithm(user)
                if isinstance(user.params, SumLookupParams)
                else scales_along(graph, user) and names.issuperset(user.outputs)
                for user in users
            ):
                names.add(name)
    return names
