"""The verdict on a report's samples is that of `evaluate`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_text import build

import nmpconv
from nmpconv.base.verdict import Boxes, Quality, Verdict
from nmpconv.evaluation.task_metrics import AveragePrecision
from nmpconv.exporters.html.worst_samples import judge

MODEL = """(float[1,8] x) => (float[1,4] y, float[1,6] z, i) <float[8,4] w, float[8,6] v> {
  m = MatMul(x, w)  y = Softmax(m)  n = MatMul(x, v)  z = Tanh(n)  i = ArgMax<axis=1>(n)
}"""


def test_all_outputs_before_their_softmax(tmp_path: Path) -> None:
    """Places of the largest have no distance, and count in neither."""
    build(MODEL, 14, tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    file = nmpconv.convert(tmp_path / "m.onnx", x, fast=True)
    judged = nmpconv.evaluate(file, x, reference=tmp_path / "m.onnx")
    [verdict] = nmpconv.html_report(file.data, data=x, reference=tmp_path / "m.onnx").verdicts
    assert judged.sqnr.keys() == {"y", "z"}
    assert verdict.quality == judged.quality
    assert verdict.quality.worst == judged.quality.worst


def test_a_float_model_that_finds_no_boxes() -> None:
    precision = AveragePrecision.of("yolox", (64, 64))
    nothing = [np.zeros((1, 84, 8))]
    for _ in range(4):
        precision.add(nothing, None, nothing)
    assert precision.verdict() == Boxes()
    verdict = Verdict("int8", Quality(4, "images", db=30.0, boxes=precision.verdict()))
    assert verdict.sentence == "int8 is 30.0 dB from the float model on 4 images"


def test_curves_of_all_inputs(tmp_path: Path) -> None:
    """A worst sample of a net of several sensors shows each of them."""
    build("(float[1,2,16] a, float[1,1,16] b) => (float[1,2,16] y) { y = Mul(a, b) }", 14, tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=(8, rows, 16)).astype(np.float32) for name, rows in (("a", 2), ("b", 1))}
    file = nmpconv.convert(tmp_path / "m.onnx", data, fast=True)
    samples = judge(file.load(), data, None, 1).worst
    assert len(samples[0].sight.curves) == 3
