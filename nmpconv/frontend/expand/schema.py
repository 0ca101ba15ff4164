"""Operators that ONNX itself defines in terms of others: the function of its schema, for the types of this node."""

from __future__ import annotations

import onnx
import onnx.inliner
from onnx import helper

from nmpconv.frontend.expand.body import Body
from nmpconv.frontend.node import OnnxNode
from nmpconv.frontend.read import OPSET_MAX


def inlined(node: OnnxNode, body: Body) -> None:
    """Source: the ONNX operator's own function body."""
    proto = helper.make_node(node.op_type, node.inputs, node.outputs, **node.attributes)
    ports = {name: body.to.tensor(name) for name in node.inputs if name}
    inputs = [helper.make_tensor_value_info(name, tensor.element, tensor.shape) for name, tensor in ports.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
    graph = helper.make_graph([proto], "body", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET_MAX)])
    made = onnx.inliner.inline_selected_functions(model, [("", node.op_type)], False, True)
    body.copy(made.graph.node, keep=(*ports, *node.outputs))


ALWAYS = dict.fromkeys(("Attention", "CenterCropPad", "RotaryEmbedding", "SwiGLU"), inlined)
