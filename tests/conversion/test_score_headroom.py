"""Anomaly scores, which are errors of a reconstruction: what was not seen comes out above what was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

import nmpconv
from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.engine import OnnxEngine

SIZE, HIDDEN = 24, 4
LEAST_DB = 45.0
USUAL, ANOMALIES = 0.09, (0.2, 0.38, 0.6)  # standard deviations of what the autoencoder does not know


def basis() -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(3).normal(size=(SIZE, HIDDEN)))[0].astype(np.float32)


def samples(count: int, seed: int, unknown: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    known = rng.normal(0, 0.5, (count, HIDDEN)) @ basis().T
    return (known + rng.normal(0, unknown, (count, SIZE))).astype(np.float32)


def difference(net: Net) -> str:
    code = net.add("Gemm", "x", net.const(basis().T), net.const(np.zeros(HIDDEN, np.float32)), transB=1)
    back = net.add("Gemm", code, net.const(basis()), net.const(np.zeros(SIZE, np.float32)), transB=1)
    return net.add("Sub", "x", back)


def mean_square(net: Net) -> str:
    d = difference(net)
    return net.add("ReduceMean", net.add("Mul", d, d), net.const([1]), keepdims=0)


def root_mean_square(net: Net) -> str:
    return net.add("Sqrt", mean_square(net))


def length(net: Net) -> str:
    return net.add("ReduceL2", difference(net), net.const([1]), keepdims=0)


@pytest.mark.parametrize("bits", ["8", "16"])
@pytest.mark.parametrize("score", [mean_square, root_mean_square, length], ids=lambda score: score.__name__)
def test_anomalies_stand_out(score: Callable[[Net], str], bits: str, tmp_path: Path) -> None:
    """Scores of up to forty times the largest that calibrated."""
    net, path = Net((1, SIZE)), tmp_path / "m.onnx"
    net.save(path, score(net))
    engine = OnnxEngine(path, {"x": (1, SIZE)})
    model = nmpconv.convert(path, samples(64, 1, USUAL), bits=bits).load()

    def scores(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wanted = [engine.run({"x": one[np.newaxis]})[engine.fetch[0]].item() for one in x]
        return np.array(wanted), np.array([model.run_float(one[np.newaxis])[0].item() for one in x])

    assert sqnr_db(*scores(samples(32, 2, USUAL))) >= LEAST_DB
    for unknown in ANOMALIES:
        wanted, got = scores(samples(8, 3, unknown))
        assert np.abs(got / wanted - 1).max() < 0.1


@pytest.mark.parametrize(("bits", "least"), [("8", 42.0), ("16", LEAST_DB)])
def test_a_detector_fires_though_nothing_was_in_its_samples(bits: str, least: float, tmp_path: Path) -> None:
    """A score of a Sigmoid that is 23 times the largest that calibrated."""
    net, path, recipe = Net((1, SIZE)), tmp_path / "m.onnx", tmp_path / "wide.toml"
    direction = (basis()[:, :1] * 4).astype(np.float32)
    logit = net.add("Gemm", "x", net.const(direction), net.const(np.full(1, -6, np.float32)))
    score = net.add("Sigmoid", logit)
    net.save(path, score)
    recipe.write_text(f'[tensors]\n"{score}" = {{ bits = 16 }}\n"{logit}" = {{ bits = 16 }}\n')
    engine, rng = OnnxEngine(path, {"x": (1, SIZE)}), np.random.default_rng(5)
    quiet = rng.normal(0, 0.1, (64, SIZE)).astype(np.float32)
    model = nmpconv.convert(path, quiet, bits=bits, recipe=recipe).load()

    def scores(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wanted = [engine.run({"x": one[np.newaxis]})[engine.fetch[0]].item() for one in x]
        return np.array(wanted), np.array([model.run_float(one[np.newaxis])[0].item() for one in x])

    usual, got = scores(quiet)
    assert usual.max() < 0.006
    assert sqnr_db(usual, got) >= least
    (loud,), (got_loud,) = scores(basis()[np.newaxis, :, 0])
    assert loud > 0.11
    assert got_loud == pytest.approx(loud, rel=0.01)
