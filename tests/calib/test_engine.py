"""Both engines, on models made here."""

from __future__ import annotations

import sys
import weakref
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from nets import Net
from onnx import helper
from onnx_text import build

from nmpconv.calib import engine, observers
from nmpconv.calib.engine import Engine, FloatEngine, OnnxEngine, is_small
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.errors import InputError
from nmpconv.frontend.onnx import load
from nmpconv.ir import Graph

W = np.random.default_rng(6).normal(size=(4, 3, 3, 2)).astype(np.float32)
B = np.array([0.5, -0.5, 0.0, 1.0], np.float32)


def graph() -> Graph:
    """x [1,5,6,2] -> conv 3x3 -> y [1,3,4,4], clamped to [0, 6]; a branch z that reads x2 alone."""
    net = Net()
    net.input("x", 1, 5, 6, 2)
    net.input("x2", 1, 3)
    net.conv("x", "y", 4, 3, clamp=(0.0, 6.0), w=W, b=B, pad_top=0, pad_left=0, pad_bottom=0, pad_right=0)
    net.op("requantize", "x2", "z", clamp=(-1.0, 1.0))
    return net.graph("y", "z")


def conv(x: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(0, 1))
    return np.einsum("hwcij,oijc->hwo", windows, W)[np.newaxis] + B


X = np.random.default_rng(7).normal(size=(1, 5, 6, 2)).astype(np.float32)


def test_float_engine_gives_any_activation_in_the_graphs_layout() -> None:
    feeds = {"x": X, "x2": np.array([[-3, 0.5, 2]], np.float32)}
    got = FloatEngine(graph(), ["y", "x", "z"]).run(feeds)
    assert list(got) == ["y", "x", "z"]
    assert np.allclose(got["y"], np.clip(conv(X), 0, 6), atol=1e-5)
    assert (got["x"] == X).all()
    assert got["z"].tolist() == [[-1, 0.5, 1]]


@pytest.mark.parametrize("names", [("x", "y"), ("x",)])
def test_onnxruntime_is_not_asked_for_inputs(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1.23, the last one for Python 3.10, gives views of what was fed, which outlive it."""
    asked: list[str] = []
    run = ort.InferenceSession.run

    def listening(session: ort.InferenceSession, wanted: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        asked.extend(wanted)
        return run(session, wanted, feeds)

    monkeypatch.setattr(ort.InferenceSession, "run", listening)
    fed = X.copy()
    got = FloatEngine(graph(), names).run({"x": fed, "x2": np.zeros((1, 3), np.float32)})
    assert tuple(got) == names and "x" not in asked
    assert (got["x"] == X).all() and not np.shares_memory(got["x"], fed)


def test_an_exported_model_is_gone_when_a_session_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Onnxruntime takes copies of its own: with both, a large net would need its weights once more."""
    real, opened, alive = engine.to_onnx, ort.InferenceSession, []

    class Exported:
        def __init__(self, *arguments: object) -> None:
            self.model = real(*arguments)
            self.graph = self.model.graph
            alive.append(weakref.ref(self))

        def SerializeToString(self) -> bytes:  # noqa: N802
            return self.model.SerializeToString()

    monkeypatch.setattr(engine, "to_onnx", Exported)
    monkeypatch.setattr(ort, "InferenceSession", lambda *a, **k: [alive.append(alive.pop()()), opened(*a, **k)][1])
    made = FloatEngine(graph(), ["y"])
    assert alive == [None]
    assert made.run({"x": X})["y"].shape == (1, 3, 4, 4)


def test_a_session_keeps_no_bytes_of_the_model() -> None:
    data = dynamic_model().SerializeToString()
    made, alone = Engine(data, ["y"]), sys.getrefcount(b"".join([data, b" "]))
    assert sys.getrefcount(data) == alone + 1  # the name
    assert made.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[1, 1, 1]]


def test_inputs_that_the_result_does_not_depend_on_are_ignored() -> None:
    assert FloatEngine(graph(), ["y"]).run({"x": X, "x2": np.zeros((1, 3), np.float32)})["y"].shape == (1, 3, 4, 4)


def test_observe_counts_every_sample_and_reports_progress() -> None:
    feeds = [{"x": X * k, "x2": np.zeros((1, 3), np.float32)} for k in (1, 2, 3)]
    seen: list[tuple[str, int, int]] = []
    made = FloatEngine(graph(), ["x", "y", "z"])
    stats = observe(made, feeds, ["x", "y"], lambda *step: seen.append(step))
    assert seen == [("calibrate", 1, 3), ("calibrate", 2, 3), ("calibrate", 3, 3)]
    assert set(stats) == {"x", "y"}
    assert (stats["x"].max, stats["x"].count) == ((X * np.float32(3)).max(), 3 * X.size)
    assert stats["y"].min == 0.0


def test_small_samples_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones are not: each holds the memory of its tensors."""
    feeds, asked = [{"x": X * k, "x2": np.zeros((1, 3), np.float32)} for k in range(5)], list[int]()
    of = TensorStats.of_samples
    monkeypatch.setattr(TensorStats, "of_samples", lambda tensors: [asked.append(len(tensors)), of(tensors)][1])
    whole = observe(FloatEngine(graph(), ["x"]), feeds)
    assert asked == [5]
    monkeypatch.setattr(observers, "VALUES", 2 * X.size)
    monkeypatch.setattr(observers, "EACH", 1)
    parts = observe(FloatEngine(graph(), ["x"]), feeds)
    assert sorted(asked) == [1, 2, 2, 5]
    assert np.array_equal(whole["x"].histogram.counts, parts["x"].histogram.counts)


def test_observe_names_the_tensor_and_sample_that_is_not_finite() -> None:
    feeds = [
        {"x": X, "x2": np.zeros((1, 3), np.float32)},
        {"x": X * np.float32("nan"), "x2": np.zeros((1, 3), np.float32)},
    ]
    with pytest.raises(InputError, match="NaN or infinity in the tensor 'x' for sample 1"):
        observe(FloatEngine(graph(), ["x"]), feeds)


def dynamic_model() -> onnx.ModelProto:
    """x [N, C=3] -> Relu "mid" -> Gemm -> y."""
    text = "(float[N,3] x) => (float[N,3] y) { mid = Relu(x) y = Gemm(mid, w) }"
    return build(text, 13, arrays={"w": np.eye(3)})


def test_onnx_engine_binds_shapes_and_fetches_inner_tensors(tmp_path: Path) -> None:
    onnx.save(dynamic_model(), tmp_path / "m.onnx")
    made = OnnxEngine(tmp_path / "m.onnx", {"x": (1, 3)}, ["mid", "y"])
    got = made.run({"x": np.array([[-1, 0, 2]], np.float32)})
    assert got["mid"].tolist() == got["y"].tolist() == [[0, 0, 2]]
    model = dynamic_model()
    assert OnnxEngine(model, {"x": (1, 3)}).fetch == ("y",)
    assert model == dynamic_model()


def test_onnx_engine_refuses_unknown_tensors_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tensor named 'q'"):
        OnnxEngine(dynamic_model(), {"x": (1, 3)}, ["q"])
    (tmp_path / "m.onnx").write_bytes(b"\xff\xff\xff")
    with pytest.raises(InputError, match=r"m\.onnx: not a readable ONNX file"):
        OnnxEngine(tmp_path / "m.onnx", {})
    model = dynamic_model()
    model.graph.node[0].op_type = "Nonsense"
    with pytest.raises(InputError, match="onnxruntime refuses the model"):
        OnnxEngine(model, {"x": (1, 3)})


def test_axes_of_a_resize_that_count_from_the_end(tmp_path: Path) -> None:
    """onnxruntime 1.23, the newest for Python 3.10, ends in a segmentation fault."""
    text = "(float[1,3,5,4] x) => (y) <int64[2] n = {9,7}> { t = Relu(x) y = Resize<axes=%s>(t, , , n) }"
    feed = {"x": np.random.default_rng(3).normal(size=(1, 3, 5, 4)).astype(np.float32)}
    model = build(text % "[-1,2]", 18, tmp_path / "m.onnx")
    ours = load(tmp_path / "m.onnx")
    wanted = ort.InferenceSession(build(text % "[3,2]", 18).SerializeToString()).run(["y"], feed)[0]
    for one in (OnnxEngine(model, {"x": (1, 3, 5, 4)}), FloatEngine(ours, ours.outputs)):
        np.testing.assert_array_equal(one.run(feed)["y"], wanted)


def test_nodes_of_branches_count() -> None:
    """Each rounding of `fake_quantization` is an If of nine nodes: a session of 700 took 1.6 s to optimize, not 0.6."""
    branch = helper.make_graph([helper.make_node("Relu", ["x"], [f"b{i}"]) for i in range(9)], "branch", [], [])
    nodes = [helper.make_node("If", ["c"], [f"y{i}"], then_branch=branch, else_branch=branch) for i in range(200)]
    model = helper.make_model(helper.make_graph(nodes, "net", [], []))
    assert not is_small(model)
    del model.graph.node[150:]
    assert is_small(model)
