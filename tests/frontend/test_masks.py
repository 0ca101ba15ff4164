"""Masks of attention: as onnxruntime computes them."""

from __future__ import annotations

import pytest
from onnx_text import build
from test_expand import check

from nmpconv.frontend.onnx import load

SCORES = "(float[1,2,3,3] x) => (y)"
CAUSAL = "<float[3,3] m = {0.5,-inf,-inf,0,0,-inf,0,0,0}>"
MASKS = [
    (
        "of keys for all heads",
        13,
        "(float[1,2,3,3] x, float[1,3] k) => (y) <float c = {-inf}, float z = {0}, int64[4] s = {1,2,1,3}> { b = "
        "Greater(k, z) t = Where(b, z, c) e = Expand(t, s) a = Add(x, e) y = Softmax<axis=-1>(a) }",
    ),
    (
        "logarithm of truth",
        13,
        "(float[1,2,3,3] x, float[1,1,3,3] k) => (y) <float z = {-0.5}> "
        "{ b = Greater(k, z) t = Cast<to=1>(b) l = Log(t) a = Add(x, l) y = Softmax<axis=-1>(a) }",
    ),
    ("add", 13, f"{SCORES} {CAUSAL} {{ t = Add(x, m) y = Softmax<axis=-1>(t) }}"),
    (
        "bias_behind",
        13,
        f"{SCORES} <float[3,3] m = {{0.5,-inf,-inf,0,0,-inf,0,0,0}}, float[3,3] b = {{1,9,2,-3,1,7,0,2,-1}}> "
        "{ t = Add(x, m) u = Add(t, b) y = Softmax<axis=-1>(u) }",
    ),
    (
        "mask_behind",
        13,
        f"{SCORES} <float[3,3] m = {{0,-inf,-inf,0,0,-inf,0,0,0}}, float[3] n = {{0,-inf,0}}> "
        "{ t = Add(x, m) u = Add(n, t) y = Softmax<axis=-1>(u) }",
    ),
    ("moved", 13, f"{SCORES} {CAUSAL} {{ t = Add(m, x) u = Identity(t) y = Softmax<axis=-1>(u) }}"),
    (
        "where",
        13,
        f"{SCORES} <bool[3,3] m = {{0,1,1,0,0,1,0,0,0}}, float c = {{-inf}}> "
        "{ t = Where(m, c, x) y = Softmax<axis=-1>(t) }",
    ),
    (
        "one number",
        13,
        f"{SCORES} <bool[3,3] m = {{0,1,1,0,0,1,0,0,0}}, float[1] c = {{-inf}}> "
        "{ t = Where(m, c, x) y = Softmax<axis=-1>(t) }",
    ),
    (
        "border",
        13,
        "(float[1,2,3,3] x) => (y) <int64[8] p = {0,0,0,1,0,0,0,2}, float c = {-inf}> "
        "{ t = Pad(x, p, c) y = Softmax<axis=-1>(t) }",
    ),
    (
        "border of one axis, of which computed places choose",
        18,
        "(float[1,2,3,3] x) => (y) <int64[2] p = {1,1}, float c = {-inf}, int64[1] a = {3}, int64[3] n = {0,1,2}> "
        "{ m = ArgMax<axis=-1,keepdims=1>(x) i = Add(m, n) t = Pad(x, p, c, a) g = GatherElements<axis=-1>(t, i) "
        "y = Softmax<axis=-1>(g) }",
    ),
    (
        "border beside a negative pad",
        13,
        "(float[1,2,3,3] x) => (y) <int64[8] p = {0,0,0,-1,0,0,0,2}, float c = {-inf}> "
        "{ t = Pad(x, p, c) y = Softmax<axis=-1>(t) }",
    ),
    (
        "border before opset 11",
        10,
        f"{SCORES} {{ t = Pad<pads=[0,0,0,1,0,0,0,2],value=-inf>(x) y = Softmax<axis=3>(t) }}",
    ),
    (
        "nothing hidden",
        13,
        f"{SCORES} <bool[3,3] m = {{0,0,0,0,0,0,0,0,0}}, float c = {{-inf}}> {{ t = Where(m, c, x) y = Sigmoid(t) }}",
    ),
    (
        "whole row",
        13,
        f"{SCORES} <float[3,3] m = {{-10000,-10000,-10000,0,0,-10000,0,0,0}}> "
        "{ t = Add(x, m) u = Softmax<axis=-1>(t) y = Sigmoid(u) }",
    ),
    (
        "computed",
        13,
        "(float[1,2,3,3] x, float[1,1,3,3] z) => (y) <float c = {-10000.0}> "
        "{ m = Greater(z, x) t = Where(m, c, x) y = Softmax<axis=-1>(t) }",
    ),
]


@pytest.mark.parametrize(("opset", "text"), [pytest.param(*case[1:], id=case[0]) for case in MASKS])
def test_masks_equal_onnxruntime(opset, text, tmp_path):
    check(opset, text, tmp_path)


def test_logarithms_of_truth_are_finite(tmp_path):
    """No tensor holds -inf, which no grid has; where all is numbers, a logarithm stays one."""
    (text,) = (text for label, _, text in MASKS if label == "logarithm of truth")
    build(text, 13, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    assert "lookup" not in [node.op for node in graph.nodes]
    build(text.replace("Cast<to=1>(b)", "Sigmoid(x)"), 13, tmp_path / "n.onnx")
    assert "lookup" in [node.op for node in load(tmp_path / "n.onnx").nodes]


def test_a_border_of_one_axis_is_a_mask_of_one(tmp_path):
    (text,) = (text for label, _, text in MASKS if label == "border")
    build(text, 13, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    (mask,) = (graph[node.inputs[1]] for node in graph.nodes if node.op == "minimum")
    assert mask.size == 3 + 1 + 2
