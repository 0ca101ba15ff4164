"""Images at computed places: the integers are as good as the grid of the places lets them be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net
from onnx_text import build

from nmpconv.calib.engine import OnnxEngine
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.ir import Value
from nmpconv.ops.op import quant_of
from nmpconv.runtime import interpreter

HEIGHT, WIDTH, COUNT = 24, 40, 12
MODEL = (
    f"(float[1,3,{HEIGHT},{WIDTH}] x, float[1,20,30,2] g) => (y) "
    '{{ y = GridSample<padding_mode="{0}",align_corners={1}>(x, g) }}'
)


def images(kind: str) -> np.ndarray:
    """float32 [COUNT,3,H,W]: noise, or one period of a sine along each axis."""
    rng = np.random.default_rng(5)
    if kind == "random":
        return rng.normal(size=(COUNT, 3, HEIGHT, WIDTH)).astype(np.float32)
    a, b = rng.normal(size=(2, COUNT, 3, 1, 1))
    rows, columns = (np.sin(2 * np.pi * (np.arange(n) / n + rng.random((COUNT, 3, 1)))) for n in (HEIGHT, WIDTH))
    return (a * rows[..., None] + b * columns[..., None, :]).astype(np.float32)


def decibels(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()))


def on_grid(x: np.ndarray, value: Value) -> np.ndarray:
    quant = quant_of(value)
    step = np.float32(2.0**quant.exponent)
    return np.clip(np.rint(x / step), quant.lo, quant.hi).astype(np.float32) * step


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("kind", ["smooth", "random"])
def test_as_good_as_the_grids(kind: str, padding: str, corners: int, tmp_path: Path) -> None:
    """The noise is that of the float model with its tensors on the same grids, within a tenth of a dB."""
    text = MODEL.format(padding, corners)
    engine = OnnxEngine(build(text, 20, tmp_path / "m.onnx"), {}, ["y"])
    x = images(kind)
    g = np.random.default_rng(6).uniform(-1.1, 1.1, (COUNT, 20, 30, 2)).astype(np.float32)
    data = {name: tmp_path / f"{name}.npy" for name in "xg"}
    np.save(data["x"], x)
    np.save(data["g"], g)

    def run(images: np.ndarray, places: np.ndarray) -> np.ndarray:
        pairs = zip(images, places, strict=True)
        return np.concatenate([engine.run({"x": a[None], "g": b[None]})["y"] for a, b in pairs])

    for options in (Options(bits="16"), Options(bits="8", widths="strict")):
        result = convert(tmp_path / "m.onnx", data, options, lambda *_: None)
        values, net = result.graph.values, interpreter.load(result.data)
        found = np.concatenate([net.run_float({"x": a[None], "g": b[None]})[0] for a, b in zip(x, g, strict=True)])
        rounded = on_grid(run(on_grid(x, values["x"]), on_grid(g, values["g"])), values["y"])
        assert abs(decibels(run(x, g), found) - decibels(run(x, g), rounded)) < 0.1


@pytest.mark.parametrize("constant", ["places", "image"])
def test_a_constant_operand(constant: str, tmp_path: Path) -> None:
    """A warp that is the same for all samples, and one image at many places: samples cannot be stacked."""
    net = Net((1, 3, HEIGHT, WIDTH))
    places = np.random.default_rng(7).uniform(-1, 1, (1, 9, 8, 2)).astype(np.float32)
    if constant == "places":
        y = net.add("GridSample", net.conv("x", 4), net.const(places))
    else:
        g = net.add("Transpose", net.add("Tanh", net.conv("x", 2)), perm=[0, 2, 3, 1])
        y = net.add("GridSample", net.const(images("smooth")[:1]), g)
    net.save(tmp_path / "m.onnx", net.conv(y, 4))
    np.save(tmp_path / "x.npy", images("smooth"))
    result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
    assert next(iter(result.report.sqnr_by_head.values())) > 50


@pytest.mark.slow
def test_computed_places(tmp_path: Path) -> None:
    """Places of a net: 16 bits at 8, too, and where results do not change any more their grid ends."""
    net = Net((1, 3, HEIGHT, WIDTH))
    base = np.stack(np.meshgrid(np.linspace(-1, 1, WIDTH), np.linspace(-1, 1, HEIGHT)))[None].astype(np.float32)
    g = net.add("Add", net.add("Mul", net.conv("x", 2, 5), net.const(0.5)), net.const(base))
    g = net.add("Transpose", g, perm=[0, 2, 3, 1])
    net.save(tmp_path / "m.onnx", net.conv(net.add("GridSample", "x", g, align_corners=0), 4))
    np.save(tmp_path / "x.npy", images("smooth"))
    for bits, least in (("16", 58.0), ("8", 27.0)):
        result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits=bits), lambda *_: None)
        [node] = [node for node in result.graph.nodes if node.op == "grid_sample"]
        places = quant_of(result.graph[node.inputs[1]])
        assert (places.bits, places.exponent) == (16, -14)
        assert next(iter(result.report.sqnr_by_head.values())) > least
