"""Functions x * g(x) as products, where equalization needs it.

A table has one grid for all channels, so a factor per channel cannot move through it. Written as x * g(x) it can: with
x' = s * x the product x' * g(x' / s) is s times the function. The division is a depthwise 1x1 convolution.

1. SiLU: g is the sigmoid.
2. HardSwish: g is clip(x / 6 + 0.5, 0, 1).

Both only where the readers would see much less of the rounding errors: a product takes three ops instead of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.quantize.balance import Balance
from nmpconv.passes.rewrite import Editor

# function: its gate, and the x beyond which the gate is 0 or 1 as far as 16 bits can tell.
GATES = {
    "silu": (LookupParams("sigmoid"), 16.0),
    "hard_swish": (LookupParams("hard_sigmoid", 1 / 6, 0.5), 3.0),
}
WORTH_DB = 12.0  # two bits


def run(graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int]) -> Graph:
    """stats and bits are by activation."""
    tables = [n for n in graph.nodes if n.op == "lookup" and n.params.function in GATES]
    gated = [n for n in tables if len(graph[n.inputs[0]].shape) == 4]
    balance = Balance(_split(graph, gated), stats, bits)
    return _split(graph, [n for n in gated if balance.gain_db(n.outputs[0]) >= WORTH_DB])


def _split(graph: Graph, nodes: Sequence[Node]) -> Graph:
    editor = Editor(graph)
    for node in nodes:
        x, channels = node.inputs[0], graph[node.inputs[0]].shape[-1]
        editor.remove(node)
        weight = editor.const(f"{node.name}.weight", np.ones((channels, 1, 1, 1)))
        zero = editor.const(f"{node.name}.bias", np.zeros(channels))
        function, end = GATES[node.params.function]
        depthwise = Conv2DParams(groups=channels)
        plain = editor.emit("conv2d", (x, weight, zero), depthwise, at=node, clamp=(-end, end))
        gate = editor.emit("lookup", (plain,), function, at=node)
        editor.emit("mul", (x, gate), at=node, name=node.name, out=node.outputs[0], clamp=graph[node.outputs[0]].clamp)
    return editor.finish()
