"""The verdict's figures where no samples are left that nothing is fitted to."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net
from onnx_text import build

from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import SampleSubset, observe
from nmpconv.conversion import calibration, verdict_samples
from nmpconv.conversion.calibration import FIT_IMAGES
from nmpconv.conversion.pipeline import Options, Result, convert
from nmpconv.conversion.quantizer import HELD_OUT
from nmpconv.conversion.validation import UNSEEN, scored
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.frontend.onnx import load as load_graph
from nmpconv.ir import Given
from nmpconv.runtime.interpreter import load

SIZE, COUNT = 12, 24
FAR = 9  # the sample, one of every third, that reaches farther than all others


def samples() -> np.ndarray:
    x = np.random.default_rng(1).uniform(-1, 1, (COUNT, 1, SIZE)).astype(np.float32)
    x[FAR] *= 6
    return x


def net(folder: Path) -> Path:
    dense, path = Net((1, SIZE)), folder / "m.onnx"
    y = "x"
    for width in (24, 24, 8):
        weights = dense.weights(dense.shape(y)[1] if y != "x" else SIZE, width)
        y = dense.add("Relu", dense.add("Gemm", y, weights, dense.weights(width)))
    dense.save(path, y)
    return path


def converted(folder: Path, x: np.ndarray, **options: object) -> Result:
    return convert(net(folder), {"": x}, Options(**options), lambda *_: None)  # type: ignore[arg-type]


def of_recipe(result: Result) -> float:
    """dB on held-out samples that the recipe of a result was chosen by."""
    texts = [note for note in result.report.notes if note.startswith(f"{result.report.recipe}:")]
    found = re.search(r"(-?[\d.]+) dB on held", texts[-1])
    assert found is not None
    return float(found[1])


def test_a_held_out_sample_that_reaches_farther_counts(tmp_path: Path) -> None:
    """Grids of all samples hold it, and grids of the others do not. Ranges of a profile are the user's, and stay."""
    x, profile = samples(), tmp_path / "profile.txt"
    result = converted(tmp_path, x, save_profile=profile)
    assert result.report.held_out is not None
    assert result.report.held_out.db < of_recipe(result) - 2
    assert result.report.quality.db == result.report.held_out.db
    kept = converted(tmp_path, x, load_profile=profile)
    assert kept.data == result.data
    assert kept.report.held_out is not None
    assert kept.report.held_out.db == pytest.approx(of_recipe(kept), abs=0.01)
    assert kept.report.quality.unit.endswith("fitted without them but for ranges")


def test_samples_are_run_once_for_both_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of two thirds are gathered beside those of all, and are what a run of their own would see."""
    x = samples()
    engine = FloatEngine(load_graph(net(tmp_path)), ["x"])
    subset = SampleSubset(frozenset(i for i in range(COUNT) if i % 3))
    feeds = [{"x": sample} for sample in x[:, np.newaxis, 0]]
    every = observe(engine, feeds, subset=subset)["x"]
    alone = observe(engine, [feed for i, feed in enumerate(feeds) if i % 3])["x"]
    apart = subset.stats["x"]
    assert (apart.min, apart.max, apart.count) == (alone.min, alone.max, alone.count)
    assert np.array_equal(apart.histogram.counts, alone.histogram.counts)
    assert (every.count, every.max) > (alone.count, alone.max)
    monkeypatch.setattr(verdict_samples, "observe", lambda *_: pytest.fail("run again"))
    assert converted(tmp_path, x, equalize="scalar").report.held_out is not None


@pytest.mark.parametrize(("options", "gathered"), [({}, True), ({"fast": True}, False)])
def test_statistics_of_two_thirds_are_gathered_for_who_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool], gathered: bool
) -> None:
    subsets, real = [], calibration.observe
    monkeypatch.setattr(
        calibration, "observe", lambda *rest, **by: subsets.append(by.get("subset")) or real(*rest, **by)
    )
    converted(tmp_path, samples()[:8], equalize="scalar", **options)
    assert [subset is not None for subset in subsets] == [gathered] * len(subsets)
    assert subsets


def test_a_model_with_grids_of_its_own_needs_no_statistics_of_two_thirds(tmp_path: Path) -> None:
    """Nor do too few samples, or so many that all are never fitted on."""
    graph, options = load_graph(net(tmp_path)), Options()
    own = replace(graph, given={"x": Given(1 / 128, 0, "int8")})
    counts = (HELD_OUT - 1, HELD_OUT, FIT_IMAGES, FIT_IMAGES + 1)
    for model, gathered in ((graph, [False, True, True, False]), (own, [False] * 4)):
        subsets = [calibration._two_thirds(options, model, count) for count in counts]
        assert [subset is not None for subset in subsets] == gathered


def test_noises_are_between_those_of_grids_that_had_seen_the_samples_and_others() -> None:
    wanted = {"y": np.array([[3.0, 0.0], [0.0, 4.0]])}
    far, near = ({"y": wanted["y"] + error} for error in (0.3, 0.1))
    found = scored(wanted, far, ["y"], 2, scored(wanted, near, ["y"], 2).noises)
    noise = UNSEEN * 4 * 0.09 + (1 - UNSEEN) * 4 * 0.01
    assert found.db == pytest.approx(10 * np.log10(25 / noise))
    assert scored(wanted, near, ["y"], 2).db > found.db > scored(wanted, far, ["y"], 2).db


def test_a_model_that_gives_0_alone_is_not_measured(tmp_path: Path) -> None:
    """Integers that are 0, too, prove nothing: a detector in whose samples nothing is."""
    quiet, path = Net((1, SIZE)), tmp_path / "quiet.onnx"
    scores = quiet.add("Gemm", "x", quiet.weights(SIZE, 1), quiet.const(np.full(1, -200, np.float32)))
    quiet.save(path, quiet.add("Sigmoid", scores))
    report = convert(path, {"": samples()}, Options(), lambda *_: None).report
    assert report.verdict.word == "not measured"
    assert "gives 0 alone" in report.verdict.sentence


def test_a_file_that_gives_more_than_0_is_measured(tmp_path: Path) -> None:
    """A detector that fires where the float model does not is no such case."""
    nothing = {"y": np.zeros((4, 3), np.float32)}
    assert scored(nothing, nothing, ["y"], 4).silent
    fired = scored(nothing, {"y": np.ones((4, 3), np.float32)}, ["y"], 4)
    assert (fired.silent, fired.db) == (False, -np.inf)
    x, silent = samples(), tmp_path / "silent.onnx"
    build("(float[1,12] x) => (y) <float b = {100}> { d = Sub(x, b) y = Relu(d) }", 13, silent)
    build("(float[1,12] x) => (y) { y = Relu(x) }", 13, tmp_path / "loud.onnx")
    loud = convert(tmp_path / "loud.onnx", {"": x}, Options(), lambda *_: None)
    assert evaluate(load(loud.data), {"x": x}, reference=silent).quality.db == -np.inf


def test_masks_keep_what_they_hide_in_the_verdict(tmp_path: Path) -> None:
    """A mask and a bias by position are an input: grids of two thirds of it would hold -10000."""
    body = "q = MatMul(x, a) k = MatMul(x, b) t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) n = Add(s, m)"
    body += " p = Softmax<axis=-1>(n) v = MatMul(x, c) y = MatMul(p, v)"
    weights, path = "<float[6,6] a, float[6,6] b, float[6,6] c>", tmp_path / "m.onnx"
    build(f"(float[1,12,6] x, float[1,12,12] m) => (y) {weights} {{ {body} }}", 13, path)
    dice = np.random.default_rng(0)
    x, m = (dice.normal(size=(80, 1, 12, width)).astype(np.float32) for width in (6, 12))
    m[np.broadcast_to(dice.random((80, 1, 1, 12)) > 0.6, m.shape) & (np.arange(12) > 0)] = -1e4
    result = convert(path, {"x": x[:24], "m": m[:24]}, Options(bits="16"), lambda *_: None)
    judged = evaluate(load(result.data), {"x": x[24:], "m": m[24:]}, reference=path)
    assert result.report.quality.db == pytest.approx(judged.quality.db, abs=5)
