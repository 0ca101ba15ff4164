"""Advice about operators that nmpconv does not have, by who writes such operators."""

from __future__ import annotations

import onnx

from nmpconv.frontend.read import DEFAULT_DOMAINS
from nmpconv.frontend.tflite.onnx_writer import DOMAIN

_QCDQ = "an export with QuantizeLinear, Clip and DequantizeLinear (Brevitas: export_onnx_qcdq)"
_KERAS = "a .tflite file: model.export('m.tflite', format='litert') keeps Keras's convolutions with groups"
_OPTIMIZED = "an export without onnxruntime's optimizer"
_BLOCKED = f"{_OPTIMIZED}, or with ORT_ENABLE_EXTENDED: this one is for one kind of CPU"
_HINTS = {
    "com.microsoft": _OPTIMIZED,
    **dict.fromkeys(("com.microsoft.nchwc", "com.ms.internal.nhwc"), _BLOCKED),
    **dict.fromkeys(("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"), _QCDQ),
    "ai.onnx.ml": "a cut before it: tables and texts are for the host",
}
# Of onnxruntime's domain, but not by its optimizer.
_BLOCKS = ("GatherBlockQuantized", "MatMulBnb4", "MatMulFpQ4", "MatMulNBits", "QMoE")
_EXPORTED = (
    "ComplexMul",
    "ComplexMulConj",
    "CropAndResize",
    "Inverse",
    "Irfft",
    "Rfft",
    "Tokenizer",
    "WordConvEmbedding",
)

_KERNELS = "a linear model or a small network: kernels over support vectors are for the host"
_TREES = "a small network, or C code of the trees (emlearn, m2cgen): trees compare, and have no products"
_BY_NAME = {
    **dict.fromkeys((f"ai.onnx.ml.TreeEnsemble{kind}" for kind in ("", "Classifier", "Regressor")), _TREES),
    **dict.fromkeys(("ai.onnx.ml.SVMClassifier", "ai.onnx.ml.SVMRegressor"), _KERNELS),
    "ai.onnx.ml.Imputer": "a model without it, and missing numbers filled in before: integers have no NaN",
}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # of TensorFlow's functions, in tf2onnx's files


def unknown(node: onnx.NodeProto) -> tuple[str, str]:
    """Says why a node without an op cannot be converted, and what to do about it, "" where that is not known."""
    if node.domain == DOMAIN:
        why, _, hint = node.doc_string.partition("\n")
        return why, hint
    if node.domain in DEFAULT_DOMAINS:
        if node.op_type in _CALLS:
            return "the file lacks the TensorFlow function that it calls", _KERAS
        if not onnx.defs.has(node.op_type):
            return "ONNX has no such operator", "another exporter, or another version of it: this one left its own"
        return "nmpconv has no such op", ""
    if node.domain == "com.microsoft" and node.op_type in _BLOCKS:
        return "nmpconv has no such op", "the float model: nmpconv quantizes weights itself"
    if node.domain == "com.microsoft" and node.op_type in _EXPORTED:
        return "nmpconv has no such op", ""
    advice = _BY_NAME.get(f"{node.domain}.{node.op_type}") or _HINTS.get(node.domain)
    return "nmpconv has no such op", advice or f"ONNX's own operators in place of those of {node.domain}"
