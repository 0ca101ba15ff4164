"""What ONNX itself knows of a single node: its outputs if all inputs are constant, else perhaps their shapes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from nmpconv.errors import Unsupported

_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
_INEXACT = {"BatchNormalization", "LRN"}  # onnx.reference and onnxruntime disagree about these
_IR_VERSION = 8


def can_fold(node: onnx.NodeProto) -> bool:
    """Whether the node is a function of its inputs: no dice, no subgraph that reads other tensors."""
    has_graph = any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)
    return not has_graph and node.op_type not in _RANDOM | _INEXACT


def fold(node: onnx.NodeProto, constants: Mapping[str, np.ndarray], opset: int) -> list[np.ndarray]:
    """The node's outputs by ONNX's reference implementation (onnxruntime aborts on some malformed attributes)."""
    feeds = {name: constants[name] for name in node.input if name}
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        opset = max(opset, 21)  # the reference knows them only from 19 on; what they compute has not changed
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "fold", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    try:
        results = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # whatever the reference trips over
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Unsupported(f"it cannot be evaluated on its constants: {reason}") from error
    return [np.asarray(result) for result in results]


def infer(
    node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, np.ndarray], opset: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of the node's outputs, those that ONNX's inference finds. shapes: of the inputs that are not constant.

    Sizes are at least 1: onnx aborts on some nodes with an empty input.
    """
    types = {name: helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    data = {name: numpy_helper.from_array(array, name) for name, array in constants.items()}
    types |= {name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for name, tensor in data.items()}
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        found = onnx.shape_inference.infer_node_outputs(schema, node, types, data)
    except Exception:  # an unknown op, or one with malformed attributes: nothing is known
        return {}
    dims = {name: [dim.dim_value for dim in t.tensor_type.shape.dim] for name, t in found.items()}
    known = {name for name, t in found.items() if t.tensor_type.HasField("shape") and all(d > 0 for d in dims[name])}
    return {name: tuple(dims[name]) for name in known}
