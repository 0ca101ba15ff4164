"""Bounds of values that are known without data; an end that is not known is infinite.

1. Raw pixels, constants, and tensors whose grid the model gives.
2. A clamp.
3. What an op makes of its inputs' (`Op.reach`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from nmpconv.ir import Given, Graph
from nmpconv.ops import OPS
from nmpconv.ops.traits import ANY, Bounds, within_clamp

PIXELS = (-128.0, 127.0)


def known(graph: Graph, grids: Mapping[str, Given]) -> dict[str, Bounds]:
    """Bounds of all values. grids: those that are relied on."""
    bounds = {
        value.name: ANY if value.data is None or not value.size else (float(value.data.min()), float(value.data.max()))
        for value in graph.values.values()
    }
    bounds |= {name: (grid.min, grid.max) for name, grid in grids.items() if name in bounds}
    bounds |= dict.fromkeys(graph.pixels, PIXELS)
    for node in graph.nodes:
        out = graph[node.outputs[0]]
        if bounds[out.name] == ANY:
            reach = OPS[node.op].reach(node, graph.ins(node), [bounds[name] for name in node.inputs])
            bounds[out.name] = within_clamp(reach, out.clamp)
    return bounds


def whole(graph: Graph) -> dict[str, Bounds]:
    """Bounds of indices, truth and the whole numbers that are computed from these and whole constants."""
    bounds = known(graph, {})
    names: set[str] = set()
    for node in graph.nodes:
        (out,) = node.outputs
        if is_finite(bounds[out]) and OPS[node.op].is_whole(node, graph.ins(node), graph[out], names):
            names.add(out)
    return {name: bounds[name] for name in names}


def is_finite(bounds: Bounds) -> bool:
    return math.isfinite(bounds[0]) and math.isfinite(bounds[1])
