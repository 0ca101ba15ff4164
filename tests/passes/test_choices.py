"""Layers of what lies at computed places: another place is another number, not noise that a bias makes up for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_text import build

import nmpconv
from nmpconv.frontend.onnx import load
from nmpconv.ops import WEIGHTED
from nmpconv.passes.quantize.rounding import _after_choices

CHOICE = (
    "(float[1,8] x) => (y) <float[8,8] w, float[1,8] t, int64[3] n = {0,0,0}, int64[1] a = {1}> "
    "{ h = MatMul(x, w) m = ArgMax<axis=-1,keepdims=1>(h) i = Add(m, n) g = GatherElements<axis=-1>(t, i) "
    "y = ReduceSum<keepdims=0>(g, a) }"
)


def test_a_wrong_choice_moves_no_other_sample(tmp_path: Path) -> None:
    """The last column of the weights is the first one, but for less than a step: where it is the largest, the integers
    choose the first one."""
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(8, 8))
    weights[:, 7] = weights[:, 0] * 1.0005
    table = np.array([[0, 0, 0, 0, 0, 0, 0, 8.0]])
    build(CHOICE, 13, tmp_path / "m.onnx", arrays={"w": weights, "t": table})
    x = rng.normal(size=(200, 8)).astype(np.float32)
    net = nmpconv.load(nmpconv.convert(tmp_path / "m.onnx", {"x": x[:100, None]}).data)
    wanted = 3 * table[0][(x @ weights).argmax(axis=1)]
    got = np.array([net.run_float(sample[None])[0].item() for sample in x])
    off = np.abs(got - wanted) > 0.1
    assert 0.05 < off.mean() < 0.3
    assert (got[off] == 0).all()


CORRECTED = {
    "token ids": "(int64[1,4] i) => (y) <float[300,8] t, float[8,3] w> { e = Gather(t, i) y = MatMul(e, w) }",
    "a stream of which they are a part": "(float[1,8] x) => (y) <float[8,8] w, float[9,8] t> { h = MatMul(x, w) "
    "i = ArgMax<axis=-1,keepdims=0>(h) e = Gather(t, i) s = Add(e, h) y = MatMul(s, w) }",
    "the best numbers": "(float[1,9] x) => (y) <int64[1] k = {3}, float[3,2] w> { v, i = TopK(x, k) y = MatMul(v, w) }",
}


@pytest.mark.parametrize("text", CORRECTED.values(), ids=list(CORRECTED))
def test_other_layers_are_corrected(text: str, tmp_path: Path) -> None:
    """A token is what it is, and of the best numbers another one is nearly as large."""
    build(text, 13, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    layers = [node for node in graph.nodes if node.op in WEIGHTED]
    assert layers
    assert _after_choices(graph).isdisjoint(node.inputs[0] for node in layers)


def test_ids_beyond_8_bits_are_wide(tmp_path: Path) -> None:
    build(CORRECTED["token ids"], 13, tmp_path / "m.onnx")
    ids = np.random.default_rng(0).integers(0, 300, (12, 1, 4))
    net = nmpconv.load(nmpconv.convert(tmp_path / "m.onnx", {"i": ids}, widths="strict").data)
    assert net.inputs[0].dtype == "int16"
