"""Resizing, grids, transposed convolution, gathers, reductions, LRN: imported and exported they are onnxruntime's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_text import build, feeds
from test_lowering import IMAGE, SIGNAL, run

from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

SMALL = "(float[1,3,5,4] x) => (y)"
MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize(attributes, scales=""):
    """Sizes that are not whole."""
    scales = scales or "{1,1,2.5,1.7}"
    call = f"Resize<{attributes}>" if attributes else "Resize"
    return f"{SMALL} <float[4] s = {scales}> {{ y = {call}(x, , s) }}"


def _mode(mode):
    return f'coordinate_transformation_mode="{mode}"'


def _grid(attributes):
    """Places far outside, too; a clamp stands before those that zeros or the border make alike."""
    call = f"GridSample<{attributes}>" if attributes else "GridSample"
    return f"(float[1,3,5,4] x, float[1,4,3,2] f) => (y) {{ g = Mul(f, f) h = Sub(g, f) y = {call}(x, h) }}"


CASES = [
    *((f"nearest/{m}/{n}", 13, _resize(f'{_mode(m)},nearest_mode="{n}"')) for m in MODES for n in NEAREST),
    *((f"linear/{m}", 13, _resize(f'{_mode(m)},mode="linear"')) for m in MODES),
    *((f"cubic/{m}", 13, _resize(f'{_mode(m)},mode="cubic",cubic_coeff_a=-0.5')) for m in MODES),
    ("cubic/outside", 13, _resize('mode="cubic",exclude_outside=1')),
    ("linear/antialias/outside", 18, _resize('mode="linear",antialias=1,exclude_outside=1', "{1,1,0.5,0.7}")),
    ("nearest/smaller", 13, _resize("", "{1,1,0.5,0.75}")),
    ("linear/smaller", 13, _resize('mode="linear"', "{1,1,0.5,0.75}")),
    ("linear/channels last", 13, _resize('mode="linear"', "{1,2.5,1.7,1}")),
    ("linear/channels last, smaller", 13, _resize('mode="linear"', "{1,0.7,0.5,1}")),
    ("nearest/channels", 13, _resize("", "{1,2,1,1}")),
    ("linear/symmetric", 19, _resize(f'{_mode("half_pixel_symmetric")},mode="linear"')),
    ("sizes", 13, f'{SMALL} <int64[4] n = {{1,3,7,9}}> {{ y = Resize<mode="linear">(x, , , n) }}'),
    ("sizes/axes", 18, f"{SMALL} <int64[2] n = {{7,9}}> {{ y = Resize<axes=[3,2]>(x, , , n) }}"),
    ("resize/10", 10, f"{SMALL} <float[4] s = {{1,1,2,3}}> {{ y = Resize(x, s) }}"),
    ("upsample/7", 7, f"{SMALL} {{ y = Upsample<scales=[1.0,1.0,2.0,3.0]>(x) }}"),
    ("upsample/9", 9, f'{SMALL} <float[4] s = {{1,1,2,2}}> {{ y = Upsample<mode="linear">(x, s) }}'),
    ("linear/1d", 13, f'{SIGNAL} <float[3] s = {{1,1,2}}> {{ y = Resize<mode="linear">(x, , s) }}'),
    # grids
    *((f"grid/{m}/{p}/{c}", 16, _grid(f'mode="{m}",padding_mode="{p}",align_corners={c}'))
        for m in ("bilinear", "nearest") for p in ("zeros", "border", "reflection") for c in (0, 1)),
    ("grid/20", 20, _grid('mode="linear"')),
    ("grid/default", 16, _grid("")),
    ("grid/constant", 20, f'{SMALL} <float[1,2,6,2] g> {{ y = GridSample<padding_mode="border">(x, g) }}'),
    ("grid/image", 20, "(float[1,3,4,2] g) => (y) <float[1,3,5,4] k> { y = GridSample(k, g) }"),
    (
        "grid/one pixel",
        20,
        "(float[1,3,4,2] g) => (y) <float[1,3,1,1] k> { t = Tanh(g) y = GridSample<align_corners=1>(k, t) }",
    ),
    # transposed convolution
    ("deconv", 11, f"{SMALL} <float[3,2,3,3] w, float[2] b> {{ y = ConvTranspose(x, w, b) }}"),
    ("deconv/pads", 11, f"{SMALL} <float[3,2,4,3] w> {{ y = ConvTranspose<strides=[2,3],pads=[1,0,2,1]>(x, w) }}"),
    (
        "deconv/output padding",
        11,
        f"{SMALL} <float[3,2,3,3] w> {{ y = ConvTranspose<strides=[2,2],pads=[1,1,1,1],output_padding=[1,1]>(x, w) }}",
    ),
    (
        "deconv/extra beyond",
        11,
        f"{SMALL} <float[3,2,2,2] w> {{ y = ConvTranspose<strides=[3,2],output_padding=[2,1]>(x, w) }}",
    ),
    ("deconv/dilation", 11, f"{SMALL} <float[3,2,2,3] w> {{ y = ConvTranspose<strides=[2,1],dilations=[3,2]>(x, w) }}"),
    ("deconv/groups", 11, f"{IMAGE} <float[4,3,3,3] w> {{ y = ConvTranspose<group=2,strides=[2,2]>(x, w) }}"),
    ("deconv/shape", 11, f"{SMALL} <float[3,2,3,3] w> {{ y = ConvTranspose<strides=[2,2],output_shape=[9,8]>(x, w) }}"),
    (
        "deconv/same",
        11,
        f'{SMALL} <float[3,2,3,4] w> {{ y = ConvTranspose<strides=[2,2],auto_pad="SAME_UPPER">(x, w) }}',
    ),
    ("deconv/1d", 11, f"{SIGNAL} <float[4,2,3] w> {{ y = ConvTranspose<strides=[2],pads=[1,1]>(x, w) }}"),
    # two tensors
    ("sub", 13, f"{IMAGE} {{ t = Relu(x) y = Sub(t, x) }}"),
    ("sub/broadcast", 13, f"{IMAGE} {{ t = GlobalAveragePool(x) y = Sub(x, t) }}"),
    ("min", 13, f"{IMAGE} {{ t = Tanh(x) y = Min(x, t) }}"),
    ("max/three", 13, f"{IMAGE} <float[8] c> {{ t = Tanh(x) y = Max(x, t, c) }}"),
    ("max/constant", 13, f"{IMAGE} <float[4,1,1] c> {{ y = Max(c, x) }}"),
    # gathers
    ("gather", 13, f"{IMAGE} <int64[3] i = {{0,2,3}}> {{ y = Gather<axis=1>(x, i) }}"),
    ("gather/2d", 13, f"{IMAGE} <int64[2,2] i = {{0,2,-1,3}}> {{ y = Gather<axis=-1>(x, i) }}"),
    ("tile", 13, f"{SMALL} <int64[4] r = {{1,2,1,3}}> {{ y = Tile(x, r) }}"),
    ("expand", 13, "(float[1,4,1,1] x) => (y) <int64[4] s = {1,4,2,3}> { y = Expand(x, s) }"),
    ("expand/rank", 13, "(float[1,4] x) => (y) <int64[3] s = {3,1,4}> { y = Expand(x, s) }"),
    ("pad/reflect", 13, f'{SMALL} <int64[8] p = {{0,0,2,1,0,0,1,3}}> {{ y = Pad<mode="reflect">(x, p) }}'),
    (
        "pad/max pool",
        10,
        f"{SMALL} {{ p = Pad<pads=[0,0,2,1,0,0,1,0],value=-inf>(x) y = MaxPool<kernel_shape=[3,2]>(p) }}",
    ),
    (
        "pad/max pool, own pads",
        13,
        f"{SMALL} <int64[8] p = {{0,0,0,1,0,0,1,1}}, float v = {{-inf}}> "
        "{ t = Pad(x, p, v) y = MaxPool<kernel_shape=[3,4],strides=[2,3],pads=[1,0,0,1],ceil_mode=1>(t) }",
    ),
    (
        "pad/max pool, same",
        13,
        f"{SMALL} <int64[8] p = {{0,0,0,1,0,0,1,0}}, float v = {{-inf}}> "
        '{ t = Pad(x, p, v) y = MaxPool<kernel_shape=[3,3],strides=[2,2],auto_pad="SAME_UPPER">(t) }',
    ),
    (
        "pad/max pool, 1d",
        13,
        f"{SIGNAL} <int64[6] p = {{0,0,1,0,0,2}}, float v = {{-inf}}> "
        "{ t = Pad(x, p, v) y = MaxPool<kernel_shape=[4]>(t) }",
    ),
    ("pad/edge", 13, f'{SMALL} <int64[8] p = {{0,0,2,1,0,0,1,3}}> {{ y = Pad<mode="edge">(x, p) }}'),
    ("pad/wrap", 19, f'{SMALL} <int64[8] p = {{0,0,2,1,0,0,1,3}}> {{ y = Pad<mode="wrap">(x, p) }}'),
    # reductions
    ("mean/far", 13, f"{IMAGE} {{ y = ReduceMean<axes=[1,3]>(x) }}"),
    *((f"{kind}/far", 11, f"{IMAGE} {{ y = {kind}<axes=[1,3],keepdims=0>(x) }}") for kind in (
        "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")),
    ("sum/plane", 13, f"{IMAGE} <int64[2] a = {{2,3}}> {{ y = ReduceSum(x, a) }}"),
    ("sum/nhwc", 13, f"{IMAGE} <int64[2] a = {{1,2}}> {{ y = ReduceSum<keepdims=0>(x, a) }}"),
    ("max/plane", 13, f"{IMAGE} {{ y = ReduceMax<axes=[2,3]>(x) }}"),
    ("max/all", 13, f"{SIGNAL} {{ y = ReduceMax(x) }}"),
    ("log of a sum", 11, f"{IMAGE} {{ t = Exp(x) y = ReduceLogSum<axes=[1]>(t) }}"),
    # functions
    ("log softmax", 13, f"{IMAGE} {{ y = LogSoftmax<axis=1>(x) }}"),
    ("log softmax/old", 11, f"{SIGNAL} {{ y = LogSoftmax(x) }}"),
    ("lrn", 13, f"{IMAGE} {{ y = LRN<size=3,alpha=0.3,beta=0.6,bias=2.0>(x) }}"),
    ("lrn/wide", 13, f"{IMAGE} {{ y = LRN<size=5>(x) }}"),
    ("log", 13, f"{IMAGE} {{ t = Exp(x) y = Log(t) }}"),
    ("reciprocal", 13, f"{IMAGE} {{ t = Exp(x) y = Reciprocal(t) }}"),
    ("pow/2", 13, f"{IMAGE} <float e = {{2.0}}> {{ y = Pow(x, e) }}"),
    ("pow/3", 13, f"{IMAGE} <float e = {{3.0}}> {{ y = Pow(x, e) }}"),
    ("pow/fraction", 13, f"{IMAGE} <float e = {{0.3}}> {{ t = Exp(x) y = Pow(t, e) }}"),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "text"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_equals_onnxruntime(opset, text, tmp_path):
    """Interpolation weights are rounded to 2^-15, hence the tolerance."""
    model = build(text, opset, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    for a, b in zip(run(model, feed), run(to_onnx(graph, graph.outputs), feed), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-4 * np.abs(a).max())
