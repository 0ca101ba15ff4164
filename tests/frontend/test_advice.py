"""Refusals of operators that nmpconv does not have, and of weights that are packed in blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_lowering import run

from nmpconv.errors import UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx


def model(kind: str, domain: str, arrays: dict[str, np.ndarray], **attributes: int) -> onnx.ModelProto:
    node = helper.make_node(kind, ["x", *arrays], ["y"], "node", domain=domain, **attributes)
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [1, 40]), ("y", None))
    ]
    data = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], data)
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


OPERATORS = [
    ("Erfcinv", "", "ONNX has no such operator", "another exporter, or another version of it: this one left its own"),
    (
        "StatefulPartitionedCall",
        "",
        "the file lacks the TensorFlow function that it calls",
        "a .tflite file: model.export('m.tflite', format='litert') keeps Keras's convolutions with groups",
    ),
    ("NGramRepeatBlock", "com.microsoft", "nmpconv has no such op", "an export without onnxruntime's optimizer"),
    (
        "ReorderInput",
        "com.microsoft.nchwc",
        "nmpconv has no such op",
        "an export without onnxruntime's optimizer, or with ORT_ENABLE_EXTENDED: this one is for one kind of CPU",
    ),
    ("MatMulBnb4", "com.microsoft", "nmpconv has no such op", "the float model: nmpconv quantizes weights itself"),
    ("Inverse", "com.microsoft", "nmpconv has no such op", ""),
    (
        "MultiThreshold",
        "qonnx.custom_op.general",
        "nmpconv has no such op",
        "an export with QuantizeLinear, Clip and DequantizeLinear (Brevitas: export_onnx_qcdq)",
    ),
    (
        "Imputer",
        "ai.onnx.ml",
        "nmpconv has no such op",
        "a model without it, and missing numbers filled in before: integers have no NaN",
    ),
    (
        "SVMRegressor",
        "ai.onnx.ml",
        "nmpconv has no such op",
        "a linear model or a small network: kernels over support vectors are for the host",
    ),
    (
        "TreeEnsembleRegressor",
        "ai.onnx.ml",
        "nmpconv has no such op",
        "a small network, or C code of the trees (emlearn, m2cgen): trees compare, and have no products",
    ),
    ("Thing", "my.ops", "nmpconv has no such op", "ONNX's own operators in place of those of my.ops"),
]


@pytest.mark.parametrize(("kind", "domain", "why", "hint"), [pytest.param(*row, id=row[0]) for row in OPERATORS])
def test_the_advice_is_by_who_writes_such_operators(kind, domain, why, hint, tmp_path: Path):
    onnx.save(model(kind, domain, {}), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    [(_, _, *found)] = caught.value.rows
    assert found == [why, hint]


def test_a_file_without_operators_of_onnx_needs_no_version_of_them(tmp_path: Path):
    """As onnxmltools writes trees of XGBoost."""
    trees = model("TreeEnsembleRegressor", "ai.onnx.ml", {})
    del trees.opset_import[0]
    onnx.save(trees, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match="C code of the trees"):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_in_blocks(bits, zeros, tmp_path: Path):
    """40 rows in blocks of 16, the last one not full."""
    rng, size, blocks, columns = np.random.default_rng(bits), 16, 3, 5
    arrays = {
        "w": rng.integers(0, 256, (columns, blocks, size * bits // 8), np.uint8),
        "s": rng.uniform(0.01, 0.1, columns * blocks).astype(np.float32),
    }
    if zeros:
        arrays["z"] = rng.integers(0, 256, columns * -(-blocks * bits // 8), np.uint8)
    made = model("MatMulNBits", "com.microsoft", arrays, K=40, N=columns, bits=bits, block_size=size)
    onnx.save(made, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    x = rng.normal(0, 1, (1, 40)).astype(np.float32)
    [wanted] = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    [got] = run(to_onnx(graph, graph.outputs), {"x": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=2e-3)
