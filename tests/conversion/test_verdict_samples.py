"""The verdict's figures where no samples are left that nothing is fitted to."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.conversion.pipeline import Options, Result, convert
from nmpconv.conversion.validation import UNSEEN, scored

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


def test_noises_are_between_those_of_grids_that_had_seen_the_samples_and_others() -> None:
    wanted = {"y": np.array([[3.0, 0.0], [0.0, 4.0]])}
    far, near = ({"y": wanted["y"] + error} for error in (0.3, 0.1))
    found = scored(wanted, far, ["y"], 2, near)
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
