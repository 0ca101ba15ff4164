"""Nets with normalizations and products of two tensors, converted whole: how close they come to float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.conversion.pipeline import Options, convert
from nmpconv.graph.reference import run as run_reference
from nmpconv.runtime import interpreter

SHAPE = (1, 3, 12, 12)


def norm(net: Net, kind: str, x: str, channels: int) -> str:
    if kind == "LayerNormalization":  # over the channels, as ConvNeXt has it
        x = net.add("Transpose", x, perm=[0, 2, 3, 1])
    attributes = {"num_groups": 4} if kind == "GroupNormalization" else {}
    scale, bias = net.weights(channels, spread=0.3, middle=1.0), net.weights(channels, spread=0.3)
    y = net.add(kind, x, scale, bias, **attributes)
    return net.add("Transpose", y, perm=[0, 3, 1, 2]) if kind == "LayerNormalization" else y


def normalized(kind: str, path: Path) -> None:
    """Three convolutions with a normalization each, and a residual."""
    net = Net(SHAPE)
    a = net.add("Relu", norm(net, kind, net.conv("x", 16), 16))
    b = net.add("Relu", norm(net, kind, net.conv(a, 16), 16))
    c = net.add("Add", a, norm(net, kind, net.conv(b, 16), 16))
    net.save(path, net.add("Flatten", net.add("GlobalAveragePool", c)))


# Least SQNR in dB at 8 and at 16 bits.
FLOORS = {"LayerNormalization": (40, 75), "InstanceNormalization": (43, 75), "GroupNormalization": (33, 75)}


def sqnr(path: Path, bits: str, tmp_path: Path) -> float:
    """SQNR of random images; the C code agrees with the reference on the way."""
    images = np.random.default_rng(8).normal(size=(24, *SHAPE[1:])).astype(np.float32)
    np.save(tmp_path / "x.npy", images)
    result = convert(path, {"": tmp_path / "x.npy"}, Options(bits=bits), lambda *_: None)
    assert result.report.quantized_nodes == result.report.total_nodes
    net = interpreter.load(result.data)
    feeds = np.random.default_rng(9).integers(-128, 128, result.graph["x"].shape).astype(result.graph["x"].dtype)
    np.testing.assert_array_equal(net.run(feeds)[0], run_reference(result.graph, {"x": feeds})[result.graph.outputs[0]])
    return next(iter(result.report.sqnr_by_head.values()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLOORS)
def test_normalized(kind: str, tmp_path: Path) -> None:
    normalized(kind, tmp_path / "m.onnx")
    found = [sqnr(tmp_path / "m.onnx", bits, tmp_path) for bits in ("8", "16")]
    assert found[0] >= FLOORS[kind][0] and found[1] >= FLOORS[kind][1]


def test_a_sign_of_normalized_numbers(tmp_path: Path) -> None:
    """An LpNormalization of one number is its sign, which any fine grid holds, until the bias saturates."""
    net = Net((1, 1, 3, 1))
    y = net.add("InstanceNormalization", "x", *(net.const(np.ones(1, np.float32)) for _ in range(2)))
    net.save(tmp_path / "m.onnx", net.add("LpNormalization", y))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).uniform(0.03, 0.8, (16, 1, 3, 1)).astype(np.float32))
    result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
    assert next(iter(result.report.sqnr_by_head.values())) > 40


def attention(path: Path) -> None:
    """A convolution, its pixels as tokens, layer normalization, self-attention with four heads, a residual, a mean."""
    net, heads, width, tokens = Net(SHAPE), 4, 16, 36
    x = net.conv("x", width, strides=[2, 2])
    x = net.add("Transpose", net.add("Reshape", x, net.const([1, width, tokens])), perm=[0, 2, 1])
    n = net.add("LayerNormalization", x, net.weights(width, spread=0.3, middle=1.0), net.weights(width))
    shape = net.const([1, tokens, heads, width // heads])
    q, k, v = (
        net.add(
            "Transpose",
            net.add("Reshape", net.add("MatMul", n, net.weights(width, width, spread=0.3)), shape),
            perm=perm,
        )
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = net.add("Div", net.add("MatMul", q, k), net.const(2.0))
    y = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    y = net.add("Reshape", y, net.const([1, tokens, width]))
    y = net.add("Add", x, net.add("MatMul", y, net.weights(width, width, spread=0.3)))
    net.save(path, net.add("ReduceMean", y, net.const([1]), keepdims=0))


@pytest.mark.slow
def test_attention(tmp_path: Path) -> None:
    attention(tmp_path / "m.onnx")
    assert sqnr(tmp_path / "m.onnx", "8", tmp_path) >= 25
    assert sqnr(tmp_path / "m.onnx", "16", tmp_path) >= 60
