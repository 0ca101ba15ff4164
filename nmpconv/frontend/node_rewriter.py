"""Writes nodes in place of one node of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


def _number(attribute: onnx.AttributeProto) -> onnx.TensorProto | None:
    """The value of a Constant: a tensor, or one number."""
    if attribute.name == "value_float":
        return numpy_helper.from_array(np.float32(attribute.f))
    if attribute.name == "value_int":
        return numpy_helper.from_array(np.int64(attribute.i))
    return attribute.t if attribute.name == "value" else None


class NodeRewriter:
    """Nodes that stand for the one of `begin`. Constants that they read become initializers of the graph."""

    def __init__(self, graph: onnx.GraphProto, where: str) -> None:
        self._graph, self._where = graph, where
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._tensors |= {
            node.output[0]: value
            for node in graph.node
            if node.op_type == "Constant"
            for attribute in node.attribute
            if (value := _number(attribute)) is not None
        }
        self._names = {name for node in graph.node for name in (*node.input, *node.output)} | set(self._tensors)
        self.nodes: list[onnx.NodeProto] = []
        self._node = onnx.NodeProto()

    def begin(self, node: onnx.NodeProto) -> None:
        self._node, self.nodes = node, []

    def _add(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or self._fresh(kind)
        self.nodes.append(helper.make_node(kind, inputs, [output], self._node.name, **attributes))
        return output

    def _const(self, data: np.ndarray) -> str:
        name = self._fresh("real")
        self._tensors[name] = numpy_helper.from_array(data, name)
        self._graph.initializer.append(self._tensors[name])
        return name

    def _array(self, name: str) -> np.ndarray:
        if name not in self._tensors:
            raise ValueError(f"'{name}' is computed from the input")
        return numpy_helper.to_array(self._tensors[name])

    def _attributes(self) -> dict[str, Any]:
        return {a.name: helper.get_attribute_value(a) for a in self._node.attribute}

    def _fresh(self, suffix: str) -> str:
        n, stem = 0, f"{self._node.output[0]}.{suffix}"
        name = stem
        while name in self._names:
            n += 1
            name = f"{stem}_{n}"
        self._names.add(name)
        return name
