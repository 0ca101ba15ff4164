"""Remove saturations that what they saturate never reaches, as a Relu after a Sigmoid.

A saturation that the model's own quantization made is idle, too, when it cuts off less than a step of that grid.
"""

from __future__ import annotations

from nmpconv.ir import Graph
from nmpconv.passes.bounds import known
from nmpconv.passes.rewrite import Editor


def run(graph: Graph) -> Graph:
    ranges = known(graph, {name: grid for name, grid in graph.given.items() if name in graph.inputs})
    editor = Editor(graph)
    for node in graph.nodes:
        out = graph[node.outputs[0]]
        if node.op != "requantize" or out.clamp is None or graph.regrids(node):
            continue
        low, high = ranges[node.inputs[0]]
        slack = graph.given[out.name].scale if out.name in graph.given else 0.0
        if out.clamp[0] - slack <= low and high <= out.clamp[1] + slack:
            editor.bypass(editor.now(node))
    return editor.finish()
