"""DataFrames of pandas are what their CSV would be: tables of numbers, or rows with named columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_text import build

import nmpconv
from nmpconv.data.samples import open_samples
from nmpconv.errors import InputError

MODEL = """(float[1,3,8] x) => (float[1,2] y) <float[24,2] w> {
  f = Flatten(x)  y = MatMul(f, w)
}"""
VALUES = np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def frame() -> Any:
    pandas = pytest.importorskip("pandas", reason="the extra test has it")
    return pandas.DataFrame(VALUES, columns=["ax", "ay", "az"])


@pytest.fixture(scope="module")
def converted(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> nmpconv.Converted:
    path = tmp_path_factory.mktemp("frames") / "model.onnx"
    build(MODEL, 14, path)
    return nmpconv.convert(path, frame, fast=True)


def test_windows_of_a_recording(frame: Any, converted: nmpconv.Converted) -> None:
    """Of eight rows each, turned as the model wants them."""
    windows = VALUES.reshape(8, 8, 3).transpose(0, 2, 1)
    np.testing.assert_array_equal(list(open_samples(frame, (1, 3, 8), None)), windows[:, np.newaxis])
    assert len(open_samples([frame, frame], (1, 3, 8), None)) == 16
    net = converted.load()
    np.testing.assert_array_equal(net(frame)[0], net(windows)[0])
    np.testing.assert_array_equal(net(frame[8:16])[0], net(windows[1])[0])


def test_a_column_of_labels(frame: Any, converted: nmpconv.Converted) -> None:
    labelled = frame.assign(label=np.repeat([0, 1], 32))
    assert nmpconv.evaluate(converted, labelled).n == 8
    assert open_samples(labelled, (1, 3, 8), None).labels == (0,) * 4 + (1,) * 4
    named = frame.assign(label=np.repeat(["run", "walk"], 32))
    assert open_samples(named, (1, 3, 8), None, classes=("walk", "run")).labels == (1,) * 4 + (0,) * 4


def test_rows_that_hold_arrays(frame: Any, converted: nmpconv.Converted) -> None:
    rows = type(frame)({"x": list(VALUES.reshape(8, 3, 8)), "label": np.arange(8) % 2})
    assert nmpconv.evaluate(converted, rows).n == 8


def test_frames_that_do_not_fit(frame: Any, converted: nmpconv.Converted, tmp_path: Path) -> None:
    for wrong, message in (
        (frame[["ax"]], r"a table of 1 column\(s\); the model's input is \[1, 3, 8\]"),
        (frame[:5], "5 rows; the model's input takes 8"),
        (frame.assign(ay=np.nan), "not a table of numbers|no finite number"),
    ):
        for call in (converted.load(), lambda data: nmpconv.evaluate(converted, data)):
            with pytest.raises(InputError, match=message):
                call(wrong)
