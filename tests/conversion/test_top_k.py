"""TopK: its order and its values are those of the integers that it reads, whatever k is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build

from nmpconv.base.fixed_point import dequantize
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.errors import UnsupportedModel
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.runtime.interpreter import load

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


@pytest.mark.parametrize(("bits", "widths"), [("8", "default"), ("8", "strict"), ("16", "default")])
def test_positions_with_a_constant_column(bits, widths, tmp_path: Path) -> None:
    """Rows of the best as PyTorch's new exporter takes them: a column of zeros for an axis of length 1 beside indices
    that 8 bits do not hold, and a column of an axis of 2, which the other one's 99 must not be taken for."""
    text = """(float[1,200] s, float[1,300,4] b, float[2,200,2] c) => (float[9,4] y, float[9,2] z)
        <int64[1] k = {9}, int64[1] a = {-1}, int64[9,1] zero = {0,0,0,0,0,0,0,0,0}, int64 o = {100},
         int64[9,1] one = {1,0,1,0,1,0,1,0,1}>
        { t = Neg(s) u = Neg(t) d = Neg(b) e = Neg(d) p = Neg(c) q = Neg(p) v, i = TopK(u, k) r = Reshape(i, a)
          j = Unsqueeze(r, a) m = Add(j, o) at = Concat<axis=1>(zero, m) y = GatherND(e, at)
          top = Max(j, o) n = Sub(top, o) h = Concat<axis=1>(one, n) z = GatherND(q, h) }"""
    onnx.save(build(text, 13), tmp_path / "m.onnx")
    rng, shapes = np.random.default_rng(0), {"s": (1, 200), "b": (1, 300, 4), "c": (2, 200, 2)}
    data = {
        name: (rng.integers(-100, 101, (BATCH, *shape)) / 16.0).astype(np.float32) for name, shape in shapes.items()
    }
    for name, x in data.items():
        np.save(tmp_path / f"{name}.npy", x)
    sources, options = {name: tmp_path / f"{name}.npy" for name in data}, Options(bits=bits, widths=widths)
    net = load(convert(tmp_path / "m.onnx", sources, options, lambda *_: None).data)
    for s, b, c in zip(*data.values(), strict=True):
        outputs = net.run({"s": s, "b": b, "c": c})
        y, z = (dequantize(one, port.exponent) for one, port in zip(outputs, net.outputs, strict=True))
        best = np.argsort(-s[0], kind="stable")[:9]
        np.testing.assert_array_equal(y, b[0][best + 100])
        np.testing.assert_array_equal(z, c[(np.arange(9) + 1) % 2, np.maximum(best, 100) - 100])


def test_what_the_refusal_of_far_indices_leaves(tmp_path: Path) -> None:
    """j reaches 39999, which int16 holds in steps of 2. What --outputs leaves has no gather; up to 32766 one has."""
    text = """(float[1,20000] x) => (float[1,5] y) <int64[1] k = {5}, int64 c = {FAR}>
        { t = Neg(x) u = Neg(t) v, i = TopK(u, k) j = Add(i, c) h = Sub(j, c) y = GatherElements<axis=1>(u, h) }"""
    x = np.random.default_rng(0).integers(-100, 101, (BATCH, 1, 20000)).astype(np.float32) / 16
    np.save(tmp_path / "x.npy", x)
    for c, outputs in ((20000, ("h",)), (12767, ())):
        onnx.save(build(text.replace("FAR", str(c)), 13), tmp_path / f"{c}.onnx")
        options = Options(bits="8", widths="strict", outputs=outputs)
        made = convert(tmp_path / f"{c}.onnx", {"": tmp_path / "x.npy"}, options, lambda *_: None)
        found = load(made.data)
        assert [port.name for port in found.outputs] == list(outputs or ("y",))
        for row in x if not outputs else ():
            (y,) = found.run({"x": row})
            np.testing.assert_array_equal(dequantize(y, found.outputs[0].exponent), -np.sort(-row)[:, :5])
    with pytest.raises(UnsupportedModel, match="indices computed from 'j', whole numbers from 20000 to 39999"):
        convert(tmp_path / "20000.onnx", {"": tmp_path / "x.npy"}, Options(), lambda *_: None)


@pytest.mark.parametrize("bits", ["8", "16"])
def test_indices_that_are_divided_as_floats(bits, tmp_path: Path) -> None:
    """The row of each of the best scores, as PyTorch's new exporter finds it: Cast(Floor(Cast(i) / 80))."""
    text = """(float[1,40,80] s, float[1,40,4] b) => (float[1,9,4] y, int64[1,9] q)
        <int64[1] k = {9}, float n = {80}, int64[1] a = {-1}, int64[3] r = {1,9,4}>
        { t = Neg(s) u = Neg(t) d = Neg(b) e = Neg(d) f = Flatten(u) v, i = TopK(f, k) g = Cast<to=1>(i)
          p = Div(g, n) o = Floor(p) q = Cast<to=7>(o) j = Unsqueeze(q, a) x = Expand(j, r)
          y = GatherElements<axis=1>(e, x) }"""
    onnx.save(build(text, 13), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    data = {
        name: (rng.integers(-100, 101, (BATCH, 1, 40, n)) / 16.0).astype(np.float32)
        for name, n in (("s", 80), ("b", 4))
    }
    for name, x in data.items():
        np.save(tmp_path / f"{name}.npy", x)
    sources = {name: tmp_path / f"{name}.npy" for name in data}
    net = load(convert(tmp_path / "m.onnx", sources, Options(bits=bits), lambda *_: None).data)
    for s, b in zip(*data.values(), strict=True):
        y, q = (
            dequantize(one, port.exponent) for one, port in zip(net.run({"s": s, "b": b}), net.outputs, strict=True)
        )
        rows = np.argsort(-s.ravel(), kind="stable")[:9] // 80
        np.testing.assert_array_equal(q[0], rows)
        np.testing.assert_array_equal(y[0], b[0][rows])


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
    assert sum("dB on held-out images" in note for note in made.report.notes) >= 4
    found = evaluate(load(made.data), {"": tmp_path / "x.npy"}, reference=tmp_path / "m.onnx")
    assert list(found.sqnr) == ["v"] and list(found.equal) == ["i"]
    assert found.mean_sqnr_db == found.sqnr["v"] > 25 and found.equal["i"] > 80
