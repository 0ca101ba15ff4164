"""Functions that exporters write out in several nodes become one op: those that are left after the float passes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_text import build, feeds
from test_lowering import run

from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.passes.float import FLOAT

IMAGE = "(float[1,8,6,4] x) => (y)"
BEFORE = "(float[1,8,6,4] i) => (y) <float[8,8,1,1] first, "  # x is a layer's result
X = "x = Conv(i, first)"
PAD = "int64[8] p = {0,0,1,1,0,0,1,1}"

# (name, opset, model, ops besides transposes at the model's inputs and outputs)
CASES = [
    ("silu", 13, f"{IMAGE} {{ s = Sigmoid(x) y = Mul(x, s) }}", ["lookup"]),
    (
        "hard swish",
        13,
        f"{IMAGE} <float t = {{3}}, float z = {{0}}, float s = {{6}}> "
        "{ a = Add(x, t) c = Clip(a, z, s) m = Mul(x, c) y = Div(m, s) }",
        ["lookup"],
    ),
    (
        "hard sigmoid",
        13,
        f"{IMAGE} <float t = {{3}}, float z = {{0}}, float s = {{6}}> "
        "{ a = Add(x, t) c = Clip(a, z, s) y = Div(c, s) }",
        ["lookup"],
    ),
    ("mish", 13, f"{IMAGE} {{ s = Softplus(x) t = Tanh(s) y = Mul(x, t) }}", ["lookup"]),
    (
        "mish by exp and log",
        13,
        f"{IMAGE} <float o = {{1}}> {{ e = Exp(x) a = Add(e, o) s = Log(a) t = Tanh(s) y = Mul(x, t) }}",
        ["lookup"],
    ),
    (
        "gelu by erf",
        13,
        f"{IMAGE} <float r = {{1.4142135}}, float o = {{1}}, float h = {{0.5}}> "
        "{ d = Div(x, r) e = Erf(d) a = Add(e, o) m = Mul(x, a) y = Mul(m, h) }",
        ["lookup"],
    ),
    (
        "gelu by tanh",
        13,
        f"{IMAGE} <float c = {{0.044715}}, float r = {{0.7978845}}, float o = {{1}}, float h = {{0.5}},"
        " float t = {3}> { u = Pow(x, t) a = Mul(u, c) b = Add(x, a) d = Mul(b, r) e = Tanh(d) f = Add(e, o)"
        " g = Mul(x, f) y = Mul(g, h) }",
        ["lookup"],
    ),
    (
        "squeeze and excite",
        13,
        f"{IMAGE} <float[2,8,1,1] w, float[8,2,1,1] v> {{ g = GlobalAveragePool(x) a = Conv(g, w) b = Relu(a)"
        " c = Conv(b, v) s = HardSigmoid<alpha=0.16666667>(c) y = Mul(x, s) }",
        ["average_pool", "conv2d", "conv2d", "lookup", "mul"],
    ),
    (
        "squeeze and excite by matrices",
        13,
        f"{IMAGE} <float[8,2] w, float[2,8] v, int64[4] s = {{1,8,1,1}}> {{ g = ReduceMean<axes=[2,3],keepdims=0>(x)"
        " a = MatMul(g, w) b = Relu(a) c = MatMul(b, v) d = Sigmoid(c) e = Reshape(d, s) y = Mul(x, e) }",
        ["average_pool", "fully_connected", "fully_connected", "lookup", "mul"],
    ),
    (
        "mean over the plane",
        13,
        f"{IMAGE} {{ y = ReduceMean<axes=[2,3]>(x) }}",
        ["average_pool"],
    ),
    (
        "channel shuffle",
        13,
        f"{IMAGE} <float[8,8,1,1] w, int64[5] s = {{1,2,4,6,4}}, int64[4] t = {{1,8,6,4}}> "
        "{ c = Conv(x, w) r = Reshape(c, s) p = Transpose<perm=[0,2,1,3,4]>(r) u = Reshape(p, t) y = Conv(u, w) }",
        ["conv2d", "gather", "conv2d"],
    ),
    (
        "pixel shuffle",
        13,
        f"{IMAGE} <float[8,8,1,1] w, int64[6] s = {{1,2,2,2,6,4}}, int64[4] t = {{1,2,12,8}}, float[3,2,1,1] v> "
        "{ c = Conv(x, w) r = Reshape(c, s) p = Transpose<perm=[0,1,4,2,5,3]>(r) u = Reshape(p, t) y = Conv(u, v) }",
        ["conv2d", "transpose", "conv2d"],
    ),
    (
        "focus",
        13,
        f"{BEFORE} int64[2] a = {{0,0}}, int64[2] b = {{1,0}}, int64[2] c = {{0,1}}, int64[2] d = {{1,1}},"
        f" int64[2] e = {{99,99}}, int64[2] k = {{2,3}}, int64[2] s = {{2,2}}, float[5,32,1,1] w> {{ {X}"
        " f = Slice(x, a, e, k, s) g = Slice(x, b, e, k, s) h = Slice(x, c, e, k, s) l = Slice(x, d, e, k, s)"
        " j = Concat<axis=1>(f, g, h, l) y = Conv(j, w) }",
        ["conv2d", "slice", "slice", "slice", "slice", "concat", "conv2d"],
    ),
    (
        "matmul and add",
        13,
        "(float[1,12] x) => (y) <float[12,5] w, float[5] b> { t = MatMul(x, w) y = Add(b, t) }",
        ["fully_connected"],
    ),
    (
        "pad and convolution",
        13,
        f"{BEFORE} {PAD}, float[4,8,3,3] w> {{ {X} a = Pad(x, p) y = Conv(a, w) }}",
        ["conv2d", "conv2d"],
    ),
    (
        "pad and maximum",
        13,
        f"{BEFORE} {PAD}> {{ {X} r = Relu(x) a = Pad(r, p) y = MaxPool<kernel_shape=[3,3]>(a) }}",
        ["conv2d", "max_pool"],
    ),
    (
        "pad and mean",
        13,
        f"{BEFORE} {PAD}> {{ {X} a = Pad(x, p) y = AveragePool<kernel_shape=[3,3]>(a) }}",
        ["conv2d", "average_pool"],
    ),
    (
        "convolution and batch normalization",
        13,
        f"{IMAGE} <float[4,8,3,3] w, float[4] s, float[4] b, float[4] m, float[4] var> "
        "{ c = Conv<pads=[1,1,1,1]>(x, w) n = BatchNormalization(c, s, b, m, var) y = Relu(n) }",
        ["conv2d"],
    ),
    (
        "batch normalization and convolution",
        13,
        f"{IMAGE} <float[4,8,3,3] w, float[8] s, float[8] b, float[8] m, float[8] var> "
        "{ n = BatchNormalization(x, s, b, m, var) y = Conv(n, w) }",
        ["conv2d"],
    ),
    (
        "batch normalization and padded convolution",  # merged after calibration, where the padding fits
        13,
        f"{IMAGE} <float[4,8,3,3] w, float[8] s, float[8] b, float[8] m, float[8] var> "
        "{ n = BatchNormalization(x, s, b, m, var) y = Conv<pads=[1,1,1,1]>(n, w) }",
        ["conv2d", "conv2d"],
    ),
    (
        "scale and bias after a convolution",
        13,
        f"{IMAGE} <float[4,8,1,1] w, float[1,4,1,1] s, float[4,1,1] b> "
        "{ c = Conv(x, w) m = Mul(c, s) y = Add(m, b) }",
        ["conv2d"],
    ),
]


@pytest.mark.parametrize(("opset", "text", "ops"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_is_what_it_means(opset, text, ops, tmp_path):
    model = build(text, opset, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    for _, function in FLOAT:
        graph = function(graph)
    found = [node for node in graph.nodes if node.op != "reshape"]
    while found and found[0].op == "transpose":
        found = found[1:]
    while found and found[-1].op == "transpose":
        found = found[:-1]
    assert [node.op for node in found] == ops
    feed = feeds(graph)
    for a, b in zip(run(model, feed), run(to_onnx(graph, graph.outputs), feed), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4 * np.abs(a).max())
