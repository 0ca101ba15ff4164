"""Models that were quantized before: what their grids become in the graph, and which forms are refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_text import build

from nmpconv.errors import InputError, InvalidModel, UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.graph.text import parse, to_text
from nmpconv.ir import Given
from nmpconv.passes.float import FLOAT

IMAGE = "(float[1,4,9,8] x) => (y)"
GRID = "float s = {0.25}, uint8 z = {0}"


def loaded(text, tmp_path, opset=13, header=""):
    build(text, opset, tmp_path / "model.onnx", header)
    return load(tmp_path / "model.onnx")


def passed(graph):
    for _, function in FLOAT:
        graph = function(graph)
    return graph


def test_a_pair_gives_a_range(tmp_path):
    text = f"{IMAGE} <float[2,4,1,1] w, float s = {{0.5}}, uint8 z = {{100}}> "
    graph = loaded(text + "{ c = Conv(x, w) q = QuantizeLinear(c, s, z) y = DequantizeLinear(q, s, z) }", tmp_path)
    assert graph.given == {"y": Given(0.5, 100, "uint8")}
    assert (graph.given["y"].min, graph.given["y"].max) == (-50.0, 77.5)
    assert [graph[node.outputs[0]].clamp for node in graph.nodes] == [None] * len(graph.nodes)


def test_a_range_from_zero_saturates(tmp_path):
    """onnxruntime leaves out a Relu or Clip whose saturation the QuantizeLinear does."""
    text = f"{IMAGE} <float[2,4,1,1] w, {GRID}> "
    graph = loaded(text + "{ c = Conv(x, w) q = QuantizeLinear(c, s, z) y = DequantizeLinear(q, s, z) }", tmp_path)
    (conv,) = [node for node in passed(graph).nodes if node.op == "conv2d"]
    assert passed(graph)[conv.outputs[0]].clamp == (0.0, 63.75)
    assert parse(to_text(graph), {n: v.data for n, v in graph.values.items() if v.is_const}) == graph


def test_idle_saturations_go(tmp_path):
    """A maximum of what is not negative, a sigmoid within a step of its grid, a Relu after it."""
    text = (
        f"{IMAGE} <{GRID}, float t = {{0.00390625}}> {{ r = Relu(x) c = QuantizeLinear(r, s, z)"
        " d = DequantizeLinear(c, s, z) m = MaxPool<kernel_shape=[2,2]>(d) q = QuantizeLinear(m, s, z)"
        " e = DequantizeLinear(q, s, z) g = Sigmoid(e) h = QuantizeLinear(g, t, z) i = DequantizeLinear(h, t, z)"
        " y = Relu(i) }"
    )
    assert [node.op for node in passed(loaded(text, tmp_path)).nodes if node.op not in ("transpose", "reshape")] == [
        "requantize",
        "max_pool",
        "lookup",
    ]


def test_an_input_is_only_annotated(tmp_path):
    graph = loaded(
        f"{IMAGE} <{GRID}> {{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Tanh(d) }}", tmp_path
    )
    assert graph.given == {"x": Given(0.25, 0, "uint8")}
    assert [node.op for node in graph.nodes] == ["lookup"]


def test_batch_normalization_after_a_quantized_convolution_is_folded(tmp_path):
    text = (
        f"{IMAGE} <float[2,4,1,1] w, float[2] a, float[2] b, float[2] m, float[2] var,"
        " float s = {0.25}, int8 z = {3}>"
        " { c = Conv(x, w) q = QuantizeLinear(c, s, z) d = DequantizeLinear(q, s, z)"
        " y = BatchNormalization(d, a, b, m, var) }"
    )
    assert [node.op for node in passed(loaded(text, tmp_path)).nodes] == ["transpose", "conv2d", "transpose"]


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weights_are_dequantized(kind, axis, tmp_path):
    """Per tensor and per channel, as QAT exports them: constants of integers, or of floats through both ops."""
    rng = np.random.default_rng(1)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    q = rng.integers(0, 100, (6, 4, 1, 1)).astype(dtype)
    count = 1 if axis is None else q.shape[axis]
    scale = rng.uniform(0.01, 0.1, count).astype(np.float32)
    zero = np.zeros(count, dtype) if kind == TensorProto.INT32 else rng.integers(0, 9, count).astype(dtype)
    along = [-1 if i == axis else 1 for i in range(4)] if axis is not None else [1]
    wanted = (q.astype(np.float32) - zero.astype(np.float32).reshape(along)) * scale.reshape(along)
    if axis is None:
        scale, zero = scale[0], zero[0]
    arrays = {"q": q, "s": np.asarray(scale), "z": np.asarray(zero, dtype)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis or 0),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 3, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 3, 3])],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )
    graph = load(path)
    (conv,) = [node for node in graph.nodes if node.op == "conv2d"]
    np.testing.assert_allclose(graph[conv.inputs[1]].data[:, 0, 0, :], wanted[:, :, 0, 0], rtol=1e-6)


def test_the_contrib_form(tmp_path):
    """onnxruntime writes it for 16 bits before opset 21."""
    text = (
        f"{IMAGE} <float s = {{0.25}}, uint16 z = {{7}}> "
        "{ q = com.microsoft.QuantizeLinear(x, s, z) d = com.microsoft.DequantizeLinear(q, s, z) y = Tanh(d) }"
    )
    graph = loaded(text, tmp_path, header=', "com.microsoft" : 1')
    assert graph.given == {"x": Given(0.25, 7, "uint16")}


REFUSED = [
    ("y = QuantizeLinear(x, s, z)", InputError, "output 'y' is of integers"),
    (
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, t, z)",
        UnsupportedModel,
        "scale 0.5 and zero point 0 for integers made with 0.25 and 0",
    ),
    ("y = DequantizeLinear(x, s, z)", InvalidModel, "is float; int32, int8, uint8"),
    ("q = QuantizeLinear(x, s, z) y = Cast<to=1>(q)", UnsupportedModel, "it computes with the integers 'q'"),
    ("q = QuantizeLinear<axis=1>(x, c, k) y = DequantizeLinear<axis=1>(q, c, k)", UnsupportedModel, "per channel"),
    (
        "q = QuantizeLinear(x, n, z) y = DequantizeLinear(q, n, z)",
        UnsupportedModel,
        "scale -1; instead: a positive number",
    ),
]


@pytest.mark.parametrize(("body", "error", "message"), REFUSED)
def test_refused(body, error, message, tmp_path):
    text = (
        f"{IMAGE} <{GRID}, float t = {{0.5}}, float n = {{-1.0}}, float[4] c = {{0.1,0.2,0.3,0.4}},"
        f" uint8[4] k = {{0,0,0,0}}> {{ {body} }}"
    )
    with pytest.raises(error, match=message):
        loaded(text, tmp_path)
