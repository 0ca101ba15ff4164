"""Exponents of activations: fixed, shared, chosen; clamps as ranges of integers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from float_nets import RELU, feeds, in_bits, observed, residual
from nets import Net
from onnx import TensorProto, helper
from onnx_net import Net as OnnxNet
from onnx_text import build

import nmpconv
from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.exponent_search import choose
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.errors import InputError
from nmpconv.ir import Graph
from nmpconv.passes.quantize import exponents, headroom, table_readers
from nmpconv.passes.quantize.exponents import Method, provisional, saturating


def head() -> Graph:
    net = Net(1)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 4, w=0.01 * net.rng.normal(0, 1, (4, 1, 1, 3)), clamp=RELU)
    net.conv("a", "h", 3)
    net.op("softmax", "h", "y", axis=3)
    net.conv("a", "g", 3)
    net.op("lookup", "g", "z", function="sigmoid")
    net.conv("a", "k", 3)
    net.op("lookup", "k", "t", function="tanh")
    return net.graph("y", "z", "t", pixels=("x",))


@pytest.mark.parametrize("method", ["max", "mse", "kl", "percentile"])
def test_method(method: str) -> None:
    net = Net(5)
    net.input("x", 1, 16, 16, 3)
    net.conv("x", "y", 4)
    graph = net.graph("y")
    spiky = feeds(graph)
    spiky[0]["x"][0, 0, 0, 0] = 400
    stats = observed(graph, spiky)
    found = exponents.run(graph, stats, in_bits(graph, 8), Method(method, 99.0))["x"]
    assert found.observed.method == method
    seen = (
        headroom.expected(graph, stats, in_bits(graph, 8), stats, table_readers.after(graph))
        if method.startswith("mse")
        else stats
    )
    assert found.quant.exponent == choose(seen["x"], 8, method, percentile=99.0)
    assert (found.quant.exponent >= 2) == (method in ("max", "mse", "mse4"))  # others give the spike up


@pytest.mark.parametrize(
    ("bits", "exponent", "clamp", "expected"),
    [
        (8, -4, None, (-128, 127)),
        (8, -4, (0.0, 6.0), (0, 96)),
        (8, -5, (0.0, 6.0), (0, 127)),
        (16, -5, (0.0, 6.0), (0, 192)),
        (8, 0, (-math.inf, 2.5), (-128, 3)),
        (8, 0, (-2.5, math.inf), (-2, 127)),
        (8, 0, (300.0, 400.0), (127, 127)),
        (8, 0, (-math.inf, -400.0), (-128, -128)),
    ],
)
def test_saturating(bits: int, exponent: int, clamp: tuple, expected: tuple[int, int]) -> None:
    quant = saturating(bits, exponent, clamp)
    assert (quant.bits, quant.exponents, quant.lo, quant.hi) == (bits, (exponent,), *expected)


def test_provisional() -> None:
    graph = provisional(head(), {"h": 16})
    assert {v.name for v in graph.activations() if v.dtype == "int16"} == {"h"}
    assert all(v.dtype == "int8" for v in graph.activations() if v.name != "h")
    assert sum(v.nbytes for v in graph.activations()) == sum(
        v.size * (2 if v.name == "h" else 1) for v in graph.activations()
    )


def test_statistics_are_left_alone() -> None:
    graph = residual()
    stats = observed(graph, feeds(graph))
    before = {name: (s.count, s.max, s.histogram.counts.copy()) for name, s in stats.items()}
    exponents.run(graph, stats, in_bits(graph, 8), Method())
    for name, (count, top, counts) in before.items():
        assert (stats[name].count, stats[name].max) == (count, top)
        assert np.array_equal(stats[name].histogram.counts, counts)


@pytest.mark.parametrize("bits", ["8", "16"])
def test_a_tensor_beyond_the_coarsest_grid_is_told(bits: str, tmp_path: Path) -> None:
    net = OnnxNet((1, 4))
    net.save(tmp_path / "m.onnx", net.add("Softmax", net.add("Add", "x", net.const(np.float32([0, 0, -1e38, 0])))))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))
    with pytest.raises(InputError, match=r"reaches 1e\+38; 16 bits hold magnitudes up to 3\.02e\+23"):
        convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits=bits), lambda *_: None)


def test_a_choice_between_scores_that_calibration_saw_low_is_warned_of() -> None:
    """A wake word's verifier counts where a first score is high: all samples are of other words."""
    text = "(float[1,32] x) => (y) <float c = {-8.5}> { g = Greater(x, c) a = Sigmoid(x) n = Mul(x, x) m = Sub(x, n) "
    model = build(text + "b = Sigmoid(m) y = Where(g, a, b) }", 13)
    samples = np.random.default_rng(0).uniform(-9, -8, (64, 32)).astype(np.float32)
    report = nmpconv.convert(model.SerializeToString(), samples, bits="16").report
    [warning] = [text for text in report.warnings if "saturates" in text]
    assert warning.startswith("output 'y' saturates at 0.")


@pytest.mark.parametrize(
    ("kind", "least", "most"), [("Sigmoid", 55, 0.0312), ("HardSigmoid", 55, None), ("Softmax", 33, 0.5)]
)
def test_results_far_below_1_have_a_finer_grid(kind: str, least: float, most: float | None) -> None:
    """A Sigmoid on [-9, -8] had 27.9 dB on steps of 2^-15, where Exp has 70.8 dB; a Softmax has at most 2^-16. What
    takes more than 56 dB is room. most: where it saturates, if it does."""
    attributes = {"Sigmoid": {}, "HardSigmoid": {"alpha": 0.1, "beta": 0.901}, "Softmax": {"axis": 1}}[kind]
    count = 4000 if kind == "Softmax" else 32
    node = helper.make_node(kind, ["x"], ["y"], **attributes)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, count]) for name in "xy")
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    samples, others = (np.random.default_rng(seed).uniform(-9, -8, (64, count)).astype(np.float32) for seed in (0, 1))
    converted = nmpconv.convert(model.SerializeToString(), samples, bits="16")
    texts = [warning for warning in converted.report.warnings if "saturates at" in warning]
    assert [text.split("saturates at ")[1].split(",")[0] for text in texts] == ([f"{most:.3g}"] if most else [])
    net = converted.load()
    session = ort.InferenceSession(model.SerializeToString())
    wanted = np.stack([session.run(None, {"x": row[None]})[0] for row in others])
    got = np.stack([net.run_float(row[None])[0].reshape(1, count) for row in others])
    assert sqnr_db(wanted, got) > least
