"""Layers of what lies at computed places: another place is another number, not noise that a bias makes up for."""

from __future__ import annotations

import numpy as np
from onnx_text import build

import nmpconv

CHOICE = (
    "(float[1,8] x) => (y) <float[8,8] w, float[1,8] t, int64[3] n = {0,0,0}, int64[1] a = {1}> "
    "{ h = MatMul(x, w) m = ArgMax<axis=-1,keepdims=1>(h) i = Add(m, n) g = GatherElements<axis=-1>(t, i) "
    "y = ReduceSum<keepdims=0>(g, a) }"
)


def test_a_wrong_choice_moves_no_other_sample(tmp_path):
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
