"""eval --metric: functions and classes of a person, and those that have names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nmpconv.errors import ExitCode
from nmpconv.evaluation.task_metrics import MeanIou, Psnr

CODE = """
import numpy as np

def right(outputs, label, reference):
    return float(np.argmax(outputs[0]) == label)

def several(outputs, label, reference):
    return {"shape": outputs[0].ndim, "off": float(abs(outputs[0] - reference[0]).max()), "none": label is None}

class Largest:
    def __init__(self):
        self.most = 0
    def add(self, outputs, label, reference):
        self.most = max(self.most, float(outputs[0].max()))
    def result(self):
        return self.most

class Half:
    def add(self, outputs, label, reference):
        pass

def text(outputs, label, reference):
    return "good"

def fails(outputs, label, reference):
    raise KeyError("left")

number = 3
"""
EVAL = ("eval", "model.nmp", "--data", "images/labels.csv", "--json")


@pytest.fixture
def made(cli):
    assert cli("convert", "model.onnx", "--data", "images").code == 0
    Path("m.py").write_text(CODE)
    return cli


def test_functions_and_classes(made) -> None:
    found = made(*EVAL, "--metric", "m.py:right", "--metric", "m.py:Largest").json
    assert 100 * found["metrics"]["right"] == pytest.approx(found["top1"])
    assert 0 < found["metrics"]["m.py:Largest"] <= 1
    several = made(*EVAL, "--reference", "model.onnx", "--metric", "m.py:several").json["metrics"]
    assert (several["shape"], several["none"]) == (2, 0)
    assert 0 < several["off"] < 0.1
    assert "right" in made(*EVAL[:-1], "--metric", "m.py:right").out


def test_named_ones_compare_with_the_float_model(made) -> None:
    flags = ("--metric", "psnr", "--metric", "miou")
    found = made(*EVAL, "--reference", "model.onnx", *flags).json["metrics"]
    assert found["psnr"] > 30
    assert found["miou"] <= 100
    assert "give --reference MODEL.onnx" in made(*EVAL, *flags).err


@pytest.mark.parametrize(
    ("metric", "code", "expected"),
    [
        ("best", ExitCode.USAGE, "'best' is no metric"),
        ("m.py:a b", ExitCode.USAGE, "is no metric"),
        ("gone.py:f", ExitCode.INPUT, "gone.py: there is no such file"),
        ("m.py:gone", ExitCode.INPUT, "m.py: it has no 'gone'"),
        ("m.py:number", ExitCode.INPUT, "number is int, no function and no class"),
        ("m.py:Half", ExitCode.INPUT, "the class Half has no result()"),
        ("m.py:text", ExitCode.INPUT, "the metric gave 'good'; a number or a dict of numbers is allowed"),
        ("m.py:fails", ExitCode.INPUT, "m.py: it raised KeyError: 'left'"),
        ("bad.py:f", ExitCode.INPUT, "bad.py: it raised SyntaxError"),
    ],
)
def test_what_is_no_metric(made, metric: str, code: ExitCode, expected: str) -> None:
    Path("bad.py").write_text("def f(:\n")
    ran = made(*EVAL, "--metric", metric)
    assert (ran.code, list(ran.json)) == (code, ["schema", "error"])
    assert expected in ran.err


def test_psnr() -> None:
    made = Psnr()
    made.add([np.array([1.0, 2.0])], None, [np.array([1.0, 4.0])])
    made.add([np.array([0.0, 0.0])], None, [np.array([0.0, 0.0])])
    assert made.result() == pytest.approx(10 * np.log10(4.0**2 / (4 / 4)))


def test_miou() -> None:
    """Class 0: 2 of 3; class 1: 1 of 2."""
    scores = np.array([[[[3, 0], [3, 3]], [[1, 1], [0, 1]]]], float)  # 1 x 2 classes x 2 x 2
    made = MeanIou()
    with_scores = np.array([[[[0, 0], [3, 3]], [[1, 1], [0, 0]]]], float)
    made.add([scores.reshape(1, 2, 4)], None, [with_scores.reshape(1, 2, 4)])
    assert made.result() == pytest.approx(100 * (2 / 3 + 1 / 2) / 2)
    classes = MeanIou()
    classes.add([np.array([[0.0, 1.0, 0.0, 0.0]])], None, [np.array([[1, 1, 0, 0]])])
    assert classes.result() == made.result()
