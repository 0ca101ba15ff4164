"""PolynomialFeatures of scikit-learn, as skl2onnx writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from nmpconv.conversion.options import Options
from nmpconv.conversion.pipeline import convert
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

TERMS = [(0,), (1,), (2,), (0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
SIZES = np.array([0.1, 1000.0, 20.0])  # of three features


def written(behind: str, path: Path, terms: list[tuple[int, ...]] = TERMS, bias: bool = True) -> onnx.ModelProto:
    """A ReduceProd for each term, and what reads the columns: a Scaler, and a linear model."""
    nodes, constants, columns = [], [], []
    for i, term in enumerate(terms):
        constants.append(numpy_helper.from_array(np.array(term, np.int64), f"comb{i}"))
        nodes.append(helper.make_node("ArrayFeatureExtractor", ["x", f"comb{i}"], [f"col{i}"], domain="ai.onnx.ml"))
        nodes.append(helper.make_node("ReduceProd", [f"col{i}"], [f"prod{i}"], axes=[1], keepdims=1))
        columns.append(f"prod{i}")
    if bias:
        nodes.append(helper.make_node("Shape", columns[-1:], ["shape"]))
        unit = numpy_helper.from_array(np.ones(1, np.float32))
        nodes.append(helper.make_node("ConstantOfShape", ["shape"], ["unit"], value=unit))
        columns.insert(0, "unit")
        terms = [(), *terms]
    nodes.append(helper.make_node("Concat", columns, ["c"], axis=1))
    reach = np.array([np.prod(SIZES[list(term)]) for term in terms])
    read = "c"
    if "Scaler" in behind:
        numbers = {"offset": (reach / 2).tolist(), "scale": (1 / reach).tolist()}
        nodes.append(helper.make_node("Scaler", ["c"], ["s"], domain="ai.onnx.ml", **numbers))
        read, reach = "s", np.ones(len(terms))
    weights = np.random.default_rng(1).uniform(0.5, 2, (1, len(terms))) / reach
    linear = {"coefficients": weights.ravel().tolist(), "intercepts": [0.5]}
    nodes.append(helper.make_node("LinearRegressor", [read], ["y"], domain="ai.onnx.ml", **linear))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", 3), ("y", 1))]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(model := helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return model


def samples(count: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).random((count, 1, 3)) * SIZES).astype(np.float32)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("behind", ["Scaler", "linear"])
def test_features_of_other_units(behind: str, bias: bool, tmp_path: Path) -> None:
    """All columns are a few nodes, and have one grid: 0.9 and 11.9 dB, one by one, become 78.0 and 85.9."""
    model = written(behind, tmp_path / "m.onnx", bias=bias)
    graph = load(tmp_path / "m.onnx")
    assert sum(node.op == "mul" for node in graph.nodes) <= 5
    session, same = (InferenceSession(m.SerializeToString()) for m in (model, to_onnx(graph, graph.outputs)))
    for x in samples(4, 3):
        np.testing.assert_allclose(
            same.run(None, {"x": x})[0], session.run(None, {"x": x})[0].reshape(-1, 1), rtol=1e-5
        )
    np.save(tmp_path / "x.npy", samples(48, 0))
    result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
    assert min(result.report.sqnr_by_head.values()) > 60


def test_columns_that_are_read_elsewhere_stay(tmp_path: Path) -> None:
    model = written("linear", tmp_path / "m.onnx")
    model.graph.output.append(helper.make_tensor_value_info("prod4", TensorProto.FLOAT, [1, 1]))
    onnx.save(model, tmp_path / "n.onnx")
    graph = load(tmp_path / "n.onnx")
    [x] = samples(1, 0)
    wanted = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    got = InferenceSession(to_onnx(graph, graph.outputs).SerializeToString()).run(None, {"x": x})
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a.ravel(), b.ravel(), rtol=1e-5)


@pytest.mark.parametrize("rows", [{"targets": 4}, {"classlabels_ints": [0, 1, 2, 3]}], ids=["regressor", "classifier"])
@pytest.mark.parametrize("width", [1, 5])
def test_other_columns_in_front_of_the_products(width: int, rows: dict[str, Any], tmp_path: Path) -> None:
    """Rows of eight weights are not two rows of four: features have units only behind one column."""
    model = written("linear", tmp_path / "m.onnx", [(0,), (1,), (0, 1)], bias=False)
    concat, linear = model.graph.node[-2:]
    concat.input.insert(0, "z")
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, width]))
    weights = np.random.default_rng(1).uniform(0.5, 2, (4, width + 3)) / ([1.0] * width + [0.1, 1000.0, 100.0])
    numbers = {"coefficients": weights.ravel().tolist(), "intercepts": [0.5] * 4, **rows}
    del linear.attribute[:]
    linear.attribute.extend(helper.make_attribute(*number) for number in numbers.items())
    if "targets" not in rows:
        linear.op_type = "LinearClassifier"
        linear.output[:] = ["label", "y"]
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
    onnx.save(model, tmp_path / "n.onnx")
    graph = load(tmp_path / "n.onnx")
    assert (sum(node.op == "mul" for node in graph.nodes) > 1) == (width == 1)
    feed = {"x": samples(1, 0)[0], "z": np.random.default_rng(2).random((1, width)).astype(np.float32)}
    [wanted] = InferenceSession(model.SerializeToString()).run(None, feed)
    [got] = InferenceSession(to_onnx(graph, graph.outputs).SerializeToString()).run(None, feed)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
