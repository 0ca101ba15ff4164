"""A norm whose two sides have different layouts."""

from __future__ import annotations

from pathlib import Path

from onnx_text import build

from nmpconv.conversion.calibration import float_passes
from nmpconv.frontend.onnx import load
from nmpconv.graph.trace import Trace


def test_it_is_recognized_behind_the_layout(tmp_path: Path) -> None:
    """As tf2onnx writes tf.math.l2_normalize over the channels of a convolution."""
    build(
        "(float[1,3,5,4] x) => (y) <float[6,3,3,3] w, int64[1] a = {1}, float b = {1e12}, int64[4] s = {1,3,2,1}> "
        "{ c = Conv(x, w) q = Mul(c, c) t = ReduceSum<keepdims=0>(q, a) r = Sqrt(t) i = Reciprocal(r) m = Min(i, b) "
        "n = Reshape(m, s) p = Transpose<perm=[0,2,3,1]>(c) y = Mul(p, n) }",
        13,
        tmp_path / "m.onnx",
    )
    ops = [node.op for node in float_passes(load(tmp_path / "m.onnx"), {}, Trace()).nodes]
    assert "lrn" in ops and "mul" not in ops
