"""Loop and Scan: unrolled where the number of steps is known, else refused; types of what nodes with graphs make."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_text import build
from test_lowering import run

from nmpconv.errors import InvalidModel, UnsupportedModel
from nmpconv.frontend import unroll
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx


def _loop(declared: int) -> onnx.ModelProto:
    """A recurrent cell over 5 steps, as tf2onnx writes a GRU: a count and a condition come first. declared: the type
    that the body's outputs have in the file; 0 for none."""
    float_ = TensorProto.FLOAT
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["xt"], axis=0),
        helper.make_node("MatMul", ["xt", "w"], ["a"]),
        helper.make_node("Add", ["a", "s"], ["b"]),
        helper.make_node("Tanh", ["b"], ["after"]),
        helper.make_node("Identity", ["c"], ["go"]),
        helper.make_node("Identity", ["after"], ["row"]),
    ]
    state = helper.make_tensor_value_info("s", float_, None)
    made = [onnx.ValueInfoProto(name=name) for name in ("go", "after", "row")]
    if declared:
        made = [helper.make_tensor_value_info("go", TensorProto.BOOL, [])]
        made += [helper.make_tensor_value_info(name, declared, None) for name in ("after", "row")]
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL}
    counted = [helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()]
    body = helper.make_graph(nodes, "body", [*counted, state], made)
    constants = {"n": np.int64(5), "t": np.bool_(True), "s0": np.zeros((1, 8), np.float32)}
    constants |= {name: np.ones(shape, np.float32) for name, shape in (("w", (6, 8)), ("v", (8, 4)))}
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["n", "t", "s0"], ["last", "rows"], "steps", body=body),
            helper.make_node("MatMul", ["last", "v"], ["y"], "head"),
        ],
        "g",
        [helper.make_tensor_value_info("x", float_, [5, 1, 6])],
        [helper.make_tensor_value_info("y", float_, [1, 4])],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


@pytest.mark.parametrize("declared", [TensorProto.FLOAT, 0])
def test_a_loop_is_valid(declared, tmp_path):
    """Its results have the types of what its graph returns; those of its first inputs are a counter's."""
    model = _loop(declared)
    if declared:
        onnx.checker.check_model(model, full_check=True)
    onnx.save(model, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    assert [node.op for node in graph.nodes].count("fully_connected") == 6


BODY = "(int64 i, bool c, float[1,8] s) => (bool d, float[1,8] t, float[1,4] r)"
STEP = "xt = Gather<axis=0>(x, i) a = MatMul(xt, w) b = Add(a, s) t = Tanh(b) r = MatMul(t, v)"
WEIGHTS = "float[6,8] w, float[8,4] v, float[1,8] z = {0,0,0,0,0,0,0,0}"
COUNT, GO = "int64 n = {5}", "bool g = {1}"
ENDS = "(float[1,8] s, float[1,6] xt) => (float[1,8] t, float[1,4] r)"
SCAN = f"{ENDS} {{ a = MatMul(xt, w) b = Add(a, s) t = Tanh(b) r = MatMul(t, v) }}"
# Graphs of an input x [5,1,6].
UNROLLED = [
    ("all steps", f"(float[1,8] y, float[5,1,4] q) <{WEIGHTS}, {COUNT}, {GO}> "
     f"{{ y, q = Loop<body = b {BODY} {{ {STEP} d = Identity(c) }}>(n, g, z) }}"),
    ("an If on the step", f"(float[1,8] y, float[5,1,4] q) <{WEIGHTS}, {COUNT}, {GO}> {{ y, q = Loop<body = b {BODY} "
     "{ two = Constant<value = int64 {2}>() m = Mod(i, two) k = Cast<to=9>(m) xt = Gather<axis=0>(x, i) "
     "t = If<then_branch = p () => (float[1,8] u) { a = MatMul(xt, w) b = Add(a, s) u = Tanh(b) }, "
     "else_branch = o () => (float[1,8] h) { j = MatMul(xt, w) h = Mul(j, s) }>(k) "
     "r = MatMul(t, v) d = Identity(c) }>(n, g, z) }"),
    ("rows alone", f"(float[5,1,4] q) <{WEIGHTS}, {COUNT}, {GO}> "
     f"{{ y, q = Loop<body = b {BODY} {{ {STEP} d = Identity(c) }}>(n, g, z) }}"),
    ("no condition", f"(float[1,8] y) <{WEIGHTS}, {COUNT}> "
     f"{{ y, q = Loop<body = b {BODY} {{ {STEP} d = Identity(c) }}>(n, , z) }}"),
    ("an end that the counter decides", f"(float[1,8] y, float[3,1,4] q) <{WEIGHTS}, {GO}, int64 m = {{2}}> "
     f"{{ y, q = Loop<body = b {BODY} {{ {STEP} d = Less(i, m) }}>(, g, z) }}"),
    ("a count from a shape", f"(float[1,8] y) <{WEIGHTS}, {GO}, int64 k = {{0}}> "
     f"{{ h = Shape(x) n = Gather(h, k) y, q = Loop<body = b {BODY} {{ {STEP} d = Identity(c) }}>(n, g, z) }}"),
    ("no state", "(float[3,5,1,6] q) <int64 n = {3}, bool g = {1}> "
     "{ q = Loop<body = b (int64 i, bool c) => (bool d, float[5,1,6] r) "
     "{ f = Cast<to=1>(i) r = Mul(x, f) d = Identity(c) }>(n, g) }"),
    ("inside of a loop", f"(float[1,8] y) <{WEIGHTS}, {COUNT}, {GO}, int64 two = {{2}}> "
     f"{{ y = Loop<body = o (int64 j, bool e, float[1,8] u) => (bool f, float[1,8] o2) "
     f"{{ f = Identity(e) o2, q = Loop<body = b {BODY} {{ {STEP} d = Identity(c) }}>(n, g, u) }}>(two, g, z) }}"),
    ("a scan", f"(float[1,8] y, float[5,1,4] q) <{WEIGHTS}> "
     f"{{ y, q = Scan<num_scan_inputs=1, body = b {SCAN}>(z, x) }}"),
    ("a scan backwards", f"(float[1,8] y, float[5,1,4] q) <{WEIGHTS}> "
     "{ y, q = Scan<num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1], "
     f"body = b {SCAN}>(z, x) }}"),
    ("a scan of other axes", f"(float[1,8] y, float[1,5,4] q) <{WEIGHTS}> {{ u = Transpose<perm=[1,2,0]>(x) "
     f"y, q = Scan<num_scan_inputs=1, scan_input_axes=[-1], scan_output_axes=[1], body = b {SCAN}>(z, u) }}"),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(row[1], id=row[0]) for row in UNROLLED])
def test_steps_are_nodes(text, tmp_path):
    """The same numbers as in onnxruntime."""
    proto = build(f"(float[5,1,6] x) => {text}", 17, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    x = np.random.default_rng(3).normal(0, 1, (5, 1, 6)).astype(np.float32)
    for ours, theirs in zip(run(to_onnx(graph, graph.outputs), {"x": x}), run(proto, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


REFUSED = [
    ("a count from data", f"<{WEIGHTS}, {GO}, int64[1] k = {{30}}> "
     "{ m = Reshape(x, k) n = ArgMax<axis=0, keepdims=0>(m) "
     f"y, q = Loop<body = b {BODY} {{ {STEP} d = Identity(c) }}>(n, g, z) }}", "its trip count 'n' is computed"),
    ("an end that data decide", f"<{WEIGHTS}, {COUNT}, {GO}, float o = {{1}}> "
     f"{{ y, q = Loop<body = b {BODY} {{ {STEP} h = ReduceMax<keepdims=0>(t) d = Less(h, o) }}>(n, g, z) }}",
     "is computed from the input; instead: a constant condition"),
    ("too many steps", f"<{WEIGHTS}, {GO}, int64 n = {{1000000000000}}, int64 k = {{0}}> "
     f"{{ y, q = Loop<body = b {BODY} {{ xt = Gather<axis=0>(x, k) a = MatMul(xt, w) b = Add(a, s) t = Tanh(b) "
     f"r = MatMul(t, v) d = Identity(c) }}>(n, g, z) }}", "its steps have more than 500 nodes"),
    ("a node of a step", f"<{WEIGHTS}, {COUNT}, {GO}> "
     f"{{ y, q = Loop<body = b {BODY} {{ {STEP} e = NonZero(t) d = Identity(c) f = Cast<to=1>(e) }}>(n, g, z) }}",
     "1 node(s) cannot be converted"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_steps_that_are_not_known(text, message, tmp_path, monkeypatch):
    monkeypatch.setattr(unroll, "NODES_MAX", 500)
    build(f"(float[5,1,6] x) => (float[1,8] y) {text}", 17, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    assert message in str(caught.value)
    assert len(caught.value.rows) == 1


def test_types_of_a_loop_are_checked(tmp_path):
    """Its graph declares what the nodes after it get."""
    onnx.save(_loop(TensorProto.DOUBLE), tmp_path / "model.onnx")
    with pytest.raises(InvalidModel, match="its graph makes 'after' of type float; double"):
        load(tmp_path / "model.onnx")


def test_results_of_foreign_nodes_have_any_type(tmp_path):
    """A node of which nothing is known may make floats of integers."""
    text = "(float[1,4] x) => (y) <int64[4] i = {3, 2, 1, 0}> { a = other.Encode(i, x) y = MatMul(a, x) }"
    build(text, 17, tmp_path / "model.onnx", ', "other" : 1')
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    assert [row[1:3] for row in caught.value.rows] == [("other.Encode", "nmpconv has no such op")]
