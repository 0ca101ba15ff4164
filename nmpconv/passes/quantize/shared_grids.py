"""Tensors that share one grid (exponent and width), because only data movement lies between them.

The grid of a raw-pixel input, and of integers that the model takes or returns, is fixed, so a Concat with anything else
does not join it; legalize requantizes there.
"""

from __future__ import annotations

from collections.abc import Iterable

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS


def joins_grids(node: Node) -> bool:
    """Checks that several tensors have to come onto one grid, side by side, as those of a Concat do."""
    return OPS[node.op].joins and OPS[node.op].grid == "same"


def grid_groups(graph: Graph, *, concats: bool = True) -> list[list[str]]:
    """Groups of activation names, each in graph order; a tensor of its own is a group of one.

    concats: whether a Concat ties what it joins.
    """
    order = [value.name for value in graph.activations()]
    parent = {name: name for name in order}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]  # long chains get short
        return name

    fixed = {*graph.pixels, *graph.plain_ports()}
    for node in graph.nodes:
        if OPS[node.op].grid != "same" or (joins_grids(node) and not concats):
            continue
        out = find(node.outputs[0])
        for name in (*OPS[node.op].moved(node.inputs), *node.outputs[1:]):
            if graph[name].is_const:
                continue
            root = find(name)
            if joins_grids(node) and (root in fixed) and len(set(node.inputs)) > 1:
                continue
            if root != out:
                if root in fixed:
                    fixed.add(out)
                parent[root] = out
    groups: dict[str, list[str]] = {}
    for name in order:
        groups.setdefault(find(name), []).append(name)
    return list(groups.values())


def by_source(graph: Graph, names: Iterable[str]) -> dict[str, list[str]]:
    """Those of these activations that share a grid, by the first of them. Parts of a Concat are apart."""
    asked = set(names)
    groups = ([name for name in group if name in asked] for group in grid_groups(graph, concats=False))
    return {group[0]: group for group in groups if group}
