"""Inputs whose numbers had 8 bits before lose nothing in int8, whoever feeds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto
from onnx_text import build

from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.observers import TensorStats
from nmpconv.cli import main
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.exporters.c_sources import bundle
from nmpconv.file.reader import read
from nmpconv.graph.text import parse, to_text
from nmpconv.passes.quantize import input_steps
from nmpconv.runtime.interpreter import load

FEATURES = """(float[1,1,24,10] x) => (float[1,6] y)
<float[8,1,3,3] w, float[8] b, float[16,8,3,3] u, float[6,16] v> {
 h = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x, w, b)
 r = Relu(h)
 k = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(r, u)
 q = Relu(k)
 g = GlobalAveragePool(q)
 f = Flatten(g)
 y = Gemm<transB=1>(f, v)
}"""
FIT, SAMPLES, STEP = 60, 100, 0.61


def features(rng: np.random.Generator) -> np.ndarray:
    """Cepstra of 8 bits: the first coefficient is far below the others, and 0 is not in the middle."""
    x = rng.normal(size=(SAMPLES, 1, 24, 10)) * 9 / (1 + np.arange(10))
    x[..., 0] -= 55
    return ((np.clip(np.round(x / STEP + 70), -128, 127) - 70) * STEP).astype(np.float32)


def converted(model: ModelProto, data: Mapping[str, np.ndarray], bits: Any = "8", **options: Any) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(model.SerializeToString())
        return convert(path, data, Options(**{"bits": bits, "widths": "strict", **options}), lambda *_: None).data


class Case:
    """A converted model, and samples that it was not calibrated with."""

    def __init__(self, x: np.ndarray, bits: Any = "8", **options: Any):
        self.model, self.unseen = build(FEATURES, 17), x[FIT:, np.newaxis]
        self.data = converted(self.model, {"": x[:FIT]}, bits, **options)
        self.net = load(self.data)

    @property
    def db(self) -> float:
        session = onnxruntime.InferenceSession(self.model.SerializeToString())
        pairs = [(session.run(None, {"x": x})[0], self.net.run_float(x)[0]) for x in self.unseen]
        return sqnr_db(*(np.stack(side) for side in zip(*pairs, strict=True)))


@pytest.fixture(scope="module")
def case() -> Case:
    return Case(features(np.random.default_rng(2)))


def test_nothing_is_lost(case: Case) -> None:
    port = case.net.inputs[0]
    back = port.dequantize(port.integers(case.unseen))
    np.testing.assert_allclose(back.ravel(), case.unseen.ravel(), atol=STEP / 1000)
    assert case.db > 41.5  # 40.1 on a power of two


def test_loud_samples_leave_the_step(case: Case) -> None:
    """Headroom for a sample that reaches farther would double it."""
    rng = np.random.default_rng(3)
    loud = rng.normal(size=(SAMPLES, 1, 24, 10)) * 90 * np.exp(rng.normal(size=(SAMPLES, 1, 1, 1)))
    x = (np.clip(np.round(loud), -128, 127) * 0.26 - 30 * 0.26).astype(np.float32)
    port = Case(x).net.inputs[0]
    np.testing.assert_allclose(port.dequantize(port.integers(x[:, np.newaxis])).ravel(), x.ravel(), atol=0.001)


def test_what_the_file_says(case: Case) -> None:
    tensor = read(case.data).tensors[case.net.inputs[0].tensor]
    assert tensor.float_steps == (pytest.approx(STEP),)
    assert tensor.float_offsets[0] / STEP == pytest.approx(round(tensor.float_offsets[0] / STEP), abs=1e-3)
    assert tensor.shifts is not None
    assert 1 <= tensor.shifts.mantissas[0] < 2
    graph = parse('graph g\ninput x : float32[1,3]\nn = lookup(x) function="sigmoid"\n  y : float32[1,3]\noutput y\n')
    graph = graph.with_values(type(graph["x"])("x", (1, 3), shifts=tensor.shifts))
    assert parse(to_text(graph))["x"].shifts == tensor.shifts


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_caller_subtracts_and_divides(case: Case, kind: type) -> None:
    port, tensor = case.net.inputs[0], read(case.data).tensors[case.net.inputs[0].tensor]
    x = (np.random.default_rng(0).normal(size=(1, 1, 1, 24, 10)) * 60).astype(kind)
    by_hand = np.floor((x - kind(tensor.float_offsets[0])) / kind(tensor.float_steps[0]) + kind(0.5))
    np.testing.assert_array_equal(port.integers(x).ravel(), by_hand.clip(port.lo, port.hi).ravel())


def test_export(case: Case, tmp_path: Path) -> None:
    file, exported = tmp_path / "m.nmp", tmp_path / "m.onnx"
    file.write_bytes(case.data)
    assert main(["export", str(file), "--to", "onnx", "-o", str(exported)]) == 0
    session = onnxruntime.InferenceSession(exported)
    for x in case.unseen[:10]:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], case.net.run_float(x)[0])


def test_inspect(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.nmp"
    file.write_bytes(case.data)
    assert main(["inspect", "--json", str(file)]) == 0
    (port,) = json.loads(capsys.readouterr().out)["inputs"]
    assert port["mantissas"][0] * 2.0 ** port["exponent"] == pytest.approx(STEP)
    assert main(["inspect", str(file)]) == 0
    assert "/ 0.61" in capsys.readouterr().out


def test_macros_of_a_firmware(case: Case) -> None:
    header = bundle({"kws": case.data})["src/kws_data.h"].decode()
    tensor = read(case.data).tensors[case.net.inputs[0].tensor]
    assert f"#define KWS_INPUT_0_SCALE {tensor.float_steps[0]!r}f " in header
    assert f"#define KWS_INPUT_0_OFFSET {tensor.float_offsets[0]!r}f" in header


@pytest.mark.parametrize(("bits", "kind"), [("8", "int8"), ("16", "int16")])
def test_widths(bits: Any, kind: str) -> None:
    """Such an input needs no more than 8 bits, and where all have 16 it is on a power of two."""
    port = Case(features(np.random.default_rng(2)), bits, widths="default").net.inputs[0]
    assert port.dtype == kind
    assert (port.shifts is not None) == (bits == "8")


STREAMED = """(float[1,1,24,10] x) => (float[1,4,20,1] y) <float[8,1,3,10] w, float[4,8,3,1] u> {
 h = Conv<kernel_shape=[3,10]>(x, w)
 r = Relu(h)
 y = Conv<kernel_shape=[3,1]>(r, u)
}"""


@pytest.mark.parametrize(("zero_point", "is_exact"), [(70, True), (0, False)])
def test_a_stream_has_steps_and_no_offsets(zero_point: int, is_exact: bool) -> None:
    """Keeps the 0 that stands before the first frame."""
    x = features(np.random.default_rng(2)) + np.float32(zero_point * STEP)
    shifts = load(converted(build(STREAMED, 17), {"": x[:FIT]}, stream="axis=2,hop=2")).inputs[0].shifts
    assert (shifts is not None) == is_exact
    if shifts is not None:
        assert shifts.mantissas
        assert not shifts.offsets


def test_channels_have_lattices_of_their_own() -> None:
    text = """graph net
input x : float32[1,1,40,2] shifts=[3,0] shift_axis=3
const w : float32[2,1,1,2] = [0.5, 0.25, -0.5, 1.0]
const b : float32[2] = [1.0, 2.0]
n_y = conv2d(x, w, b)
  y : float32[1,1,40,2]
output y
"""
    rng, steps = np.random.default_rng(1), np.array([0.31, 2.3])
    far = rng.integers(-100, 100, (1, 1, 40, 2))
    feeds = [{"x": ((far + rng.integers(-2, 3, far.shape)) * steps).astype(np.float32)} for _ in range(20)]
    rows = parse(text)["x"].stored(np.concatenate([feed["x"] for feed in feeds])).astype(np.float32)
    graph, changed = input_steps.run(parse(text), {"x": TensorStats.of(rows)}, feeds)
    stored = graph["x"].stored(feeds[0]["x"])
    assert changed == ["x"]
    np.testing.assert_allclose(stored, np.round(stored), atol=0.001)
    assert 64 < np.abs(stored).max() <= 128


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (np.arange(-91, 100, 7) * 0.3, (1 / 0.3 / 7 * 8, 0.0)),
        (np.arange(256) / 255, (255.0, 128 / 255)),
        (np.array([0.0, 6.0, 15.0]) + 700, (1 / 3 * 32, 709.0)),
        (np.arange(300) * 0.3, None),
        (np.random.default_rng(0).normal(size=60), None),
    ],
    ids=["around 0", "pixels", "far from 0", "too many points", "no lattice"],
)
def test_lattices(values: np.ndarray, wanted: tuple[float, float] | None) -> None:
    x = np.repeat(values.astype(np.float32), 5).astype(np.float64)
    found = input_steps.lattice_of(x, np.zeros(0), True)
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        assert found == pytest.approx(wanted, rel=1e-4)
        whole = (x - found[1]) * found[0]
        np.testing.assert_allclose(whole, np.round(whole), atol=0.01)
        assert whole.min() > -128.5
        assert whole.max() < 127.5


@pytest.mark.parametrize("step", [0.5, 3.0])
def test_powers_of_two_and_whole_numbers_stay(step: float) -> None:
    x = np.round(features(np.random.default_rng(2)) / np.float32(STEP)) * np.float32(step)
    assert Case(x).net.inputs[0].shifts is None


def test_numbers_that_hardly_repeat_show_no_lattice() -> None:
    """Any few numbers of float32 have a common divisor."""
    assert input_steps.lattice_of(np.arange(60) * 0.3, np.zeros(0), True) is None


@pytest.mark.parametrize("widths", ["strict", "default"])
def test_a_saved_recipe_repeats_the_conversion(tmp_path: Path, widths: str) -> None:
    """Its exponent of the input is in steps of the lattice, and its equalization often none: 18 dB instead of 42."""
    x = (np.random.default_rng(4).integers(0, 41, (FIT, 1, 1, 24, 10)) * 0.037).astype(np.float32)
    model, recipe = build(FEATURES, 17), tmp_path / "recipe.toml"
    first = converted(model, {"": x}, widths=widths, save_recipe=recipe)
    again = converted(model, {"": x}, recipe=recipe, widths=widths)
    assert mantissas(first) == mantissas(again) != ()
    assert np.array_equal(*(load(data).run_float(x[0])[0] for data in (first, again)))


def test_an_exponent_that_a_recipe_gives_is_one_of_the_models_numbers(tmp_path: Path) -> None:
    x = (np.random.default_rng(4).integers(0, 41, (FIT, 1, 1, 24, 10)) * 0.037).astype(np.float32)
    (tmp_path / "r.toml").write_text('[tensors]\n"x" = { bits = 8, exponent = -6 }\n', encoding="utf-8")
    data = converted(build(FEATURES, 17), {"": x}, recipe=tmp_path / "r.toml")
    assert (load(data).inputs[0].exponent, mantissas(data)) == (-6, ())


def test_all_samples_have_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are looked at are some of them, of large inputs."""
    monkeypatch.setattr(input_steps, "SEEN", 1)
    x = (np.random.default_rng(4).integers(0, 41, (SAMPLES, 1, 24, 10)) * 0.037).astype(np.float32)
    far = x.copy()
    far[1] *= 9
    assert [bool(mantissas(Case(some).data)) for some in (x, far)] == [True, False]


def test_steps_that_files_cannot_hold_are_left_alone() -> None:
    x = (np.random.default_rng(4).integers(0, 41, (SAMPLES, 1, 24, 10)) * 0.037e-20).astype(np.float32)
    assert not mantissas(Case(x).data)


def mantissas(data: bytes) -> tuple[float, ...]:
    model = read(data)
    return model.tensors[model.inputs[0].tensor].float_mantissas
