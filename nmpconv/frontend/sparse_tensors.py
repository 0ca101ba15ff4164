"""Sparse constants of a model become dense ones: initializers, and values of Constant nodes, in branches, too."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from nmpconv.errors import InputError

SPARSE_MAX = 2**24  # elements of a sparse tensor, zeros among them


def fill(model: onnx.ModelProto, where: str) -> None:
    """Replaces them in place. InputError for one with places beyond its shape."""
    _fill_graph(model.graph, where)
    for function in model.functions:
        _fill_nodes(function.node, where)


def _fill_graph(graph: onnx.GraphProto, where: str) -> None:
    graph.initializer.extend(_dense(tensor, tensor.values.name, where) for tensor in graph.sparse_initializer)
    del graph.sparse_initializer[:]
    _fill_nodes(graph.node, where)


def _fill_nodes(nodes: Iterable[onnx.NodeProto], where: str) -> None:
    for node in nodes:
        for attribute in node.attribute:
            branches = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
            for branch in branches:
                _fill_graph(branch, where)
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR and node.op_type == "Constant":
                name = node.output[0] if node.output else ""
                dense = onnx.helper.make_attribute("value", _dense(attribute.sparse_tensor, name, where))
                attribute.CopyFrom(dense)


def _dense(tensor: onnx.SparseTensorProto, name: str, where: str) -> onnx.TensorProto:
    def refuse(problem: str, hint: str = "export it again, or with a dense tensor") -> InputError:
        return InputError(f"the sparse tensor '{name}' {problem}", where=where, hint=hint)

    shape = tuple(tensor.dims)
    if any(part.data_location == onnx.TensorProto.EXTERNAL for part in (tensor.values, tensor.indices)):
        raise refuse("has its data in another file", hint="a dense tensor")
    if min(shape, default=0) < 1 or prod(shape) > SPARSE_MAX:
        raise refuse(f"has the shape {list(shape)}; at most {SPARSE_MAX} elements", hint="a dense tensor")
    try:
        values, indices = numpy_helper.to_array(tensor.values).ravel(), numpy_helper.to_array(tensor.indices)
    except Exception as error:  # onnx raises what numpy does
        raise refuse(f"cannot be read: {error}") from error
    if indices.shape not in ((len(values),), (len(values), len(shape))) or indices.dtype != np.int64:
        raise refuse(f"has {indices.dtype} indices of shape {list(indices.shape)} for {len(values)} values")
    if values.dtype == object or not name:
        raise refuse("holds texts" if name else "has no name")
    sizes = np.array(shape if indices.ndim > 1 else prod(shape))
    if ((indices < 0) | (indices >= sizes)).any():
        raise refuse(f"has values outside of its shape {list(shape)}")
    dense = np.zeros(shape, values.dtype)
    dense[tuple(indices.T) if indices.ndim > 1 else np.unravel_index(indices, shape)] = values
    return numpy_helper.from_array(dense, name)
