"""Comparisons, what is done with their truth, indices, quotients and slopes: as onnxruntime computes them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_text import build, feeds
from test_lowering import IMAGE, run

from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

TWO = "(float[1,4,5,3] x, float[1,4,1,3] z) => (y)"
TRUTH = f"{TWO} {{ s = Greater(x, z) t = Less(x, z) y = "

CASES = [
    *((kind, 16, f"{TWO} {{ y = {kind}(x, z) }}") for kind in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")),
    ("equal", 13, f"{TWO} {{ r = Relu(x) q = Relu(z) y = Equal(r, q) }}"),
    ("constant", 13, f"{IMAGE} <float c = {{0.3}}> {{ y = Less(x, c) }}"),
    ("constant/first", 13, f"{IMAGE} <float[4,1,1] c> {{ y = Less(c, x) }}"),
    ("not", 13, f"{TRUTH} Not(s) }}"),
    *((kind, 13, f"{TRUTH} {kind}(s, t) }}") for kind in ("And", "Or", "Xor")),
    ("where", 13, f"{TRUTH} Where(s, x, z) }}"),
    ("where/one constant", 13, f"{TWO} <float c = {{-3.0}}> {{ s = Greater(x, z) y = Where(s, c, x) }}"),
    ("where/else zero", 13, f"{TWO} <float c = {{0.0}}> {{ s = Greater(x, z) y = Where(s, x, c) }}"),
    ("where/then zero", 13, f"{TWO} <float c = {{0.0}}> {{ s = Greater(x, z) y = Where(s, c, x) }}"),
    ("where/two constants", 13, f"{TWO} <float c = {{-3.0}}, float[3] d> {{ s = Greater(x, z) y = Where(s, c, d) }}"),
    ("where/constant condition", 13, f"{TWO} <bool[3] s = {{1,0,1}}> {{ y = Where(s, x, z) }}"),
    ("where/mask", 13, f"{IMAGE} <bool[4,1,1] s = {{1,0,1,0}}, float c = {{2.0}}> {{ y = Where(s, x, c) }}"),
    ("cast/to truth", 13, f"{TWO} {{ r = Relu(x) b = Cast<to=9>(r) y = Where(b, x, z) }}"),
    ("cast/truth to numbers", 13, f"{TRUTH} Cast<to=1>(s) }}"),
    ("arg max", 13, f"{IMAGE} {{ y = ArgMax<axis=1>(x) }}"),
    ("arg max/far", 13, f"{IMAGE} {{ y = ArgMax<axis=-1,keepdims=0>(x) }}"),
    ("arg max/last", 13, f"{IMAGE} {{ r = Relu(x) y = ArgMax<axis=1,select_last_index=1>(r) }}"),
    ("arg max/first", 13, f"{IMAGE} {{ r = Relu(x) y = ArgMax<axis=1>(r) }}"),
    ("arg min", 13, f"{IMAGE} {{ y = ArgMin<axis=2,keepdims=0>(x) }}"),
    ("arg max/cast", 13, f"{IMAGE} {{ i = ArgMax<axis=1,keepdims=0>(x) y = Cast<to=6>(i) }}"),
    ("divide", 13, f"{TWO} {{ e = Exp(z) y = Div(x, e) }}"),
    ("divide/constant", 13, f"{TWO} <float c = {{2.0}}> {{ e = Exp(z) r = Div(c, e) y = Add(r, x) }}"),
    ("normalize", 13, f"{IMAGE} {{ n = ReduceL2<axes=[1]>(x) y = Div(x, n) }}"),
    ("slopes", 16, f"{IMAGE} <float[4,1,1] a = {{0.25, -0.5, 1.0, 0.0}}> {{ y = PRelu(x, a) }}"),
    ("slopes/steep", 16, f"{IMAGE} <float[4,1,1] a = {{0.25, -0.5, 3.0, 0.0}}> {{ y = PRelu(x, a) }}"),
    *(
        (
            f"resize/{policy}",
            18,
            f"{IMAGE} <int64[2] s = {{18,12}}> "
            f'{{ y = Resize<mode="linear",axes=[2,3],keep_aspect_ratio_policy="{policy}">(x, , , s) }}',
        )
        for policy in ("stretch", "not_larger", "not_smaller")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "text"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_equals_onnxruntime(opset, text, tmp_path):
    """Interpolation weights are rounded to 2^-15, hence the tolerance."""
    model = build(text, opset, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    for wanted, got in zip(run(model, feed), run(to_onnx(graph, graph.outputs), feed), strict=True):
        assert wanted.shape == got.shape
        np.testing.assert_allclose(got, wanted.astype(np.float32), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("taken", [True, False])
def test_an_if_on_a_constant_is_its_branch(taken, tmp_path):
    """Branches read what is outside and have constants of their own; the one that is not taken may hold anything."""
    branches = {}
    for kind, value in ((True, 2.0), (False, 3.0)):
        name = f"{'then' if kind else 'else'}_branch"
        factor = numpy_helper.from_array(np.float32(value), f"{name}.factor")
        nodes = [helper.make_node("Mul", ["r", factor.name], [f"{name}.y"])]
        if kind != taken:
            nodes.append(helper.make_node("Det", ["r"], [f"{name}.d"]))
        result = helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph(nodes, name, [], [result], [factor])
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("If", ["c"], ["y"], **branches)]
    condition = numpy_helper.from_array(np.array(taken), "c")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], [condition])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = {"x": np.array([[-1.0, 0.5, 1.0, 2.0]], np.float32)}
    [got] = run(to_onnx(graph, graph.outputs), feed)
    np.testing.assert_array_equal(got, np.maximum(feed["x"], 0) * (2.0 if taken else 3.0))
