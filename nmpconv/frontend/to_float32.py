"""Reals in float32: float16, bfloat16 and double are the file's way to store what a float graph computes in float32."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
NARROW = (*HALVES, TensorProto.DOUBLE)  # what models compute in besides float32
REALS = (TensorProto.FLOAT, *NARROW)

_TYPES = ("to", "dtype", "softmax_precision", "stash_type")  # attributes that name an element type


def single_graph(graph: onnx.GraphProto) -> None:
    """Turn all reals of a graph into float32, in place."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _tensor(tensor, NARROW)
    for node in graph.node:
        single_node(node, NARROW)


def single_node(node: onnx.NodeProto, elements: Collection[int]) -> None:
    """Turn what the node's attributes have of these element types into float32, in place, subgraphs wholly."""
    for attribute in node.attribute:
        if attribute.name in _TYPES and attribute.i in elements:
            attribute.i = TensorProto.FLOAT
        elif attribute.type == onnx.AttributeProto.TENSOR:
            _tensor(attribute.t, elements)
        elif attribute.type == onnx.AttributeProto.GRAPH:
            single_graph(attribute.g)


def single_array(array: np.ndarray) -> np.ndarray:
    """float32 for an array of float16 or bfloat16, other arrays as they are."""
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array


def _tensor(tensor: TensorProto, elements: Collection[int]) -> None:
    if tensor.data_type in elements:
        with np.errstate(over="ignore"):
            data = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))
