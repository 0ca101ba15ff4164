"""A border of zeros that counts, as that of a mean over padding, is a Pad of its own where the operand has an origin.

The op knows no other border than zeros. The Pad's value moves with the origin, and what is left of the op sees the same
numbers as before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS
from nmpconv.ops.pad import Pad, PadParams


def split(graph: Graph, moved: Collection[str]) -> tuple[Graph, dict[str, str]]:
    """moved: the activations with an origin. The graph with the Pads, and what each of their results surrounds."""
    nodes, fresh, around = list[Node](), list[Value](), dict[str, str]()
    for node in graph.nodes:
        apart = OPS[node.op].without_zeros(node.params) if node.inputs[0] in moved else None
        if apart is not None:
            x, params = node.inputs[0], PadParams(apart[0])
            name = f"{node.outputs[0]}.border"
            shape = Pad().infer(params, [graph[x]])[0]
            fresh += [Value(f"{name}.zero", (1,), data=np.zeros(1, np.float32)), Value(name, shape)]
            nodes.append(Node(Pad.name, name, (x, f"{name}.zero"), (name,), params))
            node = replace(node, inputs=(name,), params=apart[1])
            around[name] = x
        nodes.append(node)
    return (replace(graph.with_values(*fresh), nodes=tuple(nodes)) if fresh else graph), around
