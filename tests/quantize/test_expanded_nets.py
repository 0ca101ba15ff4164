"""Nets of operators that are written as others, converted at 16 bits: how close they come to float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.pipeline import Options, convert

LEAST_DB = 45.0


def small(net: Net, *shape: int) -> str:
    return net.weights(*shape, spread=0.3)


def sequence(kind: str, gates: int, net: Net) -> str:
    """A recurrent layer over three steps, and what it makes of the last one."""
    hidden = 8
    x = net.add("Reshape", "x", net.const([3, 1, 24]))
    weights = (small(net, 1, gates * hidden, n) for n in (24, hidden))
    y = net.add(kind, x, *weights, small(net, 1, 2 * gates * hidden), hidden_size=hidden)
    return net.add("Gather", y, net.const(np.array(-1)), axis=0)


def causal(net: Net, middle: float = 0.0) -> str:
    """Attention of tokens to those before them. middle: of the scores, which changes nothing."""
    q, k, v = (net.add("MatMul", "x", small(net, 6, 8)) for _ in range(3))
    scores = net.add("Einsum", q, k, equation="bqd,bkd->bqk")
    scores = net.add("Add", scores, net.const(np.float32(middle)))
    mask = net.const(np.triu(np.full((12, 12), -np.inf, np.float32), 1))
    share = net.add("Softmax", net.add("Add", scores, mask), axis=-1)
    return net.add("Einsum", share, v, equation="bqk,bkd->bqd")


def volume(net: Net) -> str:
    """Two convolutions and a pool over depth, height and width."""
    y = net.add("Reshape", "x", net.const([1, 2, 6, 3, 2]))
    y = net.add("Relu", net.add("Conv", y, small(net, 4, 2, 3, 3, 1), small(net, 4), pads=[1, 1, 0, 1, 1, 0]))
    y = net.add("AveragePool", y, kernel_shape=[2, 1, 1], strides=[2, 1, 1])
    return net.add("Conv", y, small(net, 3, 4, 3, 3, 2))


def written(net: Net) -> str:
    """Some positions of a feature map replaced, others taken."""
    y = net.add("MatMul", "x", small(net, 6, 8))
    rows = net.add("Gather", y, net.const(np.array([7, 2, 5])), axis=1)
    places = net.const(np.array([[[0, 1], [0, 9], [0, 4]]]))
    y = net.add("ScatterND", y, places, rows)
    return net.add("GatherND", y, net.const(np.array([[0, 1], [0, 9], [0, 0]])))


NETS = {
    "RNN": lambda net: sequence("RNN", 1, net),
    "GRU": lambda net: sequence("GRU", 3, net),
    "LSTM": lambda net: sequence("LSTM", 4, net),
    "causal attention": causal,
    "causal attention of low scores": lambda net: causal(net, -60.0),
    "volume": volume,
    "written": written,
    "snake": lambda net: net.add("Add", "x", net.add("Mul", *[net.add("Sin", "x")] * 2)),
}


@pytest.mark.parametrize("name", NETS)
def test_16_bits(name: str, tmp_path: Path) -> None:
    net = Net((1, 12, 6))
    net.save(tmp_path / "m.onnx", NETS[name](net))
    np.save(tmp_path / "x.npy", np.random.default_rng(8).normal(size=(24, 1, 12, 6)).astype(np.float32))
    result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
    assert result.report.quantized_nodes == result.report.total_nodes
    assert min(result.report.sqnr_by_head.values()) >= LEAST_DB
