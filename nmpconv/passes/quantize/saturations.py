"""Saturate tensors at the ends of the grids that a quantized model has for them, where values lie beyond.

A QuantizeLinear saturates: exporters leave a Clip out that it replaces, and training counts on it where ranges are
averages. What no sample reaches is left out: ranges of a few samples, beyond which the float model does better.

1. The op that makes such a tensor saturates it, if it can; so does the one before, where data only moves in between.
2. Otherwise a requantize does.
3. Without samples, what may lie beyond is saturated where that costs nothing, as in case 1.
4. A requantize to a grid is left out where nothing lies beyond its ends, or those of a Clip that it is.

What goes on to a requantize with a grid of its own stays as it is: that one saturates. So do grids of a faithful graph
whose steps are powers of two: they are the model's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Given, Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.common.traits import Bounds
from nmpconv.passes.bounds import known
from nmpconv.passes.rewrite import Editor, intersect


def run(graph: Graph, seen: Mapping[str, TensorStats]) -> Graph:
    """seen: statistics of the graph before its grids clipped them, or none. Returns the same graph where nothing lies
    a step beyond a grid."""
    makers = graph.producers()
    grids = {name: grid for name, grid in graph.given.items() if name in makers}
    if graph.faithful:
        grids = {name: grid for name, grid in grids.items() if not grid.is_power}
    if not grids:
        return graph
    reach = {name: (stats.min, stats.max) for name, stats in seen.items()}
    reach = reach or known(graph, {name: grid for name, grid in graph.given.items() if name in graph.inputs})
    readers, editor = graph.consumers(), Editor(graph)
    for name, grid in grids.items():
        onward = [reader.outputs[0] for reader in readers.get(name, ()) if reader.op == "requantize"]
        if seen and makers[name].op == "requantize" and _is_idle(graph, makers[name], grid, reach):  # case 4
            editor.bypass(editor.now(makers[name]))
            continue
        if _within(reach[name], grid) or not graph.given.keys().isdisjoint(onward):
            continue
        source, ends = _source(graph, makers, readers, name), (grid.min, grid.max)
        if OPS[makers[source].op].clamps:  # cases 1, 3
            value = editor[source]
            editor.put(replace(value, clamp=intersect(value.clamp, ends)))
        elif seen:  # case 2
            raw, node = editor.fresh(name), editor.now(makers[name])
            editor.put(replace(graph[name], name=raw))
            editor.set(replace(node, outputs=tuple(raw if out == name else out for out in node.outputs)))
            editor.emit("requantize", (raw,), at=node, name=f"{node.name}.saturated", out=name, clamp=ends)
    return editor.finish()


def unsaturated(graph: Graph, seen: Mapping[str, TensorStats]) -> dict[str, TensorStats]:
    """Statistics of what the requantizes of case 2 read, as of what they make. seen: of the graph before."""
    pairs = [(node.inputs[0], node.outputs[0]) for node in graph.nodes if node.op == "requantize"]
    return {x: seen[y] for x, y in pairs if x not in seen}


def _source(graph: Graph, makers: Mapping[str, Node], readers: Mapping[str, list[Node]], name: str) -> str:
    """The tensor whose numbers this one has in other places; itself, where others read it or numbers are added."""
    now = name
    while (node := makers.get(now)) is not None and OPS[node.op].grid == "same" and not OPS[node.op].clamps:
        x = OPS[node.op].moved(node.inputs)[0]
        if OPS[node.op].joins or node.op == "pad" or x not in makers or x in graph.outputs or len(readers[x]) > 1:
            return name
        now = x
    return now if now in makers and OPS[makers[now].op].clamps else name


def _is_idle(graph: Graph, node: Node, grid: Given, reach: Mapping[str, Bounds]) -> bool:
    """Checks for a requantize that does nothing to the numbers of these samples, and is not to round them."""
    low, high = graph[node.outputs[0]].clamp or (grid.min, grid.max)
    least, most = reach[node.inputs[0]]
    is_within = low - grid.scale <= least and most <= high + grid.scale and _within((least, most), grid)
    return is_within and not graph.faithful and node.outputs[0] not in graph.outputs


def _within(bounds: Bounds, grid: Given) -> bool:
    """Checks that nothing lies a step beyond the grid."""
    return bounds[0] >= grid.min - grid.scale and bounds[1] <= grid.max + grid.scale
