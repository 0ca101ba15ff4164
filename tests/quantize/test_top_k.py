"""TopK: its order and its values are those of the integers that it reads, whatever k is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build

from nmpconv.accuracy import evaluate
from nmpconv.fixed import dequantize
from nmpconv.pipeline import Options, convert
from nmpconv.run.runtime import load

BATCH = 3


@pytest.mark.parametrize("bits", ["8", "16"])
@pytest.mark.parametrize(
    ("shape", "k", "axis", "largest"),
    [((300,), 40, -1, 1), ((90, 2), 90, 1, 1), ((5, 200), 17, 2, 0), ((64,), 1, 1, 1)],
)
def test_order_and_values(shape, k, axis, largest, bits, tmp_path: Path) -> None:
    """Numbers of one sixteenth, many of them equal; the input's own order decides between those."""
    size = ",".join(map(str, shape))
    text = f"(float[1,{size}] x) => (float v, int64 i) <int64[1] k = {{{k}}}> "
    text += f"{{ t = Neg(x) u = Neg(t) v, i = TopK<axis={axis},largest={largest}>(u, k) }}"
    onnx.save(build(text, 13), tmp_path / "m.onnx")
    x = np.random.default_rng(k).integers(-100, 101, (BATCH, *shape)) / 16.0
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    net = load(convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits=bits), lambda *_: None).data)
    order = np.argsort(-x if largest else x, axis=axis, kind="stable").take(np.arange(k), axis=axis)
    found = [
        [dequantize(q, port.exponent) for q, port in zip(net.run({"x": row[None]}), net.outputs, strict=True)]
        for row in x.astype(np.float32)
    ]
    values, indices = (np.concatenate(part) for part in zip(*found, strict=True))
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=axis))


def test_recipes_are_judged_by_what_has_an_error(tmp_path: Path) -> None:
    """Indices are right or wrong. They have no dB, which would be infinite and hide what the recipes lose."""
    text = """(float[1,3,16,16] x) => (float[1,3] v, int64[1,3] i) <int64[1] k = {3}, int64[2] flat = {1, 64},
        float[4,3,3,3] w, float[4] b, float[64,8] u>
        { c = Conv<strides=[4,4],pads=[1,1,1,1]>(x, w, b) s = Sigmoid(c) a = Mul(c, s) f = Reshape(a, flat)
          z = MatMul(f, u) v, i = TopK(z, k) }"""
    onnx.save(build(text, 13), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(24, 3, 16, 16)).astype(np.float32))
    made = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, Options(bits="8"), lambda *_: None)
    held_out = made.report.held_out
    assert held_out is not None and 25 < held_out.db < 60
    assert sum("dB on held-out images" in note for note in made.report.notes) >= 6
    found = evaluate(load(made.data), {"": tmp_path / "x.npy"}, reference=tmp_path / "m.onnx")
    assert list(found.sqnr) == ["v"] and list(found.equal) == ["i"]
    assert found.mean_sqnr_db == found.sqnr["v"] > 25 and found.equal["i"] > 80
