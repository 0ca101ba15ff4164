"""convert on a tiny model: what it prints and writes, and that every flag arrives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cli_files
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_text import build

from nmpconv.calib.engine import EngineRefused
from nmpconv.cli import shared_flags
from nmpconv.conversion import calibration, import_check
from nmpconv.errors import ExitCode
from nmpconv.file.reader import read
from nmpconv.ir import Graph
from nmpconv.passes.quantize import equalize
from nmpconv.runtime import targets
from nmpconv.runtime.interpreter import load

CONVERT = ("convert", "model.onnx", "--data", "images")


def test_default(cli) -> None:
    ran = cli(*CONVERT)
    assert (ran.code, ran.left) == (0, ["model.nmp"])
    model = read(Path("model.nmp"))
    nodes = len(model.ops)
    assert f"quantized {nodes}/{nodes} nodes" in ran.out
    for text in ("conv2d", "softmax", "file         model.nmp", "bias rule", "on s_x*s_w", "own dB", "clipped"):
        assert text in ran.out
    assert "calibrate: 8/8" in ran.err
    assert "\x1b" not in ran.out + ran.err


def test_json(cli) -> None:
    ran = cli(*CONVERT, "--json", "-o", "other.nmp")
    found = ran.json
    assert (ran.code, ran.left, found["output"]) == (0, ["other.nmp"], "other.nmp")
    assert found["quantized_nodes"] == found["total_nodes"] == len(found["layers"])
    assert found["file_bytes"] == Path("other.nmp").stat().st_size
    assert found["arena_bytes"] == read(Path("other.nmp")).arena_bytes
    assert {"name", "op", "bits", "exponent_in", "exponent_out", "shift", "bias", "clipped"} <= found["layers"][
        0
    ].keys()
    bits = {layer["op"]: layer["bits"] for layer in found["layers"]}  # of the input, the weights, the output
    assert (bits["conv2d"], bits["softmax"][1]) == ([8, 8, 8], None)


def test_same_bytes_twice(cli) -> None:
    files = []
    for _ in range(2):
        cli(*CONVERT)
        files.append(Path("model.nmp").read_bytes())
    assert files[0] == files[1]


def test_dry_run_writes_nothing(cli) -> None:
    ran = cli("convert", "model.onnx", "--dry-run")
    assert (ran.code, ran.left) == (0, [])
    assert "conv2d" in ran.out
    found = cli("convert", "model.onnx", "--dry-run", "--json").json
    assert found["output"] is None
    assert found["arena_bytes"] > 0
    assert [row["target"] for row in found["ram"]] == list(targets.MICROCONTROLLERS)
    assert {row["activations"] for row in found["ram"]} == {found["arena_bytes"]}


def test_dry_run_of_a_comparison_with_something_large(cli) -> None:
    """Truth is 0 or 1, whatever it was compared with: no requantize follows."""
    build("(float[1,4] x) => (bool[1,4] y) <float k = {1e30}> { y = Less(x, k) }", 13, "less.onnx")
    found = cli("convert", "less.onnx", "--dry-run", "--json").json
    assert [layer["op"] for layer in found["layers"]] == ["greater"]


def test_weights_beyond_all_grids_are_refused(cli) -> None:
    build("(float[1,4] x) => (y) { y = Gemm<alpha=1e30>(x, w) }", 13, "gemm.onnx", arrays={"w": np.ones((4, 4))})
    ran = cli("convert", "gemm.onnx", "--dry-run")
    assert ran.code == ExitCode.UNSUPPORTED
    assert "weights of 1e+30; instead: at most 1.17137e+21" in ran.err


def test_dry_run_of_a_whole_conversion(cli) -> None:
    """The figures of the file that it does not write."""
    ran = cli(*CONVERT, "--dry-run", "--json")
    assert (ran.code, ran.left) == (0, [])
    text = cli(*CONVERT, "--dry-run")
    assert (text.code, text.left) == (0, [])
    assert "not written" in text.out
    assert "cortex-m4 12 to 28" in text.out
    cli(*CONVERT)
    data = Path("model.nmp").read_bytes()
    assert ran.json["flash_bytes"] == len(data)
    host, *others = ran.json["ram"]
    assert host["arena"] == load(data).arena_bytes
    assert [row["target"] for row in others] == list(targets.MICROCONTROLLERS)
    assert all(row["arena"] == row["activations"] + row["packed"] + row["handle"] for row in ran.json["ram"])
    assert cli("inspect", "model.nmp", "--json").json["ram"] == ran.json["ram"]


def test_target_is_in_the_file(cli) -> None:
    ran = cli(*CONVERT, "--target", "cortex-m4", "--json")
    assert [row["target"] for row in ran.json["ram"]] == ["cortex-m4"]
    assert read(Path("model.nmp")).metadata["target"] == "cortex-m4"
    assert "cortex-m4" in cli("inspect", "model.nmp").out
    assert cli(*CONVERT, "--target", "cortex-m9").code == ExitCode.USAGE


def test_max_ram_of_a_microcontroller_is_all_of_a_run(cli) -> None:
    def arena(*flags: str) -> int:
        ran = cli(*CONVERT, "--dry-run", "--json", "--target", "cortex-m4", *flags)
        return ran.json["ram"][0]["arena"]

    plain = arena()
    assert arena("--max-ram", str(plain - 64)) <= plain - 64
    ran = cli(*CONVERT, "--dry-run", "--target", "cortex-m4", "--max-ram", "600")
    assert ran.code == ExitCode.UNSUPPORTED
    assert "of 600 are for scratch and handle" in ran.err


def test_targets_of_the_command_are_those_that_are_known() -> None:
    assert tuple(target.value for target in shared_flags.TargetChoice) == targets.TARGETS


def test_dry_run_lists_every_odd_node(cli) -> None:
    onnx.save(cli_files.onnx_model(extra="RandomNormalLike"), "model.onnx")
    ran = cli("convert", "model.onnx", "--dry-run", "--json")
    assert (ran.code, list(ran.json)) == (ExitCode.UNSUPPORTED, ["schema", "error"])
    assert "odd_one (RandomNormalLike)" in ran.err


def test_the_float_graph_is_compared_with_the_model(cli) -> None:
    assert re.search(r"float graph +1\d\d\.\d dB against the ONNX model\n", cli(*CONVERT).out)
    found = cli(*CONVERT, "--json").json
    assert found["float_db"] > 100
    assert found["float_required_db"] == 90


def change(name: str, how: Callable[[Graph], Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    """A float pass that does something else to a graph, too."""
    passes = [(n, (lambda g, f=f: how(f(g))) if n == name else f) for n, f in calibration.FLOAT]
    monkeypatch.setattr(calibration, "FLOAT", passes)


def without_bias(graph: Graph) -> Graph:
    bias = next(node for node in graph.nodes if node.op == "fully_connected").inputs[2]
    return graph.with_values(replace(graph[bias], data=np.zeros_like(graph[bias].data)))


def clipped(graph: Graph) -> Graph:
    return graph.with_values(replace(graph["r"], clamp=(0.0, 0.25)))


@pytest.mark.parametrize(
    ("name", "how", "node", "cut"),
    [
        ("fold_affine", without_bias, "'logits' has", "node 'fc' (Gemm)"),
        ("fuse_clamp", clipped, "'r' has", "node 'relu' (Relu)"),
    ],
)
def test_a_wrong_pass_ends_a_conversion(cli, monkeypatch, name: str, how: object, node: str, cut: str) -> None:
    change(name, how, monkeypatch)
    ran = cli(*CONVERT)
    assert (ran.code, ran.left, ran.out) == (ExitCode.INTERNAL, [], "")
    assert "model.onnx: the float graph is another function than the model" in ran.err
    assert node in ran.err
    assert cut in ran.err
    assert "90 are required" in ran.err
    assert "report it" in ran.err


def test_what_no_output_needs_is_not_run(cli) -> None:
    model = cli_files.onnx_model()
    model.opset_import.append(helper.make_opsetid("not.there", 3))
    model.graph.node.append(helper.make_node("Nonsense", ["r"], ["z"], "dead_end", domain="not.there"))
    onnx.save(model, "model.onnx")
    assert "against the ONNX model" in cli(*CONVERT).out


def test_a_model_that_onnxruntime_refuses(cli, monkeypatch) -> None:
    """It is converted all the same, and the report says that nothing was compared."""

    def refuse(*_: object) -> None:
        raise EngineRefused("onnxruntime refuses the model: NOT_IMPLEMENTED")

    monkeypatch.setattr(import_check.parity, "compare", refuse)
    plain = ("--equalize", "none", "--no-zero-points")  # what is not compared with another float graph either
    ran = cli(*CONVERT, *plain)
    assert ran.code == 0
    assert "not compared with the ONNX model: onnxruntime refuses the model: NOT_IMPLEMENTED" in ran.out
    assert cli(*CONVERT, *plain, "--json").json["float_db"] is None


@pytest.mark.parametrize("mode", ["auto", "vector"])
def test_an_equalization_that_changes_the_function_is_left_out(cli, monkeypatch, mode: str) -> None:
    """A recipe asked for by hand gives way to the next plainer one that keeps the function: to none here."""
    real = equalize.scale

    def broken(graph: Graph, factors: dict) -> Graph:
        after = real(graph, factors)
        bias = next(node for node in after.nodes if node.op == "conv2d").inputs[2]
        return after.with_values(replace(after[bias], data=after[bias].data + np.float32(0.1)))

    monkeypatch.setattr(equalize, "scale", broken)
    ran = cli(*CONVERT, "--equalize", mode)
    assert (ran.code, ran.left) == (0, ["model.nmp"])
    assert "equalize vector left out: it changes the float function: 'logits' has" in ran.out
    assert "equalize scalar left out" in ran.out
    assert re.search(r"recipe +equalize none, ", ran.out)


@pytest.mark.parametrize(
    ("flags", "dtypes"),
    [
        (("--strict",), {"int8"}),
        (("--bits", "16"), {"int16"}),
        (("--bits", "a16w8"), {"int8"}),
        (("--per-tensor",), {"int8"}),
        (("--equalize", "scalar", "--rounding", "nearest", "--no-bias-correction"), {"int8"}),
        (("--method", "percentile", "--percentile", "99.9"), {"int8"}),
    ],
)
def test_quantization_flags(cli, flags: tuple[str, ...], dtypes: set[str]) -> None:
    assert cli(*CONVERT, *flags).code == 0
    model = read(Path("model.nmp"))
    weights = [model.tensors[op.inputs[1]] for op in model.ops if op.kind in ("conv2d", "fully_connected")]
    assert {tensor.dtype for tensor in weights} == dtypes
    assert all(len(tensor.exponents) == 1 for tensor in weights) or "--per-tensor" not in flags
    if "--method" in flags:
        assert "percentile" in {tensor.method for tensor in model.tensors}


def test_zero_points(cli) -> None:
    """By default what a Relu makes starts below 0, and at 0 without. One recipe is not chosen on held-out images."""
    least = []
    for flags in ((), ("--zero-points",), ("--no-zero-points",)):
        assert cli(*CONVERT, "--equalize", "none", "--rounding", "nearest", *flags).code == 0
        model = read(Path("model.nmp"))
        made = [model.tensors[op.outputs[0]] for op in model.ops if op.kind == "conv2d"]
        least.append({t.clip_min for t in made if t.observed_min == 0})
    assert least[0] == least[1]
    assert min(least[0]) < 0
    assert least[2] == {0}


def test_bias_bits(cli) -> None:
    assert cli(*CONVERT, "--bias-bits", "32").code == 0
    model = read(Path("model.nmp"))
    assert {model.tensors[op.inputs[2]].dtype for op in model.ops if op.kind == "conv2d"} == {"int32"}


def test_preprocessing_and_labels_are_in_the_file(cli) -> None:
    Path("names.txt").write_text("ant\nbee\ncat\n")
    flags = "--mean 1,2,3 --std 4 --range 0,1 --channel-order bgr --resize shorter --crop 0.5 --labels names.txt"
    ran = cli(*CONVERT, *flags.split(), "--test-vectors", 2, "--limit", 5)
    assert ran.code == 0
    assert "calibrate: 5/5" in ran.err
    model = read(Path("model.nmp"))
    found = model.inputs[0].preprocess
    assert found is not None
    assert (found.mean, found.std, found.range) == ((1.0, 2.0, 3.0), (4.0,), (0.0, 1.0))
    assert (found.layout, found.channel_order, found.resize, found.crop) == ("nchw", "bgr", "shorter", 0.5)
    assert model.inputs[0].pixels
    assert model.labels == ("ant", "bee", "cat")
    assert len(model.test_vectors) == 2
    assert "bee" in cli("run", "model.nmp", "images/00.png").out


def test_a_range_may_be_written_as_reports_print_it(cli) -> None:
    assert "range 0..1," in cli(*CONVERT, "--range", "0..1").out
    assert read(Path("model.nmp")).inputs[0].preprocess.range == (0.0, 1.0)


def test_layout_is_seen_from_the_shape(cli) -> None:
    onnx.save(cli_files.nhwc_model(), "model.onnx")
    assert cli(*CONVERT, "--std", "255").code == 0
    found = read(Path("model.nmp")).inputs[0]
    assert found.preprocess is not None
    assert (found.preprocess.layout, found.source_shape) == ("nhwc", (1, 8, 8, 3))


def test_arrays_and_names(cli) -> None:
    rng = np.random.default_rng(1)
    np.save("a.npy", rng.normal(0, 1, (6, 3, 8, 8)).astype(np.float32))
    assert cli("convert", "model.onnx", "--data", "x=a.npy").code == 0
    assert not read(Path("model.nmp")).inputs[0].pixels
    assert cli("run", "model.nmp", "x=a.npy", "--json").json["samples"][5]["file"] == "a.npy[5]"
    ran = cli("run", "model.nmp", "images/00.png")
    assert (ran.code, ran.out) == (ExitCode.INPUT, "")
    assert "no preprocessing" in ran.err


def test_cut_at_a_tensor(cli) -> None:
    assert cli(*CONVERT, "--outputs", "logits,r").code == 0
    assert [port.name for port in read(Path("model.nmp")).outputs] == ["logits", "r"]
    ran = cli("run", "model.nmp", "images")
    assert ran.left == ["model.npz"]
    assert {name: a.shape for name, a in np.load("model.npz").items()} == {"logits": (8, 3), "r": (8, 4, 8, 8)}
    found = cli("eval", "model.nmp", "--data", "images", "--reference", "model.onnx", "--json").json
    assert [row["name"] for row in found["outputs"]] == ["logits", "r"]
    assert all(row["sqnr_db"] > 15 for row in found["outputs"])


def test_profile_and_dumped_graphs(cli) -> None:
    assert cli(*CONVERT, "--save-profile", "p.txt", "--dump-ir", "ir").code == 0
    assert len(Path("p.txt").read_text().splitlines()) > 5
    assert len(list(Path("ir").iterdir())) > 5
    ran = cli(*CONVERT, "--load-profile", "p.txt", "-o", "again.nmp")
    assert (ran.code, ran.left) == (0, ["again.nmp"])
    assert "calibrate" not in ran.err
    first, again = read(Path("model.nmp")), read(Path("again.nmp"))
    assert [t.exponents for t in first.tensors] == [t.exponents for t in again.tensors]
    assert cli("convert", "model.onnx", "--load-profile", "p.txt", "--mean", "0", "-o", "blind.nmp").code == 0


def test_eval_looks_before_the_softmax(cli) -> None:
    """At 16 bits the logits are within 40 dB and more of the float model's; a Softmax would show another figure."""
    assert cli(*CONVERT, "--bits", "16").code == 0
    found = cli("eval", "model.nmp", "--data", "images/labels.csv", "--reference", "model.onnx", "--json").json
    assert found["sqnr_db"] > 40
    assert found["agreement"] == 100
    assert found["top1"] == found["reference_top1"]
    assert cli(*CONVERT, "--bits", "16", "--outputs", "logits").code == 0
    cut = cli("eval", "model.nmp", "--data", "images/labels.csv", "--reference", "model.onnx", "--json").json
    assert cut["sqnr_db"] == pytest.approx(found["sqnr_db"], abs=3)


def test_two_inputs(cli) -> None:
    onnx.save(cli_files.two_inputs(), "model.onnx")
    np.save("z.npy", np.random.default_rng(2).normal(0, 2, (8, 3)).astype(np.float32))
    sources = ("x=images", "z=z.npy")
    flags = [f"--data={source}" for source in sources]
    assert cli("convert", "model.onnx", *flags).code == 0
    assert [port.pixels for port in read(Path("model.nmp")).inputs] == [True, False]
    assert len(cli("run", "model.nmp", *sources, "--json").json["samples"]) == 8
    data = [f"--data={source}" for source in sources]
    found = cli("eval", "model.nmp", *data, "--reference", "model.onnx", "--json").json
    assert found["sqnr_db"] > 20
    for command in (
        ("convert", "model.onnx", flags[0]),
        ("run", "model.nmp", "images"),
        ("eval", "model.nmp", data[1]),
    ):
        ran = cli(*command)
        assert (ran.code, ran.out, ran.left) == (ExitCode.USAGE, "", [])
        assert "'z'" in ran.err


@pytest.mark.parametrize("flags", [("--equalize", "vector"), ("--rounding", "gptq")])
def test_what_needs_images_is_an_error_without(cli, flags: tuple[str, str]) -> None:
    cli(*CONVERT, "--save-profile", "p.txt")
    ran = cli("convert", "model.onnx", "--load-profile", "p.txt", "--mean", "0", *flags, "-o", "blind.nmp")
    assert (ran.code, ran.left) == (ExitCode.USAGE, [])
    assert f"{flags[0][2:]} {flags[1]} needs images" in ran.err


def test_a_scalar_needs_no_images(cli) -> None:
    cli(*CONVERT, "--save-profile", "p.txt")
    blind = ("convert", "model.onnx", "--load-profile", "p.txt", "--mean", "0", "-o", "blind.nmp", "--equalize")
    weights = []
    for mode in ("none", "scalar"):
        assert f"recipe       equalize {mode}, nearest rounding" in cli(*blind, mode).out
        model = read(Path("blind.nmp"))
        weights.append([model.tensors[op.inputs[1]].data for op in model.ops if op.name == "conv"])
    assert not np.array_equal(*weights)


def test_the_report_begins_with_a_verdict_and_says_where_noise_comes_from(cli) -> None:
    ran = cli(*CONVERT)
    first, second, third = ran.out.splitlines()[:3]
    assert re.match(r"verdict   too few to tell: int8 .*keeps \d+.* % of 3 answers \(\d+ to \d+ %\)", first)
    assert re.match(r"needs     \d.* RAM, \d.* kB flash, \d.* instructions on a Cortex-M4$", second)
    validation = "of 3 validation images, fitted without them"
    assert re.match(rf"nearness  \d\d\.\d dB .*{validation}, worst \d.* dB: images/0[036]\.png$", third)
    assert (
        "pictures     rgb, squash, range 0..255, mean 0, std 1; --mean, --std and --range normalize them\n" in ran.out
    )
    assert re.search(r"costliest +\d+ % of the noise  \w+\n", ran.out)
    assert "warning: 8 calibration images are few" in ran.out
    found = cli(*CONVERT, "--json").json
    assert found["held_out"]["images"] == 3
    assert set(found["noise"]["shares"]) <= {"r", "g", "logits"}


def test_what_was_considered_is_talk_of_verbose(cli) -> None:
    assert "considered" not in (plain := cli(*CONVERT)).out + plain.err
    ran = cli(*CONVERT, "-v")
    assert "considered: equalize none, gptq rounding: " in ran.err
    assert ran.out == plain.out


def test_samples_that_nothing_is_fitted_to_run_through_the_file_itself(cli) -> None:
    """100 are fitted; of the 140 others all are looked at."""
    cli_files.images(Path("many"), 240)
    found = cli("convert", "model.onnx", "--data", "many", "--json").json["verdict"]
    assert (found["n"], found["labelled"], found["basis"]) == (140, 140, "agreement")  # labels of noise are chance
    assert found["agreement_range"][0] < found["agreement"] <= found["agreement_range"][1]
    assert found["worst_db"] < found["sqnr_db"] and found["worst"].startswith("many/")
    assert found["footprint"]["flash"] == Path("model.nmp").stat().st_size
