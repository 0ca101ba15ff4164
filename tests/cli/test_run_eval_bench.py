"""run, eval and bench on a file that was made by hand, so that every figure can be computed here."""

from __future__ import annotations

import math
import os
import pty
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cli_files
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_text import build
from PIL import Image

from nmpconv.base.sqnr import Sqnr, sqnr_db, top_k, top_k_rows
from nmpconv.cli import console, shared_flags
from nmpconv.errors import UsageError
from nmpconv.file.writer import to_bytes
from nmpconv.graph import reference
from nmpconv.runtime import benchmark, interpreter
from nmpconv.runtime.benchmark import Timing


def expected(path: Path) -> np.ndarray:
    """The hand-made model's scores of one image."""
    graph = cli_files.nmp_graph()
    pixels = np.asarray(Image.open(path)).astype(np.int16) - 128
    return reference.run(graph, {"x": pixels[np.newaxis].astype(np.int8)})["y"] * 0.25


def float_twin(*, softmax: bool) -> onnx.ModelProto:
    """The hand-made model in float, mean 127.5 and std 64 taken out of its weights again; a Softmax on top if asked."""
    graph = cli_files.nmp_graph()
    scale = np.ldexp(1.0, graph["w"].quant.exponents)[:, None, None, None]
    weights = graph["w"].data.transpose(0, 3, 1, 2) * scale * 64
    bias = graph["b"].data * 0.25 - weights.sum(axis=(1, 2, 3)) * (0.5 / 64)
    last = "[flatten] f = Flatten(c) [softmax] y = Softmax(f)" if softmax else "[flatten] y = Flatten(c)"
    text = f"(float[1,3,8,8] x) => (float[1,3] y) {{ [conv] c = Conv(x, w, b) {last} }}"
    return build(text, 13, arrays={"w": weights, "b": bias}, name="twin")


def test_run_names_the_classes(cli) -> None:
    ran = cli("run", "model.nmp", "images/00.png", "images/01.png", "--top", 2, "--json")
    assert (ran.code, ran.left) == (0, [])
    for sample, path in zip(ran.json["samples"], (Path("images/00.png"), Path("images/01.png")), strict=True):
        scores = expected(path).ravel()
        best = top_k(scores, 2)
        assert sample["file"] == str(path)
        assert sample["top"] == [{"class": i, "label": ("ant", "bee", "cat")[i], "score": scores[i]} for i in best]
    assert "bee" in cli("run", "model.nmp", "images/00.png").out


def test_the_best_class_alone_is_a_line_a_sample(cli) -> None:
    head, *lines = cli("run", "model.nmp", "images/00.png", "images/01.png", "--top", 1).out.splitlines()
    assert head.split() == ["sample", "class", "label", "score"]
    best = [(path, *top_k(expected(Path(path)).ravel(), 1)) for path in ("images/00.png", "images/01.png")]
    assert [line.split()[:3] for line in lines if line] == [[f, str(i), ("ant", "bee", "cat")[i]] for f, i in best]


@pytest.mark.parametrize(("flag", "dtype", "unit"), [((), np.float32, 0.25), (("--raw",), np.int8, 1)])
def test_run_writes_arrays(cli, flag: tuple[str, ...], dtype: type, unit: float) -> None:
    ran = cli("run", "model.nmp", "images", "-o", "all.npz", *flag)
    assert (ran.code, ran.left) == (0, ["all.npz"])
    found = np.load("all.npz")["y"]
    assert found.dtype == dtype
    paths = sorted(Path("images").glob("*.png"))
    np.testing.assert_array_equal(found * (0.25 / unit), np.concatenate([expected(path) for path in paths]))
    first = Path("all.npz").read_bytes()
    cli("run", "model.nmp", "images", "-o", "all.npz", *flag)
    assert Path("all.npz").read_bytes() == first


def test_eval_with_labels_only(cli) -> None:
    found = cli("eval", "model.nmp", "--data", "images/labels.csv", "--json").json
    ranked = [top_k(expected(Path(f"images/{i:02}.png")), 5) for i in range(8)]
    assert found["n"] == 8
    assert found["top1"] == 100 * sum(r[0] == i % 3 for i, r in enumerate(ranked)) / 8
    assert found["top5"] == 100
    assert (found["reference_top1"], found["agreement"], found["sqnr_db"]) == (None, None, None)
    assert found["labels"] is None


def test_eval_finds_labels_in_a_folder_and_says_so(cli) -> None:
    listed = cli("eval", "model.nmp", "--data", "images/labels.csv", "--json").json
    assert cli("eval", "model.nmp", "--data", "images", "--json").json == {**listed, "labels": "images/labels.csv"}
    shown = cli("eval", "model.nmp", "--data", "images").out
    assert "\nlabels   images/labels.csv\n" in shown
    assert "top-1" in shown and "top-5" not in shown  # of three classes
    Path("images/labels.csv").write_text("file,label\n00.png,1\n")
    found = cli("eval", "model.nmp", "--data", "images")
    assert "labels   images/labels.csv is not used: it has labels for 1 of 8 samples" in found.out
    assert found.out.startswith("verdict  int8, not measured: nothing to compare with\n")
    assert "hint: --reference MODEL.onnx, or a CSV" in found.out


def test_eval_takes_folders_one_a_class_for_labels(cli) -> None:
    classes = [int(line.split(",")[-1]) for line in Path("images/labels.csv").read_text().splitlines()[1:]]
    Path("model.nmp").write_bytes(to_bytes(replace(cli_files.nmp_graph(), labels=()), {}))
    listed = cli("eval", "model.nmp", "--data", "images", "--json").json
    for i, label in enumerate(classes):
        folder = Path("folders", ["ant", "bee", "cow"][label])
        folder.mkdir(parents=True, exist_ok=True)
        Path(f"images/{i:02}.png").rename(folder / f"{i:02}.png")
    found = cli("eval", "model.nmp", "--data", "folders", "--json").json
    assert (found["top1"], found["labels"]) == (listed["top1"], "the order of the folders")
    [warning] = found["warnings"]
    assert warning.endswith("in the order of their names: 0: ant, 1: bee, 2: cow")
    Path("folders/cow").rename("folders/ant/cow")
    odd = cli("eval", "model.nmp", "--data", "folders")
    assert "labels   none; the folders are not the classes: 2 for 3 classes" in odd.out


@pytest.mark.parametrize("softmax", [False, True])
def test_eval_against_a_reference(cli, softmax: bool) -> None:
    """The .nmp has no Softmax. Where the reference ends in one, the two outputs are what there is to compare."""
    onnx.save(float_twin(softmax=softmax), "twin.onnx")
    Path("images/labels.csv").unlink()
    found = cli("eval", "model.nmp", "--data", "images", "--reference", "twin.onnx", "--json").json
    assert found["agreement"] == 100
    assert found["top1"] is None
    assert (found["sqnr_db"] > 30) is not softmax
    assert found["outputs"] == [{"name": "y", "sqnr_db": found["sqnr_db"]}]


def test_eval_with_an_input_that_nobody_reads(cli) -> None:
    """Nor does the converted model have it; here a node that no output needs reads one."""
    model = cli_files.onnx_model()
    model.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT, [1, 3]))
    model.graph.input.append(helper.make_tensor_value_info("dead", TensorProto.FLOAT, [1, 3]))
    model.graph.node.append(helper.make_node("Neg", ["dead"], ["nothing"], "dead_end"))
    onnx.save(model, "model.onnx")
    assert cli("convert", "model.onnx", "--data", "images").code == 0
    found = cli("eval", "model.nmp", "--data", "images", "--reference", "model.onnx", "--json").json
    assert found["sqnr_db"] > 20


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_eval_with_an_input_of_another_type(cli, kind: int) -> None:
    model = cli_files.onnx_model()
    model.graph.input[0].type.tensor_type.elem_type = kind
    model.graph.input[0].name = "typed"
    model.graph.node.insert(0, helper.make_node("Cast", ["typed"], ["x"], "cast", to=TensorProto.FLOAT))
    onnx.save(model, "model.onnx")
    assert cli("convert", "model.onnx", "--data", "images").code == 0
    found = cli("eval", "model.nmp", "--data", "images", "--reference", "model.onnx", "--json").json
    assert found["sqnr_db"] > 20


def test_eval_counts_equal_indices(cli) -> None:
    """Indices have no distance. The reference of the second run has them permuted where class 0 is the best."""
    model = cli_files.onnx_model(softmax=False)
    del model.graph.node[-4:]
    model.graph.node.append(helper.make_node("ArgMax", ["r"], ["i"], "best", axis=1))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("i", TensorProto.INT64, [1, 1, 8, 8]))
    onnx.save(model, "model.onnx")
    assert cli("convert", "model.onnx", "--data", "images", "--bits", "16").code == 0
    ran = cli("eval", "model.nmp", "--data", "images", "--reference", "model.onnx", "--json")
    assert (ran.json["agreement"], ran.json["sqnr_db"]) == (None, None)
    [output] = ran.json["outputs"]
    assert output["name"] == "i"
    assert 99 < output["equal"] <= 100
    model.graph.node[-1].op_type = "ArgMin"
    onnx.save(model, "other.onnx")
    [other] = cli("eval", "model.nmp", "--data", "images", "--reference", "other.onnx", "--json").json["outputs"]
    assert other["equal"] < 50
    text = cli("eval", "model.nmp", "--data", "images", "--reference", "model.onnx").out
    assert f"equal    {output['equal']:.2f} % of the elements  i" in text
    assert re.match(r"verdict  keeps: int16 .*keeps (100|99\.\d) % of the elements on \d+ images", text)


def test_a_class_that_the_model_chooses_is_an_answer(cli) -> None:
    """Not a number with a distance, neither in a conversion's verdict nor in that of eval."""
    model = cli_files.onnx_model(softmax=False)
    model.graph.node[-1].CopyFrom(helper.make_node("ArgMax", ["logits"], ["y"], "best", axis=1, keepdims=0))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [1]))
    onnx.save(model, "model.onnx")
    converted = cli("convert", "model.onnx", "--data", "images", "--json").json
    assert converted["verdict"]["basis"] == "agreement" and converted["noise"]["shares"]
    Path("set.csv").write_text("".join(f"images/0{i}.png,{i % 3}\n" for i in range(6)))
    found = cli("eval", "model.nmp", "--data", "set.csv", "--reference", "model.onnx", "--json").json
    assert (found["n"], found["agreed"], found["top5"]) == (6, 6, None)
    assert found["top1"] == found["reference_top1"] and found["verdict"]["basis"] in ("agreement", "top1")


def test_eval_limit_and_offset(cli) -> None:
    Path("set.csv").write_text("file,label\nimages/00.png,-1\nimages/01.png,0\nimages/02.png,9\n")
    found = cli("eval", "model.nmp", "--data", "set.csv", "--limit", 2, "--label-offset", 1, "--json").json
    assert found["n"] == 2


def test_bench(cli) -> None:
    ran = cli("bench", "model.nmp", "--runs", 7, "--warmup", 1, "--json")
    found = ran.json
    assert (found["device"], found["cpu"], found["threads"], found["runs"]) == ("host", interpreter.cpus()[-1], 1, 7)
    latency = found["latency_ms"]
    assert 0 < latency["min"] <= latency["median"] <= latency["p90"] <= latency["max"]
    assert latency["min"] < 100  # of a small model
    assert [(op["name"], op["kind"], op["macs"]) for op in found["ops"]] == [
        ("n_c", "conv2d", 576),
        ("n_y", "reshape", 0),
    ]
    assert "measure: 7/7" in ran.err
    text = cli("bench", "model.nmp", "--runs", 7).out
    assert all(word in text for word in ("MAC/s", "median", "p90", "Latency", "#"))


def test_histogram_counts_every_run() -> None:
    timing = Timing((1.0, 1.0, 1.1, 1.2, 9.0), ())
    assert sum(count for _, _, count in timing.histogram(10)) == 5
    assert Timing((1.0, 1.0), ()).histogram(10) == [(1.0, 1.0, 2)]


def test_json_is_the_only_thing_on_stdout(cli) -> None:
    for command in (
        "inspect model.nmp",
        "run model.nmp images",
        "eval model.nmp --data images",
        "bench model.nmp --runs 2",
    ):
        ran = cli(*command.split(), "--json")
        assert ran.code == 0
        assert isinstance(ran.json, dict)


def test_interrupted(here: Path) -> None:
    command = [sys.executable, "-m", "nmpconv", "bench", "model.nmp", "--runs", "1000000"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "warm up: 3/3\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_terminal_gets_rich_tables_and_bars(here: Path) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "nmpconv", "eval", "model.nmp", "--data", "images/labels.csv"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=child, stderr=child, env=environment) as process:
        os.close(child)
        seen = b""
        while chunk := _read(parent):
            seen += chunk
    assert process.returncode == 0
    text = seen.decode()
    assert "evaluate" in text
    assert "━" in text  # the bar and the table's rule
    assert "─" in text
    assert "\x1b[" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_figures_for_people() -> None:
    assert [console.size(n) for n in (0, 999, 1000, 95_230, 3_410_000)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "95.2 kB",
        "3.41 MB",
    ]
    assert [console.scaled(n).strip() for n in (576, 999_600, 1.3e9, 4e12)] == ["576", "1.00 M", "1.30 G", "4.00 T"]
    assert [console.duration(s) for s in (2.4, 0.0341, 9.52e-6, 8.12e-7)] == ["2.40 s", "34.1 ms", "9.52 us", "812 ns"]
    assert [console.span(-7, -3), console.span(4, 4)] == ["-7..-3", "4"]
    assert [console.db(v) for v in (None, math.inf, 31.25)] == ["-", "exact", "31.2"]


def test_sources() -> None:
    assert shared_flags.sources(["a/b.csv"], "--data") == {"": Path("a/b.csv")}
    assert shared_flags.sources(["l=a", "r=b=c"], "--data") == {"l": Path("a"), "r": Path("b=c")}
    for wrong in (["a", "b"], ["a", "l=b"], ["l=a", "l=b"], ["l="]):
        with pytest.raises(UsageError):
            shared_flags.sources(wrong, "--data")


def test_compare() -> None:
    assert sqnr_db([3, 4], [3, 4]) == math.inf
    assert sqnr_db([0, 0], [1, 0]) == -math.inf
    assert sqnr_db([10, 0], [9, 0]) == pytest.approx(20)
    pieces = Sqnr()
    pieces.add([10], [9])
    pieces.add([[0]], [0])
    assert pieces.db == pytest.approx(20)
    assert top_k([1, 3, 3, 2], 3) == [1, 2, 3]
    assert top_k([-math.inf, math.nan, -math.inf, 1], 9) == [3, 0, 2, 1]
    rows = list(np.random.default_rng(3).integers(0, 6, (20, 1, 9)))
    for k in (1, 5, 9, 12):
        assert top_k_rows(rows, k) == [top_k(row, k) for row in rows]
        assert top_k_rows(rows, k) == [np.argsort(-row.ravel(), kind="stable")[:k].tolist() for row in rows]


@pytest.mark.parametrize(("seconds", "runs"), [(0.0, 1000), (0.01, 200), (9.0, 10)])
def test_runs_fit_into_two_seconds(seconds: float, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "_time", lambda *call: seconds)
    net: Any = SimpleNamespace(settled=True, reset=lambda: None, profile=lambda count: ())
    assert len(benchmark.measure(net, runs=None, warmup=0, sequences=[[[]]]).latencies) == runs
