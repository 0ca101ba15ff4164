"""Saturate tensors at the ends of the grids that a quantized model has for them, where values lie beyond.

A QuantizeLinear saturates: exporters leave a Clip out that it replaces, and training counts on it where ranges are
averages. What no sample reaches is left out: ranges of a few samples, beyond which the float model does better.

1. The op that makes such a tensor saturates it, if it can.
2. Otherwise a requantize does.
3. Without samples, what may lie beyond is saturated where that costs nothing, as in case 1.

What goes on to another grid stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Given, Graph
from nmpconv.ops import OPS
from nmpconv.ops.traits import Bounds
from nmpconv.passes.bounds import known
from nmpconv.passes.rewrite import Editor, intersect


def run(graph: Graph, seen: Mapping[str, TensorStats]) -> Graph:
    """seen: statistics of the graph before its grids clipped them, or none. Returns the same graph where nothing lies
    a step beyond a grid."""
    makers = graph.producers()
    grids = {name: grid for name, grid in graph.given.items() if name in makers}
    if not grids:
        return graph
    reach = {name: (stats.min, stats.max) for name, stats in seen.items()}
    reach = reach or known(graph, {name: grid for name, grid in graph.given.items() if name in graph.inputs})
    readers, editor = graph.consumers(), Editor(graph)
    for name, grid in grids.items():
        value, node, ends = graph[name], editor.now(makers[name]), (grid.min, grid.max)
        onward = [graph.given.get(reader.outputs[0]) for reader in readers.get(name, ()) if reader.op == "requantize"]
        if _within(reach[name], grid) or any(other and not other.is_same(grid) for other in onward):
            continue
        if OPS[node.op].clamps:  # cases 1, 3
            editor.put(replace(value, clamp=intersect(value.clamp, ends)))
        elif seen:  # case 2
            raw = editor.fresh(name)
            editor.put(replace(value, name=raw))
            editor.set(replace(node, outputs=tuple(raw if out == name else out for out in node.outputs)))
            editor.emit("requantize", (raw,), at=node, name=f"{node.name}.saturated", out=name, clamp=ends)
    return editor.finish()


def _within(bounds: Bounds, grid: Given) -> bool:
    """Checks that nothing lies a step beyond the grid."""
    return bounds[0] >= grid.min - grid.scale and bounds[1] <= grid.max + grid.scale
