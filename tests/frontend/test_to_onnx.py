"""The float form of graphs that no ONNX file gives: padding values, clamps, fetched values, batches."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from nets import Net
from onnx_text import build, feeds

from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import Exporter, is_batchable, to_onnx


def run(graph, fetch, feed):
    return onnxruntime.InferenceSession(to_onnx(graph, fetch).SerializeToString()).run(list(fetch), feed)


def conv(x_shape, pad=None, clamp=None, **params):
    net = Net(1)
    net.input("x", *x_shape)
    net.const("w", net.rng.normal(size=(4, 3, 2, x_shape[3] // params.get("groups", 1))))
    net.const("b", net.rng.normal(size=4))
    names = "x w b" if pad is None else f"x w b {net.const('pad', pad)}"
    net.op("conv2d", names, "y", clamp, **params)
    return net.graph("y")


@pytest.mark.parametrize("groups", [1, 2])
def test_padding_value_per_channel(groups):
    """The same as a convolution without padding over an input that was padded by hand."""
    pad = np.array([1.5, -2.0, 0.0, 3.0], np.float32)
    x = np.random.default_rng(2).normal(size=(1, 5, 6, 4)).astype(np.float32)
    padded = np.empty((1, 8, 9, 4), np.float32)
    padded[:] = pad
    padded[:, 1:6, 2:8] = x
    geometry = {"stride_h": 2, "dilation_w": 2, "groups": groups}
    pads = {"pad_top": 1, "pad_left": 2, "pad_bottom": 2, "pad_right": 1}
    found = run(conv(x.shape, pad, **geometry, **pads), ["y"], {"x": x})
    expected = run(conv(padded.shape, **geometry), ["y"], {"x": padded})
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("clamp", [(0.0, np.inf), (-np.inf, 1.0), (-0.5, 0.5)])
def test_a_value_is_fetched_after_its_clamp(clamp):
    x = np.random.default_rng(2).normal(size=(1, 5, 6, 4)).astype(np.float32)
    [plain] = run(conv(x.shape), ["y"], {"x": x})
    [clamped] = run(conv(x.shape, clamp=clamp), ["y"], {"x": x})
    np.testing.assert_array_equal(clamped, np.clip(plain, *clamp))


def test_weights_are_in_the_model_once():
    """Those of a convolution in onnxruntime's order of axes alone; a constant that is fetched stays."""
    graph = conv((1, 5, 6, 4))
    for fetch, more in ((["y"], set()), (["y", "w"], {"w"})):
        model = to_onnx(graph, fetch).graph
        stored = {tensor.name for tensor in model.initializer}
        assert stored == {name for node in model.node for name in node.input} & stored | more
        assert sum(tensor.dims[:] == [4, 4, 3, 2] for tensor in model.initializer) == 1


def test_fetch_anything_in_any_order(tmp_path):
    """Inputs, intermediate values in NHWC, outputs; what they do not need is not in the model."""
    text = "(float[1,3,4,5] x) => (y) <float[2,3,1,1] w> { t = Conv(x, w) u = Relu(t) y = Tanh(u) }"
    build(text, 13, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    model = to_onnx(graph, ["u", "x", "t.conv2d"])
    assert [value.name for value in model.graph.output] == ["u", "x", "t.conv2d"]
    assert "Tanh" not in [node.op_type for node in model.graph.node]
    u, x, nhwc = run(graph, ["u", "x", "t.conv2d"], feed)
    np.testing.assert_array_equal(x, feed["x"])
    np.testing.assert_array_equal(np.maximum(nhwc, 0), u.transpose(0, 2, 3, 1))


BATCHABLE = (
    "(float[1,4,6,6] x) => (y) <int64[2] s = {1,-1}, float[144] c> { t = Relu(x) u = Reshape(t, s) y = Add(u, c) }"
)
NOT_BATCHABLE = [
    "(float[1,6] x) => (y) { y = Transpose(x) }",
    "(float[1,6] x) => (y) { y = Softmax<axis=0>(x) }",
    "(float[1,6] x) => (y) { y = Concat<axis=0>(x, x) }",
    "(float[6,1] x) => (y) { y = Relu(x) }",
]


def test_batches(tmp_path):
    build(BATCHABLE, 13, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    assert is_batchable(graph)
    items = [feeds(graph, seed)["x"] for seed in range(3)]
    [together] = run(graph, ["y"], {"x": np.concatenate(items)})
    apart = [run(graph, ["y"], {"x": item})[0] for item in items]
    np.testing.assert_array_equal(together, np.concatenate(apart))


@pytest.mark.parametrize("text", NOT_BATCHABLE)
def test_no_batches(text, tmp_path):
    build(text, 13, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    assert not is_batchable(graph)
    [dim, *_] = to_onnx(graph, graph.outputs).graph.input[0].type.tensor_type.shape.dim
    assert dim.dim_value == graph["x"].shape[0]


def test_standalone_clamp():
    net = Net()
    net.input("x", 1, 4)
    net.op("requantize", "x", "y", (0.0, 6.0))
    [y] = run(net.graph("y"), ["y"], {"x": np.array([[-1, 2, 7, 6]], np.float32)})
    assert y.tolist() == [[0, 2, 6, 6]]


def test_long_attributes_are_those_of_their_node():
    to, (a, b) = Exporter(conv((1, 5, 6, 4))), np.zeros((2, 2000), np.float32)
    b[1000] = 5
    for values in (a, b, a):
        to.node("Own", ["x"], values=values)
    assert [max(node.attribute[0].floats) for node in to.nodes[-3:]] == [0, 5, 0]


def test_names_of_many_constants_are_found_at_once():
    """Numbers that are taken are not tried again: long unrolled LSTMs have a hundred thousand constants."""
    tried = []

    class Names(set):
        def __contains__(self, name: object) -> bool:
            tried.append(name)
            return super().__contains__(name)

    to = Exporter(conv((1, 5, 6, 4)))
    to._names = Names(["const", "const_2"])
    assert [to.const([i]) for i in range(100)] == ["const_1", *(f"const_{i}" for i in range(3, 102))]
    assert len(tried) < 400
