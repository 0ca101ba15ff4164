"""A sample that reaches much farther than the others does not make grids coarse for them, unless it is asked to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.bisection.reconversion import IMAGES, rebuild
from nmpconv.calib import profile as profiles
from nmpconv.conversion.pipeline import Options, Result, convert
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


def test_the_others_gain_by_leaving_it_out(net: Path, default: Result) -> None:
    kept = made(net, drop_outliers=False)
    assert quality(default) > quality(kept) + 10
    assert default.data == made(net, drop_outliers=True).data
    (text,) = (text for text in default.report.warnings if "outliers" in text)
    assert text.startswith(f"grids leave out 1 of {COUNT} samples, at ")
    assert f"(data[{OUTLIER}])" in text
    assert not any("outliers" in text for text in kept.report.warnings)


def test_as_if_it_had_not_been_there(net: Path, default: Result) -> None:
    others = convert(net, {"": np.delete(data(100), OUTLIER, 0)}, Options(), lambda *_: None)
    x = np.random.default_rng(6).normal(size=SHAPE).astype(np.float32)
    assert (load(others.data).run_float(x)[0] == load(default.data).run_float(x)[0]).all()


@pytest.mark.parametrize(("times", "bits"), [(6, "8"), (100, "16")])
def test_it_is_held_where_the_result_is_not_poor(net: Path, times: float, bits: str) -> None:
    result = made(net, times, bits=bits)
    assert result.data == made(net, times, bits=bits, drop_outliers=False).data
    told = [*result.report.warnings, *result.report.notes]
    assert any(text.startswith(f"grids hold 1 of {COUNT} samples") and "--drop-outliers" in text for text in told)


def test_ordinary_samples_are_all_used(net: Path) -> None:
    result = made(net, 1)
    assert result.data == made(net, 1, drop_outliers=False).data
    assert not any("outliers" in text for text in (*result.report.warnings, *result.report.notes))


def test_its_recipe_makes_the_same_bytes(net: Path, tmp_path: Path) -> None:
    first = made(net, save_recipe=tmp_path / "r.toml")
    assert "drop_outliers = true" in (tmp_path / "r.toml").read_text()
    assert made(net, recipe=tmp_path / "r.toml").data == first.data
    kept = made(net, 6, save_recipe=tmp_path / "k.toml")
    assert "drop_outliers = false" in (tmp_path / "k.toml").read_text()
    assert made(net, 6, recipe=tmp_path / "k.toml").data == kept.data


def test_its_profile_is_that_of_the_others(net: Path, tmp_path: Path) -> None:
    made(net, save_profile=tmp_path / "p.txt")
    assert profiles.load(tmp_path / "p.txt").stats["x"].peak < 10


def test_its_file_is_made_again(net: Path, default: Result, tmp_path: Path) -> None:
    (tmp_path / "m.nmp").write_bytes(default.data)
    file = read(default.data)
    assert json.loads(file.metadata["config"])["drop_outliers"] is True
    rebuilt = rebuild(tmp_path / "m.nmp", net, file, {"": data(100)}, None, lambda *_: None)
    assert not rebuilt.moved
    assert len(rebuilt.measured) == IMAGES
    assert OUTLIER not in rebuilt.measured
