"""Imported graphs compute what the model computes: the exported graph and the model agree in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_text import build, feeds

from nmpconv.frontend.onnx import load
from nmpconv.frontend.read import OPSET_MAX
from nmpconv.frontend.to_onnx import to_onnx

IMAGE = "(float[1,4,9,8] x) => (y)"
SIGNAL = "(float[1,4,11] x) => (y)"
ROW = "(float[1,12] x) => (y)"

# (id, opsets, model). Where the opsets list more than one, the op changed its form or its rules in between.
CASES = [
    # convolution
    ("conv/plain", (7, 11, 20), f"{IMAGE} <float[6,4,3,3] w> {{ y = Conv(x, w) }}"),
    ("conv/bias pads", (11,), f"{IMAGE} <float[6,4,3,2] w, float[6] b> {{ y = Conv<pads=[0,1,2,3]>(x, w, b) }}"),
    ("conv/stride dilation", (11,), f"{IMAGE} <float[6,4,2,2] w> {{ y = Conv<strides=[2,1],dilations=[1,3]>(x, w) }}"),
    ("conv/groups", (11,), f"{IMAGE} <float[6,2,3,3] w> {{ y = Conv<group=2,pads=[1,1,1,1]>(x, w) }}"),
    ("conv/depthwise multiplier", (11,), f"{IMAGE} <float[8,1,3,3] w> {{ y = Conv<group=4>(x, w) }}"),
    ("conv/same upper", (11,), f'{IMAGE} <float[6,4,4,3] w> {{ y = Conv<auto_pad="SAME_UPPER",strides=[2,2]>(x, w) }}'),
    ("conv/same lower", (11,), f'{IMAGE} <float[6,4,4,3] w> {{ y = Conv<auto_pad="SAME_LOWER",strides=[2,2]>(x, w) }}'),
    ("conv/valid", (11,), f'{IMAGE} <float[6,4,4,3] w> {{ y = Conv<auto_pad="VALID">(x, w) }}'),
    ("conv/1d", (11,), f"{SIGNAL} <float[6,4,3] w> {{ y = Conv<pads=[2,1],strides=[2]>(x, w) }}"),
    ("conv/1d twice", (11,), f"{SIGNAL} <float[4,4,3] w, float[3,4,2] v> {{ t = Conv(x, w) y = Conv(t, v) }}"),
    ("conv/shared weights", (11,), f"{IMAGE} <float[4,4,1,1] w> {{ t = Conv(x, w) y = Conv(t, w) }}"),
    ("conv/folded weights", (13,), f"{IMAGE} <float[4,6,1,1] w> {{ t = Transpose<perm=[1,0,2,3]>(w) y = Conv(x, t) }}"),
    (
        "batch normalization",
        (7, 9, 14, 15),
        f"{IMAGE} <float[4] s, float[4] b, float[4] m, float[4] var> "
        "{ y = BatchNormalization<epsilon=0.01>(x, s, b, m, var) }",
    ),
    (
        "batch normalization/row",
        (9,),
        f"{ROW} <float[12] s, float[12] b, float[12] m, float[12] var> {{ y = BatchNormalization(x,s,b,m,var) }}",
    ),
    # fully connected
    ("gemm/plain", (9, 13), f"{ROW} <float[12,5] w, float[5] b> {{ y = Gemm(x, w, b) }}"),
    (
        "gemm/transB alpha beta",
        (9,),
        f"{ROW} <float[5,12] w, float[1,5] b> {{ y = Gemm<transB=1,alpha=0.5,beta=3.0>(x, w, b) }}",
    ),
    ("gemm/transA", (9,), "(float[12,3] x) => (y) <float[12,5] w, float[1] b> { y = Gemm<transA=1>(x, w, b) }"),
    ("gemm/no addend", (11,), f"{ROW} <float[12,5] w> {{ y = Gemm(x, w) }}"),
    ("gemm/addend per row", (11,), "(float[3,12] x) => (y) <float[12,5] w, float[3,1] b> { y = Gemm(x, w, b) }"),
    ("gemm/computed addend", (11,), f"{ROW} <float[12,12] w> {{ t = Relu(x) y = Gemm<beta=0.5>(x, w, t) }}"),
    ("matmul", (9, 13), f"{ROW} <float[12,5] w, float[5] b> {{ t = MatMul(x, w) y = Add(t, b) }}"),
    ("matmul/leading axes", (13,), "(float[1,2,3,12] x) => (y) <float[12,5] w> { y = MatMul(x, w) }"),
    ("matmul/vector", (13,), "(float[1,3,12] x) => (y) <float[12] w> { y = MatMul(x, w) }"),
    ("matmul/two", (9, 13), "(float[1,3,12] x, float[1,12,4] z) => (y) { y = MatMul(x, z) }"),
    ("matmul/two/broadcast", (13,), "(float[1,1,3,12] x, float[5,12,4] z) => (y) { y = MatMul(x, z) }"),
    ("matmul/two/itself", (13,), "(float[1,3,3] x) => (y) { y = MatMul(x, x) }"),
    ("matmul/two/row", (13,), "(float[12] x, float[2,12,4] z) => (y) { y = MatMul(x, z) }"),
    ("matmul/two/column", (13,), "(float[2,3,12] x, float[12] z) => (y) { y = MatMul(x, z) }"),
    ("matmul/two/rows", (13,), "(float[12] x, float[12] z) => (y) { y = MatMul(x, z) }"),
    ("matmul/two/transposed", (13,), "(float[1,3,12] x) => (y) { t = Transpose<perm=[0,2,1]>(x) y = MatMul(x, t) }"),
    ("matmul/constants", (13,), "(float[2,3,12] x) => (y) <float[2,12,4] w> { y = MatMul(x, w) }"),
    ("matmul/constants of more axes", (13,), "(float[3,12] x) => (y) <float[1,12,4] w> { y = MatMul(x, w) }"),
    ("matmul/constants left", (13,), "(float[2,12,3] x) => (y) <float[2,4,12] w> { y = MatMul(w, x) }"),
    ("matmul/constant row", (13,), "(float[2,12,3] x) => (y) <float[12] w> { y = MatMul(w, x) }"),
    ("matmul/constant and vector", (13,), "(float[12] x) => (y) <float[4,12] w> { y = MatMul(w, x) }"),
    ("gemm/two", (11, 13), "(float[3,12] x, float[12,4] z) => (y) { y = Gemm(x, z) }"),
    (
        "gemm/two/everything",
        (13,),
        "(float[12,3] x, float[4,12] z) => (y) <float[4] c> "
        "{ y = Gemm<transA=1,transB=1,alpha=0.5,beta=2.0>(x, z, c) }",
    ),
    (
        "gemm/two/computed addend",
        (13,),
        "(float[3,12] x, float[12,4] z, float[3,1] c) => (y) { y = Gemm<beta=-1.0>(x, z, c) }",
    ),
    ("gemm/constant left", (13,), "(float[12,4] x) => (y) <float[12,3] w> { y = Gemm<transA=1,alpha=3.0>(w, x) }"),
    ("matmul/constant left", (13,), "(float[1,2,12,3] x) => (y) <float[5,12] w> { y = MatMul(w, x) }"),
    # element-wise
    ("add/channels", (7, 14), f"{IMAGE} <float[4,1,1] c> {{ y = Add(x, c) }}"),
    ("add/two", (13,), f"{IMAGE} {{ t = Relu(x) y = Add(x, t) }}"),
    ("add/broadcast", (13,), f"{IMAGE} {{ t = GlobalAveragePool(x) y = Add(x, t) }}"),
    ("add/ranks", (13,), "(float[1,3,4] x, float[3,1] z) => (y) { y = Add(x, z) }"),
    ("sub/constant right", (13,), f"{IMAGE} <float[1,4,1,1] c> {{ y = Sub(x, c) }}"),
    ("sub/constant left", (13,), f"{IMAGE} <float c = {{2.5}}> {{ y = Sub(c, x) }}"),
    ("sum/one", (8,), f"{IMAGE} {{ t = Sum(x) y = Relu(t) }}"),
    ("sum/three", (8,), f"{IMAGE} {{ t = Relu(x) u = Tanh(x) y = Sum(x, t, u) }}"),
    ("mul/constant", (13,), f"{IMAGE} <float[8] c> {{ y = Mul(c, x) }}"),
    ("mul/squeeze excite", (13,), f"{IMAGE} {{ t = GlobalAveragePool(x) u = Sigmoid(t) y = Mul(x, u) }}"),
    ("div", (13,), f"{IMAGE} <float[4,1,1] var> {{ y = Div(x, var) }}"),
    ("neg", (13,), f"{IMAGE} {{ y = Neg(x) }}"),
    # clamps
    ("relu", (7, 14), f"{IMAGE} {{ y = Relu(x) }}"),
    ("clip/attributes", (7,), f"{IMAGE} {{ y = Clip<min=-0.5,max=1.0>(x) }}"),
    ("clip/max only", (7,), f"{IMAGE} {{ y = Clip<max=1.0>(x) }}"),
    ("clip/inputs", (11, 13), f"{IMAGE} <float lo = {{0.0}}, float hi = {{6.0}}> {{ y = Clip(x, lo, hi) }}"),
    ("clip/one input", (13,), f"{IMAGE} <float hi = {{1.0}}> {{ y = Clip(x, , hi) }}"),
    ("clip/nothing", (13,), f"{IMAGE} {{ t = Clip(x) y = Relu(t) }}"),
    ("max/number", (13,), f"{IMAGE} <float[1] c = {{0.5}}> {{ y = Max(c, x) }}"),
    ("min/number", (13,), f"{IMAGE} <float c = {{0.5}}> {{ y = Min(x, c) }}"),
    # functions
    *((f"function/{kind}", (13,), f"{IMAGE} {{ y = {kind}(x) }}") for kind in (
        "Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign", "Erf", "Exp", "Abs")),
    ("function/Sqrt", (13,), f"{IMAGE} {{ t = Abs(x) y = Sqrt(t) }}"),
    ("function/HardSwish", (14,), f"{IMAGE} {{ y = HardSwish(x) }}"),
    ("function/Mish", (18,), f"{IMAGE} {{ y = Mish(x) }}"),
    ("function/Gelu", (20,), f"{IMAGE} {{ y = Gelu(x) }}"),
    ("function/Gelu tanh", (20,), f'{IMAGE} {{ y = Gelu<approximate="tanh">(x) }}'),
    ("function/alpha beta", (13,), f"{IMAGE} {{ t = HardSigmoid<alpha=0.3,beta=0.4>(x) y = Elu<alpha=0.5>(t) }}"),
    ("function/PRelu", (9,), f"{IMAGE} <float[1,1,1] a = {{0.25}}> {{ y = PRelu(x, a) }}"),
    # pools
    ("max pool", (8, 12), f"{IMAGE} {{ y = MaxPool<kernel_shape=[3,2],strides=[2,2],pads=[1,0,1,1]>(x) }}"),
    ("max pool/dilation", (12,), f"{IMAGE} {{ y = MaxPool<kernel_shape=[2,2],dilations=[3,2]>(x) }}"),
    ("max pool/ceil", (12,), f"{IMAGE} {{ y = MaxPool<kernel_shape=[3,3],strides=[2,2],ceil_mode=1>(x) }}"),
    (
        "max pool/ceil pads",
        (12,),
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[2,2],strides=[3,3],pads=[1,1,1,1],ceil_mode=1>(x) }}",
    ),
    ("max pool/same", (12,), f'{IMAGE} {{ y = MaxPool<kernel_shape=[3,3],strides=[2,2],auto_pad="SAME_UPPER">(x) }}'),
    ("max pool/1d", (12,), f"{SIGNAL} {{ y = MaxPool<kernel_shape=[3],strides=[2],pads=[1,0]>(x) }}"),
    ("max pool/global", (12,), f"{IMAGE} {{ y = GlobalMaxPool(x) }}"),
    ("average pool", (7, 11), f"{IMAGE} {{ y = AveragePool<kernel_shape=[3,2],strides=[2,2],pads=[1,0,1,1]>(x) }}"),
    (
        "average pool/counted",
        (11,),
        f"{IMAGE} {{ y = AveragePool<kernel_shape=[3,2],pads=[1,0,1,1],count_include_pad=1>(x) }}",
    ),
    ("average pool/ceil", (11,), f"{IMAGE} {{ y = AveragePool<kernel_shape=[2,3],strides=[2,2],ceil_mode=1>(x) }}"),
    (
        "average pool/ceil pads",
        (19,),
        f"{IMAGE} {{ y = AveragePool<kernel_shape=[2,3],strides=[2,2],pads=[0,1,0,0],ceil_mode=1>(x) }}",
    ),
    (
        "average pool/ceil counted",
        (19,),
        f"{IMAGE} {{ y = AveragePool<kernel_shape=[2,3],strides=[2,2],ceil_mode=1,count_include_pad=1>(x) }}",
    ),
    ("average pool/global", (7,), f"{IMAGE} {{ y = GlobalAveragePool(x) }}"),
    ("average pool/global 1d", (7,), f"{SIGNAL} {{ y = GlobalAveragePool(x) }}"),
    ("mean/plane", (11,), f"{IMAGE} {{ y = ReduceMean<axes=[2,3],keepdims=0>(x) }}"),
    ("mean/plane kept", (11,), f"{IMAGE} {{ y = ReduceMean<axes=[-1,-2]>(x) }}"),
    ("mean/nhwc", (11,), f"{IMAGE} {{ y = ReduceMean<axes=[1,2],keepdims=0>(x) }}"),
    ("mean/one axis", (13,), f"{IMAGE} {{ y = ReduceMean<axes=[-1]>(x) }}"),
    ("mean/channels", (13,), f"{IMAGE} {{ y = ReduceMean<axes=[1],keepdims=0>(x) }}"),
    ("mean/input", (18,), f"{IMAGE} <int64[2] a = {{2, 3}}> {{ y = ReduceMean<keepdims=0>(x, a) }}"),
    ("mean/all", (13,), f"{SIGNAL} {{ y = ReduceMean(x) }}"),
    # softmax
    ("softmax/old", (7, 11), f"{SIGNAL} {{ y = Softmax(x) }}"),
    ("softmax/new", (13,), f"{SIGNAL} {{ y = Softmax(x) }}"),
    ("softmax/axis", (11, 13), f"{SIGNAL} {{ y = Softmax<axis=2>(x) }}"),
    # data movement
    ("concat", (7, 13), f"{IMAGE} {{ t = Relu(x) y = Concat<axis=-3>(t, x, t) }}"),
    ("concat/constant", (13,), f"{IMAGE} <float[1,2,9,8] c> {{ y = Concat<axis=1>(c, x) }}"),
    ("pad/attributes", (7,), f"{IMAGE} {{ y = Pad<pads=[0,0,1,2,0,0,3,4],value=1.5>(x) }}"),
    ("pad/inputs", (11, 18), f"{IMAGE} <int64[8] p = {{0,0,1,2,0,1,3,4}}, float c = {{-1.0}}> {{ y = Pad(x, p, c) }}"),
    ("pad/axes", (18,), f"{IMAGE} <int64[4] p = {{1,2,3,4}}, int64[2] a = {{-1,2}}> {{ y = Pad(x, p, , a) }}"),
    ("slice/attributes", (7,), f"{IMAGE} {{ y = Slice<starts=[1,-3],ends=[100,-1],axes=[1,3]>(x) }}"),
    (
        "slice/steps",
        (10, 13),
        f"{IMAGE} <int64[2] s = {{1,-1}}, int64[2] e = {{9,-9}}, int64[2] a = {{2,-1}}, int64[2] t = {{2,-3}}> "
        "{ y = Slice(x, s, e, a, t) }",
    ),
    ("split/equal", (11,), f"{IMAGE} {{ a, b = Split<axis=1>(x) y = Add(a, b) }}"),
    ("split/attribute", (11,), f"{IMAGE} {{ a, b = Split<axis=3,split=[3,5]>(x) y = Concat<axis=3>(b, a) }}"),
    ("split/input", (13,), f"{IMAGE} <int64[2] s = {{1,3}}> {{ a, b = Split<axis=1>(x, s) y = Concat<axis=1>(b, a) }}"),
    ("split/count", (18,), f"{IMAGE} {{ a, b = Split<axis=2,num_outputs=2>(x) y = Concat<axis=2>(b, a) }}"),
    ("gather/scalar", (13,), f"{IMAGE} <int64 i = {{-2}}> {{ y = Gather<axis=1>(x, i) }}"),
    ("gather/range", (13,), f"{IMAGE} <int64[3] i = {{6,3,0}}> {{ y = Gather<axis=2>(x, i) }}"),
    ("reshape", (7, 13), f"{IMAGE} <int64[3] s = {{0,-1,8}}> {{ y = Reshape(x, s) }}"),
    ("flatten", (9,), f"{IMAGE} {{ y = Flatten(x) }}"),
    ("flatten/axis", (13,), f"{IMAGE} {{ y = Flatten<axis=-1>(x) }}"),
    (
        "squeeze/attribute",
        (11,),
        "(float[1,4,1,1] x) => (y) { t = Squeeze<axes=[2,3]>(x) y = Unsqueeze<axes=[-1]>(t) }",
    ),
    (
        "squeeze/input",
        (13,),
        "(float[1,4,1,1] x) => (y) <int64[2] a={2,3}, int64[1] b={-2}> { t = Squeeze(x, a) y = Unsqueeze(t, b) }",
    ),
    ("expand/no-op", (13,), f"{IMAGE} <int64[5] s = {{1,1,4,9,1}}> {{ y = Expand(x, s) }}"),
    ("transpose", (7,), f"{IMAGE} {{ y = Transpose<perm=[0,2,3,1]>(x) }}"),
    ("transpose/default", (13,), f"{SIGNAL} {{ y = Transpose(x) }}"),
    ("identity dropout cast", (13,), f"{IMAGE} {{ a = Identity(x) b = Dropout(a) c = Cast<to=1>(b) y = Relu(c) }}"),
    ("depth to space", (11,), f"{IMAGE} {{ y = DepthToSpace<blocksize=2>(x) }}"),
    ("depth to space/CRD", (11,), '(float[1,8,2,3] x) => (y) { y = DepthToSpace<blocksize=2,mode="CRD">(x) }'),
    ("space to depth", (11,), "(float[1,3,4,6] x) => (y) { y = SpaceToDepth<blocksize=2>(x) }"),
    # what exporters leave behind
    (
        "shape arithmetic",
        (11,),
        f"{IMAGE} <int64 i = {{0}}, int64[1] m = {{-1}}> "
        "{ s = Shape(x) b = Gather<axis=0>(s, i) u = Unsqueeze<axes=[0]>(b) t = Concat<axis=0>(u, m)"
        " y = Reshape(x, t) }",
    ),
    ("shape/slice", (15,), f"{IMAGE} {{ s = Shape<start=0,end=2>(x) t = GlobalAveragePool(x) y = Reshape(t, s) }}"),
    (
        "constant nodes",
        (13,),
        f"{IMAGE} <int64[1] n = {{8}}> "
        "{ c = Constant<value_float=0.5>() z = ConstantOfShape<value=float[1]{2.0}>(n) d = Mul(c, z) y = Mul(x, d) }",
    ),
    (
        "dequantized weights",
        (13,),
        f"{IMAGE} <int8[1,4,1,1] q = {{10,-20,30,127}}, float s = {{0.02}}> "
        "{ w = DequantizeLinear(q, s) y = Conv(x, w) }",
    ),
    ("output renamed twice", (13,), "(float[1,4] x) => (y, z) { t = Relu(x) y = Identity(t) z = Identity(t) }"),
    ("output is the input", (13,), "(float[1,4] x) => (y, z) { y = Identity(x) z = Relu(x) }"),
    ("output used inside", (13,), "(float[1,4] x) => (y, z) { y = Relu(x) z = Tanh(y) }"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "opset"),
    [pytest.param(text, opset, id=f"{name}/{opset}") for name, opsets, text in CASES for opset in opsets],
)
def test_equals_onnxruntime(text, opset, tmp_path):
    path = tmp_path / "model.onnx"
    model = build(text, opset, path)
    graph = load(path)
    feed = feeds(graph)
    expected = run(model, feed)
    found = run(to_onnx(graph, graph.outputs), feed)
    assert graph.outputs == tuple(value.name for value in model.graph.output)
    for a, b in zip(expected, found, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4 * np.abs(a).max())


@pytest.mark.parametrize(
    "name", ["conv/plain", "batch normalization", "clip/inputs", "mean/input", "pad/axes", "split/count"]
)
def test_newest_opset(name, tmp_path):
    """The newest opset of the onnx package is read, although no onnxruntime may know it yet."""
    text = next(text for case, _, text in CASES if case == name)
    model = build(text, OPSET_MAX, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    for a, b in zip(ReferenceEvaluator(model).run(None, feed), run(to_onnx(graph, graph.outputs), feed), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)


def run(model, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)


def test_the_larger_factor_is_first(tmp_path):
    build("(float[1,4,1,8] z, float[1,4,9,8] x) => (y) { y = Mul(z, x) }", 13, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    [(first, second)] = (node.inputs for node in graph.nodes if node.op == "mul")
    assert graph[first].size > graph[second].size
