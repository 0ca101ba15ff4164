"""Inputs that a Concat joins with what is computed from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.conversion.options import Options
from nmpconv.conversion.pipeline import convert


@pytest.mark.slow
def test_coordinates_beside_their_sines(tmp_path: Path) -> None:
    """16 bits for the coordinates cost little, while what a layer reads has 8."""
    net, rng = Net((32, 3)), np.random.default_rng(8)
    angles = [net.add("Mul", "x", net.const(np.pi * 2**k)) for k in range(4)]
    joined = net.add("Concat", "x", *(net.add(f, a) for a in angles for f in ("Sin", "Cos")), axis=1)
    layer = net.add("Gemm", joined, net.const(rng.normal(size=(27, 64)).astype(np.float32)))
    y = net.add("Gemm", net.add("Relu", layer), net.const(rng.normal(size=(64, 4)).astype(np.float32)))
    net.save(tmp_path / "m.onnx", y)
    np.save(tmp_path / "x.npy", rng.uniform(-1, 1, (24, 32, 3)).astype(np.float32))
    result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="8"), lambda *_: None)
    bits = {value.name: value.quant.bits for value in result.graph.activations() if value.quant is not None}
    assert bits["x"] == 16
    assert bits[joined] == 8
    assert min(result.report.sqnr_by_head.values()) > 27


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_an_input_on_the_grid_of_the_concat(tmp_path: Path, scale: float) -> None:
    """It is read as it is; beside what is larger it has a grid of its own."""
    net, rng = Net((1, 8, 8, 8)), np.random.default_rng(3)
    weights = scale * rng.normal(size=(8, 1, 3, 3)).astype(np.float32) / 3
    layer = net.add("Conv", "x", net.const(weights), group=8, pads=[1, 1, 1, 1])
    y = net.add("GlobalAveragePool", net.add("Concat", "x", layer, axis=1))
    net.save(tmp_path / "m.onnx", y)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(16, 1, 8, 8, 8)).astype(np.float32))
    result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="8"), lambda *_: None)
    assert [node.op for node in result.graph.nodes].count("requantize") == (scale > 1)
