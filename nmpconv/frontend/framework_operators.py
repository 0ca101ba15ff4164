"""Operators and types that exporters leave as a framework has them, in terms of ONNX.

1. Erfc and Expm1 of TensorFlow, which tf2onnx has no translation of: 1 - Erf and Exp - 1. Keras 3 writes its Gelu and
   its Celu so.
2. Inputs of reals that are only cast to one type of integers, as indices in front of an Embedding of Keras, which has
   float32 where a model does not say: inputs of that type.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOREIGN = {"Erfc": "Erf", "Expm1": "Exp"}  # case 1: what ONNX has of them
INDICES = (TensorProto.INT32, TensorProto.INT64)


def rewrite(graph: onnx.GraphProto) -> None:
    """Rewrites the graph in place."""
    _write_out(graph)
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


def _write_out(graph: onnx.GraphProto) -> None:  # case 1
    if not any(map(_is_foreign, graph.node)):
        return
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if not _is_foreign(node):
            nodes.append(node)
            continue
        y = node.output[0]
        unit, inner = f"{y}~one", f"{y}~inner"
        graph.initializer.append(numpy_helper.from_array(np.float32(1), unit))
        nodes.append(helper.make_node(FOREIGN[node.op_type], node.input, [inner], node.name))
        terms = [unit, inner] if node.op_type == "Erfc" else [inner, unit]
        nodes.append(helper.make_node("Sub", terms, [y], node.name))
    del graph.node[:]
    graph.node.extend(nodes)


def _is_foreign(node: onnx.NodeProto) -> bool:
    return node.op_type in FOREIGN and not node.domain and len(node.output) == 1
