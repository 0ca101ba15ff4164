"""A constant beside computed channels, as CoordConv has it, under every equalization."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.conversion.pipeline import Options, convert


@pytest.mark.parametrize("mode", ["none", "scalar", "vector"])
@pytest.mark.parametrize("first", [True, False])
def test_coordinates_before_a_convolution(mode: str, first: bool, tmp_path: Path) -> None:
    net = Net((1, 3, 8, 8))
    coordinates = net.const(np.stack(np.meshgrid(*[np.linspace(-1, 1, 8, dtype=np.float32)] * 2))[None])
    a = net.add("Relu", net.conv("x", 4))
    joined = net.add("Concat", *((coordinates, a) if first else (a, coordinates)), axis=1)
    net.save(tmp_path / "m.onnx", net.conv(joined, 4))
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(size=(8, 3, 8, 8)).astype(np.float32))
    options = Options(bits="16", equalize=mode)
    result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, options, lambda *_: None)
    assert min(result.report.sqnr_by_head.values()) > 70
