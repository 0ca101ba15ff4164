"""TopK: its order and its values are those of the integers that it reads, whatever k is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build

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
