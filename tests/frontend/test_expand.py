"""Operators that are written as others: as onnxruntime computes them, and at 16 bits with little noise."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_text import build, feeds
from test_lowering import run

from nmpconv.errors import InvalidModel, UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

IMAGE = "(float[1,4,9,8] x) => (y)"
VOLUME = "(float[1,2,6,5,4] x) => (y)"
LARGE = "(float[1,2,300,300] x) => (y) <float[2] s, float[2] b>"
HEADS = "(float[1,2,3,8] q, float[1,2,3,8] k, float[1,2,3,8] v) => (y)"

FUNCTIONS = [
    *(
        (kind, 22, f"{IMAGE} {{ y = {kind}(x) }}")
        for kind in ("Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Celu")
    ),
    *((kind, 22, f"{IMAGE} {{ y = {kind}(x) }}") for kind in ("Ceil", "Floor", "Round", "Sign", "ThresholdedRelu")),
    *((kind, 22, f"{IMAGE} {{ t = Tanh(x) y = {kind}(t) }}") for kind in ("Asin", "Acos")),
    ("Atanh", 22, f"{IMAGE} <float c = {{0.9}}> {{ t = Tanh(x) u = Mul(t, c) y = Atanh(u) }}"),
    ("Acosh", 22, f"{IMAGE} <float c = {{1.1}}> {{ t = Abs(x) u = Add(t, c) y = Acosh(u) }}"),
    ("Round/float32", 13, f"{IMAGE} <float c = {{12582912}}> {{ a = Add(x, c) y = Sub(a, c) }}"),
    ("Round/to quarters", 13, f"{IMAGE} <float c = {{3145728}}> {{ a = Sub(x, c) y = Add(c, a) }}"),
    (
        "Round/of a larger rank",
        13,
        "(float[1,24] x) => (y) <float c = {12582912}, float[1,1,1] d = {12582912}> { a = Add(x, c) y = Sub(a, d) }",
    ),
    ("Cast/whole part", 13, f"{IMAGE} {{ i = Cast<to=7>(x) y = Cast<to=1>(i) }}"),
    (
        "Cast/index",
        13,
        f"{IMAGE} <float[9,2] rows, float c = {{8.9}}> "
        "{ s = Sigmoid(x) t = Mul(s, c) i = Cast<to=7>(t) y = Gather(rows, i) }",
    ),
    ("Mod", 13, f"{IMAGE} <float c = {{1.5}}> {{ y = Mod<fmod=1>(x, c) }}"),
    ("Mod/several", 13, f"{IMAGE} <float[8] c = {{1.5,-2,0.7,3,1,-1,2,0.3}}> {{ y = Mod<fmod=1>(x, c) }}"),
    ("Shrink/hard", 13, f"{IMAGE} {{ y = Shrink(x) }}"),
    ("Shrink/soft", 13, f"{IMAGE} {{ y = Shrink<lambd=0.5,bias=0.5>(x) }}"),
    ("Shrink/other", 13, f"{IMAGE} {{ y = Shrink<lambd=0.5,bias=0.2>(x) }}"),
    ("Swish", 24, f"{IMAGE} {{ y = Swish<alpha=0.7>(x) }}"),
    ("RMSNormalization", 23, f"{IMAGE} <float[8] s> {{ y = RMSNormalization(x, s) }}"),
    ("IsNaN", 13, f"{IMAGE} <float c = {{2.0}}> {{ b = IsNaN(x) y = Where(b, c, x) }}"),
    ("IsInf", 13, f"{IMAGE} <float c = {{2.0}}> {{ b = IsInf(x) y = Where(b, c, x) }}"),
    (
        "Equal/infinity",
        13,
        f"{IMAGE} <float c = {{2.0}}, float i = {{inf}}> {{ a = Abs(x) b = Equal(a, i) y = Where(b, c, x) }}",
    ),
    ("Mean", 13, f"{IMAGE} {{ t = Abs(x) y = Mean(x, t, t) }}"),
    ("Hardmax", 13, f"{IMAGE} {{ y = Hardmax<axis=1>(x) }}"),
    ("Hardmax/flat", 11, f"{IMAGE} {{ y = Hardmax<axis=2>(x) }}"),
    ("Trilu", 14, f"{IMAGE} <int64 k = {{-1}}> {{ y = Trilu<upper=0>(x, k) }}"),
    ("LpNormalization", 13, f"{IMAGE} {{ y = LpNormalization<axis=1>(x) }}"),
    ("ReduceProd", 18, f"{IMAGE} <int64[1] a = {{2}}> {{ t = Tanh(x) y = ReduceProd(t, a) }}"),
    ("ReduceProd/no axes", 13, "(float[1,2,3] x) => (y) { y = ReduceProd<keepdims=0>(x) }"),
    ("ReduceLogSumExp", 18, f"{IMAGE} <int64[2] a = {{2,1}}> {{ y = ReduceLogSumExp<keepdims=0>(x, a) }}"),
    ("Pow/several", 13, f"{IMAGE} <float[8] e = {{1,2,3,0.5,-1,2,2,1}}> {{ t = Exp(x) y = Pow(t, e) }}"),
    (
        "Pow/bases that others have not",
        13,
        f"{IMAGE} <float[8] e = {{1,2,3,2,0.5,1,2,2}}, float[8] f = {{-9,-9,-9,-9,0.1,-9,-9,-9}}> "
        "{ t = Max(x, f) y = Pow(t, e) }",
    ),
    ("Pow/many", 13, f"{IMAGE} <float[4,9,8] e> {{ t = Sigmoid(x) y = Pow(t, e) }}"),
    ("Pow/computed", 13, f"{IMAGE} {{ t = Sigmoid(x) e = Tanh(x) y = Pow(t, e) }}"),
    ("Pow/of a constant", 13, f"{IMAGE} <float b = {{2.0}}> {{ y = Pow(b, x) }}"),
]

POOLS = [
    ("Pad/negative", 13, f"{IMAGE} <int64[8] p = {{0,0,-1,2,0,1,1,-3}}, float v = {{0.5}}> {{ y = Pad(x, p, v) }}"),
    *(
        (f"Pad/negative/{mode}", 19, f'{IMAGE} <int64[8] p = {{0,0,-1,2,0,0,2,-3}}> {{ y = Pad<mode="{mode}">(x, p) }}')
        for mode in ("edge", "reflect", "wrap")
    ),
    ("Pad/negative/attributes", 7, f"{IMAGE} {{ y = Pad<pads=[0,0,-1,2,0,1,1,-3],value=0.5>(x) }}"),
    ("TopK", 13, "(float[1,4,9] x) => (v, i) <int64[1] k = {3}> { v, i = TopK(x, k) }"),
    ("TopK/1", 13, "(float[1,4,9] x) => (v, i) <int64[1] k = {1}> { v, i = TopK<axis=1>(x, k) }"),
    ("TopK/smallest", 13, "(float[1,4,9] x) => (v, i) <int64[1] k = {9}> { v, i = TopK<largest=0>(x, k) }"),
    ("TopK/many", 13, "(float[1,3,4,50] x) => (v, i) <int64[1] k = {20}> { v, i = TopK(x, k) }"),
    ("TopK/values", 13, "(float[1,4,50] x) => (v) <int64[1] k = {50}> { v, i = TopK(x, k) }"),
    ("TopK/indices", 13, "(float[1,4,50] x) => (i) <int64[1] k = {20}> { v, i = TopK(x, k) }"),
    ("TopK/row", 13, "(float[50] x) => (v, i) <int64[1] k = {20}> { v, i = TopK(x, k) }"),
    ("TopK/first axis", 13, "(float[30,2] x) => (v, i) <int64[1] k = {20}> { v, i = TopK<axis=0>(x, k) }"),
    ("LpPool", 18, f"{IMAGE} {{ y = LpPool<kernel_shape=[2,3],pads=[1,0,0,1],p=2>(x) }}"),
    ("LpPool/1", 18, f"{IMAGE} {{ y = LpPool<kernel_shape=[2,3],p=1>(x) }}"),
    ("LpPool/3", 18, f"{IMAGE} {{ y = LpPool<kernel_shape=[2,3],p=3>(x) }}"),
    ("GlobalLpPool", 18, f"{IMAGE} {{ y = GlobalLpPool(x) }}"),
    (
        "AveragePool/ceil",
        19,
        f"{IMAGE} {{ y = AveragePool<kernel_shape=[2,3],strides=[3,3],pads=[1,1,0,0],ceil_mode=1,"
        "count_include_pad=1>(x) }",
    ),
    ("AveragePool/dilated", 19, f"{IMAGE} {{ y = AveragePool<kernel_shape=[2,2],dilations=[2,2]>(x) }}"),
    ("InstanceNormalization/large", 13, f"{LARGE} {{ y = InstanceNormalization(x, s, b) }}"),
    ("Col2Im", 18, "(float[1,12,9] x) => (y) <int64[2] s = {4,4}, int64[2] b = {2,2}> { y = Col2Im(x, s, b) }"),
    (
        "Col2Im/side by side",
        18,
        "(float[1,12,6] x) => (y) <int64[2] s = {4,9}, int64[2] b = {2,3}> { y = Col2Im<strides=[2,3]>(x, s, b) }",
    ),
    (
        "Col2Im/strides",
        18,
        "(float[1,27,16] x) => (y) <int64[2] s = {7,8}, int64[2] b = {3,3}> "
        "{ y = Col2Im<strides=[2,2],pads=[1,1,1,1]>(x, s, b) }",
    ),
    (
        "Col2Im/dilated",
        18,
        "(float[1,12,9] x) => (y) <int64[2] s = {5,5}, int64[2] b = {2,3}> { y = Col2Im<dilations=[2,1]>(x, s, b) }",
    ),
    (
        "Col2Im/3d",
        18,
        "(float[1,16,12] x) => (y) <int64[3] s = {3,4,3}, int64[3] b = {2,2,2}> { y = Col2Im(x, s, b) }",
    ),
    (
        "Conv/3d",
        13,
        f"{VOLUME} <float[4,2,3,2,3] w, float[4] b> {{ y = Conv<pads=[1,0,1,1,1,1],strides=[2,1,1]>(x, w, b) }}",
    ),
    (
        "Conv/3d/groups",
        13,
        f"{VOLUME} <float[4,1,3,2,3] w, float[4] b> {{ y = Conv<group=2,dilations=[2,1,1]>(x, w, b) }}",
    ),
    ("Conv/3d/same", 13, f'{VOLUME} <float[4,2,3,2,3] w> {{ y = Conv<auto_pad="SAME_UPPER",strides=[2,2,2]>(x, w) }}'),
    (
        "ConvTranspose/3d",
        13,
        f"{VOLUME} <float[2,3,3,2,3] w, float[3] b> "
        "{ y = ConvTranspose<strides=[2,1,2],pads=[1,0,1,1,1,1],output_padding=[1,0,1]>(x, w, b) }",
    ),
    ("MaxPool/3d", 13, f"{VOLUME} {{ y = MaxPool<kernel_shape=[2,2,3],strides=[2,1,1],pads=[1,0,1,1,1,1]>(x) }}"),
    (
        "AveragePool/3d",
        19,
        f"{VOLUME} {{ y = AveragePool<kernel_shape=[2,2,3],strides=[2,1,1],pads=[1,0,1,1,1,1]>(x) }}",
    ),
    ("AveragePool/3d/ceil", 19, f"{VOLUME} {{ y = AveragePool<kernel_shape=[2,2,3],strides=[2,2,1],ceil_mode=1>(x) }}"),
    ("GlobalAveragePool/3d", 13, f"{VOLUME} {{ y = GlobalAveragePool(x) }}"),
    ("GlobalMaxPool/3d", 13, f"{VOLUME} {{ y = GlobalMaxPool(x) }}"),
    (
        "BatchNormalization/3d",
        13,
        f"{VOLUME} <float[2] s, float[2] b, float[2] m, float[2] var> {{ y = BatchNormalization(x, s, b, m, var) }}",
    ),
]

ATTENTION = [
    (
        "TopK/rows of equals",
        11,
        f"{IMAGE} <float f = {{100.0}}, int64[1] k = {{3}}> "
        "{ t = Max(x, f) v, i = TopK<axis=1>(t, k) u = Cast<to=1>(i) y = Add(u, v) }",
    ),
    (
        "Attention/hidden row",
        23,
        f"{HEADS} <bool[3,3] m = {{1,0,0,0,0,0,1,1,1}}> {{ y = Attention(q, k, v, m) }}",
    ),
    ("Attention", 23, f"{HEADS} {{ y = Attention(q, k, v) }}"),
    ("Attention/causal", 23, f"{HEADS} {{ y = Attention<is_causal=1>(q, k, v) }}"),
    ("Attention/mask", 23, f"{HEADS} <bool[3,3] m = {{1,0,0,1,1,0,1,1,1}}> {{ y = Attention(q, k, v, m) }}"),
    (
        "Attention/past",
        23,
        "(float[1,2,3,8] q, float[1,2,3,8] k, float[1,2,3,8] v, float[1,2,4,8] p, float[1,2,4,8] r) => (y, nk, nv) "
        "{ y, nk, nv = Attention<is_causal=1>(q, k, v, , p, r) }",
    ),
    (
        "Attention/grouped",
        23,
        "(float[1,3,16] q, float[1,3,8] k, float[1,3,8] v) => (y) "
        "{ y = Attention<q_num_heads=4,kv_num_heads=2>(q, k, v) }",
    ),
    (
        "RotaryEmbedding",
        23,
        "(float[1,2,3,8] q) => (y) <float[1,3,4] c, float[1,3,4] s> { y = RotaryEmbedding(q, c, s) }",
    ),
]


def recurrent(kind: str, attributes: str = "", inputs: str = "", more: str = "", directions: int = 1) -> str:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    weights = (
        f"float[{directions},{4 * gates},3] w, float[{directions},{4 * gates},4] r, float[{directions},{8 * gates}] b"
    )
    outputs = "y, h, c" if kind == "LSTM" else "y, h"
    return (
        f"(float[5,1,3] x{inputs}) => ({outputs}) <{weights}{more}> "
        f"{{ {outputs} = {kind}<hidden_size=4{attributes}>(x, w, r, b, {'l' if 'l =' in more else ''}, "
        f"{'h0' if inputs else ''}{', c0' if 'c0' in inputs else ''}) }}"
    )


RECURRENT = [
    *((kind, 14, recurrent(kind)) for kind in ("RNN", "GRU", "LSTM")),
    *((f"{kind}/reverse", 14, recurrent(kind, ',direction="reverse"')) for kind in ("RNN", "GRU", "LSTM")),
    *((f"{kind}/length", 14, recurrent(kind, more=", int32[1] l = {3}")) for kind in ("RNN", "GRU", "LSTM")),
    *(
        (f"{kind}/state", 14, recurrent(kind, ',direction="bidirectional"', ", float[2,1,4] h0", directions=2))
        for kind in ("RNN", "GRU")
    ),
    (
        "LSTM/state",
        14,
        recurrent("LSTM", ',direction="bidirectional"', ", float[2,1,4] h0, float[2,1,4] c0", directions=2),
    ),
    ("GRU/linear", 14, recurrent("GRU", ",linear_before_reset=1", ", float[1,1,4] h0")),
    ("GRU/linear/no state", 14, recurrent("GRU", ",linear_before_reset=1")),
    ("GRU/activations", 14, recurrent("GRU", ',activations=["HardSigmoid","Softsign"],clip=1.5')),
    ("RNN/relu", 14, recurrent("RNN", ',activations=["Relu"]')),
]


CASES = [*FUNCTIONS, *POOLS, *ATTENTION, *RECURRENT]


@pytest.mark.parametrize(("opset", "text"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_equals_onnxruntime(opset, text, tmp_path):
    check(opset, text, tmp_path)


def check(opset, text, tmp_path):
    model = build(text, opset, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    for wanted, got in zip(run(model, feed), run(to_onnx(graph, graph.outputs), feed), strict=True):
        assert wanted.shape == got.shape
        np.testing.assert_allclose(got, wanted.astype(np.float32), rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


CONTRIB = [
    ("QuickGelu", f"{IMAGE} {{ y = com.microsoft.QuickGelu<alpha=1.7>(x) }}"),
    ("FastGelu", f"{IMAGE} <float[8] b> {{ y = com.microsoft.FastGelu(x, b) }}"),
    ("BiasGelu", f"{IMAGE} <float[8] b> {{ y = com.microsoft.BiasGelu(x, b) }}"),
    ("Gelu", f"{IMAGE} {{ y = com.microsoft.Gelu(x) }}"),
    ("FusedMatMul", f"{IMAGE} <float[9,5] w> {{ y = com.microsoft.FusedMatMul<alpha=0.5,transA=1>(x, w) }}"),
    (
        "FusedConv",
        f"{IMAGE} <float[3,4,3,3] w, float[3] b> "
        '{ y = com.microsoft.FusedConv<activation="LeakyRelu",activation_params=[0.2],pads=[1,1,1,1]>(x, w, b) }',
    ),
    (
        "FusedGemm",
        '(float[1,6] x) => (y) <float[6,5] w, float[5] b> { y = com.microsoft.FusedGemm<activation="Relu">(x, w, b) }',
    ),
    (
        "SkipLayerNormalization",
        "(float[1,3,8] x, float[1,3,8] z) => (y) <float[8] s, float[8] b> "
        "{ y = com.microsoft.SkipLayerNormalization<epsilon=0.01>(x, z, s, b) }",
    ),
    (
        "SkipLayerNormalization of small numbers",
        "(float[1,3,8] x, float[1,3,8] z) => (y) <float[8] s, float[8] b, float k = {0.0001}> "
        "{ t = Mul(x, k) u = Mul(z, k) y = com.microsoft.SkipLayerNormalization(t, u, s, b) }",
    ),
    (
        "SkipSimplifiedLayerNormalization",
        "(float[1,3,8] x, float[1,3,8] z) => (y) <float[8] s> "
        "{ y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.01>(x, z, s) }",
    ),
]


@pytest.mark.parametrize("text", [pytest.param(case[1], id=case[0]) for case in CONTRIB])
def test_what_the_optimizer_leaves(text, tmp_path):
    """onnxruntime's tables of error functions are coarse."""
    model = build(text, 17, tmp_path / "model.onnx", ', "com.microsoft" : 1')
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    for wanted, got in zip(run(model, feed), run(to_onnx(graph, graph.outputs), feed), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


def test_names_do_not_collide(tmp_path):
    """The model has tensors of the names that an expansion would take."""
    text = (
        "(float[1,4] x) => (y) <float[1,4] y.Cast> "
        "{ y.Greater = Add(x, y.Cast) s = Sign(x) t = Sign(y.Greater) y = Add(s, t) }"
    )
    model = build(text.replace("y.", "y_"), 13, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    np.testing.assert_array_equal(run(model, feed)[0], run(to_onnx(graph, graph.outputs), feed)[0])


def test_a_refusal_names_the_node_itself(tmp_path):
    text = '(float[1,4,9,8] x) => (y) <float[1,4,3,3] w> { y = com.microsoft.FusedConv<auto_pad="FULL">(x, w) }'
    build(text, 17, tmp_path / "model.onnx", ', "com.microsoft" : 1')
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    ((node, kind, why, _),) = caught.value.rows
    assert (node, kind, why) == ("y", "com.microsoft.FusedConv", "auto_pad FULL")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "(float[2000,1,3] x) => (y) <float[1,4,3] w, float[1,4,4] r> { y = RNN<hidden_size=4>(x, w, r) }",
            "2000 steps of time",
        ),
        (
            "(float[1,2,3] t) => (y) <int64[4] s = {1,2,5,1}> { y = AffineGrid<align_corners=1>(t, s) }",
            "align_corners along an axis of 1",
        ),
        (
            "(float[1,4] x) => (y) <int64 c = {2}> { i = ArgMax<axis=1>(x) j = Sub(i, c) y = Div(j, c) }",
            "a quotient of computed integers: 'j' may be negative",
        ),
        (
            "(float[1,4] x) => (y) <int64 c = {-2}> { i = ArgMax<axis=1>(x) y = Mod(i, c) }",
            "a quotient of computed integers: 'c' may be negative",
        ),
        (
            "(float[1,4,4] x) => (y) <int64 c = {2}> "
            "{ i = ArgMax<axis=1,keepdims=0>(x) j = Sub(i, c) p = Concat<axis=0>(j, i) t = Transpose(p) "
            "f = Flatten<axis=2>(x) y = GatherND(f, t) }",
            "positions 't' that may be negative",
        ),
        (
            "(float[1,20000] x) => (y) <int64[1] k = {5}, int64 c = {20000}> "
            "{ v, i = TopK(x, k) j = Add(i, c) h = Sub(j, c) y = GatherElements<axis=1>(x, h) }",
            r"indices computed from 'j', whole numbers from 20000 to 39999; instead: numbers from -32768 to 32767, "
            r"as int16 holds[^$]*--outputs h",
        ),
        (
            "(float[1,40000] x) => (y) <int64[1] k = {5}> { v, y = TopK(x, k) }",
            "an axis of 40000; instead: at most 32768",
        ),
        ("(float[1,4] x) => (y) { y = LpNormalization<p=3>(x) }", "p = 3"),
    ],
)
def test_refused(text, why, tmp_path):
    onnx.save(build(text, 20), tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel, match=why):
        load(tmp_path / "model.onnx")


@pytest.mark.parametrize(("pads", "sums"), [([0, 0, 0, 0], 0), ([0, 0, 0, 1], 1)])
def test_blocks_side_by_side_are_only_moved(pads, sums, tmp_path):
    text = f"(float[1,24,6] x) => (y) <int64[2] s = {{4,{9 - pads[3]}}}, int64[2] b = {{2,3}}> "
    onnx.save(build(text + f"{{ y = Col2Im<strides=[2,3],pads={pads}>(x, s, b) }}", 18), tmp_path / "model.onnx")
    ops = [node.op for node in load(tmp_path / "model.onnx").nodes]
    assert ops.count("conv_transpose") == sums


def test_blocks_that_do_not_fit(tmp_path):
    text = "(float[1,12,8] x) => (float[n,c,h,w] y) <int64[2] s = {4,4}, int64[2] b = {2,2}> { y = Col2Im(x, s, b) }"
    onnx.save(build(text, 18), tmp_path / "model.onnx")
    with pytest.raises(InvalidModel, match=r"blocks \[2, 2\] of \[4, 4\] for x \[1, 12, 8\]"):
        load(tmp_path / "model.onnx")


def test_constants_are_not_rounded_to_float16(tmp_path):
    """The mean over windows that ceil_mode enlarges is a convolution with 1 / 6."""
    text = "AveragePool<kernel_shape=[2,3],strides=[3,3],pads=[1,1,0,0],ceil_mode=1,count_include_pad=1>(x)"
    build(f"(float16[1,1,6,6] x) => (float16[1,1,h,w] y) {{ y = {text} }}", 19, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    (conv,) = (node for node in graph.nodes if node.op == "conv2d")
    assert set(graph[conv.inputs[1]].data.ravel()) == {np.float32(1 / 6)}


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_halves_are_folded_in_float32(element, tmp_path):
    """As what is not constant: the model is compared with itself in float32."""
    code = TensorProto.DataType.Value(element.upper())
    half = helper.tensor_dtype_to_np_dtype(code)
    text = f"""({element}[1,2] x) => (y) {{
      s = Shape(x) n = Cast<to={code}>(s) r = Sqrt(n) c = Mul(r, k) y = Mul(x, c)
    }}"""
    k = np.asarray(0.1, half)
    build(text, 19, tmp_path / "m.onnx", arrays={"k": k})
    graph = load(tmp_path / "m.onnx")
    (found,) = (value.data for value in graph.values.values() if value.data is not None)
    np.testing.assert_array_equal(found.ravel(), np.sqrt(np.float32([1, 2])) * k.astype(np.float32))


@pytest.mark.parametrize("element", ["float16", "bfloat16", "double"])
def test_a_constant_node_has_the_type_of_its_value(element, tmp_path):
    """ONNX wants one type for both operands; a number folded in float32 was another one."""
    model = build(f"({element}[1,2] x) => (y) {{ y = Mul(x, k) }}", 19)
    value = helper.make_tensor("", TensorProto.DataType.Value(element.upper()), [1], [2.0])
    model.graph.node.insert(0, helper.make_node("Constant", [], ["k"], "c", value=value))
    onnx.save(model, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    (found,) = (value.data for value in graph.values.values() if value.data is not None)
    np.testing.assert_array_equal(found.ravel(), np.float32([2]))


@pytest.mark.parametrize(("most", "directions", "fits"), [(5, 1, True), (4, 1, False), (10, 2, True), (9, 2, False)])
def test_as_many_steps_of_time_as_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, directions: int, fits: bool
) -> None:
    monkeypatch.setattr("nmpconv.frontend.expand.recurrent.STEPS_MAX", most)
    text = recurrent("GRU", ',direction="bidirectional"' * (directions == 2), directions=directions)
    path = tmp_path / "m.onnx"
    onnx.save(build(text, 14), path)
    if fits:
        assert len(load(path).outputs) == 2
        return
    with pytest.raises(UnsupportedModel, match=f"{5 * directions} steps of time"):
        load(path)


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_count_of_windows_that_is_rounded_up(tmp_path: Path, before: int, after: int) -> None:
    """None begins in the padding behind, as in onnxruntime."""
    for size, stride in product((4, 5, 6, 7), (2, 3, 4)):
        pads = f"pads=[{before},0,{after},0]"
        window = f"MaxPool<kernel_shape=[3,1],strides=[{stride},1],{pads},ceil_mode=1>(x)"
        model = build(f"(float[1,1,{size},1] x) => (y) {{ y = {window} }}", 13, tmp_path / "m.onnx")
        x = np.arange(size, dtype=np.float32).reshape(1, 1, size, 1)
        (wanted,) = run(model, {"x": x})
        graph = load(tmp_path / "m.onnx")
        (y,) = run(to_onnx(graph, graph.outputs), {"x": x})
        np.testing.assert_array_equal(y, wanted, err_msg=f"{size} {stride}")
