"""Operators of a framework that its exporter leaves as they are, in terms of ONNX's.

1. Erfc of TensorFlow, which tf2onnx has no translation of: 1 - Erf. Keras 3 writes its Gelu so.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper


def rewrite(graph: onnx.GraphProto) -> None:
    """Rewrites the nodes of the graph in place."""
    if not any(map(_is_erfc, graph.node)):
        return
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if not _is_erfc(node):
            nodes.append(node)
            continue
        y = node.output[0]
        graph.initializer.append(numpy_helper.from_array(np.float32(1), f"{y}~one"))
        nodes.append(helper.make_node("Erf", node.input, [f"{y}~erf"], node.name))
        nodes.append(helper.make_node("Sub", [f"{y}~one", f"{y}~erf"], [y], node.name))
    del graph.node[:]
    graph.node.extend(nodes)


def _is_erfc(node: onnx.NodeProto) -> bool:
    return node.op_type == "Erfc" and not node.domain and len(node.output) == 1
