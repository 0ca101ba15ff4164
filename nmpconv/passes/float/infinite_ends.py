"""Saturate a logarithm of what may be 0, where the grids of a quantized model end what is made of it.

A grid that begins at 0 replaces the Clip before a logarithm: quantizers leave it out, and silence becomes -inf. Between
there and the QuantizeLinear where this ends may be moves of data, changes of scale, sums with constants, and the larger
or smaller of two. All of them keep order, so saturating at once makes no other integers. Where a reader is of another
kind, or an output of the model has no grid, infinity is the model's own and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.common.traits import ANY, Bounds, hull, within_clamp
from nmpconv.passes.bounds import known
from nmpconv.passes.rewrite import Editor

_ORDERED = ("requantize", "maximum", "minimum")  # beside what moves data, or chooses among numbers


def run(graph: Graph) -> Graph:
    logarithms = [node for node in graph.nodes if node.op == "lookup" and node.params.function == "log"]
    if not logarithms or not graph.given:
        return graph
    ranges, ends = known(graph, graph.given), _ends(graph)
    editor = Editor(graph)
    for node in logarithms:
        name, (low, high) = node.outputs[0], ranges[node.inputs[0]]
        if low != 0 or high == inf or ends[name][0] == -inf:
            continue
        raw = editor.fresh(name)
        editor.put(replace(graph[name], name=raw))
        editor.set(replace(node, outputs=(raw,)))
        editor.emit("requantize", (raw,), at=node, name=f"{node.name}.ended", out=name, clamp=(ends[name][0], inf))
    return editor.finish()


def _ends(graph: Graph) -> dict[str, Bounds]:
    """Ranges of tensors beyond which all numbers have the same integers."""
    grids, readers = graph.given, graph.consumers()
    requantizes = [node for node in graph.nodes if node.op == "requantize"]  # a grid may be that of its result alone
    sources = {node.inputs[0] for node in requantizes if grids.get(node.outputs[0]) == grids.get(node.inputs[0])}
    ends: dict[str, Bounds] = {name: (grid.min, grid.max) for name, grid in grids.items() if name not in sources}
    for node in reversed(graph.nodes):
        for name in node.outputs:
            if name not in ends:
                needs = [_needs(graph, reader, ends) for reader in readers.get(name, ())]
                ends[name] = ANY if name in graph.outputs or not needs else hull(needs)
    return ends


def _needs(graph: Graph, node: Node, ends: Mapping[str, Bounds]) -> Bounds:
    """The same of what this node reads, for this node."""
    out = graph[node.outputs[0]]
    low, high = last = within_clamp(ends[out.name], out.clamp)
    if OPS[node.op].grid == "same" or node.op in _ORDERED:
        return last
    constants = [value.data for value in graph.ins(node) if value.data is not None and value.data.size]
    if node.op not in ("mul", "add") or len(constants) != 1 or last == ANY:
        return ANY
    least, most = float(constants[0].min()), float(constants[0].max())
    if node.op == "add":
        return low - most, high - least
    return hull([(low / c, high / c) for c in (least, most)]) if least > 0 else ANY
