"""`--faithful` computes a model's ops one by one where each result is rounded, though one op could be all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import pictures
from quantized_runs import FINE, faithful

STEPS = {f"s{bits}": np.float32(2.0**-bits) for bits in range(8)}


def rounded(name: str, x: str, bits: int) -> str:
    return f"{name}q = QuantizeLinear({x}, s{bits}, z) {name} = DequantizeLinear({name}q, s{bits}, z)\n"


SQUARES = "p = Mul(c, c)\n" + rounded("s", "p", 0)
MEAN = f"{SQUARES} m = ReduceMean<axes=[1],keepdims=1>(s)\n" + rounded("n", "m", 3)
PIXELS = f"{SQUARES} m = ReduceMean<axes=[2,3],keepdims=1>(s)\n" + rounded("n", "m", 2)
ROWS = [
    ("factor of a layer", "p = Mul(c, k)\n" + rounded("s", "p", 3) + "u = Relu(s)", 12, 80),
    ("two factors", "p = Mul(c, k)\n" + rounded("s", "p", 2) + "m = Mul(s, k)\n" + rounded("u", "m", 3), 12, 70),
    ("multiple", "p = Add(c, c)\n" + rounded("s", "p", 1) + "u = Add(s, c)", 12, 75),
    (
        "norm",
        MEAN + "g = Add(n, e)\n" + rounded("h", "g", 3) + "o = Sqrt(h)\n" + rounded("r", "o", 4) + "u = Div(c, r)",
        12,
        99,
    ),
    (
        "variance",
        PIXELS
        + "o = ReduceMean<axes=[2,3],keepdims=1>(c)\n"
        + rounded("r", "o", 5)
        + "h = Mul(r, r)\n"
        + rounded("t", "h", 5)
        + "u = Sub(n, t)",
        1,
        80,
    ),
    ("root of a mean", f"{PIXELS} u = Sqrt(n)", 1, 95),
]


def model_of(body: str, size: int) -> onnx.ModelProto:
    rng = np.random.default_rng(4)
    arrays = {
        **STEPS,
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "sw": np.float32(2.0**-8),
        "z": np.int8(0),
        "k": np.float32([1, 0.5, 0.25, 2, 1, 1, 0.5, 0.75]).reshape(1, 8, 1, 1),
        "e": np.float32(0.25),
    }
    layer = "wd = DequantizeLinear(w, sw, z) l = Conv<pads=[1,1,1,1]>(a, wd)\n" + rounded("c", "l", 3)
    text = rounded("a", "x", 6) + layer + body + "\n" + rounded("y", "u", 5)
    return build(
        f"(float[1,3,12,12] x) => (float[1,8,{size},{size}] y) {{ {text} }}", 17, arrays=arrays, name="rounded"
    )


@pytest.mark.parametrize(
    ("body", "size"), [pytest.param(*row[1:3], id=row[0]) for row in ROWS if "Mul(c, c)" in row[1]]
)
def test_products_have_the_models_ties(body: str, size: int, tmp_path: Path) -> None:
    """Squares are ties as often as not where a step of 2^0 is rounded to."""
    samples = np.rint(pictures(16) * 64) / 64
    found = faithful(model_of(body, size), tmp_path, samples, **FINE).report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > 97


@pytest.mark.parametrize(("body", "size", "least"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_results_are_rounded_where_the_model_rounds_them(body: str, size: int, least: float, tmp_path: Path) -> None:
    """All but ties, which go up here."""
    samples = np.rint(pictures(16) * 64) / 64
    found = faithful(model_of(body, size), tmp_path, samples).report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > least
