"""Models that onnxruntime quantized: their ranges stand in for calibration, and the report says what the grids cost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnx_text import build
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from typer.testing import CliRunner

from nmpconv.base.sqnr import sqnr_db
from nmpconv.cli import whole_app
from nmpconv.conversion.pipeline import Options, Result, convert
from nmpconv.data.samples import open_samples
from nmpconv.errors import InputError, UsageError
from nmpconv.evaluation.accuracy import Evaluation, evaluate
from nmpconv.ir import Preprocess
from nmpconv.runtime import interpreter

LOOK = {
    "digits": Preprocess(mean=(0.0,), std=(255.0,), layout="auto"),
    "shapes": Preprocess(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), layout="auto"),
}
# SQNR in dB against the quantized model in onnxruntime: without any images, and with the calibration images.
FLOORS = {"digits": (29.0, 32.0), "shapes": (20.5, 24.0)}
KINDS = [(channel, kind) for channel in (False, True) for kind in ("QUInt8", "QInt8")]


class Reader(CalibrationDataReader):
    def __init__(self, name: str, samples: list[np.ndarray]) -> None:
        self._left = iter([{name: x} for x in samples])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


@pytest.fixture(scope="module")
def quantized(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A sample's model in QDQ form."""
    folder = tmp_path_factory.mktemp("qdq")

    @cache
    def make(sample: str, per_channel: bool, kind: str) -> Path:
        source = folder / f"{sample}.onnx"  # a copy, since quantize_static writes beside it
        shutil.copyfile(samples / sample / "model.onnx", source)
        port = onnx.load(source).graph.input[0]
        shape = (1, *(dim.dim_value for dim in port.type.tensor_type.shape.dim[1:]))
        images = open_samples(samples / sample / "calib", shape, LOOK[sample])
        reader = Reader(port.name, [images.model_input(i) for i in range(48)])
        target = folder / f"{sample}-{per_channel}-{kind}.onnx"
        quantize_static(
            source,
            target,
            reader,
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=QuantType[kind],
            weight_type=QuantType.QInt8,
        )
        return target

    return make


def made(model: Path, calib: Path | None, preprocess: Preprocess | None, **options: object) -> Result:
    sources = None if calib is None else {"": calib}
    return convert(model, sources, Options(preprocess=preprocess, **options), lambda *_: None)  # type: ignore[arg-type]


def judged(result: Result, folder: Path, reference: Path) -> Evaluation:
    net = interpreter.load(result.data)
    return evaluate(net, {net.inputs[0].name: folder / "test" / "labels.csv"}, reference=reference)


@pytest.mark.parametrize(("per_channel", "kind"), KINDS)
@pytest.mark.parametrize("sample", LOOK)
def test_converts_without_images(quantized, samples: Path, sample: str, per_channel: bool, kind: str) -> None:
    model = quantized(sample, per_channel, kind)
    result = made(model, None, LOOK[sample])
    report = result.report
    assert (report.quantized_nodes, report.sqnr_by_head) == (report.total_nodes, {})
    found = judged(result, samples / sample, model)
    assert found.mean_sqnr_db is not None and found.mean_sqnr_db >= FLOORS[sample][0]
    assert found.agreement is not None and found.agreement >= 98
    assert {row.dtype for row in report.legalized} == {kind.removeprefix("Q").lower()}
    # Without equalization a step is at least the model's, and less than four times that: one bit for the sign, one for
    # the power of two.
    narrow = [row for row in report.legalized if row.bits == 8]
    assert narrow
    assert all(-1e-9 <= row.bits_lost < 2 for row in narrow)
    for row in narrow:
        assert row.range[1] - row.range[0] == pytest.approx(255 * row.scale)
        assert 2.0**row.exponent == pytest.approx(row.scale * 2**row.bits_lost)


@pytest.mark.slow
@pytest.mark.parametrize("sample", LOOK)
def test_images_fit_the_biases(quantized, samples: Path, sample: str) -> None:
    model = quantized(sample, True, "QUInt8")
    result = made(model, samples / sample / "calib", LOOK[sample])
    found = judged(result, samples / sample, model)
    assert found.mean_sqnr_db is not None and found.mean_sqnr_db >= FLOORS[sample][1]


def test_sixteen_bits_are_the_dequantized_model(quantized, samples: Path) -> None:
    """Against the float model: what is left is how its weights were rounded."""
    model = quantized("digits", True, "QUInt8")
    result = made(model, samples / "digits" / "calib", LOOK["digits"], bits="16", limit=48)
    found = judged(result, samples / "digits", samples / "digits" / "model.onnx")
    assert found.agreement is not None and found.agreement >= 99
    assert found.mean_sqnr_db is not None and found.mean_sqnr_db >= 41
    assert all(row.bits_lost < 0 for row in result.report.legalized)


def test_the_command_tells(quantized, samples: Path, tmp_path: Path) -> None:
    model, target = quantized("shapes", True, "QUInt8"), tmp_path / "m.nmp"
    args = ["convert", str(model), "-o", str(target), "--mean", "123.675,116.28,103.53", "--std", "58.395,57.12,57.375"]
    shown = CliRunner().invoke(whole_app(), args)
    assert shown.exit_code == 0
    assert "bits on average to power-of-two grids, at most" in shown.stdout
    rows = json.loads(CliRunner().invoke(whole_app(), [*args, "--json"]).stdout)["legalized"]
    assert {"name", "dtype", "scale", "zero_point", "range", "bits", "exponent", "new_range", "bits_lost"} == set(
        rows[0]
    )
    plain = CliRunner().invoke(whole_app(), ["convert", str(samples / "shapes" / "model.onnx"), "-o", str(target)])
    assert isinstance(plain.exception, UsageError)


def torch_style(*, annotate: bool) -> onnx.ModelProto:
    """As a QAT export has it: per-channel int8 weights with float bias, Relu before the grid, float weights through
    both ops; `annotate`: the sum has a grid, too."""
    rng = np.random.default_rng(5)
    arrays = {
        "w1": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "s1": rng.uniform(0.002, 0.004, 8).astype(np.float32),
        "z1": np.zeros(8, np.int8),
        "b1": rng.normal(0, 0.2, 8).astype(np.float32),
        "w2": rng.normal(0, 0.2, (8, 8, 1, 1)).astype(np.float32),
        "s2": np.float32(0.005),
        "z2": np.int8(0),
        "sx": np.float32(0.0157),
        "zx": np.uint8(128),
        "sa": np.float32(0.04),
        "za": np.uint8(0),
        "sc": np.float32(0.05),
        "zc": np.uint8(120),
    }
    pair = "{0}q = QuantizeLinear({0}, sc, zc) {0}d = DequantizeLinear({0}q, sc, zc)"
    c3, t = ("c3d", "td") if annotate else ("c3", "t")
    return build(
        f"""(float[1,3,8,8] x) => (float[1,8,1,1] y) {{
            xq = QuantizeLinear(x, sx, zx)
            xd = DequantizeLinear(xq, sx, zx)
            w1d = DequantizeLinear<axis=0>(w1, s1, z1)
            c1 = Conv<pads=[1,1,1,1]>(xd, w1d, b1)
            r1 = Relu(c1)
            r1q = QuantizeLinear(r1, sa, za)
            r1d = DequantizeLinear(r1q, sa, za)
            w2q = QuantizeLinear(w2, s2, z2)
            w2d = DequantizeLinear(w2q, s2, z2)
            c2 = Conv(r1d, w2d)
            {pair.format("c2")}
            c3 = Conv(c2d, w2d)
            {pair.format("c3") if annotate else ""}
            t = Add({c3}, r1d)
            {pair.format("t") if annotate else ""}
            y = GlobalAveragePool({t})
        }}""",
        13,
        arrays=arrays,
        name="qat",
    )


@pytest.mark.parametrize("annotate", [True, False])
def test_torch_style(annotate: bool, tmp_path: Path) -> None:
    """A tensor without a grid is calibrated, and asked for by name when it cannot be; one with a grid keeps it."""
    path, data = tmp_path / "m.onnx", tmp_path / "x.npy"
    onnx.save(torch_style(annotate=annotate), path)
    np.save(data, np.random.default_rng(2).uniform(-2, 2, (24, 3, 8, 8)).astype(np.float32))
    if annotate:
        alone = made(path, None, None)
        assert alone.report.quantized_nodes == alone.report.total_nodes
    else:
        with pytest.raises(UsageError, match=r"the model itself gives no range for 'c3' and 3 more"):
            made(path, None, None)
    result = made(path, data, None)
    assert result.report.sqnr_by_head["y"] > 25
    observed = {value.name: value.observed for value in result.graph.activations()}
    assert {row.name: row.range[1] for row in result.report.legalized if row.name in ("x", "r1q", "c2")} == {
        "x": pytest.approx(127 * 0.0157),
        "r1q": pytest.approx(255 * 0.04),
        "c2": pytest.approx(135 * 0.05),
    }
    assert observed["x"] is not None and observed["x"].max == pytest.approx(127 * 0.0157)


def test_ranges_win_over_calibration(tmp_path: Path) -> None:
    """The same images through the model with and without its grids: the grids of the former decide."""
    path, data = tmp_path / "m.onnx", tmp_path / "x.npy"
    model = torch_style(annotate=True)
    for tensor in model.graph.initializer:
        if tensor.name == "sa":
            tensor.CopyFrom(numpy_helper.from_array(np.float32(0.4), "sa"))
    onnx.save(model, path)
    np.save(data, np.random.default_rng(2).uniform(-2, 2, (24, 3, 8, 8)).astype(np.float32))
    result = made(path, data, None, equalize="none", method="max")
    (row,) = [row for row in result.report.legalized if row.name == "r1q"]
    assert (row.exponent, row.bits) == (0, 8)


def near_where_x_is_0(text: str, arrays: Mapping[str, np.generic], folder: Path) -> None:
    """Converts a model, and compares its results with onnxruntime's; a row of every second sample is 0."""
    build(text, 21, path := folder / "m.onnx", arrays=arrays)
    x = np.random.default_rng(3).uniform(0.3, 3, (24, 1, 4, 16)).astype(np.float32)
    x[::2, :, 1] = 0
    np.save(folder / "x.npy", x)
    result = made(path, folder / "x.npy", None, bits="16")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = np.concatenate([session.run(None, {"x": one})[0] for one in x])
    found = np.concatenate([interpreter.load(result.data).run_float(one)[0] for one in x])
    assert np.isfinite(wanted).all()
    assert sqnr_db(wanted, found.reshape(wanted.shape)) > 45


@pytest.mark.parametrize(("function", "low"), [("Log", -14.0), ("Reciprocal", -1.0)])
def test_what_is_infinite_at_0_ends_with_its_grid(tmp_path: Path, function: str, low: float) -> None:
    """A quantizer leaves out the Clip before a logarithm: a grid from 0 on has it but for what lies below a step."""
    arrays = {"su": np.float32(2**-12), "zu": np.uint16(0), "sl": np.float32(2**-10)}
    arrays["zl"] = np.int16(-(2**15) - low * 2**10)
    text = f"""(float[1,4,16] x) => (float[1,4,16] y) {{
        u = Mul(x, x)
        uq = QuantizeLinear(u, su, zu)
        ud = DequantizeLinear(uq, su, zu)
        v = {function}(ud)
        vq = QuantizeLinear(v, sl, zl)
        y = DequantizeLinear(vq, sl, zl)
    }}"""
    near_where_x_is_0(text, arrays, tmp_path)


@pytest.mark.parametrize(
    "between",
    [
        "v = Mul(l, half)",
        "v0 = Transpose<perm=[0,2,1]>(l) v1 = Add(v0, half) v = Transpose<perm=[0,2,1]>(v1)",
        "l0 = Div(l, ln10) m0 = ReduceMax<keepdims=0>(l0) s = Sub(m0, three) v = Max(l0, s)",
    ],
)
def test_what_is_infinite_at_0_ends_with_a_later_grid(tmp_path: Path, between: str) -> None:
    """Between a logarithm and a grid may lie what keeps order: Whisper's front end divides it and takes a maximum."""
    arrays = {"su": np.float32(2**-12), "zu": np.uint16(0), "sl": np.float32(2**-12), "zl": np.int16(0)}
    arrays |= {"half": np.float32(0.5), "three": np.float32(3), "ln10": np.float32(2.3)}
    text = f"""(float[1,4,16] x) => (float[1,4,16] y) {{
        u = Mul(x, x)
        uq = QuantizeLinear(u, su, zu)
        ud = DequantizeLinear(uq, su, zu)
        l = Log(ud)
        {between}
        vq = QuantizeLinear(v, sl, zl)
        y = DequantizeLinear(vq, sl, zl)
    }}"""
    near_where_x_is_0(text, arrays, tmp_path)


def test_infinity_is_the_models_own_without_a_grid(tmp_path: Path) -> None:
    """A logarithm that is an output is not ended by the grid of what is made of it."""
    arrays = {"su": np.float32(2**-12), "zu": np.uint16(0), "half": np.float32(0.5)}
    text = """(float[1,4,16] x) => (float[1,4,16] y, float[1,4,16] z) {
        uq = QuantizeLinear(x, su, zu)
        ud = DequantizeLinear(uq, su, zu)
        y = Log(ud)
        v = Mul(y, half)
        vq = QuantizeLinear(v, su, zu)
        z = DequantizeLinear(vq, su, zu)
    }"""
    build(text, 21, path := tmp_path / "m.onnx", arrays=arrays)
    np.save(tmp_path / "x.npy", np.zeros((8, 1, 4, 16), np.float32))
    with pytest.raises(InputError, match="NaN or infinity in the tensor 'y'"):
        made(path, tmp_path / "x.npy", None, bits="16")


@pytest.mark.slow
@pytest.mark.parametrize("images", [False, True])
def test_its_recipe_makes_the_same_bytes(
    quantized: Callable[..., Path], samples: Path, tmp_path: Path, images: bool
) -> None:
    model, calib = quantized("digits", True, "QUInt8"), samples / "digits" / "calib" if images else None
    first = made(model, calib, LOOK["digits"], save_recipe=tmp_path / "r.toml")
    assert made(model, calib, LOOK["digits"], recipe=tmp_path / "r.toml").data == first.data
