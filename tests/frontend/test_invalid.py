"""Nodes that ONNX does not allow are listed with what was found and what is allowed, and end with exit code 3."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_text import build

from nmpconv.errors import ExitCode, InputError, InvalidModel
from nmpconv.frontend.onnx import load

IMAGE = "(float[1,4,9,8] x) => (y)"

# id, opset, body of the graph with node y, its row without the name
ROWS = [
    ("index", 13, "<int64[2] i = {0, 99}> { y = Gather<axis=1>(x, i) }", "Gather: index 99 of 4; -4 to 3"),
    (
        "axis of Softmax",
        13,
        "{ y = Softmax<axis=99>(x) }",
        "Softmax: 'axis' must be in [-4 , 3]. Its actual value is: 99; found x: float [1, 4, 9, 8]; axis = 99",
    ),
    (
        "negative pads",
        13,
        "<int64[8] p = {0, -3, 0, 0, 0, -1, 0, 2}> { y = Pad(x, p) }",
        "Pad: pads of -3 and -1 take all of the 4 elements of axis 1",
    ),
    (
        "dot of Einsum",
        13,
        '{ y = Einsum<equation="i..j->ij">(x) }',
        "Einsum: equation 'i..j->ij'; letters and ellipses of three dots",
    ),
    ("axis of Concat", 13, "{ y = Concat<axis=1099511627776>(x, x) }", "Concat: axis 1099511627776 of 4; -4 to 3"),
    (
        "complex",
        13,
        "<complex64[1] w> { y = Mul(x, w) }",
        "Mul: its input 'w' (B) is complex64; bfloat16, double, float, float16, int32, int64, uint32, uint64",
    ),
    (
        "two types",
        13,
        "<double[2,4,1,1] w> { y = Conv(x, w) }",
        "Conv: its inputs 'x' and 'w' are float and double; the same type",
    ),
    ("type", 13, "<int64[2,4,1,1] w> { y = Conv(x, w) }", "Conv: its input 'w' (W) is int64; double, float, float16"),
    (
        "kernel_shape",
        13,
        "<float[2,4,3,3] w> { y = Conv<kernel_shape=[3,1]>(x, w) }",
        "Conv: kernel_shape [3, 1] for weights of [3, 3]; the shape of the weights",
    ),
    (
        "channels",
        13,
        "<float[2,3,1,1] w> { y = Conv(x, w) }",
        "Conv: weights [2, 3, 1, 1] in 1 group(s) do not fit 4 input channels",
    ),
    (
        "group",
        13,
        "<float[3,2,1,1] w> { y = Conv<group=2>(x, w) }",
        "Conv: weights [3, 2, 1, 1] in 2 group(s) do not fit 4 input channels",
    ),
    ("bias", 13, "<float[2,4,1,1] w, float[3] b> { y = Conv(x, w, b) }", "Conv: a bias of shape [3]; [2]"),
    ("too few inputs", 13, "{ y = Conv(x) }", "Conv: has input size 1 not in range [min=2, max=3]"),
    ("too many inputs", 13, "{ y = Relu(x, x) }", "Relu: has input size 2 not in range [min=1, max=1]"),
    ("attribute", 13, "{ y = Relu<slope=1>(x) }", "Relu: Unrecognized attribute: slope for operator Relu"),
    (
        "type of an attribute",
        13,
        "{ y = Softmax<axis=1.0>(x) }",
        "Softmax: Mismatched attribute type in ' : axis'. Expected: 'INT', actual: 'FLOAT'",
    ),
    (
        "permutation",
        13,
        "{ y = Transpose<perm=[0,1,2,9]>(x) }",
        "Transpose: Invalid attribute perm {0, 1, 2, 9}, input shape = {1, 4, 9, 8}; found x: float [1, 4, 9, 8]; "
        "perm = [0, 1, 2, 9]",
    ),
    (
        "parts",
        13,
        "<int64[2] s = {1, 2}> { y, z = Split<axis=1>(x, s) }",
        "Split: Mismatch between the sum of 'split' (3) and the split dimension of the input (4); found "
        "x: float [1, 4, 9, 8], s: int64 [2]; axis = 1",
    ),
    (
        "shape",
        13,
        "<int64[2] s = {5,5}> { y = Reshape(x, s) }",
        "Reshape: [1, 4, 9, 8] cannot become [5, 5]; as many elements",
    ),
    (
        "axis of Slice",
        13,
        "<int64[1] a = {99}, int64[1] b = {0}, int64[1] c = {1}> { y = Slice(x, b, c, a) }",
        "Slice: Unexpected axis value: 99. Expected range [-4, 4); found x: float [1, 4, 9, 8], b: int64 [1], "
        "c: int64 [1], a: int64 [1]",
    ),
    (
        "axis of ReduceMean",
        13,
        "{ y = ReduceMean<axes=[9]>(x) }",
        "ReduceMean: axis must be in [-rank, rank-1]. Input rank was 4; found x: float [1, 4, 9, 8]; axes = [9]",
    ),
    (
        "axis of Flatten",
        13,
        "{ y = Flatten<axis=9>(x) }",
        "Flatten: Invalid value(9) for attribute 'axis'; found x: float [1, 4, 9, 8]; axis = 9",
    ),
    (
        "pads",
        13,
        "<int64[3] p = {0,1,2}> { y = Pad(x, p) }",
        "Pad: Pads has incorrect number of values; found x: float [1, 4, 9, 8], p: int64 [3]",
    ),
    (
        "strides",
        13,
        "<float[2,4,1,1] w> { y = Conv<strides=[0,1]>(x, w) }",
        "Conv: Attribute strides must only contain positive values; found x: float [1, 4, 9, 8], "
        "w: float [2, 4, 1, 1]; strides = [0, 1]",
    ),
    (
        "dilations",
        13,
        "<float[2,4,1,1] w> { y = Conv<dilations=[-1,1]>(x, w) }",
        "Conv: Attribute dilations must only contain positive values; found x: float [1, 4, 9, 8], "
        "w: float [2, 4, 1, 1]; dilations = [-1, 1]",
    ),
    ("op of a newer opset", 13, "{ y = Gelu(x) }", "Gelu: opset 13 has no such op; an export with a newer opset"),
    (
        "constants",
        13,
        "<float[2] a, float[3] b> { c = Add(a, b) y = Mul(x, c) }",
        "Add: Incompatible dimensions; found a: float [2], b: float [3]",
    ),
]


@pytest.mark.parametrize(("opset", "text", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_row(opset, text, expected, tmp_path):
    path = tmp_path / "model.onnx"
    build(f"{IMAGE} {text}", opset, path)
    with pytest.raises(InvalidModel) as caught:
        load(path)
    _, kind, found, allowed = caught.value.rows[0]
    assert f"{kind}: {found}" + (f"; {allowed}" if allowed else "") == expected
    assert caught.value.code == ExitCode.INPUT


def test_all_are_listed(tmp_path):
    """And none that can only not be converted."""
    path = tmp_path / "model.onnx"
    text = "{ a = Softmax<axis=9>(x) b = Flatten<axis=-9>(x) c = NonZero(x) }"
    build(f"(float[1,4,9,8] x) => (a, b, c) {text}", 13, path)
    with pytest.raises(InvalidModel) as caught:
        load(path)
    assert [row[:2] for row in caught.value.rows] == [("a", "Softmax"), ("b", "Flatten")]
    assert str(caught.value).startswith(f"{path}: 2 node(s) not valid ONNX:\n  a (Softmax): ")


def test_negative_dimensions(tmp_path):
    """numpy would take -1 for what is left."""
    path = tmp_path / "model.onnx"
    model = build(f"{IMAGE} <float[8] w> {{ y = Mul(x, w) }}", 13)
    model.graph.initializer[0].dims[:] = [-1]
    onnx.save(model, path)
    with pytest.raises(InputError, match="tensor 'w' has the shape \\[-1\\]"):
        load(path)


SOUND = [
    pytest.param("{ y = Add(x, a) a = Relu(x) }", id="order"),
    pytest.param("{ y = Relu(x) z = Pad<pads=[0,9]>(x) }", id="a dead node"),
    pytest.param("{ y = Upsample<scales=[1.0,1.0,2.0,2.0]>(x) }", id="deprecated later"),
]


@pytest.mark.parametrize("text", SOUND)
def test_what_onnxruntime_takes_is_taken(text, tmp_path):
    """Models that onnx.checker would refuse as a whole."""
    path = tmp_path / "model.onnx"
    model = build(f"{IMAGE} {text}", 8)
    model.ir_version = onnx.IR_VERSION + 1
    model.graph.value_info.append(helper.make_tensor_value_info("nobody", 1, [-3]))
    onnx.save(model, path)
    assert load(path).outputs == ("y",)


FOLDED = [
    ("NFNet's weights", 15, "BatchNormalization<training_mode=1>", True),
    ("epsilon", 15, "BatchNormalization<training_mode=1, epsilon=0.1>", True),
    ("inference", 15, "BatchNormalization", False),
    ("inference, older", 9, "BatchNormalization", False),
]


@pytest.mark.parametrize(("opset", "op", "three"), [pytest.param(*row[1:], id=row[0]) for row in FOLDED])
def test_normalized_constants(opset, op, three, tmp_path):
    """Folded to what onnxruntime computes."""
    path = tmp_path / "model.onnx"
    outs, shapes = ("n, m, v" if three else "n"), "int64[3] a = {1,2,-1}, int64[4] b = {2,4,3,3}"
    text = f"{{ r = Reshape(w, a) {outs} = {op}(r, s, c, var, var) k = Reshape(n, b) y = Conv(x, k) }}"
    model = build(f"{IMAGE} <float[2,4,3,3] w, float[2] s, float[2] c, float[2] var, {shapes}> {text}", opset, path)
    graph = load(path)
    [conv] = [node for node in graph.nodes if node.op == "conv2d"]
    assert_weights(model, graph[conv.inputs[1]].data.transpose(0, 3, 1, 2), "k")


def test_normalized_by_the_channels_around(tmp_path):
    path = tmp_path / "model.onnx"
    model = build(f"{IMAGE} <float[1,4,1,1] w> {{ k = LRN<size=3,alpha=0.5>(w) y = Mul(x, k) }}", 13, path)
    graph = load(path)
    [mul] = [node for node in graph.nodes if node.op == "mul"]
    assert_weights(model, graph[mul.inputs[1]].data, "k")


def assert_weights(model, found, name) -> None:
    import onnxruntime

    element = onnx.TensorProto.FLOAT
    model.graph.output.append(helper.make_tensor_value_info(name, element, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [wanted] = session.run([name], {"x": np.zeros((1, 4, 9, 8), np.float32)})
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()


def test_statistics_of_the_batch_before_opset_14(tmp_path):
    """Five outputs mean training mode there."""
    path = tmp_path / "model.onnx"
    text = "<float[4] s, float[4] var> { y, a, b, c, d = BatchNormalization(x, s, s, s, var) }"
    build(f"{IMAGE} {text}", 9, path)
    with pytest.raises(Exception, match="training mode"):
        load(path)


def test_initializers_keep_their_names(tmp_path):
    """A damaged tensor is named."""
    path = tmp_path / "model.onnx"
    model = build(f"{IMAGE} <float[8] w> {{ y = Mul(x, w) }}", 13)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((8,), np.float32), "w"))
    model.graph.initializer[0].data_type = 77
    onnx.save(model, path)
    with pytest.raises(InputError, match="tensor 'w'"):
        load(path)
