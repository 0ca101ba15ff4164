"""Outputs that join boxes and scores: all that reads a file says the same of them, and scores keep their precision."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx_text import build

from nmpconv.base import fixed_point
from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.observers import TensorStats
from nmpconv.cli import main
from nmpconv.conversion.pipeline import Options, Result, convert
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.exporters.c_sources import bundle
from nmpconv.file.reader import read
from nmpconv.graph.text import parse
from nmpconv.passes.quantize import slice_scales
from nmpconv.runtime.interpreter import Net, load

DETECTOR = """(float[1,3,8,8] x) => (float[1,84,64] y)
<float[4,3,1,1] w, float[4] b, float[80,3,3,3] u, float[80] c, int64[3] s = {1,4,64}, int64[3] t = {1,80,64},
 float hundred = {200}> {
 raw = Conv<kernel_shape=[1,1]>(x, w, b)
 near = Reshape(raw, s)
 boxes = Mul(near, hundred)
 logits = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, u, c)
 flat = Reshape(logits, t)
 scores = Sigmoid(flat)
 y = Concat<axis=1>(boxes, scores)
}"""
RAW = """(float[1,3,8,8] x) => (float[1,14,8,8] y)
<float[4,3,1,1] w, float[4] b, float[10,3,3,3] u, float[10] c, float k = {500}> {
 near = Conv<kernel_shape=[1,1]>(x, w, b)
 boxes = Mul(near, k)
 scores = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, u, c)
 y = Concat<axis=1>(boxes, scores)
}"""
JOINED = """graph net
input x : float32[1,1,2,2]
const w : float32[3,1,1,2] = [300.0, 300.0, 20.0, 0.0, 0.0, 600.0]
const b : float32[3] = [0.0, 0.0, 0.0]
const u : float32[2,1,1,2] = [0.25, 0.25, 0.25, 0.0]
const v : float32[2] = [0.0, 0.0]
n_a = conv2d(x, w, b)
  a : float32[1,1,2,3]
n_c = conv2d(x, u, v)
  c : float32[1,1,2,2]
n_y = concat(a, c) axis=3
  y : float32[1,1,2,5]
output y
"""
BOXES, SCORES = slice(0, 4), slice(4, 84)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parts") / "detector.onnx"
    build(DETECTOR, 17, path)
    return path


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(16, 1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def converted(onnx_file: Path, samples: np.ndarray) -> Result:
    return convert(onnx_file, {"": samples[:8, 0]}, Options(bits="16"), lambda *_: None)


@pytest.fixture(scope="module")
def net(converted: Result) -> Net:
    return load(converted.data)


def wanted(onnx_file: Path, x: np.ndarray) -> np.ndarray:
    found: np.ndarray = onnxruntime.InferenceSession(onnx_file).run(None, {"x": x})[0]
    return found


def test_both_parts_are_precise(net: Net, onnx_file: Path, samples: np.ndarray) -> None:
    for x in samples[8:]:
        float_y, y = wanted(onnx_file, x), net.run_float(x)[0]
        assert sqnr_db(float_y[:, BOXES], y[:, BOXES]) > 60
        assert sqnr_db(float_y[:, SCORES], y[:, SCORES]) > 60  # on the grid of the boxes: 30


@pytest.mark.parametrize(("bits", "least"), [("8", 30), ("16", 60)])
def test_layers_of_several_channels(bits: str, least: float, samples: np.ndarray, tmp_path: Path) -> None:
    """Boxes and scores as two layers make them, joined by channel."""
    path = tmp_path / "raw.onnx"
    build(RAW, 17, path)
    net = load(convert(path, {"": samples[:8, 0]}, Options(bits=bits), lambda *_: None).data)
    float_y, y = (
        np.stack([run(x) for x in samples[8:]]) for run in (partial(wanted, path), lambda x: net.run_float(x)[0])
    )
    for part in (BOXES, SCORES):
        assert sqnr_db(float_y[:, :, part], y[:, :, part]) > least
    (tensor,) = (read(net.data).tensors[port.tensor] for port in read(net.data).outputs)
    assert tensor.float_exponents is not None
    assert len(set(tensor.float_exponents)) == 2


def test_statistics_of_channels() -> None:
    """A join of parts keeps its own channels' statistics, times the factors: equalization looks at each."""
    graph = parse(JOINED)
    ranges = {"x": [1, 1], "a": [600, 20, 600], "c": [0.5, 0.25], "y": [600, 20, 600, 0.5, 0.25]}
    rows = {name: np.array([peaks, np.negative(peaks)], np.float32) for name, peaks in ranges.items()}
    stats = {name: TensorStats.merged(TensorStats.of(x), TensorStats.of(x / 2)) for name, x in rows.items()}
    after, found, _ = slice_scales.run(graph, stats, dict.fromkeys(stats, 16))
    shifts = after["y"].shifts
    assert shifts is not None
    factors = np.exp2(shifts.bits)
    assert len(set(factors)) > 1
    wanted = TensorStats.merged(TensorStats.of(rows["y"] * factors), TensorStats.of(rows["y"] / 2 * factors))
    assert found["y"].samples == 2
    np.testing.assert_array_equal(found["y"].channel_max, wanted.channel_max)
    np.testing.assert_allclose(found["y"].reach(), wanted.reach())


def test_what_the_file_says(net: Net) -> None:
    (port,) = read(net.data).outputs
    tensor = read(net.data).tensors[port.tensor]
    assert tensor.float_exponents == (tensor.exponents[0],) * 4 + (-14,) * 80  # scores reach 1 without saturation
    assert tensor.float_axis == 1


def test_reals_of_several_samples(net: Net, samples: np.ndarray) -> None:
    port = net.outputs[0]
    each = [net.run(x)[0] for x in samples[:3]]
    found = port.dequantize(np.concatenate(each))
    np.testing.assert_array_equal(found, np.concatenate([net.run_float(x)[0] for x in samples[:3]]))
    np.testing.assert_array_equal(
        found[:, BOXES], fixed_point.dequantize(np.concatenate(each)[:, BOXES], port.exponent)
    )


def test_evaluation_counts_each_part_by_its_grid(net: Net, onnx_file: Path, samples: np.ndarray) -> None:
    found = evaluate(net, {"": samples[8:, 0]}, reference=onnx_file)
    shift = net.outputs[0].exponent + 14
    weights = np.concatenate([np.ones(4), np.full(80, 2.0**shift)])[:, np.newaxis]
    pairs = [(wanted(onnx_file, x) * weights, net.run_float(x)[0] * weights) for x in samples[8:]]
    assert found.sqnr["y"] == pytest.approx(sqnr_db(*map(np.stack, zip(*pairs, strict=True))))


@pytest.mark.parametrize("bits", ["8", "16"])
def test_the_report_counts_as_evaluation_does(onnx_file: Path, samples: np.ndarray, bits: str) -> None:
    """Both count errors in steps of each part's grid."""
    made = convert(onnx_file, {"": samples[:, 0]}, Options(bits=bits), lambda *_: None)
    found = evaluate(load(made.data), {"": samples[:, 0]}, reference=onnx_file).sqnr["y"]
    assert made.report.sqnr_by_head["y"] == pytest.approx(found, abs=0.01)
    assert made.report.held_out is not None and abs(made.report.held_out.db - found) < 6
    assert made.report.bias_rule_cost_db is not None and abs(made.report.bias_rule_cost_db) < 6


def test_c_sources(net: Net) -> None:
    header = bundle({"model": net.data})["src/model_data.h"].decode()
    assert "MODEL_OUTPUT_0_EXPONENT " not in header
    assert "#define MODEL_OUTPUT_0_AXIS 1\n" in header
    found = re.search(r"#define MODEL_OUTPUT_0_EXPONENTS \{(.*)\}", header)
    assert found is not None
    assert tuple(map(int, found[1].split(","))) == read(net.data).tensors[net.outputs[0].tensor].float_exponents


def test_export_and_inspect(net: Net, samples: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, exported = tmp_path / "detector.nmp", tmp_path / "detector.onnx"
    file.write_bytes(net.data)
    assert main(["export", str(file), "--to", "onnx", "-o", str(exported)]) == 0
    off = wanted(exported, samples[9]) - net.run_float(samples[9])[0]
    assert np.abs(off[:, BOXES]).max() <= 2.0 ** net.outputs[0].exponent
    assert np.abs(off[:, SCORES]).max() <= 2.0**-14
    capsys.readouterr()
    assert main(["inspect", str(file), "--json"]) == 0
    (port,) = json.loads(capsys.readouterr().out)["outputs"]
    assert port["exponent_axis"] == 1
    assert set(port["exponent"]) == {-14, net.outputs[0].exponent}


def test_what_people_see(converted: Result, net: Net, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Grids of the parts, also of the tensors between them and the output."""
    file, page = tmp_path / "detector.nmp", tmp_path / "detector.html"
    file.write_bytes(converted.data)
    assert main(["inspect", str(file)]) == 0
    table = capsys.readouterr().out.partition("Activations")[2].partition("Memory map")[0]
    rows = {line.split()[0]: line.split() for line in table.splitlines()[2:] if line}
    own = str(net.outputs[0].exponent)
    assert "in the float model" in table
    assert [rows[name][3:5] for name in ("boxes", "scores", "y~1")] == [[own, own], [own, "-14"], [own, f"-14..{own}"]]
    assert main(["report", str(file), "-o", str(page)]) == 0
    assert f"exponent {own} (-14 in the float model)" in page.read_text()
    capsys.readouterr()
    assert main(["inspect", "--json", str(file)]) == 0
    tensors = {tensor["name"]: tensor for tensor in json.loads(capsys.readouterr().out)["tensors"]}
    assert tensors["scores"]["float_exponent"] == -14


MAIN = r"""
#include <stdio.h>
#include "model_data.h"
#include "nmp.h"
static MODEL_ALIGNED unsigned char arena[MODEL_ARENA_BYTES];
int main(void) {
  static const int known[] = MODEL_OUTPUT_0_EXPONENTS;
  nmp_net *net;
  nmp_view view;
  if (nmp_create(&net, model_data, MODEL_BYTES, arena, sizeof(arena), NULL, NULL) || nmp_output(net, 0, &view)) {
    return 1;
  }
  for (uint32_t i = 0; i < view.exponent_count; i++) {
    if (view.exponents[i] != known[i]) {
      return 2;
    }
  }
  printf("%d %d %d\n", view.axis, (int)view.exponent_count, view.exponent == known[0]);
  return 0;
}
"""


@pytest.mark.slow
def test_c_sees_the_same(net: Net, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    gcc = need_tool("gcc")
    for name, content in bundle({"model": net.data}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "main.c").write_text(MAIN)
    sources = sorted(str(path) for path in (tmp_path / "src").rglob("*.c"))
    command = [gcc, "-std=c99", "-Wall", "-Wextra", "-Werror", "-Isrc", "-Isrc/include", "main.c", *sources]
    subprocess.run([*command, "-o", "main"], cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    assert ran.stdout == "1 84 1\n"
