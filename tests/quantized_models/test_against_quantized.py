"""The line of a report that compares with a quantized model as it is, its own rounding included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import Residual, pictures
from quantized_runs import converted, outputs

from nmpconv.base.sqnr import sqnr_db
from nmpconv.conversion.pipeline import Options, Result, convert


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_figures_are_those_of_the_two_run_apart(kind: str, tmp_path: Path) -> None:
    model, samples = Residual(kind=kind).model(), pictures(32, seed=8)
    result = converted(model, tmp_path, samples)
    found = result.report.against_quantized
    wanted, got = outputs(model, result, samples)
    (step,) = {result.graph.given["y"].scale}
    apart = np.abs(np.rint((got - wanted) / step))
    assert found is not None
    assert found.db == pytest.approx(sqnr_db(wanted, got))
    assert found.equal == pytest.approx(100 * np.mean(apart == 0))
    assert (found.steps, found.samples) == (apart.max(), 32)
    assert found.sentence.endswith("of 32 samples")


@pytest.mark.slow
def test_the_verdict_on_kept_integers_is_beside_the_model_as_it_is(tmp_path: Path) -> None:
    """The float graph lacks its rounding, which is most of what differs."""
    model, samples = Residual(kind="uint8").model(), pictures(40)
    kept, free = (converted(model, tmp_path, samples, faithful=faithful).report for faithful in (True, False))
    assert kept.against_quantized is not None and kept.held_out is not None
    assert kept.quality.db == kept.against_quantized.db
    assert kept.quality.db != pytest.approx(kept.held_out.db, abs=0.1)
    assert kept.quality.samples == "32 samples, with the model's own rounding"
    assert free.held_out is not None and free.quality.db == free.held_out.db


def test_labels_go_before_kept_integers(tmp_path: Path) -> None:
    nodes = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, w)"
    weights = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    arrays = {"s": np.float32(1 / 32), "z": np.int8(0), "w": weights}
    build(f"(float[1,8] x) => (float[1,4] y) {{ {nodes} }}", 13, tmp_path / "m.onnx", arrays=arrays)
    x = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, labels=np.argmax(x @ weights, axis=1))
    kept = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npz"}, Options(faithful=True), lambda *_: None).report
    assert kept.quality.labelled == 14 and "top-1" in kept.verdict.sentence


def test_steps_that_are_no_powers_have_no_equal_integers(tmp_path: Path) -> None:
    found = converted(Residual(powers=False).model(), tmp_path, pictures(8)).report.against_quantized
    assert found is not None
    assert (found.equal, found.steps, found.samples) == (None, None, 8)
    assert found.db > 25


def test_without_samples_there_is_nothing_to_run(tmp_path: Path) -> None:
    assert converted(Residual(kind="uint8").model(), tmp_path, None).report.against_quantized is None


MOVES = ["MaxPool<kernel_shape=[2,2]>(c)", "Transpose<perm=[0,1,3,2]>(c)", "Pad(c, n)", "Add(c, c)"]


@pytest.mark.parametrize("zero", [np.uint8(128), np.uint8(0), np.int8(-128)])
@pytest.mark.parametrize(("sampled", "move"), [(False, "Identity(c)"), *((True, move) for move in MOVES)])
def test_grids_saturate_as_a_clip_did(sampled: bool, move: str, zero: np.integer, tmp_path: Path) -> None:
    """onnxruntime leaves out a Clip in front of such a grid, also where data moves in between."""
    model = saturating(move, zero)
    samples, test = (4 * pictures(16, seed=i) for i in (1, 2))
    result = converted(model, tmp_path, samples if sampled else None, bits="16")
    assert nearness(model, result, test) > 28  # of the roundings of the model itself


@pytest.mark.parametrize("options", [{"bits": "8"}, {"bits": "16"}, {"faithful": True}])
@pytest.mark.parametrize("zero", [np.uint8(128), np.uint8(0), np.int8(0)])
def test_numbers_are_read_before_their_grid(zero: np.integer, options: dict[str, object], tmp_path: Path) -> None:
    """A requantize saturates for those that read the grid, as where trainers round only what layers read."""
    model = saturating("Identity(c)", zero, result="Add(d, c)")
    samples, test = (4 * pictures(16, seed=i) for i in (1, 2))
    assert nearness(model, converted(model, tmp_path, samples, **options), test) > 30


def test_a_clip_within_a_wider_grid_stays(tmp_path: Path) -> None:
    """Numbers go beyond the Clip, and not beyond the grid behind it; others read them, too."""
    model = saturating("Clip(c, low, high)", np.uint8(128), result="Add(d, c)", port=0.005)
    ends = (onnx.numpy_helper.from_array(np.float32(end), name) for end, name in ((-0.05, "low"), (0.05, "high")))
    model.graph.initializer.extend(ends)
    samples, test = (0.04 * pictures(16, seed=i) for i in (1, 2))
    assert nearness(model, converted(model, tmp_path, samples, bits="16"), test) > 25


def test_sizes_are_no_numbers(tmp_path: Path) -> None:
    """A Shape of what is rounded leaves one tensor, on its grid."""
    model = saturating("Identity(c)", np.uint8(128), result="Reshape(d, l)")
    model.graph.node.insert(4, onnx.helper.make_node("Shape", ["c"], ["l"]))
    nodes = converted(model, tmp_path, 4 * pictures(16), faithful=True).graph.nodes
    assert "requantize" not in {node.op for node in nodes}


def test_a_grid_that_nothing_leaves_needs_no_requantize(tmp_path: Path) -> None:
    """Both read one tensor, which has the range of what was seen."""
    model = saturating("Identity(c)", np.uint8(128), result="Add(d, c)")
    samples = 0.05 * pictures(16, seed=1)
    assert "requantize" in {node.op for node in converted(model, tmp_path, 4 * pictures(16)).graph.nodes}
    assert "requantize" not in {node.op for node in converted(model, tmp_path, samples).graph.nodes}


@pytest.mark.parametrize("move", ["Identity(c)", *MOVES[:2]])
def test_a_profile_keeps_what_saturates(move: str, tmp_path: Path) -> None:
    model, profile = saturating(move, np.uint8(128)), tmp_path / "p.txt"
    samples, test = (4 * pictures(16, seed=i) for i in (1, 2))
    converted(model, tmp_path, samples, bits="16", save_profile=profile)
    loaded = converted(model, tmp_path, None, bits="16", load_profile=profile)
    assert nearness(model, loaded, test) > 28


def test_faithful_steps_that_are_no_powers_saturate_where_the_model_does(tmp_path: Path) -> None:
    model = saturating(MOVES[0], np.uint8(128), port=0.125)
    samples, test = (4 * pictures(16, seed=i) for i in (1, 2))
    assert nearness(model, converted(model, tmp_path, samples, faithful=True), test) > 28


def saturating(move: str, zero: np.integer, *, result: str = "Conv(d, v)", port: float = 0.1) -> onnx.ModelProto:
    """A convolution far beyond the grid of what it moves to: steps of 2 / 255. port: the step of input and output."""
    rng = np.random.default_rng(3)
    arrays = {
        "w": rng.normal(0, 0.5, (8, 3, 3, 3)).astype(np.float32),
        "v": rng.normal(0, 0.3, (4, 8, 3, 3)).astype(np.float32),
        "s": np.float32(2 / 255),
        "z": np.asarray(zero),
        "t": np.float32(port),
        "u": np.uint8(128),
        "n": np.array([0, 0, 1, 1, 0, 0, 0, 0]),
    }
    return build(
        f"""(float[1,3,12,12] x) => (float[1,k,h,w] y) {{
            g = QuantizeLinear(x, t, u)
            h = DequantizeLinear(g, t, u)
            c = Conv(h, w)
            m = {move}
            q = QuantizeLinear(m, s, z)
            d = DequantizeLinear(q, s, z)
            e = {result}
            f = QuantizeLinear(e, t, u)
            y = DequantizeLinear(f, t, u)
        }}""",
        17,
        arrays=arrays,
    )


def nearness(model: onnx.ModelProto, result: Result, samples: np.ndarray) -> float:
    """dB against the quantized model."""
    return sqnr_db(*outputs(model, result, samples))


def test_integer_operators_run_as_they_are(tmp_path: Path) -> None:
    """QLinearConv of a QOperator model, with a bias of int32."""
    rng = np.random.default_rng(1)
    arrays = {
        "w": rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "b": rng.integers(-900, 900, 4).astype(np.int32),
        "sx": np.float32(2.0**-5),
        "sw": np.float32(2.0**-9),
        "sy": np.float32(2.0**-4),
        "z": np.int8(0),
    }
    model = build(
        """(float[1,3,8,8] x) => (float[1,4,8,8] y) {
            xq = QuantizeLinear(x, sx, z)
            yq = QLinearConv<pads=[1,1,1,1]>(xq, sx, z, w, sw, z, sy, z, b)
            y = DequantizeLinear(yq, sy, z)
        }""",
        17,
        arrays=arrays,
        name="qoperator",
    )
    found = converted(model, tmp_path, rng.uniform(-3, 3, (24, 3, 8, 8)).astype(np.float32)).report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > 70


def test_float_models_have_no_such_line(samples: Path, tmp_path: Path) -> None:
    model = onnx.load(samples / "digits" / "model.onnx")
    data = np.random.default_rng(0).uniform(-1, 1, (8, 1, 16, 16)).astype(np.float32)
    assert converted(model, tmp_path, data).report.against_quantized is None


@pytest.mark.parametrize("operator", ["QLinearLeakyRelu", "QLinearSigmoid", "QLinearAdd"])
def test_operators_without_zero_points_are_compared_with(operator: str, tmp_path: Path) -> None:
    """onnxruntime ends the process for two of these, where the last one is left out."""
    operands = "xq, s, z, xq, s, z, s" if operator == "QLinearAdd" else "xq, s, z, s"
    model = build(
        f"""(float[1,3,8,8] x) => (float[1,3,8,8] y) {{
            xq = QuantizeLinear(x, s, z)
            yq = com.microsoft.{operator}({operands})
            y = DequantizeLinear(yq, s)
        }}""",
        17,
        arrays={"s": np.float32(2.0**-4), "z": np.uint8(0)},
    )
    model.opset_import.add(domain="com.microsoft", version=1)
    samples = np.random.default_rng(1).uniform(0, 6, (16, 3, 8, 8)).astype(np.float32)
    found = converted(model, tmp_path, samples).report.against_quantized
    assert found is not None
    assert found.db > 30
