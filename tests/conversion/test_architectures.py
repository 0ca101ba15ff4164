"""The dozen architectures of `architectures.py`: converted whole, measured on images that did not calibrate.

`make models` builds the published ones of this kind from their packages, which takes gigabytes and a night.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from architectures import ARCHITECTURES, SHAPE
from onnx_net import Net

from nmpconv.conversion.pipeline import Options, convert
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.runtime.interpreter import load

# Least SQNR in dB at 16 bits, and at 8 bits by one recipe, the fastest.
LEAST_DB = ((Options(bits="16"), 45.0), (Options(bits="8", equalize="none", rounding="nearest"), 12.0))


def images(count: int, seed: int) -> np.ndarray:
    """Smooth fields of any contrast with some noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(size=(count, 3, 4, 4)).repeat(8, axis=2).repeat(8, axis=3)
    contrast = rng.uniform(0.5, 1.5, (count, 1, 1, 1))
    return (contrast * (coarse + 0.5 * rng.normal(size=(count, *SHAPE[1:])))).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architecture(name: str, tmp_path: Path) -> None:
    net = Net(SHAPE, seed=11)
    net.save(tmp_path / "m.onnx", *ARCHITECTURES[name](net))
    for part, seed in (("calib", 1), ("test", 2)):
        np.save(tmp_path / f"{part}.npy", images(8, seed))
    for options, least in LEAST_DB:
        result = convert(tmp_path / "m.onnx", {"": tmp_path / "calib.npy"}, options, lambda *_: None)
        assert result.report.quantized_nodes == result.report.total_nodes
        found = evaluate(load(result.data), {"": tmp_path / "test.npy"}, reference=tmp_path / "m.onnx")
        assert min(found.sqnr.values()) >= least, f"{options.bits} bits: {found.sqnr}"


def test_each_is_a_net_of_its_own() -> None:
    """Reads all of the image, and has sizes that ONNX infers."""
    for name, build in ARCHITECTURES.items():
        net = Net(SHAPE, seed=11)
        outputs = build(net)
        assert len(net.nodes) > 20, name
        assert all(net.shape(output) for output in outputs)
