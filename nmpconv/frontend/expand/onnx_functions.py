"""Operators that ONNX itself defines in terms of others: the function of its schema, for the types of this node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.read import OPSET_MAX
from nmpconv.frontend.to_float32 import NARROW
from nmpconv.ops.onnx_node import OnnxNode


def inlined(node: OnnxNode, body: Body) -> None:
    """Source: the ONNX operator's own function body. It computes in float32, whatever the type of its tensors."""
    element = body.element(node.input(0))
    narrow = element in NARROW
    inputs = [
        body("Cast", name, to=TensorProto.FLOAT) if name and body.element(name) in NARROW else name
        for name in node.inputs
    ]
    results = [body.name("wide") if name and narrow else name for name in node.outputs]
    attributes = {name: value for name, value in node.attributes.items() if name != "softmax_precision"}
    proto = helper.make_node(node.op_type, inputs, results, **attributes)
    ports = {name: body.to.tensor(name) for name in inputs if name}
    input_infos = [helper.make_tensor_value_info(name, tensor.element, tensor.shape) for name, tensor in ports.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in results if name]
    graph = helper.make_graph([proto], "body", input_infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET_MAX)])
    try:
        flat_model = onnx.inliner.inline_selected_functions(model, [("", node.op_type)], False, True)
    except RuntimeError as error:  # ONNX needs the types of all inputs up to the last one
        raise Unsupported("inputs are left out before others that it has", hint="all inputs up to the last") from error
    body.copy(flat_model.graph.node, keep=(*ports, *results))
    for result, output in zip(results, node.outputs, strict=True):
        if result != output:
            body("Cast", result, output=output, to=element)


def attention(node: OnnxNode, body: Body) -> None:
    """With a mask of zeros where it has none but a past: what the function body cannot leave out."""
    if node.input(4) and not node.input(3):
        queries, keys, past = (body.shape(node.input(i))[-2] for i in (0, 1, 4))
        zeros = body.operand(np.zeros((queries, past + keys), np.float32), body.element(node.input(0)))
        node = replace(node, inputs=(*node.inputs[:3], zeros, *node.inputs[4:]))
    inlined(node, body)


ALWAYS = {"Attention": attention, **dict.fromkeys(("CenterCropPad", "RotaryEmbedding", "SwiGLU"), inlined)}
