"""From an ONNX file and images to a .nmp file: what every option does to it, and that it runs as it was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Semaphore
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_text import build
from PIL import Image

from nmpconv.base import thread_pool
from nmpconv.conversion import node_runner
from nmpconv.conversion.pipeline import Options, Result, convert, plan
from nmpconv.errors import InputError, UsageError
from nmpconv.file import reader
from nmpconv.frontend.onnx import load
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.text import parse, to_text
from nmpconv.graph.verify import verify
from nmpconv.ir import Preprocess
from nmpconv.passes.quantize import rounding
from nmpconv.runtime import interpreter

IMAGES = 9
STRICT = {"widths": "strict", "equalize": "vector", "rounding": "gptq"}
PIXELS = Preprocess(mean=(120.0, 110.0, 100.0), std=(60.0,))

TINY = """(float[1,3,8,8] x) => (float[1,5] y) {
    [conv1] c1 = Conv<pads=[1,1,1,1]>(x, w1, b1)
    [relu] r1 = Relu(c1)
    [depthwise] c2 = Conv<pads=[1,1,1,1],group=6>(r1, w2, b2)
    [clip] r2 = Clip(c2, zero, six)
    [conv3] c3 = Conv(r2, w3, b3)
    [add] s = Add(c3, r1)
    [max] m = MaxPool<kernel_shape=[2,2],strides=[2,2]>(s)
    [mean] g = GlobalAveragePool(m)
    [flatten] f = Flatten(g)
    [fc] logits = Gemm<transB=1>(f, w4, b4)
    [softmax] y = Softmax<axis=1>(logits)
}"""


def model() -> onnx.ModelProto:
    """x -> conv, relu -> depthwise, clip -> conv + skip (`s`) -> max pool -> mean -> gemm (`logits`) -> softmax `y`."""
    rng = np.random.default_rng(11)
    arrays = {
        "w1": rng.normal(0, 0.3, (6, 3, 3, 3)),
        "b1": rng.normal(0, 0.3, 6),
        "w2": rng.normal(0, 1, (6, 1, 3, 3)),
        "b2": rng.normal(1, 1, 6),
        "w3": rng.normal(0, 0.5, (6, 6, 1, 1)),
        "b3": rng.normal(0, 0.3, 6),
        "w4": rng.normal(0, 1, (5, 6)),
        "b4": rng.normal(0, 1, 5),
        "zero": np.zeros(()),
        "six": np.full((), 6.0),
    }
    return build(TINY, 13, arrays=arrays, name="tiny")


@dataclass
class Place:
    """A folder with the model and its images; conversions in it are made once."""

    folder: Path
    told: list[tuple[str, int, int]] = field(default_factory=list)

    def convert(self, calib: bool = True, **options: Any) -> Result:
        source = {"": self.folder / "images"} if calib else None
        return convert(self.folder / "tiny.onnx", source, Options(**{"preprocess": PIXELS} | options), self.progress)

    def progress(self, *told: Any) -> None:
        self.told.append(told)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("conversion")
    onnx.save(model(), folder / "tiny.onnx")
    (folder / "images").mkdir()
    rng = np.random.default_rng(12)
    for i in range(IMAGES):
        smooth = rng.integers(0, 256, (3, 3, 3)).astype(np.uint8)
        Image.fromarray(smooth).resize((8, 8), Image.Resampling.BILINEAR).save(folder / "images" / f"{i}.png")
    return Place(folder)


@pytest.fixture(scope="module")
def made(place: Place) -> Callable[..., Result]:
    """made(name=value, ...): the conversion with these options."""

    @cache
    def once(options: tuple[tuple[str, Any], ...]) -> Result:
        return place.convert(**dict(options))

    return lambda **options: once(tuple(sorted(options.items())))


def parts(result: Result) -> tuple[reader.Model, dict[str, reader.FileTensor], list[reader.FileTensor]]:
    """The file, its activations by name, its weights."""
    found = reader.read(result.data)
    weights = [found.tensors[op.inputs[1]] for op in found.ops if op.kind in ("conv2d", "fully_connected")]
    return found, {t.name: t for t in found.tensors if t.data is None}, weights


def test_same_command_same_bytes(place: Place, made: Callable[..., Result]) -> None:
    assert place.convert(test_vectors=2).data == made(test_vectors=2).data


@pytest.mark.slow
def test_one_thread_or_two_the_same_bytes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little work is given out."""
    for module, name, less in ((node_runner, "LEAST", 10**5), (node_runner, "MUCH", 0), (rounding, "MUCH", 0)):
        monkeypatch.setattr(module, name, less)
    monkeypatch.setattr(rounding, "CHUNK", 64)
    found = []
    for idle in (0, 1):
        monkeypatch.setattr(thread_pool, "_idle", Semaphore(idle))
        found.append(place.convert())
    assert found[0].data == found[1].data
    assert found[0].report.to_json() == found[1].report.to_json()


def test_default(made: Callable[..., Result]) -> None:
    result = made(test_vectors=2)
    found, active, weights = parts(result)
    verify(result.graph, "PLANNED", "convert")
    assert found.inputs[0].pixels
    assert {t.dtype for t in weights} == {"int8"}
    wide = {name for name, t in active.items() if t.dtype == "int16"}
    assert {"logits", "y"} <= wide
    assert not wide & {"x", "r1", "r2", "c3", "s"}
    assert [len(t.exponents) for t in weights] == [6, 6, 6, 5]
    r1 = active["r1"]
    assert r1.clip_min == -r1.origin / 2.0 ** r1.exponents[0] < 0
    assert {name: t.origin for name, t in active.items()} == {name: result.graph[name].origin for name in active}
    assert found.tensors[found.inputs[0].tensor].origin == found.tensors[found.outputs[0].tensor].origin == 0
    assert parts(made(zero_points=False))[1]["r1"].clip_min == 0
    assert len(made(test_vectors=2).report.notes) == 4 + 1  # two cannot win; the best one without zero points, too
    scores = [float(re.search(r"(-?[\d.]+) dB on all", note)[1]) for note in result.report.notes]
    assert result.report.notes[int(np.argmax(scores))].startswith(result.report.recipe)


def test_strict(made: Callable[..., Result]) -> None:
    found, active, weights = parts(made(**STRICT))
    assert {t.dtype for t in (*active.values(), *weights)} == {"int8"}
    assert found.outputs[0].name == "y"


def test_precise(made: Callable[..., Result]) -> None:
    _, active, _ = parts(made(widths="precise", equalize="none", rounding="nearest"))
    assert active["c3"].dtype == "int16"


@pytest.mark.parametrize(("bits", "weight"), [("16", "int16"), ("a16w8", "int8")])
def test_16_bits(made: Callable[..., Result], bits: str, weight: str) -> None:
    result = made(bits=bits)
    _, active, weights = parts(result)
    assert {name: t.dtype for name, t in active.items() if t.dtype != "int16"} == {"x": "int8"}
    assert {t.dtype for t in weights} == {weight}
    modes = ("scalar", "vector") if bits == "16" else ("none", "scalar", "vector")
    assert {note.split(",")[0] for note in result.report.notes} == {f"equalize {mode}" for mode in modes}
    strict = made(**STRICT).report.sqnr_by_head["logits"]
    assert result.report.sqnr_by_head["logits"] > strict + (20 if bits == "16" else 2)


def test_per_tensor(made: Callable[..., Result]) -> None:
    _, _, weights = parts(made(per_tensor=True, equalize="scalar", rounding="gptq"))
    assert [len(t.exponents) for t in weights] == [1] * 4


@pytest.mark.parametrize("method", ["max", "mse", "mse4", "kl", "percentile"])
def test_method(made: Callable[..., Result], method: str) -> None:
    result = made(method=method, percentile=90.0, equalize="none", rounding="nearest")
    active, spoken = parts(result)[1], method.removesuffix("4")
    for name, tensor in active.items():
        assert tensor.method == ("fixed" if name in "xy" else spoken if tensor.dtype == "int8" else "max")
    top = parts(made(method="max", percentile=90.0, equalize="none", rounding="nearest"))[1]
    assert all(active[name].exponents <= top[name].exponents for name in active)
    if method == "percentile":
        plain = [
            parts(made(method=m, percentile=90.0, equalize="none", rounding="nearest", zero_points=False))[1]["r1"]
            for m in (method, "max")
        ]
        assert plain[0].exponents < plain[1].exponents


@pytest.mark.parametrize("equalize", ["none", "scalar", "vector"])
@pytest.mark.parametrize("rounding", ["nearest", "gptq"])
def test_recipe_by_command(made: Callable[..., Result], equalize: str, rounding: str) -> None:
    result = made(equalize=equalize, rounding=rounding)
    assert result.report.recipe == f"equalize {equalize}, {rounding} rounding"
    assert result.report.notes == ()
    assert json.loads(reader.read(result.data).metadata["calibration"])["recipe"] == result.report.recipe
    assert result.report.sqnr_by_head["logits"] > 15


def test_bias_correction(made: Callable[..., Result]) -> None:
    with_, without = (made(equalize="none", rounding="nearest", **more) for more in ({}, {"bias_correction": False}))
    assert with_.data != without.data
    assert with_.report.sqnr_by_head["logits"] > without.report.sqnr_by_head["logits"]


def test_bias_bits(place: Place, made: Callable[..., Result]) -> None:
    found, _, _ = parts(made(bias_bits=32, equalize="none", rounding="nearest"))
    assert {found.tensors[op.inputs[2]].dtype for op in found.ops if op.kind == "conv2d"} == {"int32"}
    with pytest.raises(InputError, match="do not fit int8") as caught:
        place.convert(bits="16", bias_bits=8)
    assert caught.value.where.startswith("node ")


@pytest.fixture(scope="module")
def saved(place: Place) -> tuple[Path, Result]:
    path = place.folder / "profile.txt"
    return path, place.convert(save_profile=path)


def test_a_profile_stands_for_the_calibration(place: Place, saved: tuple[Path, Result]) -> None:
    path, first = saved
    place.told.clear()
    again = place.convert(load_profile=path)
    assert "calibrate" not in {stage for stage, _, _ in place.told}
    assert again.data == first.data


def test_constants_say_how_their_exponents_were_chosen(made: Callable[..., Result]) -> None:
    found, _, weights = parts(made())
    told = {(t.method, t.observed_min) for t in found.tensors if t.data is not None and t not in weights}
    assert ({t.method for t in weights}, told) == ({"mse"}, {("derived", None), ("fixed", None)})


def test_the_score_is_of_images_that_nothing_was_fitted_to(place: Place, made: Callable[..., Result]) -> None:
    """Recipes competed, or one was asked for. The report warns of few images and of poor results."""
    for options in ({}, {"equalize": "none", "rounding": "nearest"}):
        report = made(**options).report
        notes = {note.split(":")[0]: float(re.search(r"(-?[\d.]+) dB on held", note)[1]) for note in report.notes}
        assert len(notes) > 1 or options
        assert report.to_json()["held_out"]["images"] == report.held_out.images
        assert any("calibration images are few" in warning for warning in report.warnings)
    few = place.convert(limit=4).report
    assert (few.held_out, few.warnings[0][:2]) == (None, "4 ")


def test_a_profile_without_images(place: Place, saved: tuple[Path, Result]) -> None:
    path, first = saved
    blind = place.convert(calib=False, load_profile=path, test_vectors=3)
    verify(blind.graph, "PLANNED", "convert")
    assert blind.report.recipe == "equalize none, nearest rounding"
    assert blind.report.sqnr_by_head == {}
    assert all(layer.sqnr_isolated is None and layer.clipped is None for layer in blind.report.layers)
    found, active, _ = parts(blind)
    assert (found.inputs[0].pixels, len(found.test_vectors)) == (True, 3)
    check_vectors(blind)
    assert {name: t.dtype for name, t in active.items()} == {name: t.dtype for name, t in parts(first)[1].items()}
    other = place.convert(load_profile=path, equalize="none", rounding="nearest", bias_correction=False)
    assert [t.exponents for t in parts(other)[1].values()] == [t.exponents for t in active.values()]


def test_a_profile_of_another_graph(place: Place, saved: tuple[Path, Result]) -> None:
    with pytest.raises(InputError, match="does not fit the model"):
        place.convert(load_profile=saved[0], outputs=("logits",))


def check_vectors(result: Result) -> None:
    net = interpreter.load(result.data)
    for inputs, outputs in net.model.test_vectors:
        given = [np.frombuffer(data, port.dtype) for data, port in zip(inputs, net.inputs, strict=True)]
        assert tuple(y.tobytes() for y in net.run(*given)) == tuple(outputs)


def test_test_vectors(place: Place, made: Callable[..., Result]) -> None:
    """Vectors of the images while there are some, then of random integers."""
    check_vectors(made(test_vectors=2))
    many = made(test_vectors=IMAGES + 2, equalize="none", rounding="nearest")
    check_vectors(many)
    vectors = reader.read(many.data).test_vectors
    assert len({inputs[0] for inputs, _ in vectors}) == len(vectors) == IMAGES + 2
    pixels = np.asarray(Image.open(place.folder / "images" / "0.png")).astype(np.int16) - 128
    assert vectors[0][0][0] == pixels.astype(np.int8).tobytes()


@pytest.mark.parametrize(
    "options",
    [{"test_vectors": 2}, STRICT, {"bits": "16"}, {"bits": "a16w8"}],
    ids=["default", "strict", "16", "a16w8"],
)
def test_c_is_the_reference(made: Callable[..., Result], options: dict[str, Any]) -> None:
    result = made(**options)
    rng = np.random.default_rng(1)
    for cpu in interpreter.cpus():
        net = interpreter.load(result.data, cpu=cpu)
        for _ in range(5):
            x = rng.integers(-128, 128, result.graph["x"].shape).astype(np.int8)
            (found,) = net.run(x)
            assert np.array_equal(found, run_reference(result.graph, {"x": x})["y"])


def test_dumped_graphs(place: Place) -> None:
    folder = place.folder / "ir"
    result = place.convert(dump_ir=folder, equalize="scalar", rounding="gptq")
    files = sorted(folder.iterdir())
    stages = [file.stem.partition("-")[2] for file in files]
    assert [file.stem[:2] for file in files] == [f"{i:02}" for i in range(len(files))]
    assert stages[:2] == ["import", "fold_input"]
    assert stages[-16:] == [
        *("equalize", "table_resolution", "exact_square_roots", "offsets", "requantize_concat"),
        *("exponents", "table_segments", "legalize", "idle_requantizes", "residual_operands", "quantize"),
        *("drop_channels", "recurrent_states", "stream", "bands", "plan_memory"),
    ]
    constants = {v.name: v.data for v in result.graph.values.values() if v.data is not None}
    last = parse(files[-1].read_text(), constants)
    assert last == result.graph
    assert to_text(last) == files[-1].read_text()
    imported = load(place.folder / "tiny.onnx")
    first = {v.name: v.data for v in imported.values.values() if v.data is not None}
    assert to_text(parse(files[0].read_text(), first)) == files[0].read_text()
    assert all(file.read_text().startswith("graph tiny\n") for file in files)


def test_limit(place: Place) -> None:
    place.told.clear()
    result = place.convert(limit=4)
    assert ("calibrate", 4, 4) in place.told
    assert {total for stage, _, total in place.told if stage == "calibrate"} == {4}
    assert json.loads(reader.read(result.data).metadata["calibration"])["images"] == 4
    assert result.report.recipe == "equalize none, nearest rounding, no zero points"  # too few to hold some out
    assert result.report.notes == ()


def test_outputs(made: Callable[..., Result]) -> None:
    result = made(outputs=("logits", "s"), equalize="none", rounding="nearest")
    found, _, _ = parts(result)
    assert [port.name for port in found.outputs] == ["logits", "s"]
    assert set(result.report.sqnr_by_head) == {"logits", "s"}
    assert "softmax" not in {op.kind for op in found.ops}
    net = interpreter.load(result.data)
    assert [port.source_shape for port in net.outputs] == [(1, 5), (1, 6, 8, 8)]


def test_sources(place: Place) -> None:
    source = place.folder / "images"
    tiny = place.folder / "tiny.onnx"
    with pytest.raises(UsageError, match="no input 'image' that an output depends on; it has x"):
        convert(tiny, {"image": source}, Options(), place.progress)
    with pytest.raises(UsageError, match="nothing to calibrate with"):
        convert(tiny, None, Options(), place.progress)
    with pytest.raises(UsageError, match="nothing to calibrate with"):
        convert(tiny, {}, Options(), place.progress)
    with pytest.raises(UsageError, match="no input 'z'"):
        convert(tiny, {"x": source, "z": source}, Options(), place.progress)


def test_report(made: Callable[..., Result]) -> None:
    result = made(test_vectors=2)
    report, found = result.report, reader.read(result.data)
    assert report.quantized_nodes == report.total_nodes == len(report.layers) == len(found.ops)
    assert report.file_bytes == len(result.data)
    assert report.arena_bytes == found.arena_bytes >= report.arena_lower_bound > 0
    assert report.macs == sum(op.macs for op in found.ops) == 64 * (6 * 27 + 6 * 9 + 6 * 6) + 30
    assert [(layer.name, layer.op) for layer in report.layers] == [(op.name, op.kind) for op in found.ops]
    for layer, op in zip(report.layers, found.ops, strict=True):
        tensors = found.tensors
        x, y = tensors[op.inputs[0]], tensors[op.outputs[0]]
        assert (layer.exponent_in, layer.exponent_out) == (x.exponents[0], y.exponents[0])
        assert (layer.bits[0], layer.bits[2]) == (int(x.dtype[3:]), int(y.dtype[3:]))
        assert layer.sqnr_isolated is not None and layer.sqnr_cumulative is not None and layer.clipped is not None
        assert layer.sqnr_isolated >= layer.sqnr_cumulative - 0.01
        assert layer.sqnr_cumulative > 10
        assert 0 <= layer.clipped < 0.1
        if op.kind in ("conv2d", "fully_connected"):
            w, b = tensors[op.inputs[1]], tensors[op.inputs[2]]
            assert layer.bits[1] == int(w.dtype[3:])
            assert layer.exponent_weights == (min(w.exponents), max(w.exponents))
            assert layer.shift == tuple(
                layer.exponent_out - layer.exponent_in - e for e in layer.exponent_weights[::-1]
            )
            assert (layer.bias, layer.bias_bits) == ((b.data.min(), b.data.max()), int(b.dtype[3:]))
        else:
            assert layer.exponent_weights is layer.shift is layer.bias is layer.bits[1] is None
    assert list(report.sqnr_by_head) == ["logits"]
    assert report.sqnr_by_head["logits"] == pytest.approx(
        next(layer for layer in report.layers if layer.op == "fully_connected").sqnr_cumulative, abs=1e-3
    )
    assert abs(report.bias_rule_cost_db) < 5
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["file_bytes"] == len(result.data)


def test_plan(place: Place, made: Callable[..., Result]) -> None:
    planned = plan(place.folder / "tiny.onnx", Options(preprocess=PIXELS))
    result = made()
    assert abs(len(planned.data) - len(result.data)) < 0.1 * len(result.data)
    assert planned.report.arena_bytes == result.report.arena_bytes
    assert planned.report.macs == result.report.macs
    assert [layer.bits[::2] for layer in planned.report.layers] == [layer.bits[::2] for layer in result.report.layers]


FIRST_IS_CONSTANT = {
    "Sub": "one = Constant<value_float=1.0>() y = Sub(one, x)",
    "Mul": "half = Constant<value_float=0.5>() y = Mul(half, x)",
    "Div": "three = Constant<value_float=3.0>() s = Sigmoid(x) y = Div(three, s)",
    "MatMul": "w = Constant<value_floats=[1.0, 2.0, 3.0, 4.0, 5.0]>() y = MatMul(w, x)",
    "Max": "m = Constant<value_floats=[1.0, -2.0, 0.5, 0.0]>() y = Max(m, x)",
    "Greater": "m = Constant<value_floats=[1.0, -2.0, 0.5, 0.0]>() g = Greater(m, x) y = Cast<to=1>(g)",
    "Concat": "w = Constant<value_floats=[1.0]>() s = Constant<value_ints=[1,5,1]>() e = Expand(w, s) "
    "y = Concat<axis=2>(e, x)",
    "Where": "w = Constant<value_float=1e9>() z = Constant<value_float=0.0>() g = Greater(z, x) y = Where(g, w, x)",
}


@pytest.mark.parametrize("bits", ["8", "16", "a16w8"])
@pytest.mark.parametrize("text", FIRST_IS_CONSTANT.values(), ids=FIRST_IS_CONSTANT)
def test_plan_of_constants(text: str, bits: str, tmp_path: Path) -> None:
    """A dry run walks through the passes of a conversion, so constants have grids wherever they stand."""
    build(f"(float[1,5,4] x) => (y) {{ {text} }}", 13, tmp_path / "m.onnx")
    planned = plan(tmp_path / "m.onnx", Options(bits=bits))
    assert reader.read(planned.data)
    np.save(tmp_path / "x.npy", np.linspace(-1, 1, 40, dtype=np.float32).reshape(2, 5, 4))
    chosen = Options(bits=bits, equalize="none", rounding="nearest", drop_channels=False)
    result = convert(tmp_path / "m.onnx", {"x": tmp_path / "x.npy"}, chosen, lambda *_: None)
    assert [layer.op for layer in planned.report.layers] == [layer.op for layer in result.report.layers]
    assert planned.report.arena_bytes == result.report.arena_bytes


@pytest.mark.parametrize("bias_bits", [0, 8])
def test_plan_of_large_biases(bias_bits: int, tmp_path: Path) -> None:
    text = "(float[1,4] x) => (y) <float[3] b = {1e12, -5.0, 127.9}> { y = Gemm(x, w, b) }"
    build(text, 13, tmp_path / "m.onnx", arrays={"w": np.ones((4, 3))})
    assert plan(tmp_path / "m.onnx", Options(bias_bits=bias_bits, widths="strict")).data


def test_a_padding_value_may_lie_beyond_the_activation(tmp_path):
    """Clip to [0, 1], then padding with -1: what the activation left of the range does not bind the padding."""
    path = tmp_path / "pad.onnx"
    bounds = "float low = {0}, float high = {1}, float value = {-1}, int64[4] pads = {0,1,0,1}"
    build(f"(float[1,4] x) => (y) <{bounds}> {{ c = Clip(x, low, high) y = Pad(c, pads, value) }}", 13, path)
    np.save(tmp_path / "x.npy", np.array([[-2.0, 0.25, 0.5, 2.0]], np.float32))
    result = convert(path, {"x": tmp_path / "x.npy"}, Options(widths="strict"), lambda *_: None)
    [got] = interpreter.load(result.data).run_float(np.load(tmp_path / "x.npy"))
    assert got.tolist() == [[-1.0, 0.0, 0.25, 0.5, 1.0, -1.0]]
