"""Linear models and choices of columns, as skl2onnx writes them, in terms of products and Gather."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode

SCORES = {"NONE": "Identity", "SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid"}  # by post_transform


def _scores(node: OnnxNode, body: Body, rows: int, output: str) -> str:
    """post_transform(x @ coefficients.T + intercepts), [n, rows]."""
    x, transform = body("Cast", node.input(0), to=TensorProto.FLOAT), node.text("post_transform", "NONE")
    if transform not in SCORES:
        raise Unsupported(f"post_transform {transform}", hint=", ".join(SCORES))
    weights = np.asarray(node.attributes.get("coefficients", ()), np.float32)
    offsets = np.asarray(node.attributes.get("intercepts", [0] * rows), np.float32)
    if weights.size != rows * body.shape(x)[-1] or offsets.size != rows:
        raise Unsupported(f"{weights.size} coefficients and {offsets.size} intercepts", hint=f"{rows} rows of them")
    sums = body("Add", body("MatMul", x, np.ascontiguousarray(weights.reshape(rows, -1).T)), offsets)
    return body(SCORES[transform], sums, output=output)


def classifier(node: OnnxNode, body: Body) -> None:
    """The label of the largest score, and the scores. Source: ONNX, ai.onnx.ml LinearClassifier-1."""
    if "classlabels_strings" in node.attributes:
        raise Unsupported("labels that are texts", hint="integers")
    labels = np.asarray(node.attributes.get("classlabels_ints", ()), np.int64)
    scores = _scores(node, body, len(labels), node.outputs[1])
    body("Gather", labels, body("ArgMax", scores, axis=1, keepdims=0), output=node.outputs[0])


def regressor(node: OnnxNode, body: Body) -> None:
    """Source: ONNX, ai.onnx.ml LinearRegressor-1."""
    _scores(node, body, node.integer("targets", 1), node.outputs[0])


def columns(node: OnnxNode, body: Body) -> None:
    """Elements along the last axis. Source: ONNX, ai.onnx.ml ArrayFeatureExtractor-1."""
    x, rank = node.input(0), len(body.shape(node.input(0)))
    if not rank:
        raise Invalid("x is a scalar", hint="a vector")
    index = body("Reshape", node.input(1), np.array([-1]))
    if rank > 1:
        body("Gather", x, index, axis=rank - 1, output=node.outputs[0])
        return
    body("Reshape", body("Gather", x, index), np.array([1, -1]), output=node.outputs[0])


ALWAYS = {
    "ai.onnx.ml.ArrayFeatureExtractor": columns,
    "ai.onnx.ml.LinearClassifier": classifier,
    "ai.onnx.ml.LinearRegressor": regressor,
}
