"""Shapes between the first tensor and the last: few reshapes, and more dimensions than a file's tensors have."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_text import build, feeds
from test_expand import check, recurrent
from test_lowering import run

from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_step_of_time_has_no_reshape(kind, tmp_path):
    """Only Y as a whole has one, where it gets its axis of directions."""
    build(recurrent(kind), 14, tmp_path / "model.onnx")
    ops = [node.op for node in load(tmp_path / "model.onnx").nodes]
    assert ops.count("reshape") == 1


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_steps_of_time_cost_no_constants_of_their_own(kind, tmp_path, monkeypatch):
    """A GRU of 400 units took all that an import may compute within a hundred steps."""
    monkeypatch.setattr("nmpconv.frontend.budget.ELEMENTS_MAX", 0)
    monkeypatch.setattr("nmpconv.frontend.budget.SHARE", 2)
    build(recurrent(kind).replace("[5,1,3]", "[40,1,3]"), 14, tmp_path / "model.onnx")
    assert load(tmp_path / "model.onnx").nodes


def test_windows_of_eight_dimensions(tmp_path):
    """A video's windows, as Swin3D has them: two axes of 1 are left out. Back again, too, and with an Unsqueeze."""
    text = (
        "(float[1,2,4,6,3] x) => (y, z) <int64[8] s = {1,1,2,2,2,3,2,3}, int64[3] t = {6,8,3}, int64[8] u = "
        "{1,1,2,3,2,2,2,3}, int64[5] v = {1,2,4,6,3}, int64[2] a = {0,3}, int64[2] b = {-1,18}> "
        "{ p = Reshape(x, s) q = Transpose<perm=[0,1,3,5,2,4,6,7]>(p) w = Reshape(q, t) y = Relu(w) "
        "r = Reshape(y, u) c = Transpose<perm=[0,1,4,2,5,3,6,7]>(r) d = Reshape(c, v) "
        "e = Unsqueeze(x, a) f = Unsqueeze(e, a) g = Transpose<perm=[1,0,2,4,3,5,6,7,8]>(f) h = Reshape(g, b) "
        "k = Relu(h) l = ReduceSum(k) z = Add(d, l) }"
    )
    check(13, text, tmp_path)


def test_a_part_without_elements_is_left_out(tmp_path):
    text = (
        "(float[1,4] x) => (y) <int64[1] s = {2}, int64[1] a = {1}> { e = Slice(x, s, s, a) y = Concat<axis=1>(e, x) }"
    )
    build(text, 13, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    feed = feeds(graph)
    [got] = run(to_onnx(graph, graph.outputs), feed)
    np.testing.assert_array_equal(got, feed["x"])
