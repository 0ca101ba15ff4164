"""Normalizations, as ops and as exporters write them out: one normalize each, with the function of the model."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_text import build, feeds
from test_lowering import run

from nmpconv.errors import UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.passes.float import FLOAT

IMAGE = "(float[1,6,5,4] x) => (y)"
ROWS = "(float[1,7,12] x) => (y)"
MOMENTS = "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m)"
TENSORFLOW = (
    "m = ReduceMean<axes=[2]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[2]>(s) a = Add(v, e) r = Sqrt(a)"
)

# (id, opset, model, ops after the float passes besides reshapes)
CASES = [
    ("layer", 17, f"{ROWS} <float[12] g, float[12] b> {{ y = LayerNormalization(x, g, b) }}", ["normalize"]),
    ("layer/no bias", 17, f"{ROWS} <float[12] g> {{ y = LayerNormalization<epsilon=0.01>(x, g) }}", ["normalize"]),
    (
        "layer/two axes",
        17,
        f"{ROWS} <float[7,12] g, float[7,12] b> {{ y = LayerNormalization<axis=1>(x, g, b) }}",
        ["normalize"],
    ),
    (
        "layer/channels last of a convolution",
        17,
        f"{IMAGE} <float[6,6,1,1] w, float[6] g, float[6] b> {{ c = Conv(x, w) t = Transpose<perm=[0,2,3,1]>(c)"
        " n = LayerNormalization(t, g, b) u = Transpose<perm=[0,3,1,2]>(n) y = Conv(u, w) }",
        ["transpose", "conv2d", "normalize", "conv2d", "transpose"],
    ),
    (
        "instance",
        17,
        f"{IMAGE} <float[6] g, float[6] b> {{ y = InstanceNormalization<epsilon=0.001>(x, g, b) }}",
        ["normalize"],
    ),
    ("instance/1d", 17, f"{ROWS} <float[7] g, float[7] b> {{ y = InstanceNormalization(x, g, b) }}", ["normalize"]),
    (
        "instance/between convolutions",
        17,
        f"{IMAGE} <float[6,6,1,1] w, float[6] g, float[6] b> {{ c = Conv(x, w) n = InstanceNormalization(c, g, b)"
        " r = Relu(n) y = Conv(r, w) }",
        ["transpose", "conv2d", "normalize", "conv2d", "transpose"],
    ),
    (
        "group/per group",
        18,
        f"{IMAGE} <float[3] g, float[3] b> {{ y = GroupNormalization<num_groups=3>(x, g, b) }}",
        ["normalize"],
    ),
    (
        "group/per channel",
        21,
        f"{IMAGE} <float[6] g, float[6] b> {{ y = GroupNormalization<num_groups=3>(x, g, b) }}",
        ["normalize"],
    ),
    (
        "group/as PyTorch writes it",
        17,
        f"{IMAGE} <float[6,6,1,1] w, float[2] one = {{1,1}}, float[2] none = {{0,0}}, float[6,1,1] g, float[6,1,1] b,"
        " int64[3] s = {0,2,-1}, int64[4] t = {1,6,5,4}> { c = Conv(x, w) f = Reshape(c, s)"
        " n = InstanceNormalization(f, one, none) u = Reshape(n, t) v = Mul(u, g) a = Add(v, b) y = Conv(a, w) }",
        ["transpose", "conv2d", "normalize", "conv2d", "transpose"],
    ),
    ("mean and variance", 13, f"{IMAGE} {{ y = MeanVarianceNormalization(x) }}", ["normalize"]),
    (
        "written out/power",
        13,
        f"{ROWS} <float p = {{2}}, float e = {{1e-5}}, float[12] g, float[12] b> {{ {MOMENTS} s = Pow(d, p)"
        " v = ReduceMean<axes=[-1]>(s) a = Add(v, e) r = Sqrt(a) q = Div(d, r) t = Mul(q, g) y = Add(t, b) }",
        ["normalize"],
    ),
    (
        "written out/axes as an input",
        18,
        f"{ROWS} <float e = {{1e-5}}, int64[1] k = {{-1}}> {{ m = ReduceMean(x, k) d = Sub(x, m) s = Mul(d, d)"
        " v = ReduceMean(s, k) a = Add(e, v) r = Sqrt(a) y = Div(d, r) }",
        ["normalize"],
    ),
    (
        "written out/difference twice",
        13,
        f"{ROWS} <float e = {{1e-5}}> {{ {MOMENTS} d2 = Sub(x, m) s = Mul(d2, d2)"
        " v = ReduceMean<axes=[-1]>(s) a = Add(v, e) r = Sqrt(a) i = Reciprocal(r) y = Mul(i, d) }",
        ["normalize"],
    ),
    (
        "written out/instance",
        13,
        f"{IMAGE} <float p = {{-0.5}}, float[6,1,1] g> {{ c = Constant<value_float=0.001>()"
        " m = ReduceMean<axes=[2,3]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[2,3]>(s) a = Add(v, c)"
        " r = Pow(a, p) q = Mul(d, r) y = Mul(g, q) }",
        ["normalize"],
    ),
    (
        "written out/TensorFlow",
        13,
        f"{ROWS} <float e = {{1e-3}}, float[12] g, float[12] b> {{ {TENSORFLOW} i = Reciprocal(r) w = Mul(i, g)"
        " p = Mul(x, w) o = Mul(m, w) c = Sub(b, o) y = Add(p, c) }",
        ["normalize"],
    ),
    (
        "written out/TensorFlow without scale",
        13,
        f"{ROWS} <float e = {{1e-3}}, float[12] b> {{ {TENSORFLOW} i = Reciprocal(r)"
        " p = Mul(x, i) o = Mul(m, i) c = Sub(b, o) y = Add(c, p) }",
        ["normalize"],
    ),
    (
        "subtracted from a constant",
        17,
        f"{ROWS} <float[12] g, float[12] b> {{ n = LayerNormalization(x, g) y = Sub(b, n) }}",
        ["normalize"],
    ),
    (
        "saturated",
        17,
        f"{ROWS} <float[12] g> {{ n = LayerNormalization(x, g) r = Relu(n) y = Mul(r, g) }}",
        ["normalize", "mul"],
    ),
]


@pytest.mark.parametrize(("opset", "text", "ops"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_is_one_op(opset, text, ops, tmp_path):
    model = build(text, opset, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    for _, function in FLOAT:
        graph = function(graph)
    assert [node.op for node in graph.nodes if node.op != "reshape"] == ops
    feed = feeds(graph)
    for a, b in zip(run(model, feed), run(to_onnx(graph, graph.outputs), feed), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4 * np.abs(a).max())


NEARLY = [
    ("other axes", "v = ReduceMean<axes=[1]>(s) a = Add(v, e) r = Sqrt(a)", "d"),
    ("all axes", "v = ReduceMean(s) a = Add(v, e) r = Sqrt(a)", "d"),
    ("of another tensor", "v = ReduceMean<axes=[-1]>(s) a = Add(v, e) r = Sqrt(a)", "x"),
]


@pytest.mark.parametrize(("middle", "top"), [pytest.param(*case[1:], id=case[0]) for case in NEARLY])
def test_what_only_looks_alike_is_not_one(middle, top, tmp_path):
    text = f"{ROWS} <float e = {{1e-5}}> {{ {MOMENTS} s = Mul(d, d) {middle} i = Reciprocal(r) y = Mul({top}, i) }}"
    build(text, 13, tmp_path / "model.onnx")
    assert "normalize" not in {node.op for node in load(tmp_path / "model.onnx").nodes}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[1,3,65537] x) => (y) <float[3] g> { y = InstanceNormalization(x, g, g) }", "65537 elements"),
        ("(float[1,6,5] x) => (y) <float[4] g> { y = GroupNormalization<num_groups=4>(x, g, g) }", "6 channels do not"),
        ("(float[1,6] x, float[6] g) => (y) { y = LayerNormalization(x, g) }", "its scale 'g' is computed"),
        ("(float[1,6] x) => (y, m) <float[6] g> { y, m = LayerNormalization(x, g) }", "its output 'm' is used"),
    ],
)
def test_refused(text, message, tmp_path):
    build(text, 18, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel, match=message):
        load(tmp_path / "model.onnx")
