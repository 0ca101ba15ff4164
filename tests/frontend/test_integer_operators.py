"""Operators on integers, as deployed models have them: the reals that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build, feeds
from onnxruntime.quantization import quantize_dynamic
from test_lowering import run
from test_lowering_quantized import loaded

from nmpconv.calib.original_model import original
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.errors import InputError, UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.read import read
from nmpconv.frontend.to_onnx import to_onnx

GRIDS = "float s = {0.05}, uint8 z = {100}, float t = {0.25}, uint8 m = {128}, int8 e = {0}"
WEIGHTS = "int8[3,4,1,1] w = {1,2,3,-4,5,6,-7,8,9,1,2,-3}, float[3] v = {0.1,0.2,0.05}, int8[3] k = {0,0,0}"
BIAS = "int32[3] b = {10,-20,30}, float[4] c = {1,1,2,1.5}, int64[8] i = {0,0,1,2,0,0,0,1}"
NUMBERS = (",".join(pair * 15) for pair in (["3", "200"], ["90", "120"]))
CHOICES = "uint8[1,1,6,5] u = {{{}}}, uint8[1,6,5] f = {{{}}}".format(*NUMBERS)
CHOICES += ", int64[1,2] j = {0,3}, int64[1] d = {3}, bool[5] l = {1,0,1,1,0}"
INTEGERS = [
    ("QLinearConv", "q = QuantizeLinear(x, s, z) r = QLinearConv(q, s, z, w, v, k, t, m, b) {}", "r", "t, m"),
    ("MaxPool of integers", "q = QuantizeLinear(x, s, z) r = MaxPool<kernel_shape=[2,2]>(q) {}", "r", "s, z"),
    (
        "Resize of integers",
        'q = QuantizeLinear(x, s, z) r = Resize<mode="linear">(q, , c) {}',
        "r",
        "s, z",
    ),
    (
        "Pad of integers",
        "q = QuantizeLinear(x, s, z) p = Pad(q, i, m) r = com.microsoft.QLinearSigmoid(p, s, z, t, m) {}",
        "r",
        "t, m",
    ),
    (
        "Pad of integers by what is there",
        'q = QuantizeLinear(x, s, z) p = Pad<mode="edge">(q, i) '
        "r = com.microsoft.QLinearAdd(p, s, z, p, s, z, t, m) {}",
        "r",
        "t, m",
    ),
    ("Pad without another such operator", "q = QuantizeLinear(x, s, z) r = Pad(q, i, m) {}", "r", "s, z"),
    ("Pad with zeros", "q = QuantizeLinear(x, s, z) r = Pad(q, i) {}", "r", "s, z"),
    ("Pad on a grid without a zero point", "q = QuantizeLinear(x, s) r = Pad(q, i, m) {}", "r", "s"),
    ("Concat with integers", "q = QuantizeLinear(x, s, z) r = Concat<axis=1>(u, q) {}", "r", "s, z"),
    ("ScatterND of integers", "q = QuantizeLinear(x, s, z) r = ScatterND(q, j, f) {}", "r", "s, z"),
    ("Where of integers", "q = QuantizeLinear(x, s, z) r = Where(l, q, m) {}", "r", "s, z"),
    ("Max of integers", "q = QuantizeLinear(x, s, z) n = Pad(q, i) p = Max(n, m) r = Identity(p) {}", "r", "s, z"),
    ("ReduceMin of integers", "q = QuantizeLinear(x, s, z) r = ReduceMin(q) {}", "r", "s, z"),
    ("TopK of integers", "q = QuantizeLinear(x, s, z) r, h = TopK(q, d) {}", "r", "s, z"),
    ("ArgMax of integers", "q = QuantizeLinear(x, s, z) a = ArgMax(q) {} y = Cast<to=1>(a)", "q", "s, z"),
    (
        "QLinearWhere",
        "q = QuantizeLinear(x, s, z) n = Neg(x) o = QuantizeLinear(n, t, m) g = Greater(x, n) "
        "r = com.microsoft.QLinearWhere(g, q, s, z, o, t, m, t, m) {}",
        "r",
        "t, m",
    ),
    ("QLinearAdd", "q = QuantizeLinear(x, s, z) r = com.microsoft.QLinearAdd(q, s, z, q, s, z, t, m) {}", "r", "t, m"),
    (
        "Pad of a sum without a zero point",
        "q = QuantizeLinear(x, s, z) o = com.microsoft.QLinearAdd(q, s, z, q, s, z, t) r = Pad(o, i) {}",
        "r",
        "t",
    ),
    (
        "Max of a sum of int8 without a zero point",
        "q = QuantizeLinear(x, s, e) o = com.microsoft.QLinearAdd(q, s, e, q, s, e, t, ) r = Max(o, e) {}",
        "r",
        "t, e",
    ),
    ("QLinearSigmoid", "q = QuantizeLinear(x, s, z) r = com.microsoft.QLinearSigmoid(q, s, z, t, m) {}", "r", "t, m"),
    (
        "QLinearGlobalAveragePool",
        "q = QuantizeLinear(x, s, z) r = com.microsoft.QLinearGlobalAveragePool(q, s, z, t, m) {}",
        "r",
        "t, m",
    ),
    (
        "QLinearConcat",
        "q = QuantizeLinear(x, s, z) r = com.microsoft.QLinearConcat<axis=1>(t, m, q, s, z, q, s, z) {}",
        "r",
        "t, m",
    ),
]


@pytest.mark.parametrize(("body", "last", "grid"), [pytest.param(*case[1:], id=case[0]) for case in INTEGERS])
def test_operators_on_integers(body, last, grid, tmp_path):
    """The float graph is within the steps of the grids; the original that it is compared with has the same numbers."""
    body = body.format(f"{'o' if ' y = ' in body else 'y'} = DequantizeLinear({last}, {grid})")
    text = f"(float[1,4,6,5] x) => (y) <{GRIDS}, {WEIGHTS}, {BIAS}, {CHOICES}> {{ {body} }}"
    header = ', "com.microsoft" : 1'
    graph = loaded(text, tmp_path, header=header)
    feed = feeds(graph)
    [got] = run(to_onnx(graph, graph.outputs), feed)
    [wanted] = run(build(text, 13, None, header), feed)
    assert np.abs(got - wanted).max() <= 0.25 + 0.6 * 0.05 * 4
    [same] = run(original(read(tmp_path / "model.onnx"), graph), feed)
    np.testing.assert_allclose(got, same, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        "n = Neg(x) u = QuantizeLinear(n, t, m) p = Max(q, u) y = DequantizeLinear(p, s, z)",
        "a = ReduceMax<keepdims=0>(x) u = QuantizeLinear(a, t, m) p = Pad(q, i, u) y = DequantizeLinear(p, s, z)",
        "g = Neg(s) h = Sub(s, g) u = QuantizeLinear(x, h, z) p = Concat<axis=1>(u, w) y = DequantizeLinear(p, h, z)",
    ],
)
def test_choices_of_integers_of_several_grids_are_refused(body: str, tmp_path: Path) -> None:
    body = f"q = QuantizeLinear(x, s, z) {body}"
    text = f"(float[1,4,6,5] x) => (y) <{GRIDS}, {BIAS}, uint8[1,1,6,5] w = {{{','.join(['7'] * 30)}}}> {{ {body} }}"
    with pytest.raises(UnsupportedModel, match="computes with the integers"):
        loaded(text, tmp_path)


@pytest.mark.parametrize(
    ("scale", "before", "says"),
    [
        ("h", "h = ReduceMax<keepdims=0>(x) ", "its scale 'h' is computed"),
        ("v", "", "scales or zero points per channel"),
    ],
)
@pytest.mark.parametrize("choice", ["Pad(o, i)", "Max(o, z)"])
def test_choices_of_integers_of_a_grid_that_is_no_constant_number_are_refused(
    scale: str, before: str, says: str, choice: str, tmp_path: Path
) -> None:
    """One that is computed, or one for each row."""
    body = f"{before}q = QuantizeLinear(x, s, z) o = com.microsoft.QLinearAdd(q, s, z, q, s, z, {scale}) p = {choice}"
    text = f"(float[1,4,6,5] x) => (y) <{GRIDS}, {BIAS}, float[5] v = {{1,2,3,4,5}}> "
    text += f"{{ {body} y = DequantizeLinear(p, {scale}) }}"
    with pytest.raises(UnsupportedModel, match=says):
        loaded(text, tmp_path, header=', "com.microsoft" : 1')


def test_nodes_have_names_of_their_own(tmp_path):
    """onnxruntime refuses two nodes of one name, and one operator on integers becomes several."""
    names = ("q", "r", "y")
    body = "[{}] q = QuantizeLinear(x, s, z) [{}] r = QLinearConv(q, s, z, w, v, k, t, m, b) "
    body += "[{}] y = DequantizeLinear(r, t, m)"
    text = f"(float[1,4,6,5] x) => (y) <{GRIDS}, {WEIGHTS}, {BIAS}> {{ {body.format(*names)} }}"
    graph = loaded(text, tmp_path)
    found = original(read(tmp_path / "model.onnx"), graph)
    assert {"q", "r", "r_1", "y"} <= {node.name for node in found.graph.node}
    run(found, feeds(graph))


DYNAMIC = [
    (
        "MatMulInteger",
        "q, a, n = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, n, k) "
        "f = Cast<to=1>(i) g = Mul(a, v) y = Mul(f, g)",
    ),
    ("DynamicQuantizeMatMul", "y = com.microsoft.DynamicQuantizeMatMul(x, w, v, k)"),
    (
        "a bias on the grid of each input",
        "q, a, n = DynamicQuantizeLinear(x) t = Mul(a, v) c = Div(b, t) r = Floor(c) j = Cast<to=6>(r) "
        "i = MatMulInteger(q, w, n, k) o = Add(i, j) f = Cast<to=1>(o) y = Mul(f, t)",
    ),
    ("DequantizeLinear", "q, a, n = DynamicQuantizeLinear(x) d = DequantizeLinear(q, a, n) y = Relu(d)"),
    ("moved", "q, a, n = DynamicQuantizeLinear(x) m = Transpose(q) d = DequantizeLinear(m, a, n) y = Relu(d)"),
]


@pytest.mark.parametrize("body", [pytest.param(case[1], id=case[0]) for case in DYNAMIC])
def test_grids_of_each_input_are_left_out(body, tmp_path):
    text = (
        "(float[1,3,4] x) => (y) <uint8[4,2] w = {1,2,3,4,5,6,7,8}, float v = {0.1}, uint8 k = {3}, "
        f"float[2] b = {{0.33, -0.21}}> {{ {body} }}"
    )
    header = ', "com.microsoft" : 1'
    graph = loaded(text, tmp_path, header=header)
    feed = feeds(graph)
    [got] = run(to_onnx(graph, graph.outputs), feed)
    [wanted] = run(build(text, 13, None, header), feed)
    assert np.abs(got - wanted).max() <= 0.02 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lstm_of_integers(direction, tmp_path):
    """As onnxruntime's quantize_dynamic writes it."""
    count = 2 if direction == "bidirectional" else 1
    text = f"(float[5,1,3] x) => (y) <float[{count},16,3] w, float[{count},16,4] r, float[{count},32] b>"
    body = f'{{ y, h, c = LSTM<hidden_size=4,direction="{direction}">(x, w, r, b) }}'
    model = build(f"{text} {body}", 17, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "model.onnx", op_types_to_quantize=["LSTM"])
    assert [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node] == ["DynamicQuantizeLSTM"]
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    [got], [wanted] = run(to_onnx(graph, graph.outputs), feed), run(model, feed)
    assert np.abs(got - wanted).max() <= 0.03 * np.abs(wanted).max()


@pytest.mark.parametrize("integers", ["q, a, n = DynamicQuantizeLinear(x)", "q = QuantizeLinear(x, s, z)"])
def test_attention_of_integers(integers: str, tmp_path: Path) -> None:
    """The same attention with real weights is within the steps of its input."""
    grid = "a, v, , n, h" if "Dynamic" in integers else "s, v, , z, h"
    constants = "uint8[8,12] w, float[12] b, float v = {0.01}, uint8 h = {7}, float s = {0.06}, uint8 z = {128}"
    text = (
        f"(float[1,5,8] x) => (y) <{constants}> "
        f"{{ {integers} y = com.microsoft.QAttention<num_heads=2>(q, w, b, {grid}) }}"
    )
    weights = np.random.default_rng(0).integers(0, 256, (8, 12))
    header, arrays = ', "com.microsoft" : 1', {"w": weights.astype(np.uint8)}
    build(text, 17, tmp_path / "m.onnx", header, arrays)
    graph = load(tmp_path / "m.onnx")
    plain = "(float[1,5,8] x) => (y) <float[12] b> { y = com.microsoft.Attention<num_heads=2>(x, w, b) }"
    feed = feeds(graph)
    [got] = run(to_onnx(graph, graph.outputs), feed)
    [wanted] = run(build(plain, 17, None, header, {"w": 0.01 * (weights - 7.0)}), feed)
    assert np.abs(got - wanted).max() <= 0.02 * np.abs(wanted).max()


INPUTS = [
    ("uint8", "y = Cast<to=1>(x)"),
    ("uint8/dequantized", "y = DequantizeLinear(x, s, z)"),
    ("int64/embedding", "y = Gather<axis=0>(e, x)"),
    ("int32/cast", "i = Cast<to=7>(x) y = Cast<to=1>(i)"),
    ("bool", "f = Cast<to=1>(x) y = Mul(f, s)"),
]


@pytest.mark.parametrize(
    ("kind", "body"), [pytest.param(case[0].split("/")[0], case[1], id=case[0]) for case in INPUTS]
)
def test_integer_inputs(kind, body, tmp_path):
    """They are whole numbers; the model is converted as a whole, and reports little noise."""
    text = f"({kind}[1,6] x) => (y) <float s = {{0.5}}, uint8 z = {{3}}, float[8,5] e> {{ {body} }}"
    model = build(text, 19, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = np.random.default_rng(0).integers(0, 2 if kind == "bool" else 8, (24, 1, 6))
    [wanted] = run(model, {"x": feed[0].astype(np.bool_ if kind == "bool" else kind)})
    [got] = run(to_onnx(graph, graph.outputs), {"x": feed[0].astype(np.float32)})
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    np.save(tmp_path / "x.npy", feed.astype(np.float32))
    result = convert(tmp_path / "model.onnx", {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
    assert min(result.report.sqnr_by_head.values()) > 70


@pytest.mark.parametrize("before", ["", "q, a, n = DynamicQuantizeLinear(x) "])
def test_an_operator_without_inputs_is_refused(before, tmp_path):
    build(f"(float[1,3,4] x) => (y) {{ {before} y = DequantizeLinear() }}", 13, tmp_path / "m.onnx")
    with pytest.raises(InputError):
        load(tmp_path / "m.onnx")
