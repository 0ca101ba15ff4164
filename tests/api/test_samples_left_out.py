"""A sample that reaches much farther than the others does not make grids coarse for them, unless it is asked to."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.bisection.reconversion import IMAGES, rebuild
from nmpconv.calib import profile as profiles
from nmpconv.calib.observers import OutOfRange
from nmpconv.calib.parity import Parity
from nmpconv.conversion import import_check, outlier_choice
from nmpconv.conversion.pipeline import Options, Result, convert
from nmpconv.conversion.validation import Score
from nmpconv.errors import UsageError
from nmpconv.file.reader import read
from nmpconv.runtime.interpreter import load

SHAPE = (1, 3, 12, 12)
OUTLIER, COUNT = 20, 40  # one that is measured on where all are


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net, path = Net(SHAPE), tmp_path_factory.mktemp("net") / "m.onnx"
    y = net.add("Relu", net.conv("x", 12, strides=[2, 2]))
    y = net.add("Add", y, net.conv(net.add("Relu", net.conv(y, 12)), 12, 1))
    net.save(path, net.conv(net.add("Relu", y), 8, 1))
    return path


def data(times: float) -> np.ndarray:
    x = np.random.default_rng(5).normal(size=(COUNT, *SHAPE[1:])).astype(np.float32)
    x[OUTLIER] *= times
    return x


def made(net: Path, times: float = 100, **options: object) -> Result:
    return convert(net, {"": data(times)}, Options(**options), lambda *_: None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def default(net: Path) -> Result:
    return made(net)


def quality(result: Result) -> float:
    score = result.report.held_out
    assert score is not None
    return score.db


@pytest.mark.slow
def test_the_others_gain_by_leaving_it_out(net: Path, default: Result) -> None:
    kept = made(net, drop_outliers=False)
    assert quality(default) > quality(kept) + 10
    assert default.data == made(net, drop_outliers=True).data
    (text,) = (text for text in default.report.warnings if "outliers" in text)
    assert text.startswith(f"grids leave out 1 of {COUNT} samples, at ")
    assert f"(data[{OUTLIER}])" in text
    assert not any("outliers" in text for text in kept.report.notes)


def test_as_if_it_had_not_been_there(net: Path, default: Result) -> None:
    others = convert(net, {"": np.delete(data(100), OUTLIER, 0)}, Options(), lambda *_: None)
    x = np.random.default_rng(6).normal(size=SHAPE).astype(np.float32)
    assert (load(others.data).run_float(x)[0] == load(default.data).run_float(x)[0]).all()


@pytest.mark.parametrize(("times", "bits"), [(6, "8"), (100, "16")])
def test_it_is_held_where_the_result_is_not_poor(net: Path, times: float, bits: str) -> None:
    result = made(net, times, bits=bits)
    assert result.data == made(net, times, bits=bits, drop_outliers=False).data
    (text,) = (text for text in result.report.notes if "--drop-outliers" in text)
    assert text.startswith(f"finer grids for others than 1 of {COUNT} samples")


def test_ordinary_samples_are_all_used(net: Path) -> None:
    result = made(net, 1)
    assert result.data == made(net, 1, drop_outliers=False).data
    assert not any("outliers" in text for text in (*result.report.warnings, *result.report.notes))


@pytest.mark.slow
def test_its_recipe_makes_the_same_bytes(net: Path, tmp_path: Path) -> None:
    first = made(net, save_recipe=tmp_path / "r.toml")
    assert "drop_outliers = true" in (tmp_path / "r.toml").read_text()
    assert made(net, recipe=tmp_path / "r.toml").data == first.data
    kept = made(net, 6, save_recipe=tmp_path / "k.toml")
    assert "drop_outliers = false" in (tmp_path / "k.toml").read_text()
    assert made(net, 6, recipe=tmp_path / "k.toml").data == kept.data


def test_a_profile_is_of_all_samples(net: Path, tmp_path: Path) -> None:
    made(net, save_profile=tmp_path / "p.txt")
    assert profiles.load(tmp_path / "p.txt").stats["x"].peak > 100
    with pytest.raises(UsageError, match="no peaks of single samples"):
        made(net, load_profile=tmp_path / "p.txt", drop_outliers=True)


def test_many_samples_with_offsets(net: Path) -> None:
    """The file is measured on samples that nothing is fitted to, and outliers are none of them."""
    x = np.concatenate([data(100) * [[[1.0]], [[1.0]], [[0.01]]] + [[[0.0]], [[40.0]], [[0.0]]] for _ in range(5)])
    result = convert(net, {"": x.astype(np.float32)}, Options(drop_outliers=True), lambda *_: None)
    assert result.report.quality.n == 95
    assert quality(result) > 25


def test_the_graph_is_compared_on_the_others(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks, and what else depends on statistics, may make another function for outliers."""
    counts, compared = [], import_check.compared

    def counting(*arguments: Any) -> Parity | str:
        counts.append((len(arguments[3]["x"]), arguments[5]))
        return compared(*arguments)

    monkeypatch.setattr(import_check, "compared", counting)
    made(net)
    assert counts == [(COUNT, COUNT), (COUNT - 1, COUNT - 1)]


@pytest.mark.slow
def test_one_beyond_all_grids(net: Path) -> None:
    with pytest.raises(OutOfRange):
        made(net, 1e30, drop_outliers=False)
    for fast in (False, True):
        result = made(net, 1e30, fast=fast)
        assert any(text.startswith("grids leave out 1 of") for text in result.report.warnings)
    assert quality(made(net, 1e30)) > 25


def test_what_is_not_done_is_said(net: Path) -> None:
    assert any("--drop-outliers leaves out" in text for text in made(net, fast=True).report.notes)
    assert any(text.startswith("outliers left out: none") for text in made(net, 1, drop_outliers=True).report.notes)
    poor = made(net, 1000, drop_outliers=False).report.warnings
    assert any(text.startswith("poor") for text in poor)
    assert any(text.startswith("grids hold 1 of") for text in poor)


def score(db: float, agreed: int, images: int = 10) -> Score:
    return Score(db, 10.0 * agreed, images)


@pytest.mark.parametrize(
    ("before", "after", "taken"),
    [
        ((12, 40), (30, 1), True),  # poor for the others
        ((12, 40), (14, 1), False),  # little is gained
        ((20, 10), (30, 1), True),  # poor for outliers
        ((20, 20), (30, 1), False),  # poor for neither
        ((31, 10), (50, 1), False),  # good for the others
    ],
)
@pytest.mark.parametrize("agreed", [(9, 9), (9, 8)])
def test_the_choice(
    net: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[float, float],
    after: tuple[float, float],
    taken: bool,
    agreed: tuple[int, int],
) -> None:
    """Others and outliers, in dB; where the others are not poor, no class may be lost."""
    figures = iter([score(before[0], 9), score(before[1], agreed[0]), score(after[0], 9), score(after[1], agreed[1])])
    known = SimpleNamespace(outliers={1: 9.0}, fitted=(0, 1, 2))
    decision = SimpleNamespace(noted=lambda text: text)
    chosen: Any = outlier_choice.Chosen(None, known, decision)  # type: ignore[arg-type]
    monkeypatch.setattr(outlier_choice.Chosen, "score", lambda self, samples: next(figures))
    monkeypatch.setattr(outlier_choice, "_without_outliers", lambda *_: chosen)
    lost = agreed[1] < agreed[0] and before[0] >= 15
    assert (outlier_choice._finer(chosen, None) is not None) == (taken and not lost)  # type: ignore[arg-type]


def test_its_file_is_made_again(net: Path, default: Result, tmp_path: Path) -> None:
    (tmp_path / "m.nmp").write_bytes(default.data)
    file = read(default.data)
    assert json.loads(file.metadata["config"])["drop_outliers"] is True
    rebuilt = rebuild(tmp_path / "m.nmp", net, file, {"": data(100)}, None, lambda *_: None)
    assert not rebuilt.moved
    assert rebuilt.known.fitted == tuple(i for i in range(COUNT) if i != OUTLIER)
    assert len(rebuilt.measured_samples) == IMAGES
    assert OUTLIER not in rebuilt.measured_samples
