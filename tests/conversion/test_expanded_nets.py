"""Nets of operators that are written as others, converted at 16 bits: how close they come to float."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.conversion.pipeline import Options, convert
from nmpconv.errors import InputError
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.runtime.interpreter import load

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


def hidden_by(make: Callable[[Net, str], str]) -> Callable[[Net], str]:
    """Attention with a mask that is computed. make: from the scores to what the Softmax reads."""

    def build(net: Net) -> str:
        q, k, v = (net.add("MatMul", "x", small(net, 6, 8)) for _ in range(3))
        share = net.add("Softmax", make(net, net.add("Einsum", q, k, equation="bqd,bkd->bqk")), axis=-1)
        return net.add("Einsum", share, v, equation="bqk,bkd->bqd")

    return build


def first_feature(net: Net) -> str:
    """First feature of each token, [1, 1, 12]."""
    first = net.add("Slice", "x", net.const([0]), net.const([1]), net.const([2]))
    return net.add("Reshape", first, net.const([1, 1, 12]))


def hidden(net: Net) -> str:
    """Hidden tokens: bool [1, 1, 12], by their first feature."""
    return net.add("Greater", first_feature(net), net.const(0.6))


def shown(net: Net, scores: str) -> str:
    """The first feature is 1 where a token is shown, else 0."""
    hides = net.add("Sub", net.const(np.float32(1)), first_feature(net))
    return net.add("Add", scores, net.add("Mul", hides, net.const(np.float32(-1e9))))


def added(net: Net, scores: str, depth: float, shift: float = 0.0) -> str:
    """BERT's: s + m * depth."""
    scores = net.add("Add", scores, net.const(shift)) if shift else scores
    return net.add("Add", scores, net.add("Mul", net.add("Cast", hidden(net), to=1), net.const(depth)))


def chosen(net: Net, scores: str, depth: float, shift: float = 0.0) -> str:
    """masked_fill."""
    scores = net.add("Add", scores, net.const(shift)) if shift else scores
    return net.add("Where", hidden(net), net.const(depth), scores)


def chosen_then_added(net: Net, scores: str) -> str:
    return net.add("Add", scores, net.add("Where", hidden(net), net.const(-np.inf), net.const(0.0)))


def shifted(net: Net, depth: float, bias: float) -> str:
    """Attention of tokens to those before them. depth: of the mask. bias: spread of what is added by position."""
    hides = np.triu(np.full((12, 12), depth, np.float32), 1) + net.noise.normal(0, bias, (12, 12)).astype(np.float32)
    return hidden_by(lambda net, s: net.add("Add", s, net.const(hides)))(net)


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
    "mask of -1e4": hidden_by(lambda net, s: added(net, s, -1e4)),
    "mask of -3.4e38": hidden_by(lambda net, s: added(net, s, float(np.finfo(np.float32).min))),
    "mask of low scores": hidden_by(lambda net, s: added(net, s, -1e4, -60.0)),
    "filled": hidden_by(lambda net, s: chosen(net, s, -1e9)),
    "filled, low scores": hidden_by(lambda net, s: chosen(net, s, -1e9, -60.0)),
    "mask of -inf, chosen": hidden_by(chosen_then_added),
    "volume": volume,
    "written": written,
    "snake": lambda net: net.add("Add", "x", net.add("Mul", *[net.add("Sin", "x")] * 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_16_bits(name: str, tmp_path: Path) -> None:
    net = Net((1, 12, 6))
    net.save(tmp_path / "m.onnx", NETS[name](net))
    np.save(tmp_path / "x.npy", np.random.default_rng(8).normal(size=(24, 1, 12, 6)).astype(np.float32))
    result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
    assert result.report.quantized_nodes == result.report.total_nodes
    assert min(result.report.sqnr_by_head.values()) >= LEAST_DB


def test_a_row_that_is_hidden_as_a_whole(tmp_path: Path) -> None:
    """-1e9 + s is -1e9 in float32, and so the Softmax is even. -1e4 + s is not. -100 may be a shift of all scores."""
    feeds = np.random.default_rng(8).normal(size=(24, 1, 12, 6)).astype(np.float32)
    feeds[3, ..., 0] = 1
    np.save(tmp_path / "x.npy", feeds)

    def converted(depth: float) -> float:
        net = Net((1, 12, 6))
        net.save(tmp_path / "m.onnx", hidden_by(lambda net, s: added(net, s, depth))(net))
        result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
        return min(result.report.sqnr_by_head.values())

    assert converted(-1e9) >= LEAST_DB
    assert converted(-100) >= 50
    with pytest.raises(InputError, match=r"a mask hides all numbers of a row of .*mask by -1e9"):
        converted(-1e4)


def test_a_mask_that_no_sample_used(tmp_path: Path) -> None:
    """Calibrated with full sequences alone."""
    net = Net((1, 12, 6))
    net.save(tmp_path / "m.onnx", hidden_by(shown)(net))
    feeds = np.random.default_rng(8).normal(size=(32, 1, 12, 6)).astype(np.float32)
    feeds[..., 0] = 1
    feeds[24:, :, 5:, 0] = 0
    result = convert(tmp_path / "m.onnx", {"": feeds[:24]}, Options(bits="16"), lambda *_: None)
    measured = evaluate(load(result.data), {"x": feeds[24:]}, reference=tmp_path / "m.onnx")
    assert min(measured.sqnr.values()) >= LEAST_DB


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_shallow_masks_cost_no_more_than_deep_ones(bias: float, tmp_path: Path) -> None:
    """Windows of Swin add -100, in a constant with a bias by position or without."""
    np.save(tmp_path / "x.npy", np.random.default_rng(8).normal(size=(24, 1, 12, 6)).astype(np.float32))

    def converted(depth: float) -> float:
        net = Net((1, 12, 6))
        net.save(tmp_path / "m.onnx", shifted(net, depth, bias))
        result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="8"), lambda *_: None)
        return min(result.report.sqnr_by_head.values())

    assert converted(-100) >= converted(-np.inf) - 0.5 >= 27
