"""Properties of every model: conversion ends with a file or a named refusal, C is the reference, 16 bits are close.

`make test` draws a few models, the same ones each time; the soak test many more.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from onnx_net import Net
from random_models import models

from nmpconv.calib.engine import OnnxEngine
from nmpconv.conversion.pipeline import Options, Result, convert
from nmpconv.errors import NmpError, VerifyError
from nmpconv.graph.reference import run as run_reference
from nmpconv.runtime import interpreter

SAMPLES = 6
SETTINGS: dict[str, Any] = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
}
CLOSE_DB = 40.0  # least SQNR of a 16-bit output against float
STEPS = 8.0  # or so many steps of its grid, where it hardly varies


def inputs(net: Net) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(SAMPLES, *net.shape("x")[1:])).astype(np.float32)


def converted(net: Net, output: str, bits: str, folder: Path) -> Result | None:
    """None for a refusal, which has a message and is no bug's."""
    net.save(folder / "m.onnx", output)
    np.save(folder / "x.npy", inputs(net))
    try:
        return convert(folder / "m.onnx", {"": folder / "x.npy"}, Options(bits=bits), lambda *_: None)
    except VerifyError:
        raise
    except NmpError as error:
        note(f"refused: {error}")
        return None


def check(net: Net, output: str, bits: str) -> bool:
    """True where there was a file."""
    for node in net.nodes:
        note(f"{node.op_type}({', '.join(node.input)}) {[a.name for a in node.attribute]} -> {node.output[0]}")
    with TemporaryDirectory() as name:
        folder = Path(name)
        result = converted(net, output, bits, folder)
        if result is None:
            return False
        report, graph = result.report, result.graph
        assert report.quantized_nodes == report.total_nodes
        agrees(result)
        if bits == "16":
            wanted = OnnxEngine(folder / "m.onnx", {"x": net.shape("x")})
            close(result, wanted, inputs(net), graph.outputs[0])
        return True


def agrees(result: Result) -> None:
    """C on random integers and on extremes, by one thread and by two."""
    graph, nets = result.graph, [interpreter.load(result.data, threads=threads) for threads in (1, 2)]
    x = graph[graph.inputs[0]]
    low, high = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    noise = np.random.default_rng(2).integers(low, high, x.shape, endpoint=True)
    for q in (noise, np.full(x.shape, low), np.full(x.shape, high), np.where(noise % 2, low, high)):
        feed = q.astype(x.dtype)
        wanted = run_reference(graph, {x.name: feed})[graph.outputs[0]]
        for net in nets:
            np.testing.assert_array_equal(net.run(feed)[0].reshape(wanted.shape), wanted)


def close(result: Result, model: OnnxEngine, samples: np.ndarray, output: str) -> None:
    """On the samples that it was calibrated with."""
    graph = result.graph
    x, y = graph[graph.inputs[0]].quant, graph[output].quant
    assert x is not None and y is not None
    noise = power = 0.0
    worst = 0.0
    for sample in samples:
        feed = np.clip(np.floor(np.ldexp(sample, -x.exponent) + 0.5), x.lo, x.hi).astype(x.dtype)
        got = np.ldexp(run_reference(graph, {graph.inputs[0]: feed[None]})[output].astype(np.float64), y.exponent)
        wanted = next(iter(model.run({"x": sample[None]}).values())).astype(np.float64)
        error = got.ravel() - wanted.ravel()
        noise, power = noise + float(error @ error), power + float(np.sum(wanted**2))
        worst = max(worst, float(np.abs(error).max()))
    sqnr = 10 * np.log10(power / noise) if noise and power else np.inf
    assert sqnr >= CLOSE_DB or worst <= STEPS * 2.0**y.exponent, f"{sqnr:.1f} dB, off by {worst:g}"


def run(count: int) -> None:
    """Most of the models have to convert, or the test would see little but refusals."""
    found: list[bool] = []

    @given(models(), st.sampled_from(["8", "16", "16", "a16w8"]))
    @settings(max_examples=count, **SETTINGS)
    def check_one(model: tuple[Net, str], bits: str) -> None:
        found.append(check(*model, bits))

    check_one()
    assert sum(found) >= 0.9 * count


def test_models() -> None:
    run(15)


@pytest.mark.slow
@pytest.mark.soak
def test_many_models() -> None:
    run(200)
