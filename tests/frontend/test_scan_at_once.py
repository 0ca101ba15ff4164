"""Scan whose steps are independent: all of them at once, as the distances that skl2onnx writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_text import build
from test_lowering import run

from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

STEPS = 40
STATE = "t = Identity(s)"
# Nodes of a step between a state [1, 3] and a row [3]; their result and its shape.
AT_ONCE = {
    "squares": ("d = Sub(s, c) r = ReduceSumSquare<axes=[1], keepdims=0>(d)", "[40,1]"),
    "magnitudes": ("d = Sub(s, c) e = ReduceL1<axes=[-1], keepdims=1>(d) r = Sqrt(e)", "[40,1,1]"),
    "rows of less rank": ("d = Mul(c, c) r = Add(d, s)", "[40,1,3]"),
    "two reductions": ("d = Sub(c, s) e = Abs(d) r = ReduceMax<axes=[0,1], keepdims=0>(e)", "[40]"),
    "a row alone": ("r = Identity(c)", "[40,3]"),
}
IN_STEPS = {
    "a state that changes": ("t = Add(s, c) r = Mul(s, c)", "[40,1,3]"),
    "another node": (f"{STATE} d = Sub(s, c) r = Softmax<axis=1>(d)", "[40,1,3]"),
    "a row of the state": (f"{STATE} r = Mul(s, s)", "[40,1,3]"),
}


def scan(steps: str, shape: str, more: str, path: Path) -> tuple[int, list[np.ndarray], list[np.ndarray]]:
    """The number of ops, and outputs of ours and of onnxruntime."""
    body = f"(float[1,3] s, float[3] c) => (float[1,3] t, r) {{ {steps} }}"
    rows = np.random.default_rng(0).normal(0, 1, (STEPS, 3)).astype(np.float32)
    text = f"(float[1,3] x) => (float{shape} y) {{ z, y = Scan<num_scan_inputs=1{more}, body = b {body}>(x, rows) }}"
    model = build(text, 17, path, arrays={"rows": rows})
    graph = load(path)
    x = {"x": np.array([[0.5, -0.25, 1.0]], np.float32)}
    return len(graph.nodes), run(to_onnx(graph, graph.outputs), x), run(model, x)


@pytest.mark.parametrize("name", AT_ONCE)
def test_independent_steps_are_one(name: str, tmp_path: Path) -> None:
    steps, shape = AT_ONCE[name]
    count, ours, theirs = scan(f"{STATE} {steps}", shape, "", tmp_path / "m.onnx")
    assert count < 10
    np.testing.assert_allclose(ours[0].reshape(theirs[0].shape), theirs[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", IN_STEPS)
def test_other_steps_are_unrolled(name: str, tmp_path: Path) -> None:
    count, ours, theirs = scan(*IN_STEPS[name], "", tmp_path / "m.onnx")
    assert count >= STEPS or name == "a row of the state"
    np.testing.assert_allclose(ours[0].reshape(theirs[0].shape), theirs[0], rtol=1e-4, atol=1e-4)


def test_a_reversed_scan_is_unrolled(tmp_path: Path) -> None:
    steps, shape = AT_ONCE["squares"]
    count, ours, theirs = scan(f"{STATE} {steps}", shape, ", scan_input_directions=[1]", tmp_path / "m.onnx")
    assert count >= STEPS
    np.testing.assert_allclose(ours[0].reshape(theirs[0].shape), theirs[0], rtol=1e-5, atol=1e-5)
