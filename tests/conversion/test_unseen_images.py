"""16 bits on images that calibration did not see, some of them unusual."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_net import Net

from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.engine import OnnxEngine
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.runtime.interpreter import load

SHAPE = (1, 3, 16, 16)
MOST_BELOW_DB = 12.0


def images(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    contrast = np.exp(0.6 * rng.normal(size=(count, 1, 1, 1)))
    return (rng.normal(size=(count, *SHAPE[1:])) * contrast).astype(np.float32)


def test_no_image_is_far_below_the_median(tmp_path: Path) -> None:
    net, path = Net(SHAPE), tmp_path / "m.onnx"
    y = net.add("Relu", net.conv("x", 16, strides=[2, 2]))
    for _ in range(4):
        inner = net.add("Relu", net.conv(net.add("Relu", net.conv(y, 32, 1)), 32, group=32))
        y = net.add("Add", y, net.conv(inner, 16, 1))
    net.save(path, net.conv(y, 8, 1))
    np.save(tmp_path / "x.npy", images(16, 1))
    result = convert(path, {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)

    model, engine = load(result.data), OnnxEngine(path, {"x": SHAPE})
    x_grid, y_grid = (result.graph[name].quant for name in ("x", result.graph.outputs[0]))
    assert x_grid is not None
    assert y_grid is not None
    found = []
    for x in images(48, 2):
        wanted = engine.run({"x": x[np.newaxis]})[engine.fetch[0]]
        q = np.clip(np.floor(np.ldexp(x[np.newaxis], -x_grid.exponent) + 0.5), x_grid.lo, x_grid.hi).astype(np.int16)
        found.append(sqnr_db(wanted, np.ldexp(model.run(q)[0].astype(np.float64), y_grid.exponent)))
    assert min(found) >= np.median(found) - MOST_BELOW_DB
