"""The comparison of trained models: samples and figures. Wheels are not fetched here."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import trained


def port(shape: str, kind: str = "float") -> onnx.ModelProto:
    return build(f"({kind}{shape} x) => ({kind}{shape} y) {{ y = Identity(x) }}", 17)


@pytest.mark.parametrize(
    ("make", "shape", "low", "high"),
    [
        (trained.words(192, 48, turn=2), (1, 3, 48, 192), -1, 1),
        (trained.words(224, 224, 7, turn=1), (1, 3, 224, 224), -1, 1),
        (trained.mel_frames, (1, 76, 32, 1), -20, 20),
        (trained.words(320, 320, 7), (1, 3, 320, 320), -1, 1),
        (trained.music, (1, 43844, 1), -2, 2),
        (trained.files, (1, 2048), 0, 256),
    ],
)
def test_samples_differ_and_are_the_same_each_time(
    make: object, shape: tuple[int, ...], low: float, high: float
) -> None:
    first, again = ([sample["x"] for sample in make(port("[1]"))] for _ in range(2))  # type: ignore[operator]
    assert len(first) >= 24 and all(x.shape == shape and low <= x.min() < x.max() <= high for x in first)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], first[1])


def test_figures_are_those_of_the_worst_output() -> None:
    wanted = [[np.array([[1.0, 0.0]]), np.ones((1, 2))], [np.array([[0.0, 1.0]]), np.ones((1, 2))]]
    got = [[np.array([[1.0, 0.0]]), np.full((1, 2), 0.9)], [np.array([[1.0, 0.0]]), np.full((1, 2), 0.9)]]
    assert trained.compared(wanted, got, "class") == "0.0 dB, 50.00 %"
    assert trained.compared(wanted, wanted, "class") == "inf dB, 100.00 %"
    loud, half = [[np.array([0.9, 0.9, 0.0, 0.0])]], [[np.array([0.9, 0.0, 0.0, 0.0])]]
    assert trained.compared(loud, half, "notes above 0.3") == "3.0 dB, 50.00 %"
