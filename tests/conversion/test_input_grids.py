"""Inputs whose channels have other units, and what a Concat joins with them: precise, and alike for all readers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper
from onnx_text import build

from nmpconv.base.sqnr import sqnr_db
from nmpconv.cli import main
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.exporters.c_sources import bundle
from nmpconv.file.reader import read
from nmpconv.graph.text import parse, to_text
from nmpconv.ir import Shifts
from nmpconv.runtime.interpreter import Net, load

# Humidity in %, pressure in Pa, temperature in C: normalized in the graph.
WEATHER = """(float[1,3] x) => (float[1,2] y)
<float[3] m = {50, 101300, 12}, float[3] s = {20, 700, 8}, float[3,16] w, float[16] b, float[16,2] v> {
 c = Sub(x, m)
 n = Div(c, s)
 h = Gemm(n, w, b)
 r = Relu(h)
 y = MatMul(r, v)
}"""
# Acceleration in g and rotation in degrees a second, over time: channels first.
IMU = """(float[1,4,24] x) => (float[1,2] y)
<float[8,4,3] w, float[8] b, float[8,8,3] u, float[2,8] v> {
 h = Conv<kernel_shape=[3]>(x, w, b)
 r = Relu(h)
 p = MaxPool<kernel_shape=[2], strides=[2]>(r)
 k = Conv<kernel_shape=[3], pads=[1,1]>(p, u)
 q = Relu(k)
 g = GlobalAveragePool(q)
 f = Flatten(g)
 y = Gemm<transB=1>(f, v)
}"""
# Squared distances to the mean of each of three classes, over its variances: naive Bayes.
CLASSES = """(float[1,4] x) => (float[1,3] y)
<float[1,3,4] m, float[1,3,4] v, int64[3] s = {1, 1, 4}, int64[1] a = {2}> {
 r = Reshape(x, s)
 d = Sub(r, m)
 q = Mul(d, d)
 n = Div(q, v)
 y = ReduceSum<keepdims=0>(n, a)
}"""
# Two towers, and a barometer beside what they find.
TOWERS = """(float[1,1,8,8] x, float[1,1,8,8] d, float[1,1] t) => (float[1,3] y)
<float[6,1,3,3] w, float[4,1,3,3] u, float[12,10,3,3] k, float[16,13] v, float[16] c, float[3,16] o> {
 a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w)
 ar = Relu(a)
 e = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(d, u)
 er = Relu(e)
 j = Concat<axis=1>(ar, er)
 q = Conv<kernel_shape=[3,3], strides=[2,2]>(j, k)
 qr = Relu(q)
 g = GlobalAveragePool(qr)
 f = Flatten(g)
 z = Concat<axis=1>(f, t)
 h = Gemm<transB=1>(z, v, c)
 hr = Relu(h)
 y = Gemm<transB=1>(hr, o)
}"""
# Coordinates beside features.
COORDINATES = """(float[1,2,8,8] x) => (float[1,2,8,8] y)
<float[6,2,3,3] w, float[1,1,8,8] p, float[6,7,3,3] u, float[2,6,1,1] v> {
 a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w)
 r = Relu(a)
 j = Concat<axis=1>(r, p)
 d = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(j, u)
 e = Relu(d)
 y = Conv<kernel_shape=[1,1]>(e, v)
}"""
# Raw numbers of a sensor that are normalized in the graph, where sums, slices and Concats read the result, too.
RAW_SUM = """(float[1,4,24] x) => (float[1,2] y)
<float[1,4,1] m, float[1,4,1] s, float[8,4,3] w, float[8] b, float[4,8,3] u, float[2,4] v> {
 k = Mul(x, s)
 n = Sub(k, m)
 h = Conv<kernel_shape=[3], pads=[1,1]>(n, w, b)
 r = Relu(h)
 c = Conv<kernel_shape=[3], pads=[1,1]>(r, u)
 a = Add(n, c)
 q = Relu(a)
 g = GlobalAveragePool(q)
 f = Flatten(g)
 y = Gemm<transB=1>(f, v)
}"""
RAW_SLICES = """(float[1,4] x) => (float[1,3] y)
<float[4] m, float[4] s, float[2,8] w, float[2,8] u, float[20,3] v, int64[1] zero = {0}, int64[1] two = {2},
 int64[1] four = {4}, int64[1] axis = {1}> {
 k = Mul(x, s)
 n = Sub(k, m)
 a = Slice(n, zero, two, axis)
 b = Slice(n, two, four, axis)
 c = MatMul(a, w)
 cr = Relu(c)
 d = MatMul(b, u)
 dr = Relu(d)
 j = Concat<axis=1>(cr, dr, n)
 y = MatMul(j, v)
}"""
RAW_BANDS = """(float[1,4,8,8] x) => (float[1,4,8,8] y)
<float[1,4,1,1] m, float[1,4,1,1] s, float[6,4,3,3] w, float[6] b, float[4,10,3,3] u> {
 k = Mul(x, s)
 n = Sub(k, m)
 h = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(n, w, b)
 r = Relu(h)
 j = Concat<axis=1>(r, n)
 c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(j, u)
 y = Add(c, n)
}"""
SAMPLES, TOLD = 120, 80
Bits = Literal["8", "16"]
Make = Callable[[np.random.Generator], tuple[ModelProto, dict[str, np.ndarray]]]


def rescaled(model: ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)).astype(np.float32), name))


def weather(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    x = [50, 101300, 12] + rng.normal(size=(SAMPLES, 1, 3)) * [20, 700, 8]
    return build(WEATHER, 17), {"x": x}


def imu(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    model, units = build(IMU, 17), np.array([[1, 1, 500, 500]]).T
    rescaled(model, "w", lambda w: w / units)
    slow = rng.normal(size=(SAMPLES, 1, 4, 8)).repeat(3, axis=-1)
    return model, {"x": slow * units}


def normalized_imu(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    text = IMU.replace("h = Conv<kernel_shape=[3]>(x,", "n = Div(x, s)\n h = Conv<kernel_shape=[3], pads=[1,1]>(n,")
    units = np.array([[1, 1, 500, 500]]).T
    model = build(text.replace("float[8] b", "float[1,4,1] s, float[8] b"), 17)
    rescaled(model, "s", lambda _: units[np.newaxis])
    return model, {"x": rng.normal(size=(SAMPLES, 1, 4, 8)).repeat(3, axis=-1) * units}


def raw(text: str, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """Four channels: a voltage, degrees a second, Pa, and K."""
    across = [1] * len(shape)
    units, means = (np.reshape(a, (-1, *across)) for a in ([0.02, 250, 700, 9], [0.1, -20, 101300, 290]))
    model = build(text, 17)
    rescaled(model, "s", lambda s: (1 / units).reshape(s.shape))
    rescaled(model, "m", lambda m: (means / units).reshape(m.shape))
    return model, {"x": rng.normal(size=(SAMPLES, 1, 4, *shape)) * units + means}


def classes(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    units, means = np.array([0.02, 250, 700, 9]), np.array([0.1, -20, 101300, 290])
    model = build(CLASSES, 17)
    rescaled(model, "m", lambda m: means + units * m)
    rescaled(model, "v", lambda v: units**2 * (0.5 + np.abs(v)))
    return model, {"x": rng.normal(size=(SAMPLES, 1, 4)) * units + means}


def raw_sum(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    return raw(RAW_SUM, (24,), rng)


def raw_slices(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    return raw(RAW_SLICES, (), rng)


def raw_bands(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    return raw(RAW_BANDS, (8, 8), rng)


def towers(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    model = build(TOWERS, 17)
    rescaled(model, "u", lambda u: u / 3000)
    rescaled(model, "v", lambda v: np.concatenate([v[:, :-1], v[:, -1:] / 600], axis=1))
    t = 101000 + rng.normal(size=(SAMPLES, 1, 1)) * 600
    column = next(numpy_helper.to_array(one) for one in model.graph.initializer if one.name == "v")[:, -1]
    rescaled(model, "c", lambda c: c - 101000 * column)
    smooth = rng.normal(size=(2, SAMPLES, 1, 1, 4, 4)).repeat(2, -1).repeat(2, -2)
    return model, {"x": smooth[0], "d": 3000 + 1000 * smooth[1], "t": t}


def coordinates(rng: np.random.Generator) -> tuple[ModelProto, dict[str, np.ndarray]]:
    model = build(COORDINATES, 17)
    rescaled(model, "p", lambda p: np.arange(64).reshape(p.shape) * 10)
    rescaled(model, "u", lambda u: np.concatenate([u[:, :-1], u[:, -1:] / 200], axis=1))
    return model, {"x": rng.normal(size=(SAMPLES, 1, 2, 4, 4)).repeat(2, -1).repeat(2, -2)}


def converted(model: ModelProto, data: Mapping[str, np.ndarray], bits: Bits, **options: Any) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(model.SerializeToString())
        return convert(path, data, Options(bits=bits, **options), lambda *_: None).data


class Case:
    """A converted model. wanted, found: results on samples that it was not calibrated with."""

    def __init__(self, make: Make, bits: Bits):
        self.model, samples = make(np.random.default_rng(5))
        self.samples = {name: x.astype(np.float32) for name, x in samples.items()}
        data = {name: x[:TOLD, 0] for name, x in self.samples.items()}
        self.data = converted(self.model, data, bits)
        self.net = load(self.data)

    def unseen(self) -> list[Mapping[str, np.ndarray]]:
        return [{name: x[i] for name, x in self.samples.items()} for i in range(TOLD, SAMPLES)]

    @property
    def db(self) -> float:
        session = onnxruntime.InferenceSession(self.model.SerializeToString())
        pairs = [(session.run(None, x)[0], self.net.run_float(x)[0]) for x in self.unseen()]
        return sqnr_db(*(np.stack(side) for side in zip(*pairs, strict=True)))


@pytest.fixture(scope="module")
def case() -> Case:
    return Case(weather, "8")


@pytest.mark.parametrize(("bits", "least"), [("8", 34), ("16", 60)])
@pytest.mark.parametrize("make", [weather, imu, normalized_imu, towers, coordinates], ids=lambda make: make.__name__)
def test_units_of_their_own(make: Make, bits: Bits, least: float) -> None:
    assert Case(make, bits).db > least


@pytest.mark.parametrize(("bits", "least"), [("8", 30), ("16", 60)])
@pytest.mark.parametrize("make", [raw_sum, raw_slices, raw_bands, classes], ids=lambda make: make.__name__)
def test_sums_slices_and_joins_of_what_is_normalized(make: Make, bits: Bits, least: float) -> None:
    """They had 0 to 20 dB at either width while the result shared the grid of the largest unit."""
    assert Case(make, bits).db > least


def test_channels_first_keep_the_factors_along_their_axis() -> None:
    net = Case(imu, "8").net
    shifts = net.inputs[0].shifts
    assert shifts is not None
    assert shifts.axis == 1
    assert shifts.bits[0] - shifts.bits[2] in (8, 9, 10)


def test_layers_take_up_a_normalization_of_channels_that_are_first() -> None:
    kinds = [op.kind for op in Case(normalized_imu, "8").net.model.ops]
    assert "mul" not in kinds
    assert "divide" not in kinds


def test_what_the_file_says(case: Case) -> None:
    tensor = read(case.data).tensors[case.net.inputs[0].tensor]
    assert tensor.float_axis == 1
    assert tensor.float_exponents is not None
    assert len({*tensor.float_exponents}) == 3
    assert abs(tensor.float_offsets[1] - 101300) < 700
    assert parse_again(tensor.shifts) == tensor.shifts


def parse_again(shifts: Shifts | None) -> Shifts | None:
    graph = parse('graph g\ninput x : float32[1,3]\nn = lookup(x) function="sigmoid"\n  y : float32[1,3]\noutput y\n')
    graph = graph.with_values(type(graph["x"])("x", (1, 3), shifts=shifts))
    return parse(to_text(graph))["x"].shifts


def test_reals_and_integers(case: Case) -> None:
    """A caller's multiply and add a channel, and back."""
    port, tensor = case.net.inputs[0], read(case.data).tensors[case.net.inputs[0].tensor]
    x = case.samples["x"][:5]
    scale = np.exp2(np.array(tensor.float_exponents, np.float32))
    by_hand = np.floor((x - np.array(tensor.float_offsets, np.float32)) / scale + np.float32(0.5)).clip(
        port.lo, port.hi
    )
    np.testing.assert_array_equal(port.integers(x), by_hand)
    steps = np.abs(port.dequantize(port.integers(x)) - x) / scale
    assert np.median(steps) < 0.5
    np.testing.assert_array_equal(port.integers(x.astype(np.float64)), port.integers(x))


def test_integers_of_another_type_are_not_guessed(case: Case) -> None:
    with pytest.raises(Exception, match="int64"):
        case.net.run_float(np.array([[50, 101300, 12]]))


def saved(case: Case, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(case.model.SerializeToString())
    return path


def test_evaluation(case: Case, tmp_path: Path) -> None:
    found = evaluate(case.net, {"": case.samples["x"][TOLD:, 0]}, reference=saved(case, tmp_path))
    assert found.sqnr["y"] == pytest.approx(case.db, abs=0.01)
    assert not found.warnings


@pytest.mark.parametrize("make", [weather, imu], ids=lambda make: make.__name__)
def test_export(make: Make, tmp_path: Path) -> None:
    case = Case(make, "8")
    file, exported = tmp_path / "m.nmp", tmp_path / "m.onnx"
    file.write_bytes(case.data)
    assert main(["export", str(file), "--to", "onnx", "-o", str(exported)]) == 0
    session = onnxruntime.InferenceSession(exported)
    for x in case.unseen()[:10]:
        np.testing.assert_array_equal(session.run(None, x)[0], case.net.run_float(x)[0])


def test_inspect(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.nmp"
    file.write_bytes(case.data)
    assert main(["inspect", "--json", str(file)]) == 0
    (port,) = json.loads(capsys.readouterr().out)["inputs"]
    assert port["exponent_axis"] == 1
    assert len(port["exponent"]) == len(port["offsets"]) == 3
    assert main(["inspect", str(file)]) == 0
    assert f"number - {port['offsets'][0]:g}/" in capsys.readouterr().out


MAIN = r"""
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model_data.h"
#include "nmp.h"
static MODEL_ALIGNED unsigned char arena[MODEL_ARENA_BYTES];
int main(void) {
  static const float scales[] = MODEL_INPUT_0_SCALES, offsets[] = MODEL_INPUT_0_OFFSETS;
  static const float x[] = {SAMPLE};
  nmp_net *net;
  nmp_view view;
  if (nmp_create(&net, model_data, MODEL_BYTES, arena, sizeof(arena), NULL, NULL) || nmp_input(net, 0, &view)) {
    return 1;
  }
  for (int i = 0; i < 3; i++) {
    float offset, q = floorf((x[i] - offsets[i]) / scales[i] + 0.5f);
    memcpy(&offset, view.offsets + 4 * i, sizeof(offset));
    if (offset != offsets[i] || ldexpf(1.0f, view.exponents[i]) != scales[i] || view.axis != MODEL_INPUT_0_AXIS) {
      return 2;
    }
    q = fmaxf(MODEL_INPUT_0_MIN, fminf(MODEL_INPUT_0_MAX, q));
    if (view.bits == 8) {
      ((signed char *)view.data)[i] = (signed char)q;
    } else {
      ((short *)view.data)[i] = (short)q;
    }
  }
  if (nmp_run(net) || nmp_output(net, 0, &view)) {
    return 3;
  }
  for (int i = 0; i < 2; i++) {
    printf("%d ", view.bits == 8 ? ((signed char *)view.data)[i] : ((short *)view.data)[i]);
  }
  return 0;
}
"""


@pytest.mark.slow
def test_a_firmware_and_an_example_feed_it(case: Case, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    gcc = [need_tool("gcc"), "-std=c99", "-Wall", "-Wextra", "-Werror", "-Isrc"]
    for name, content in bundle({"model": case.data}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    x, example = case.samples["x"][TOLD], tmp_path / "examples" / "buffer.c"
    sample = ", ".join(f"{float(number)!r}f" for number in x[0])
    (tmp_path / "main.c").write_text(MAIN.replace("SAMPLE", sample))
    before, after = example.read_text().split("static float model_buffer_0[")
    example.write_text(f"{before}static float model_buffer_0[{after.replace('];', f'] = {{{sample}}};', 1)}")
    subprocess.run([*gcc, "-c", *sorted((tmp_path / "src").rglob("*.c"))], cwd=tmp_path, check=True)

    def printed(program: Path) -> str:
        objects = sorted(tmp_path.glob("*.o"))
        subprocess.run([*gcc, program, *objects, "-lm", "-o", "program"], cwd=tmp_path, check=True)
        return subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout

    y = case.net.run(x)[0].ravel()
    assert [int(q) for q in printed(tmp_path / "main.c").split()] == y.tolist()
    assert printed(example) == f"model: output {y.argmax()} is the largest, {y.max()}\n"


def test_ranges_of_an_edited_profile_hold(tmp_path: Path) -> None:
    profile, (model, samples) = tmp_path / "p.txt", weather(np.random.default_rng(5))
    data = {"x": samples["x"][:, 0].astype(np.float32)}
    converted(model, data, "8", save_profile=profile, method="max")
    lines = profile.read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith('"x"'))
    lines[at] = f'"x" {lines[at].split()[1]} 140000'
    profile.write_text("\n".join(lines))
    port = load(converted(model, data, "8", load_profile=profile, method="max")).inputs[0]
    assert port.dequantize(np.full(port.shape, port.hi))[0, 1] > 135000


def test_channels_of_one_unit_have_one_grid() -> None:
    """Columns that share a unit are fed as before."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, size=(SAMPLES, 1, 4, 24)).astype(np.float32)
    net: Net = load(converted(build(IMU, 17), {"": x[:, 0]}, "8"))
    assert net.inputs[0].shifts is None


@pytest.mark.parametrize("first", ["k, x", "x, k"])
def test_a_maximum_with_something_else_is_no_mean(first: str) -> None:
    """It passes no channels on, in whatever order its operands are."""
    text = f"""(float[1,4,6,1] x) => (float[1,4,6,1] y) <float[4] s, float[4] b, float[1,4,1,1] k = {{0,0,0,0}}> {{
        m = Max({first})
        y = InstanceNormalization(m, s, b)
    }}"""
    x = np.random.default_rng(0).uniform(0, 1, (SAMPLES, 4, 6, 1)).astype(np.float32)
    assert load(converted(build(text, 17), {"": x}, "8")).inputs[0].shifts is None
