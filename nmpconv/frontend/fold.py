"""Evaluation of ONNX nodes whose inputs are all known: what exporters leave of shape arithmetic and of weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from nmpconv.errors import Unsupported

_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")


def can_fold(node: onnx.NodeProto) -> bool:
    """Whether the node is a function of its inputs: no dice, no subgraph that reads other tensors."""
    return node.op_type not in _RANDOM and all(a.type != onnx.AttributeProto.GRAPH for a in node.attribute)


def fold(node: onnx.NodeProto, constants: Mapping[str, np.ndarray], opset: int) -> list[np.ndarray]:
    """The node's outputs; Unsupported when neither the ONNX reference nor onnxruntime can compute them."""
    feeds = {name: constants[name] for name in node.input if name}
    model = _model(node, feeds, opset)
    try:
        results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # whatever the reference implementation trips over
        results = _run_ort(model, feeds)
    return [np.asarray(result) for result in results]


def _model(node: onnx.NodeProto, feeds: Mapping[str, np.ndarray], opset: int) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "fold", inputs, outputs)
    # IR version 8 is old enough for every onnxruntime that pyproject.toml allows, and new enough for every opset.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _run_ort(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        results: list[np.ndarray] = session.run(None, dict(feeds))
    except Exception as error:  # the C++ exceptions of onnxruntime have no common base class
        raise Unsupported(f"it cannot be evaluated on its constants: {str(error).splitlines()[0]}") from error
    return results
