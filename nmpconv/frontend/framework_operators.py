"""Operators and types that exporters leave as a framework has them, in terms of ONNX.

1. Erfc of TensorFlow, which tf2onnx has no translation of: 1 - Erf. Keras 3 writes its Gelu so.
2. Inputs of reals that are only cast to one type of integers, as indices in front of an Embedding of Keras, which has
   float32 where a model does not say: inputs of that type.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INDICES = (TensorProto.INT32, TensorProto.INT64)


def rewrite(graph: onnx.GraphProto) -> None:
    """Rewrites the graph in place."""
    _write_erfc(graph)
    _type_indices(graph)


def _type_indices(graph: onnx.GraphProto) -> None:  # case 2
    if any(attribute.type == onnx.AttributeProto.GRAPH for node in graph.node for attribute in node.attribute):
        return
    fixed = {*(value.name for value in graph.output), *(tensor.name for tensor in graph.initializer)}
    for value in graph.input:
        readers = [node for node in graph.node if value.name in node.input]
        types = {attribute.i for node in readers if node.op_type == "Cast" for attribute in node.attribute}
        casts = bool(readers) and all(node.op_type == "Cast" for node in readers)
        if not casts or len(types) != 1 or types.isdisjoint(INDICES) or value.name in fixed:
            continue
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            [value.type.tensor_type.elem_type] = types


def _write_erfc(graph: onnx.GraphProto) -> None:  # case 1
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
