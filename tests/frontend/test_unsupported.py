"""What cannot be converted is listed completely, with node, op, why and the nearest supported form."""

from __future__ import annotations

import pytest
from onnx_text import build

from nmpconv.errors import ExitCode, UnsupportedModel
from nmpconv.frontend.onnx import load

IMAGE = "(float[1,4,9,8] x) => (y)"

# (id, opset, model, the row of node y without its name)
ROWS = [
    ("unknown op", 13, f"{IMAGE} {{ y = Det(x) }}", "Det: nmpconv has no such op"),
    (
        "quantized model",
        13,
        f"{IMAGE} <float s = {{0.1}}, uint8 z = {{3}}> {{ y = QLinearMatMul(x, s, z, x, s, z, s, z) }}",
        "QLinearMatMul: nmpconv has no such op; the QuantizeLinear/DequantizeLinear form (QDQ), or the float model",
    ),
    (
        "computed weight",
        13,
        "(float[1,4,9,8] x, float[1,4,1,1] w) => (y) { y = Conv(x, w) }",
        "Conv: its weight 'w' is computed from the input; a constant weight",
    ),
    (
        "3d convolution",
        13,
        "(float[1,2,4,4,4] x) => (y) <float[2,2,1,1,1] w> { y = Conv(x, w) }",
        "Conv: its input has 5 dimensions; [N,C,H,W] or [N,C,W]",
    ),
    (
        "wrong channels",
        13,
        f"{IMAGE} <float[2,3,1,1] w> {{ y = Conv(x, w) }}",
        "Conv: weights [2, 3, 1, 1] in 1 group(s) do not fit 4 input channels",
    ),
    (
        "kernel too large",
        13,
        f"{IMAGE} <float[2,4,11,1] w> {{ y = Conv(x, w) }}",
        "Conv: its result would be empty, with shape [1, -1, 8, 2]",
    ),
    (
        "division",
        13,
        f"{IMAGE} {{ t = Exp(x) y = Div(x, t) }}",
        "Div: its divisor 't' is computed from the input; a constant divisor",
    ),
    (
        "matrix product",
        13,
        "(float[1,4,5] x) => (y) { y = MatMul(x, x) }",
        "MatMul: [1, 4, 5] does not fit [1, 4, 5]",
    ),
    (
        "reflection",
        13,
        f'{IMAGE} <int64[8] p = {{0,0,1,1,0,0,1,1}}> {{ y = Pad<mode="mirror">(x, p) }}',
        "Pad: mode mirror; constant, reflect, edge or wrap",
    ),
    (
        "negative pad",
        13,
        f"{IMAGE} <int64[8] p = {{0,0,-1,0,0,0,0,0}}> {{ y = Pad(x, p) }}",
        "Pad: negative pads [0, 0, -1, 0, 0, 0, 0, 0]; Slice",
    ),
    (
        "infinite pad",
        7,
        f"{IMAGE} <int64[8] p = {{0,0,1,1,0,0,1,1}}> {{ y = Pad<pads=[0,0,1,1,0,0,1,1],value=-inf>(x) }}",
        "Pad: padding with -inf; a finite value; MaxPool's own pads never win",
    ),
    (
        "reshape",
        13,
        f"{IMAGE} <int64[2] s = {{5,-1}}> {{ y = Reshape(x, s) }}",
        "Reshape: [1, 4, 9, 8] cannot become [5, 57]",
    ),
    (
        "cast",
        13,
        f"{IMAGE} {{ y = Cast<to=7>(x) }}",
        "Cast: a cast of a computed tensor to a type that is not float; float types",
    ),
    (
        "training",
        14,
        f"{IMAGE} <float[4] s, float[4] var> {{ y = BatchNormalization<training_mode=1>(x, s, s, s, var) }}",
        "BatchNormalization: training mode; an export in inference mode",
    ),
    (
        "indices of the maxima",
        12,
        "(float[1,4,9,8] x) => (i) { y, i = MaxPool<kernel_shape=[2,2]>(x) }",
        "MaxPool: its output 'i' is used; only the first output",
    ),
    (
        "padding alone",
        12,
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[2,2],pads=[2,0,0,0]>(x) }}",
        "MaxPool: a window can lie in the padding alone; pads smaller than the kernel",
    ),
    (
        "dilated mean",
        19,
        f"{IMAGE} {{ y = AveragePool<kernel_shape=[2,2],dilations=[2,2]>(x) }}",
        "AveragePool: dilations [2, 2]; dilation 1",
    ),
    (
        "ceil with counted padding",
        19,
        f"{IMAGE} {{ y = AveragePool<kernel_shape=[2,3],strides=[3,3],pads=[1,1,0,0],"
        "ceil_mode=1,count_include_pad=1>(x) }",
        "AveragePool: ceil_mode together with counted padding; count_include_pad = 0",
    ),
    (
        "seven dimensions",
        13,
        f"{IMAGE} <int64[7] s = {{1,2,2,3,3,4,2}}> {{ y = Reshape(x, s) }}",
        "Reshape: it needs a tensor of 7 dimensions; at most 6",
    ),
    ("slopes", 9, f"{IMAGE} <float[4,1,1] a> {{ y = PRelu(x, a) }}", "PRelu: 4 slopes; one slope, or LeakyRelu"),
    ("missing input", 13, f"{IMAGE} {{ y = Conv(x) }}", "Conv: an input is missing"),
    (
        "malformed",
        13,
        f"{IMAGE} {{ y = Transpose<perm=[0,1,2,9]>(x) }}",
        "Transpose: it is malformed: tuple index out of range",
    ),
    (
        "too large",
        13,
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[1,1],strides=[3000000000,1]>(x) }}",
        "MaxPool: a stride, dilation or padding of 3000000000; 1 to 32767",
    ),
    (
        "concat of other shapes",
        13,
        f"{IMAGE} <float[1,2,9,7] c> {{ y = Concat<axis=1>(x, c) }}",
        "Concat: its inputs differ in more than axis 1: [[1, 4, 9, 8], [1, 2, 9, 7]]",
    ),
    ("dice", 13, f"{IMAGE} {{ t = RandomNormal<shape=[1]>() y = Add(x, t) }}", "RandomNormal: nmpconv has no such op"),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "text", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_row(opset, text, expected, tmp_path):
    path = tmp_path / "model.onnx"
    build(text, opset, path)
    with pytest.raises(UnsupportedModel) as caught:
        load(path)
    [(_, kind, why, form)] = caught.value.rows
    assert f"{kind}: {why}" + (f"; {form}" if form else "") == expected
    assert caught.value.code == ExitCode.UNSUPPORTED


def test_all_are_listed_and_followers_are_not(tmp_path):
    """b, d and e cannot be converted; c follows b with a known shape; f follows e, whose shape nobody knows."""
    path = tmp_path / "model.onnx"
    build(
        "(float[1,4,6,6] x) => (y, z) <int64[8] p = {0,0,1,1,0,0,1,1}, int64 k = {3}> {"
        '  a = Relu(x)  b = Pad<mode="mirror">(a, p)  c = Relu(b)  d = Div(c, b)  y = Sigmoid(d)'
        "  e = NonZero(a)  f = Relu(e)  z = Det(f) }",
        13,
        path,
    )
    with pytest.raises(UnsupportedModel) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: 4 node(s) cannot be converted:\n"
        "  b (Pad): mode mirror; constant, reflect, edge or wrap\n"
        "  d (Div): its divisor 'b' is computed from the input; a constant divisor\n"
        "  e (NonZero): nmpconv has no such op\n"
        "  z (Det): nmpconv has no such op"
    )


def test_dead_nodes_do_not_matter(tmp_path):
    build("(float[1,4] x) => (y) { t = Det(x) y = Relu(x) }", 13, tmp_path / "model.onnx")
    assert [node.op for node in load(tmp_path / "model.onnx").nodes] == ["requantize"]


def test_other_domains(tmp_path):
    """Imported but unused is fine, used is not."""
    path, header = tmp_path / "model.onnx", ', "com.example" : 1'
    build("(float[1,4] x) => (y) { y = Relu(x) }", 13, path, header)
    load(path)
    build("(float[1,4] x) => (y) { y = com.example.Twirl(x) }", 13, path, header)
    with pytest.raises(UnsupportedModel, match=r"y \(com.example.Twirl\): nmpconv has no such op"):
        load(path)


def test_integer_input(tmp_path):
    build("(uint8[1,4] x) => (y) { t = Cast<to=1>(x) y = Relu(t) }", 13, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel, match=r"x \(input\): is uint8; a float input"):
        load(tmp_path / "model.onnx")
