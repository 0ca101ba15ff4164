"""An If that data decide: both branches are computed, and one is chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_lowering import run

import nmpconv
from nmpconv.errors import UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

LINES = 12


def branch(kind: str, nodes: list, outputs: list[str], arrays: dict[str, np.ndarray]) -> onnx.GraphProto:
    data = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, kind, [], results, data)


def verifier(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    """Features of x, and two outputs of an If on their mean; names inside of both branches are the same."""
    rng = np.random.default_rng(4)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Tanh", ["a"], ["h"]),
        helper.make_node("ReduceMean", ["h"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y", "z"], "choice", then_branch=then, else_branch=other),
    ]
    arrays = {"w": rng.normal(0, 0.4, (16, LINES)).astype(np.float32), "zero": np.float32(0)}
    data = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")]
    graph = helper.make_graph(nodes, "g", [x], ports, data)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def head(kind: str, seed: int, width: int = 3) -> onnx.GraphProto:
    rng = np.random.default_rng(seed)
    nodes = [
        helper.make_node("MatMul", ["h", "v"], ["p"]),
        helper.make_node("Sigmoid" if seed % 2 else "Relu", ["p"], ["q"]),
        helper.make_node("Add", ["q", "one"], ["r"]),
    ]
    arrays = {"v": rng.normal(0, 0.5, (LINES, width)).astype(np.float32), "one": np.float32(seed)}
    return branch(kind, nodes, ["r", "p2"], {k: np.asarray(v) for k, v in arrays.items()})


def heads(width: int = 3) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    then, other = head("then", 1), head("else", 2, width)
    then.node.append(helper.make_node("Identity", ["h"], ["p2"]))
    other.node.append(helper.make_node("Neg", ["h"], ["p2"]))
    return then, other


def test_both_are_computed(tmp_path: Path):
    path, model = tmp_path / "m.onnx", verifier(*heads())
    onnx.save(model, path)
    graph, engine = load(path), ort.InferenceSession(path)
    rng, sides = np.random.default_rng(0), set()
    for _ in range(8):
        x = rng.normal(0, 1, (1, 16)).astype(np.float32)
        wanted = engine.run(None, {"x": x})
        for a, b in zip(run(to_onnx(graph, graph.outputs), {"x": x}), wanted, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
        sides.add(bool(wanted[0].min() < 2))
    assert len(sides) == 2  # each branch was taken


def test_a_conversion(tmp_path: Path):
    """Compared with the model in onnxruntime, and right in integers."""
    path = tmp_path / "m.onnx"
    onnx.save(verifier(*heads()), path)
    rng = np.random.default_rng(1)
    samples = list(rng.normal(0, 1, (60, 1, 16)).astype(np.float32))
    converted = nmpconv.convert(path, samples, bits="16")
    assert isinstance(converted.report.float_db, float)
    net, engine, right = converted.load(), ort.InferenceSession(path), 0
    for x in samples:
        got, wanted = net.run_float(x)[0], engine.run(None, {"x": x})[0]
        right += np.abs(got - wanted).max() < 0.01
    assert right >= 58  # of two, the mean may be on the other side of 0 once it is rounded


def test_branches_of_other_shapes_are_refused(tmp_path: Path):
    onnx.save(verifier(*heads(width=4)), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    assert caught.value.rows == [("choice", "If", "its branches make [1, 3] and [1, 4]", "one shape")]


def test_choices_in_choices_that_are_more_than_twice_the_work_are_refused(tmp_path: Path):
    """Four equal heads behind two conditions: four times the work of a path."""

    def nested(kind: str) -> onnx.GraphProto:
        graph = branch(kind, [], ["r2", "h"], {})
        node = helper.make_node("If", ["c"], ["r2", "n"], "inner")
        sides = heads()
        node.attribute.extend(
            helper.make_attribute(f"{name}_branch", side) for name, side in zip(("then", "else"), sides, strict=True)
        )
        graph.node.append(node)
        return graph

    onnx.save(verifier(nested("then"), nested("else")), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    assert caught.value.rows == [("choice", "If", "what it runs depends on the data", "")]
