"""What is known of a value's range without data; an end that is not known is infinite.

1. Raw pixels, constants, and tensors whose grid the model gives.
2. A clamp.
3. What an op makes of its inputs' (`Op.bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from nmpconv.ir import Given, Graph
from nmpconv.ops import OPS
from nmpconv.ops.traits import ANY, Bounds

PIXELS = (-128.0, 127.0)


def known(graph: Graph, given: Mapping[str, Given]) -> dict[str, Bounds]:
    """Of all values. given: grids that are relied on."""
    found = {
        value.name: ANY if value.data is None or not value.size else (float(value.data.min()), float(value.data.max()))
        for value in graph.values.values()
    }
    found |= {name: (grid.min, grid.max) for name, grid in given.items() if name in found}
    found |= dict.fromkeys(graph.pixels, PIXELS)
    for node in graph.nodes:
        out = graph[node.outputs[0]]
        if found[out.name] == ANY:
            low, high = out.clamp or ANY
            made = OPS[node.op].bounds(node, [found[name] for name in node.inputs])
            found[out.name] = (min(max(made[0], low), high), min(max(made[1], low), high))
    return found


def is_finite(bounds: Bounds) -> bool:
    return math.isfinite(bounds[0]) and math.isfinite(bounds[1])
