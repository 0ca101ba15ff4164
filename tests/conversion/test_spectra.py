"""Spectra in the graph: squares, bands and logarithms of recordings whose levels are 1 to 150."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

import nmpconv
from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.engine import OnnxEngine

LENGTH, WINDOW, BANDS = 1024, 64, 10
BINS = WINDOW // 2 + 1
FLOOR = 1e-6


def recordings(count: int, seed: int) -> np.ndarray:
    """Harmonics with an envelope, and noise. [count, 1, LENGTH]"""
    rng = np.random.default_rng(seed)
    t = np.arange(LENGTH) / 8000
    found = np.zeros((count, 1, LENGTH))
    for x in found:
        level, pitch = 10 ** rng.uniform(-2.5, -0.3), rng.uniform(100, 900)
        tone = sum(np.sin(2 * np.pi * pitch * h * t + rng.uniform(0, 6)) / h for h in range(1, int(4000 / pitch)))
        x[0] = level * tone * np.hanning(LENGTH) + rng.normal(0, 0.03 * level + 3e-4, LENGTH)
    return found.astype(np.float32)


def filters() -> tuple[np.ndarray, np.ndarray]:
    """Filters of the real and of the imaginary parts, [BINS, 1, WINDOW] each."""
    turns = 2 * np.pi * np.arange(BINS)[:, np.newaxis] * np.arange(WINDOW) / WINDOW
    real, imaginary = ((wave * np.hanning(WINDOW))[:, np.newaxis] for wave in (np.cos(turns), -np.sin(turns)))
    return real.astype(np.float32), imaginary.astype(np.float32)


def power(net: Net) -> str:
    real, imaginary = (net.add("Conv", "x", net.const(part), strides=[WINDOW // 2]) for part in filters())
    return net.add("Add", net.add("Mul", real, real), net.add("Pow", imaginary, net.const(2.0)))


def bands(net: Net, x: str) -> str:
    edges, bins = np.geomspace(1, BINS - 1, BANDS + 2), np.arange(BINS)
    rise = (bins - edges[:-2, np.newaxis]) / np.diff(edges)[:-1, np.newaxis]
    fall = (edges[2:, np.newaxis] - bins) / np.diff(edges)[1:, np.newaxis]
    return net.add("MatMul", net.const(np.clip(np.minimum(rise, fall), 0, None).astype(np.float32)), x)


def logarithm(net: Net, x: str) -> str:
    return net.add("Log", net.add("Add", x, net.const(FLOOR)))


def band_energies(net: Net) -> str:
    return logarithm(net, bands(net, power(net)))


def band_magnitudes(net: Net) -> str:
    return logarithm(net, bands(net, net.add("Sqrt", power(net))))


def both_parts(net: Net, x: str = "x") -> str:
    """One convolution computes both, a new axis tells them apart. [1, 2, BINS, frames]"""
    spectrum = net.add("Conv", x, net.const(np.concatenate(filters())), strides=[WINDOW // 2])
    return net.add("Reshape", spectrum, net.const([1, 2, BINS, -1]))


def split_energies(net: Net) -> str:
    energies = net.add("ReduceSumSquare", both_parts(net), net.const([1]), keepdims=0)
    return logarithm(net, bands(net, net.add("Mul", energies, net.const(1 / WINDOW))))


def split_magnitudes(net: Net) -> str:
    return logarithm(net, bands(net, net.add("ReduceL2", both_parts(net), net.const([1]), keepdims=0)))


def squared_magnitudes(net: Net) -> str:
    magnitudes = net.add("ReduceL2", both_parts(net), net.const([1]), keepdims=0)
    return logarithm(net, bands(net, net.add("Pow", magnitudes, net.const(2.0))))


def emphasized(net: Net) -> str:
    """Each sample less most of the one before."""
    before = net.add("Pad", "x", net.const([0, 0, 1, 0, 0, -1]), mode="edge")
    high = net.add("Sub", "x", net.add("Mul", before, net.const(0.97)))
    energies = net.add("ReduceSum", net.add("Pow", both_parts(net, high), net.const(2.0)), net.const([1]), keepdims=0)
    return logarithm(net, bands(net, energies))


def bins_in_decibels(net: Net) -> str:
    magnitude = net.add("Sqrt", power(net))
    energy = net.add("Max", net.add("Mul", magnitude, magnitude), net.const(FLOOR))
    return net.add("Mul", net.add("Log", energy), net.const(float(10 / np.log(10))))


def level(net: Net) -> str:
    frames = net.add("Reshape", "x", net.const([1, 16, 64]))
    return logarithm(net, net.add("Sqrt", net.add("ReduceMean", net.add("Mul", frames, frames), net.const([2]))))


def compressed(net: Net) -> str:
    return net.add("Pow", net.add("Add", bands(net, power(net)), net.const(FLOOR)), net.const(0.3))


def stacked_octaves(net: Net) -> str:
    """Decibels from the least one to the most of two octaves, real and imaginary parts stacked, and a layer behind."""
    turns, halves = 2 * np.pi * np.arange(BINS // 2, BINS)[:, np.newaxis] * np.arange(WINDOW) / WINDOW, "x"
    low = net.const((np.sinc((np.arange(15) - 7) / 2) * np.hamming(15) / 2)[np.newaxis, np.newaxis].astype(np.float32))
    octaves = []
    for stride in (32, 16):
        parts = []
        for wave in (np.cos(turns), np.sin(turns)):
            kernel = net.const((wave * np.hanning(WINDOW) / WINDOW)[:, np.newaxis].astype(np.float32))
            bins = net.add("Conv", halves, kernel, strides=[stride], pads=[32, 32])
            parts.append(net.add("Unsqueeze", bins, net.const([3])))
        octaves.append(net.add("Concat", *parts, axis=3))
        halves = net.add("Conv", halves, low, strides=[2], pads=[7, 7])
    stack = net.add("Concat", *octaves, axis=1)
    scale = net.const(np.linspace(5, 9, 2 * (BINS - BINS // 2), dtype=np.float32).reshape(1, -1, 1, 1))
    both = net.add(
        "ReduceSum", net.add("Pow", net.add("Mul", stack, scale), net.const(2.0)), net.const([3]), keepdims=0
    )
    magnitude = net.add("Sqrt", both)
    decibels = net.add("Log", net.add("Add", net.add("Mul", magnitude, magnitude), net.const(1e-8)))
    above = net.add("Sub", decibels, net.add("ReduceMin", decibels, net.const([1, 2]), keepdims=1))
    shares = net.add("Div", above, net.add("ReduceMax", above, net.const([1, 2]), keepdims=1))
    kernel = np.random.default_rng(3).normal(0, 0.3, (4, 1, 3, 3)).astype(np.float32)
    return net.add("Conv", net.add("Unsqueeze", shares, net.const([1])), net.const(kernel))


def layered(net: Net) -> str:
    """Two layers without a spectrum."""
    y = net.add("Relu", net.add("Conv", "x", net.weights(4, 1, 5, spread=0.4)))
    return net.add("Conv", y, net.weights(2, 4, 5, spread=0.3))


LEAST_DB = {  # at 8 and 16 bits
    band_energies: (35.0, 49.4),
    band_magnitudes: (24.0, 26.0),
    split_energies: (45.0, 55.0),
    split_magnitudes: (24.0, 26.0),
    squared_magnitudes: (35.0, 45.0),
    emphasized: (33.0, 47.0),
    bins_in_decibels: (30.0, 42.0),
    level: (50.0, 50.0),
    compressed: (40.0, 45.0),
    stacked_octaves: (27.0, 36.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("block", LEAST_DB, ids=lambda block: block.__name__)
def test_quiet_beside_loud(block: Callable[[Net], str], tmp_path: Path) -> None:
    """On recordings that did not calibrate; no result is below what the float function can reach."""
    net, path = Net((1, 1, LENGTH)), tmp_path / "m.onnx"
    net.save(path, block(net))
    engine, unseen = OnnxEngine(path, {"x": (1, 1, LENGTH)}), recordings(16, 2)
    wanted = np.stack([engine.run({"x": x[np.newaxis]})[engine.fetch[0]] for x in unseen])
    for bits, least in zip(("8", "16"), LEAST_DB[block], strict=True):
        model = nmpconv.convert(path, recordings(48, 1), bits=bits).load()
        got = np.stack([model.run_float(x[np.newaxis])[0] for x in unseen]).reshape(wanted.shape)
        assert sqnr_db(wanted, got) >= least
        assert got.min() >= wanted.min() - 0.1 * abs(wanted.min())


def test_factors_of_spectra_have_to_win_at_16_bits(tmp_path: Path) -> None:
    """Both scalar and vector equalization move them, so a recipe without them competes."""
    spectrum, plain = Net((1, 1, LENGTH)), Net((1, 1, LENGTH))
    spectrum.save(tmp_path / "spectrum.onnx", compressed(spectrum))
    plain.save(tmp_path / "plain.onnx", layered(plain))
    for name, wanted in (("spectrum", True), ("plain", False)):
        notes = nmpconv.convert(tmp_path / f"{name}.onnx", recordings(24, 1), bits="16").report.notes
        assert any(note.startswith("equalize none") for note in notes) == wanted
        assert any(note.startswith("equalize scalar") for note in notes)
