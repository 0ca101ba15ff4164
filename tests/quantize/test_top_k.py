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


@pytest.mark.parametrize(("bits", "widths"), [("8", "default"), ("8", "strict"), ("16", "default")])
def test_heads_without_suppression(bits, widths, tmp_path: Path) -> None:
    """Boxes and classes of the best of all scores, as RT-DETR takes them; calibration sees the first boxes alone."""
    text = """(float[1,40,80] s, float[1,40,4] b) => (float[1,9] v, int64[1,9] c, int64[1,9] q, float[1,9,4] y)
        <int64[1] k = {9}, int64 n = {80}, int64 zero = {0}, int64 one = {1}, bool no = {0}, int64[1] a = {-1},
         int64[3] r = {1,9,4}>
        { t = Neg(s) u = Neg(t) d = Neg(b) e = Neg(d) f = Flatten(u) v, i = TopK(f, k)
          p = Div(i, n) g = Less(i, zero) h = Xor(g, no) m = Mod(i, n) z = Equal(m, zero) l = Not(z) w = And(h, l)
          o = Sub(p, one) q = Where(w, o, p) j = Unsqueeze(q, a) x = Expand(j, r)
          y = GatherElements<axis=1>(e, x) qn = Mul(q, n) c = Sub(i, qn) }"""
    onnx.save(build(text, 13), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    scores = rng.integers(-100, 60, (2 * BATCH, 40, 80)) / 16.0
    scores[:BATCH, :3] += 2.5
    scores[BATCH:, -3:] += 2.5
    boxes = rng.integers(-100, 101, (2 * BATCH, 40, 4)) / 16.0
    data = {"s": scores.astype(np.float32), "b": boxes.astype(np.float32)}
    for name, x in data.items():
        np.save(tmp_path / f"{name}.npy", x[:BATCH])
    sources = {name: tmp_path / f"{name}.npy" for name in data}
    net = load(convert(tmp_path / "m.onnx", sources, Options(bits=bits, widths=widths), lambda *_: None).data)
    for i in range(2 * BATCH):
        outputs = net.run({name: x[i : i + 1] for name, x in data.items()})
        v, c, q, y = (dequantize(one, port.exponent)[0] for one, port in zip(outputs, net.outputs, strict=True))
        best = np.argsort(-scores[i].ravel(), kind="stable")[:9]
        np.testing.assert_array_equal(v, scores[i].ravel()[best])
        np.testing.assert_array_equal(c, best % 80)
        np.testing.assert_array_equal(q, best // 80)
        np.testing.assert_array_equal(y, boxes[i][best // 80])


def test_indices_beside_large_numbers(tmp_path: Path) -> None:
    """A Concat with boxes of up to 1,000 pixels, whose steps of 8 bits are 8, leaves the indices their own grid."""
    text = """(float[1,40] s, float[1,40,4] b) => (float[1,9,4] y, float[1,9,5] z)
        <int64[1] k = {9}, int64[1] a = {2}, int64[3] w = {1,9,4}>
        { t = Neg(s) u = Neg(t) d = Neg(b) e = Neg(d) v, i = TopK(u, k) j = Unsqueeze(i, a) f = Cast<to=1>(j)
          x = Expand(j, w) y = GatherElements<axis=1>(e, x) z = Concat<axis=2>(y, f) }"""
    onnx.save(build(text, 13), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    data = {"s": rng.integers(-50, 51, (BATCH, 40)) / 8.0, "b": rng.integers(-125, 126, (BATCH, 40, 4)) * 8.0}
    for name, x in data.items():
        np.save(tmp_path / f"{name}.npy", x.astype(np.float32))
    sources, options = {name: tmp_path / f"{name}.npy" for name in data}, Options(bits="8", widths="strict")
    net = load(convert(tmp_path / "m.onnx", sources, options, lambda *_: None).data)
    for s, b in zip(*data.values(), strict=True):
        outputs = net.run({"s": s[None].astype(np.float32), "b": b[None].astype(np.float32)})
        best = np.argsort(-s, kind="stable")[:9]
        np.testing.assert_array_equal(dequantize(outputs[0], net.outputs[0].exponent)[0], b[best])


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
