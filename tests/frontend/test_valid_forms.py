"""Forms that exporters write and that were refused once, beside onnxruntime."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from onnx_text import build, feeds
from test_lowering import run

import nmpconv
from nmpconv.errors import InvalidModel, UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.read import read
from nmpconv.frontend.to_onnx import to_onnx

HEADER = ', "ai.onnx.ml" : 3'
IMAGE = "(float[1,4,9,8] x) => (y)"
FORMS = [
    (
        "pads beyond the kernel",
        f"{IMAGE} <float[4,2,2,2] w> {{ y = ConvTranspose<pads=[3,2,2,3],strides=[2,2]>(x, w) }}",
    ),
    ("beyond at one end", f"{IMAGE} <float[4,2,3,1] w> {{ y = ConvTranspose<pads=[0,2,4,1],strides=[1,3]>(x, w) }}"),
    (
        "beyond with a bias, groups, dilations and output_padding",
        f"{IMAGE} <float[4,3,2,3] w, float[6] b> "
        "{ y = ConvTranspose<pads=[4,1,3,6],strides=[3,2],dilations=[2,1],group=2,output_padding=[1,1]>(x, w, b) }",
    ),
    ("beyond in one dimension", "(float[1,4,9] x) => (y) <float[4,2,3] w> { y = ConvTranspose<pads=[4,3]>(x, w) }"),
    ("a constant output", f"{IMAGE.replace('(y)', '(y, z)')} <float[2,3] c> {{ y = Relu(x) z = Neg(c) }}"),
    ("a shape as an output", f"{IMAGE.replace('(y)', '(y, float z)')} {{ y = Relu(x) s = Size(x) z = Cast<to=1>(s) }}"),
    (
        "a constant that is summed up along a list of one axis",
        "(float[1,4] x) => (y) <float[4] c, int64[1] a = {0}> { s = CumSum(c, a) y = Add(x, s) }",
    ),
    (
        "NaN beyond a domain",
        f"{IMAGE} <float o = {{-1}}> {{ r = Sqrt(o) a = Abs(x) b = Less(a, o) s = Sqrt(a) y = Where(b, r, s) }}",
    ),
    (
        "a repeat in eight axes",
        f"{IMAGE} <int64[8] s = {{1,1,1,4,1,9,1,8}}, int64[8] g = {{1,1,2,4,1,9,3,8}}, int64[4] e = {{1,8,9,24}}> "
        "{ a = Reshape(x, s) b = Expand(a, g) y = Reshape(b, e) }",
    ),
    ("a bound that is computed", f"{IMAGE} {{ m = ReduceMean<keepdims=0>(x) y = Clip(x, m) }}"),
    ("both bounds computed", f"{IMAGE} {{ m = ReduceMean<keepdims=0>(x) a = Sigmoid(m) y = Clip(x, m, a) }}"),
    ("another bound computed", f"{IMAGE} <float l={{-0.1}}> {{ m = ReduceMax<keepdims=0>(x) y = Clip(x, l, m) }}"),
    (
        "sequences of three lengths",
        "(float[5,3,4] x) => (y) <int64[3] l = {2,5,0}> { y = ReverseSequence<batch_axis=1,time_axis=0>(x, l) }",
    ),
    (
        "sequences, batch first",
        "(float[3,5,4] x) => (y) <int64[3] l = {2,5,3}> { y = ReverseSequence<batch_axis=0,time_axis=1>(x, l) }",
    ),
    ("sequences of one length", "(float[5,1,4] x) => (y) <int64[1] l = {4}> { y = ReverseSequence(x, l) }"),
    ("Scaler", "(float[1,3] x) => (y) { y = ai.onnx.ml.Scaler<offset=[1.0,2.0,3.0],scale=[0.5,1.0,2.0]>(x) }"),
    ("Scaler of one number", "(float[1,3] x) => (y) { y = ai.onnx.ml.Scaler<offset=[1.5],scale=[0.5]>(x) }"),
    *(
        (f"Normalizer {norm}", f'(float[1,6] x) => (y) {{ y = ai.onnx.ml.Normalizer<norm="{norm}">(x) }}')
        for norm in ("L1", "L2", "MAX")
    ),
    (
        "Normalizer of rows whose largest element is 0",
        "(float[3,6] x) => (y) <float[3,1] m = {1.0,0.0,-1.0}> "
        '{ a = Relu(x) b = Mul(a, m) y = ai.onnx.ml.Normalizer<norm="MAX">(b) }',
    ),
    *(
        (
            f"LinearClassifier {transform}",
            f"(float[1,3] x) => (y, z) {{ y, z = ai.onnx.ml.LinearClassifier<classlabels_ints=[4,2],coefficients="
            f'[0.5,-1.0,2.0,0.3,1.0,-0.7],intercepts=[0.1,0.2],post_transform="{transform}">(x) }}',
        )
        for transform in ("NONE", "SOFTMAX", "LOGISTIC")
    ),
    (
        "LinearRegressor",
        "(float[1,3] x) => (y) { y = ai.onnx.ml.LinearRegressor<targets=2,coefficients=[0.5,-1.0,2.0,0.3,1.0,-0.7],"
        "intercepts=[0.1,0.2]>(x) }",
    ),
    (
        "a product of constants",
        "(float[3,2] x) => (y) <float[4,3] a, float[2,4] b> "
        "{ y = Gemm<alpha=0.5,beta=0.7,transA=1,transB=1>(a, b, x) }",
    ),
    ("elements where a constant says so", "(float[2,3] x) => (y) <bool[5] c = {0,1,1,0,1}> { y = Compress(x, c) }"),
    ("columns that it says", "(float[2,3] x) => (y) <bool[3] c = {0,1,1}> { y = Compress<axis=-1>(x, c) }"),
    (
        "boxes, some beyond the plane",
        f"{IMAGE} <float[3,4] b = {{0.0,0.0,7.0,8.0,2.0,3.0,4.5,3.4,-4.0,-3.0,12.0,9.5}}, int64[3] i = {{0,0,0}}> "
        "{ y = RoiAlign<output_height=3,output_width=2,spatial_scale=0.9>(x, b, i) }",
    ),
    (
        "a box with samples",
        f"{IMAGE} <float[1,4] b = {{1.0,2.0,6.0,5.0}}, int64[1] i = {{0}}> "
        "{ y = RoiAlign<output_height=2,output_width=2,sampling_ratio=3>(x, b, i) }",
    ),
    (
        "others than maxima go to their places, of equal ones the first",
        f"{IMAGE} <int64[4] s = {{1,4,9,8}}> {{ a = Relu(x) p, i = MaxPool<kernel_shape=[2,2],strides=[2,2]>(a) "
        "b = Sin(p) y = MaxUnpool<kernel_shape=[2,2],strides=[2,2]>(b, i, s) }",
    ),
    (
        "places in one dimension",
        "(float[1,2,12] x) => (y) { p, i = MaxPool<kernel_shape=[3],strides=[3]>(x) "
        "y = MaxUnpool<kernel_shape=[3],strides=[3]>(p, i) }",
    ),
    (
        "columns of a matrix",
        "(float[2,3] x) => (y) <int64[2] i = {2,0}> { y = ai.onnx.ml.ArrayFeatureExtractor(x, i) }",
    ),
    (
        "labels of answers",
        "(float[1,3] x) => (y) <float[3] c = {7.0,5.0,6.0}> "
        "{ i = ArgMax<axis=1>(x) y = ai.onnx.ml.ArrayFeatureExtractor(c, i) }",
    ),
]


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in FORMS])
def test_it_is_the_models_function(text, tmp_path: Path):
    check(text, 13, tmp_path / "m.onnx")


def check(text: str, opset: int, path: Path) -> None:
    model = build(text, opset, path, HEADER)
    graph = load(path)
    feed = feeds(graph)
    for wanted, got in zip(run(model, feed), run(to_onnx(graph, graph.outputs), feed), strict=True):
        assert wanted.shape == got.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pooled", ["avg", "max"])
@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_boxes_of_a_newer_opset(mode, pooled, tmp_path: Path):
    """One of them is narrower than a pixel, one beyond the plane."""
    check(
        f"{IMAGE} <float[3,4] b = {{1.0,2.0,6.5,7.0,3.0,3.0,3.4,3.2,-4.0,-3.0,12.0,9.5}}, int64[3] i = {{0,0,0}}> "
        f'{{ y = RoiAlign<mode="{pooled}",output_height=2,output_width=3,sampling_ratio=2,'
        f'coordinate_transformation_mode="{mode}">(x, b, i) }}',
        16,
        tmp_path / "m.onnx",
    )


def test_boxes_of_an_unknown_mode(tmp_path: Path):
    text = '<float[1,4] b = {0.0,0.0,4.0,4.0}, int64[1] i = {0}> { y = RoiAlign<mode="mean">(x, b, i) }'
    build(f"{IMAGE} {text}", 16, tmp_path / "m.onnx", HEADER)
    with pytest.raises(InvalidModel, match="mode 'mean'; avg or max"):
        load(tmp_path / "m.onnx")


REFUSED = [
    ("(float[1,6] x) => (y) { z = Sign(x) c = Cast<to=9>(z) y = Compress(x, c) }", "shape of its result depends on"),
    (
        f"{IMAGE} {{ p, i = MaxPool<kernel_shape=[3,3],strides=[2,2]>(x) "
        "y = MaxUnpool<kernel_shape=[3,3],strides=[2,2]>(p, i) }",
        "instead: a MaxPool without overlap or pads",
    ),
    (
        f"{IMAGE} {{ p, i = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x) "
        "y = MaxUnpool<kernel_shape=[2,2],strides=[2,2]>(p, i) }",
        r"an output of \[8, 8\], where the MaxPool saw \[9, 8\]",
    ),
    (
        f"{IMAGE} {{ p, i = MaxPool<kernel_shape=[2,2],strides=[2,2],storage_order=1>(x) "
        "y = MaxUnpool<kernel_shape=[2,2],strides=[2,2]>(p, i) }",
        "not those of a MaxPool",
    ),
    (
        f"{IMAGE} {{ p, i = MaxPool<kernel_shape=[1,1]>(x) y = MaxUnpool<kernel_shape=[1,1]>(p, i) }}",
        "not those of a MaxPool",
    ),
    ("(float[1,6] x) => (y) <bool[6] c = {0,0,0,0,0,0}> { y = Compress(x, c) }", "its result has no elements"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_is_left_out_is_said(text, why, tmp_path: Path):
    build(text, 16, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match=why):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize(("kind", "function"), [("Erfc", math.erfc), ("Expm1", math.expm1)])
def test_operators_of_tensorflow(kind, function, tmp_path: Path):
    """Keras 3 writes Gelu and Celu with them, and tf2onnx leaves them: the check of the import runs what they stand
    for."""
    text = f"(float[1,40] x) => (y) <float m = {{-0.7}}> {{ a = Mul(x, m) b = {kind}(a) y = Mul(x, b) }}"
    build(text, 17, tmp_path / "m.onnx")
    samples = np.linspace(-4, 4, 320, dtype=np.float32).reshape(8, 40)
    result = nmpconv.convert(tmp_path / "m.onnx", data=samples, bits=16)
    wanted = samples * np.vectorize(function)(-0.7 * samples)
    got = np.concatenate([nmpconv.load(result.data).run_float(x[None])[0] for x in samples])
    np.testing.assert_allclose(got, wanted, atol=1e-3 * np.abs(wanted).max())
    assert not [text for text in result.report.warnings if "not compared" in text]


def test_indices_that_are_reals(tmp_path: Path):
    """Keras has float32 inputs in front of an Embedding, which casts them."""
    body = "i = Cast<to=6>(x) g = Gather(e, i) y = Relu(g)"
    samples = np.random.default_rng(0).integers(0, 20, (24, 7)).astype(np.float32)
    for outputs, more in (("y", ""), ("y, z", "z = Relu(x)")):
        text = f"(float[1,7] x) => ({outputs}) <float[20,8] e> {{ {body} {more} }}"
        model = build(text, 17, tmp_path / "m.onnx")
        net = nmpconv.load(nmpconv.convert(tmp_path / "m.onnx", data=samples, bits=16).data)
        for x in samples[:4]:
            np.testing.assert_allclose(net.run_float(x[None])[0], run(model, {"x": x[None]})[0], atol=1e-3)


ROWS = "(float[1,7,4] x) => (float[?,?,?] y) <int64 a = {-1}, int64 b = {0}"
SEQUENCES = [
    (f"{ROWS}, int64 k = {{3}}> {{ s = SplitToSequence<axis=1>(x, k) y = SequenceAt(s, a) }}"),
    (
        f"{ROWS}, int64[3] k = {{2,4,1}}> {{ s = SplitToSequence<axis=1>(x, k) t = SequenceErase(s, b) u = Tanh(x) "
        "v = SequenceInsert(t, u) o = SequenceInsert(v, u, b) w = SequenceInsert(o, x, a) "
        "y = ConcatFromSequence<axis=1>(w) }"
    ),
    (f"{ROWS.replace('?,?,?', '?,?')}> {{ s = SplitToSequence<axis=1,keepdims=0>(x) y = SequenceAt(s, b) }}"),
    (f"{ROWS}> {{ s = SplitToSequence<axis=2>(x) y = SequenceAt(s, a) }}"),
    (
        f"{ROWS.replace('?,?,?', '?,?,?,?')}> "
        "{ u = Tanh(x) s = SequenceConstruct(x, u) y = ConcatFromSequence<axis=1,new_axis=1>(s) }"
    ),
    (f"{ROWS}> {{ s = SplitToSequence<axis=1>(x) n = SequenceLength(s) f = Cast<to=1>(n) y = Mul(x, f) }}"),
]


@pytest.mark.parametrize("text", SEQUENCES)
def test_sequences(text, tmp_path: Path):
    model = build(text, 17, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    feed = feeds(graph)
    [wanted], [got] = run(model, feed), run(to_onnx(graph, graph.outputs), feed)
    assert wanted.shape == got.shape
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_a_sequence_is_no_output(tmp_path: Path):
    build(f"{ROWS}> {{ y = SplitToSequence<axis=1>(x) }}", 17, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    assert caught.value.rows == [("y", "output", "is a sequence", "its tensors")]


SIGNAL = "(float[1,16,3,1] x) => (y)"
SPECTRA = [
    (17, f"{SIGNAL} {{ y = DFT(x) }}"),
    (17, f"{SIGNAL} {{ y = DFT<axis=2>(x) }}"),
    (17, f"{SIGNAL} {{ y = DFT<onesided=1>(x) }}"),
    (17, "(float[1,8,2] x) => (y) { y = DFT<inverse=1>(x) }"),
    (17, f"{SIGNAL} <int64 n = {{12}}> {{ y = DFT(x, n) }}"),
    (20, f"{SIGNAL} <int64 a = {{1}}> {{ y = DFT<onesided=1>(x, , a) }}"),
    (17, "(float[1,3,9,2] x) => (y) { y = DFT<axis=2,inverse=1,onesided=1>(x) }"),
    (20, "(float[1,5,3,2] x) => (y) <int64 n = {9}, int64 a = {1}> { y = DFT<inverse=1,onesided=1>(x, n, a) }"),
    (17, "(float[1,64,1] x) => (y) <int64 s = {16}, float[16] w> { y = STFT(x, s, w) }"),
    (17, "(float[1,70,1] x) => (y) <int64 s = {5}, float[12] w> { y = STFT<onesided=0>(x, s, w) }"),
    (17, "(float[1,64,1] x) => (y) <int64 s = {10}, int64 n = {15}> { y = STFT(x, s, , n) }"),
]


@pytest.mark.parametrize(("opset", "text"), SPECTRA)
def test_fourier_transforms(opset, text, tmp_path: Path):
    model = build(text, opset, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    feed = feeds(graph)
    [wanted], [got] = run(model, feed), run(to_onnx(graph, graph.outputs), feed)
    assert wanted.shape == got.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_spectrum_is_the_half_of_its_length(tmp_path: Path):
    build("(float[1,9,2] x) => (y) <int64 n = {12}> { y = DFT<inverse=1,onesided=1>(x, n) }", 17, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match=r"12 numbers from x.*7 complex numbers"):
        load(tmp_path / "m.onnx")


PYTORCH = ',coordinate_transformation_mode="pytorch_half_pixel"'


@pytest.mark.parametrize(
    ("mode", "how"),
    [("linear", ""), ("linear", PYTORCH), ("cubic", ""), ("cubic", PYTORCH), ("cubic", ",exclude_outside=1")],
)
@pytest.mark.parametrize("scales", ["0.5,0.5", "0.7,0.3", "1.6,0.25"])
def test_antialias(mode, how, scales, tmp_path: Path):
    """torchvision's resize, and torch's interpolate with antialias=True."""
    text = f'{IMAGE} <float[4] s = {{1.0,1.0,{scales}}}> {{ y = Resize<mode="{mode}",antialias=1{how}>(x, , s) }}'
    model = build(text, 18, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    feed = feeds(graph)
    [wanted], [got] = run(model, feed), run(to_onnx(graph, graph.outputs), feed)
    assert wanted.shape == got.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_antialias_of_neighbours_is_invalid(tmp_path: Path):
    text = f'{IMAGE} <float[4] s = {{1.0,1.0,0.5,0.5}}> {{ y = Resize<mode="nearest",antialias=1>(x, , s) }}'
    build(text, 18, tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="antialias in mode nearest"):
        load(tmp_path / "m.onnx")


def test_nothing_is_left_by_pads(tmp_path: Path):
    build(f"{IMAGE} <float[4,2,2,2] w> {{ y = ConvTranspose<pads=[5,0,5,0]>(x, w) }}", 13, tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match=r"nothing of \[8, 9\]"):
        load(tmp_path / "m.onnx")


def test_a_conversion_with_a_constant_output(tmp_path: Path):
    """Anchors beside scores: the constant is in the file, compared with the model like any output."""
    ports, constants = "(float[1,16] x) => (float[1,4] y, float[3,2] z)", "<float[16,4] w, float[3,2] c>"
    text = f"{ports} {constants} {{ y = MatMul(x, w) z = Mul(c, c) }}"
    model = build(text, 13, tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    samples = list(rng.normal(0, 1, (40, 1, 16)).astype(np.float32))
    converted = nmpconv.convert(tmp_path / "m.onnx", samples)
    net = converted.load()
    assert isinstance(converted.report.float_db, float)
    _, wanted = run(model, {"x": samples[0]})
    for x in samples[:3]:
        np.testing.assert_allclose(net.run_float(x)[1], wanted, atol=np.abs(wanted).max() * 2**-12)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("", "c"),
        ("v = Constant<value=float[4,2]{1,2,3,4,5,6,7,8}>() ", "v"),
        ("v = Identity(c) ", "v"),
        ("v = Mul(c, c) ", "v"),
    ],
)
def test_a_constant_output_that_a_node_reads(body: str, read: str, tmp_path: Path):
    text = f"(float[1,4] x) => (float[1,2] y, float[4,2] {read}) <float[4,2] c> {{ {body}y = MatMul(x, {read}) }}"
    model = build(text, 13, tmp_path / "m.onnx")
    samples = list(np.random.default_rng(0).normal(0, 1, (40, 1, 4)).astype(np.float32))
    net = nmpconv.convert(tmp_path / "m.onnx", samples, bits=16).load()
    for ours, theirs in zip(net.run_float(samples[0]), run(model, {"x": samples[0]}), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=np.abs(theirs).max() * 2**-9)


@pytest.mark.parametrize(
    ("body", "element"),
    [
        ("i = Cast<to=6,saturate=1>(x) y = Gather(e, i)", 6),
        ("i = Cast<to=7>(x) n = Less(i, o) p = Add(i, t) j = Where(n, p, i) y = Gather(e, j)", 7),
        ("i = Cast<to=6>(x) j = Cast<to=7>(i) y = Gather(e, j)", 6),
        ("i = Cast<to=6>(x) j = Cast<to=1>(i) y = Mul(j, j)", 1),
        ("i = Cast<to=6>(x) j = Cast<to=1>(i) k = Gather(e, i) y = Add(j, k)", 1),
        ("i = Cast<to=7>(x) y = Gather(i, o)", 1),
    ],
)
def test_only_indices_are_integers(body: str, element: int, tmp_path: Path):
    """A Cast truncates 0.7, which an input of integers rounds."""
    text = f"(float[7] x) => (y) <float[20] e, int64 o = {{0}}, int64 t = {{20}}> {{ {body} }}"
    build(text, 19, tmp_path / "m.onnx")
    assert read(tmp_path / "m.onnx").graph.input[0].type.tensor_type.elem_type == element


@pytest.mark.parametrize(
    ("kind", "function", "element"), [("Erfc", math.erfc, "float16"), ("Expm1", math.expm1, "double")]
)
def test_operators_of_tensorflow_in_other_types(kind, function, element, tmp_path: Path):
    build(f"({element}[5] x) => ({element}[5] y) {{ y = {kind}(x) }}", 15, tmp_path / "m.onnx")
    x = np.linspace(-2, 2, 5).astype(element)
    [got] = run(read(tmp_path / "m.onnx"), {"x": x})
    np.testing.assert_allclose(got, np.vectorize(function)(x), atol=2e-3)
    load(tmp_path / "m.onnx")


def test_operators_of_tensorflow_in_branches(tmp_path: Path):
    one, other = (
        f"{name} () => (float[5] {name}_y) {{ {name}_y = {kind}(x) }}" for name, kind in (("a", "Erfc"), ("b", "Expm1"))
    )
    body = "m = ReduceSum<keepdims=0>(x) z = Sub(m, m) p = Less(z, m) "
    body += f"y = If (p) <then_branch = {one}, else_branch = {other}>"
    build(f"(float[5] x) => (float[5] y) {{ {body} }}", 15, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    for x in (np.linspace(0, 2, 5, dtype=np.float32), np.linspace(-2, 0, 5, dtype=np.float32)):
        [got] = run(to_onnx(graph, graph.outputs), {"x": x})
        wanted = np.vectorize(math.erfc if x.sum() > 0 else math.expm1)(x)
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_a_logarithm_of_0_is_folded_without_a_warning(tmp_path):
    """MPNet computes buckets of places so, and takes others where the place is 0."""
    ports = "(float[1,2] x) => (y) <float[1,2] p = {0, 8}, float z = {0}>"
    build(f"{ports} {{ a = Log(p) n = Greater(p, z) b = Where(n, a, z) y = Add(x, b) }}", 17, tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = load(tmp_path / "model.onnx")
    assert run(to_onnx(graph, graph.outputs), {"x": np.zeros((1, 2), np.float32)})[0][0, 0] == 0


def test_a_mean_of_one_element_is_a_scalar(tmp_path):
    """Its units are followed from a vector to no axis at all."""
    text = "(float[1] x) => (y) <float k = {1.5}> { m = ReduceMean<keepdims=0>(x) t = Max(m, m) y = Div(t, k) }"
    build(text, 13, tmp_path / "model.onnx")
    x = np.array([0.2, 0.7, 0.4, 0.6, 0.3], np.float32)[:, None]
    converted = nmpconv.convert(tmp_path / "model.onnx", x, bits=16)
    assert abs(float(np.ravel(converted.load().run_float(x[1])[0])[0]) - 0.7 / 1.5) < 1e-3
