"""DataFrames of pandas are what their CSV would be: tables of numbers, or rows with named columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_text import build

import nmpconv
from nmpconv.data.samples import open_samples
from nmpconv.data.sequences import calls_of, open_frames
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
    """Windows of eight rows each, turned as the model wants them."""
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
    np.testing.assert_array_equal(converted.load()(named)[0], converted.load()(frame)[0])
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


def test_headers_that_are_numbers(frame: Any) -> None:
    """As of pd.DataFrame(array), whose columns are 0, 1, 2."""
    wanted = list(open_samples(frame, (1, 3, 8), None))
    np.testing.assert_array_equal(list(open_samples(type(frame)(VALUES), (1, 3, 8), None)), wanted)
    flags = type(frame)(VALUES > 0)
    np.testing.assert_array_equal(list(open_samples(flags, (1, 3), None)), (VALUES > 0).astype(np.float32)[:, None])
    assert open_samples(flags.assign(label=VALUES[:, 0] > 0), (1, 3), None).labels == tuple(VALUES[:, 0] > 0)


def test_limits_of_recordings(frame: Any) -> None:
    assert len(open_samples(frame.assign(label=1), (1, 3, 8), None, limit=3)) == 3
    assert open_samples(frame.assign(label=1), (1, 3, 8), None, limit=3).labels == (1,) * 3


def test_labels_beside_a_frame(frame: Any, converted: nmpconv.Converted) -> None:
    labels = np.repeat([0, 1], 32)
    wanted = nmpconv.evaluate(converted, frame.assign(label=labels))
    assert nmpconv.evaluate(converted, (frame, labels)) == wanted
    series = frame.assign(label=labels)["label"]
    assert nmpconv.evaluate(converted, {"x": frame, "label": series}) == wanted
    assert nmpconv.evaluate(converted, (frame, frame[:8])).n == 9


def test_recordings_of_a_net_with_states(frame: Any) -> None:
    """Each is a sequence, whose calls are its rows, or windows along the axis of time."""
    frames, starts = open_frames(frame.assign(label=np.arange(64)), (1, 3), None)
    np.testing.assert_array_equal(list(frames), VALUES[:, np.newaxis])
    assert (starts, frames.labels) == ((0,), tuple(range(64)))
    assert open_frames([frame, frame[:8]], (1, 3, 8), None, axis=2)[1] == (0, 8)
    rows = type(frame)({"x": list(VALUES)})
    np.testing.assert_array_equal(list(open_frames(rows, (1, 3), None, input_name="x")[0]), VALUES[:, np.newaxis])


def test_a_module_sees_a_row(frame: Any) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch has it")
    counts = (frame * 10).astype(int).assign(label=0)
    for data in (counts, counts.assign(timestamp=range(len(counts)))):
        assert nmpconv.convert(torch.nn.Linear(3, 2), data, fast=True).load().inputs[0].source_shape == (1, 3)


@pytest.mark.parametrize(
    ("given", "shape", "axis", "calls"),
    [
        ((6, 4), (1, 3, 4), 1, [2]),
        ((1, 6, 4), (1, 3, 4), 1, [2]),
        ((5, 7, 4), (1, 3, 4), 1, [2] * 5),
        ((6, 4), (2, 3, 4), 1, None),
        ((6, 4), (1, 4), 0, [6]),
        ((6,), (1, 6), 0, None),
    ],
)
def test_only_a_batch_of_one_may_be_left_out(given: tuple, shape: tuple, axis: int, calls: list[int] | None) -> None:
    """And none where time runs along it."""
    if calls is None:
        with pytest.raises(InputError, match="a call takes"):
            calls_of(np.zeros(given), shape, axis, "here")
    else:
        assert [len(sequence) for sequence in calls_of(np.zeros(given), shape, axis, "here")] == calls
