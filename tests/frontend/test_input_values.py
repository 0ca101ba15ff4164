"""Inputs that become constants, and the branches that they decide."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_text import build

import nmpconv
from nmpconv.errors import UnsupportedModel, UsageError
from nmpconv.frontend.input_values import of_config
from nmpconv.frontend.onnx import AUTO, load
from nmpconv.frontend.read import read
from nmpconv.frontend.to_onnx import to_onnx

RATES = (8000, 16000)
TEXT = """(float[N,4] x, int64 n, bool[2] b, float[2,2] f, string s) => (y)
          { c = Cast<to=1>(n) d = Cast<to=1>(b) g = ReduceSum<keepdims=0>(f) h = ReduceSum<keepdims=0>(d)
            e = Add(c, h) i = Add(e, g) y = Mul(x, i) }"""


def detector(inner: str = "{}") -> onnx.ModelProto:
    """A net for each sampling rate, as voice detectors have it: If(Equal(rate, 16000)).

    Each branch has constants of its own, under names that the other one has, too; one holds an If on the same
    condition. inner: template of names.
    """
    rng = np.random.default_rng(1)

    def branch(kind: str, width: int, nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
        weights = [
            numpy_helper.from_array(rng.normal(0, 0.5, shape).astype(np.float32), inner.format(name))
            for name, shape in (("w1", (16, width)), ("w2", (width, 3)))
        ]
        made = [
            helper.make_node("MatMul", ["h", inner.format("w1")], [inner.format("a")]),
            helper.make_node("Relu", [inner.format("a")], [inner.format("b")]),
            *nodes,
            helper.make_node("MatMul", [inner.format("d"), inner.format("w2")], [inner.format("e")]),
        ]
        result = helper.make_tensor_value_info(inner.format("e"), TensorProto.FLOAT, None)
        return helper.make_graph(made, kind, [], [result], weights)

    def side(kind: str) -> onnx.GraphProto:
        result = helper.make_tensor_value_info(inner.format("z"), TensorProto.FLOAT, None)
        node = helper.make_node(kind, [inner.format("b")], [inner.format("z")])
        return helper.make_graph([node], kind, [], [result])

    nested = helper.make_node(
        "If", ["is16"], [inner.format("d")], "inner", then_branch=side("Tanh"), else_branch=side("Neg")
    )
    plain = helper.make_node("Identity", [inner.format("b")], [inner.format("d")])
    nodes = [
        helper.make_node("Tanh", ["x"], ["h"]),
        helper.make_node("Equal", ["sr", "rate"], ["is16"]),
        helper.make_node(
            "If", ["is16"], ["y"], "choice", then_branch=branch("a", 8, [nested]), else_branch=branch("b", 6, [plain])
        ),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16]),
        helper.make_tensor_value_info("sr", TensorProto.INT64, []),
    ]
    rate = numpy_helper.from_array(np.int64(16000), "rate")
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])], [rate]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ort.InferenceSession(model.SerializeToString()).run(None, feeds)


@pytest.mark.parametrize("inner", ["{}", "inner.{}"])
@pytest.mark.parametrize("rate", RATES)
def test_a_bound_input_takes_its_branch(rate, inner, tmp_path):
    path, model = tmp_path / "m.onnx", detector(inner)
    onnx.save(model, path)
    graph = load(path, input_values={"sr": (rate,)})
    assert graph.inputs == ("x",)
    x = np.random.default_rng(0).normal(0, 1, (1, 16)).astype(np.float32)
    [wanted] = run(model, {"x": x, "sr": np.array(rate)})
    [got] = run(to_onnx(graph, graph.outputs), {"x": x})
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    bound = read(path, {"sr": (rate,)})
    assert "If" not in {node.op_type for node in bound.graph.node}
    np.testing.assert_array_equal(run(bound, {"x": x})[0], wanted)


@pytest.mark.parametrize("rate", RATES)
def test_a_branch_that_is_a_constant(rate, tmp_path):
    """No node of it has the name that others read."""

    def branch(values: list[float]) -> onnx.GraphProto:
        result = helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, 2])
        return helper.make_graph([], "side", [], [result], [numpy_helper.from_array(np.float32([values]), "c")])

    model = build("(float[1,2] x, int64 sr) => (float[1,2] y) <int64 rate = {16000}> { y = Add(x, s) }", 17)
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is16"]),
        helper.make_node("If", ["is16"], ["s"], then_branch=branch([1, 2]), else_branch=branch([3, 4])),
        *model.graph.node,
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.float32([[5, 6]])
    [wanted] = run(model, {"x": x, "sr": np.array(rate)})
    np.testing.assert_array_equal(run(read(tmp_path / "m.onnx", {"sr": (rate,)}), {"x": x})[0], wanted)


def test_a_conversion_and_its_evaluation_know_the_value(tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "m.nmp"
    onnx.save(detector(), path)
    data = np.random.default_rng(0).normal(0, 1, (40, 16)).astype(np.float32)
    converted = nmpconv.convert(path, data, input_value={"sr": 16000}, bits="16")
    assert json.loads(converted.load().model.metadata["config"])["input_values"] == {"sr": [16000]}
    converted.save(out)
    np.save(tmp_path / "x.npy", data)
    found = nmpconv.evaluate(out, tmp_path / "x.npy", reference=path)
    assert found.sqnr["y"] > 60


def test_values_of_any_type(tmp_path):
    build(TEXT, 13, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx", input_values={"n": (3,), "b": (True, False), "f": (0.25,)})
    [got] = run(to_onnx(graph, graph.outputs), {"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(got, np.full((1, 4), 3 + 1 + 1, np.float32))


WRONG = [
    ("name", {"q": (1,)}, "the model has no input 'q' (inputs: x, n, b, f, s)"),
    ("text", {"s": (1,)}, "input 's' is string (an input of numbers)"),
    ("half", {"n": (1.5,)}, f"input 'n' cannot be 1.5 (it is int64: a whole number from {-(2**63)} to {2**63 - 1})"),
    ("truth", {"b": (2,)}, "input 'b' cannot be 2 (it is bool: a whole number from 0 to 1)"),
    ("nan", {"f": (float("nan"),)}, "input 'f' cannot be nan (it is float: a finite number)"),
    ("count", {"f": (1, 2, 3)}, "3 numbers for input 'f' of shape [2, 2] (allowed: one, or 4)"),
]


@pytest.mark.parametrize(("values", "message"), [pytest.param(*row[1:], id=row[0]) for row in WRONG])
def test_wrong_values(values, message, tmp_path):
    build(TEXT, 13, tmp_path / "m.onnx")
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "m.onnx", input_values=values)
    assert str(caught.value) == f"--input-value: {message}"


def test_the_hint_of_an_if_on_an_input(tmp_path):
    """No cut is offered that leaves all products to the host: those of the branches count."""
    onnx.save(detector(), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    hint = "where it is the same in every run: --input-value sr=NUMBER"
    assert caught.value.rows == [("choice", "If", "what it runs depends on the data", hint)]
    assert "--outputs" not in str(caught.value)
    with pytest.raises(UnsupportedModel):
        load(tmp_path / "m.onnx", outputs=AUTO)


LENGTHS = (
    "(float[6,1,3] x, int64[1] n, int64[2] m) => (y) <float[1,15,3] w, float[1,15,5] r> "
    "{{ l = Cast<to=6>({of}) y, h = GRU<hidden_size=5>(x, w, r, , l) }}"
)


def test_the_hint_of_what_an_input_of_one_element_decides(tmp_path: Path) -> None:
    build(LENGTHS.format(of="n"), 13, tmp_path / "n.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "n.onnx")
    ((_, _, found, allowed),) = caught.value.rows
    assert (found, allowed) == (
        "its sequence_lens 'l' is computed from the input",
        "where it is the same in every run: --input-value n=NUMBER",
    )
    load(tmp_path / "n.onnx", input_values={"n": (6,)})
    build(LENGTHS.format(of="t").replace("{ l", "{ t = ReduceMax<keepdims=0>(m) l"), 13, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    assert caught.value.rows[0][3] == "a constant sequence_lens"


def test_a_cut_before_an_if_says_what_its_branches_are(tmp_path):
    """A product before it is for the device; those of the larger branch are at least 152 of 152 + 256."""
    model = detector()
    model.graph.initializer.append(numpy_helper.from_array(np.eye(16, dtype=np.float32), "w0"))
    model.graph.node[0].output[0] = "t"
    model.graph.node.insert(1, helper.make_node("MatMul", ["t", "w0"], ["h"]))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    assert "2 of 4 nodes and 37 % of the MACs" in str(caught.value)
    assert caught.value.cut == ("h",)


def test_metadata_that_are_no_lists_of_numbers_are_left_out() -> None:
    config = {"input_values": {"x": [1, 2.5], "y": 3, "z": ["a"]}, "input_shapes": {"x": [1, 2], "y": [1, "N"]}}
    assert of_config(config) == ({"x": [1, 2.5]}, {"x": (1, 2)})
    assert of_config({"input_values": [1], "input_shapes": None}) == ({}, {})


def test_branches_one_after_another_have_the_same_names(tmp_path):
    one, other = "p () => (float[1,4] z) { a = Neg(%s) z = Exp(a) }", "q () => (float[1,4] z) { z = Relu(%s) }"
    nodes = " ".join(
        f"{y} = If (c) <then_branch = {one % x}, else_branch = {other % x}>" for x, y in (("x", "h"), ("h", "y"))
    )
    text = f"(float[1,4] x, int64 sr) => (float[1,4] y) <int64 rate = {{16000}}> {{ c = Equal(sr, rate) {nodes} }}"
    model = build(text, 17, tmp_path / "m.onnx")
    x = np.float32([[-1, 0, 0.5, 2]])
    [wanted] = run(model, {"x": x, "sr": np.array(16000)})
    bound = read(tmp_path / "m.onnx", {"sr": (16000,)})
    assert {"a_1", "a_2"} <= {name for node in bound.graph.node for name in node.output}
    np.testing.assert_array_equal(run(bound, {"x": x})[0], wanted)
