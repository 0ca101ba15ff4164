"""`make models` without PyTorch: its list, one model through each step, limits, and the table."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_net import Net

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import models
import models_cost
from models import IMPORT, Exports, Files, Limits, Result, measure, run, saved
from models_export import described
from models_list import PACKAGES, Row, read

LIMITS = Limits(seconds=120, gib=8)
BLANK = Result("own.net", "old", "16", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With an ONNX model of two convolutions and one that ends in an op that no version of ONNX has."""
    rng = np.random.default_rng(3)
    for part in ("calib", "test"):
        np.save(tmp_path / f"timm.net.{part}.npy", rng.normal(size=(8, 2, 6, 6)).astype(np.float32))
    net = Net((1, 2, 6, 6))
    y = net.conv(net.add("Relu", net.conv("x", 4)), 3)
    onnx.save(net.model([y]), tmp_path / "timm.net_old.onnx")
    foreign = net.model([y])
    foreign.graph.node.append(onnx.helper.make_node("Mystery", [y], ["z"], domain="own"))
    foreign.graph.output[0].name = "z"
    foreign.opset_import.append(onnx.helper.make_opsetid("own", 1))
    onnx.save(foreign, tmp_path / "timm.net_new.onnx")
    return tmp_path


def files(folder: Path, exporter: str) -> Files:
    return Files(folder / f"timm.net_{exporter}.onnx", folder / "timm.net.calib.npy", folder / "timm.net.test.npy")


def test_the_list() -> None:
    rows = read()
    assert len(rows) >= 200
    assert {row.package for row in rows} == set(PACKAGES)
    assert all(row.side >= 32 and row.frames >= 0 for row in rows)
    assert all("-" in row.model for row in rows if row.package == "smp")


@pytest.mark.parametrize(
    ("line", "found"),
    [("timm resnet18", "not enough values"), ("keras resnet18 64", "'keras'"), ("timm resnet18 64 depth=x", "'x'")],
)
def test_a_line_that_is_no_row(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "models.txt"
    path.write_text(f"# comment\n{line}\n")
    with pytest.raises(ValueError, match=rf"models.txt:2: .*{found}"):
        read(path)


def test_a_row_that_is_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "models.txt"
    path.write_text("timm a 64\ntimm b 64 frames=8 img_size=64\ntimm a 32\n")
    with pytest.raises(ValueError, match=r"models\.txt:3: timm\.a is there twice"):
        read(path)
    path.write_text("timm b 64 frames=8 img_size=64 floor=10\n")
    assert read(path) == [Row("timm", "b", 64, 8, {"img_size": 64}, floor=10)]


@pytest.mark.slow
def test_steps_of_a_model(folder: Path) -> None:
    exports = Exports(Path("none"), folder, LIMITS)  # all files are there: no Python is needed
    results = list(run(Row("timm", "net", 32), "old", (IMPORT, "16", "8"), exports, LIMITS))
    assert [(r.step, r.outcome) for r in results] == [(IMPORT, "accepted"), ("16", "accepted"), ("8", "accepted")]
    blank, wide, narrow = (r.worst for r in results)
    assert blank is None and wide is not None and narrow is not None
    assert wide > 60 > narrow > 20
    assert [(r.nodes, r.mib > 50) for r in results[1:]] == [(4, True)] * 2  # with two transposes


def test_what_the_hint_leaves_is_converted(folder: Path) -> None:
    result = measure(files(folder, "new"), IMPORT, BLANK, LIMITS)
    assert (result.outcome, result.outputs) == ("cut", ["t2"])
    assert "Mystery" in result.reason


def test_one_recipe(folder: Path) -> None:
    result = measure(files(folder, "old"), "8", BLANK, Limits(seconds=120, gib=8, one_recipe=True))
    assert (result.outcome, result.recipe) == ("accepted", "equalize none, nearest rounding")
    assert result.worst is not None and result.worst > 20


def test_limits(folder: Path) -> None:
    result = measure(files(folder, "old"), "16", BLANK, Limits(seconds=0.0, gib=8))
    assert (result.outcome, result.reason) == ("crashed", "the time limit")
    result = measure(files(folder, "old"), "16", BLANK, Limits(seconds=120, gib=1e-3))
    assert result.outcome == "crashed"


@pytest.mark.slow
def test_an_exporter_that_cannot_be_run_for_a_model(folder: Path) -> None:
    exports = Exports(Path(sys.executable), folder, LIMITS)  # an environment without PyTorch
    result = next(run(Row("timm", "missing", 32), "old", ("16",), exports, LIMITS))
    assert (result.outcome, result.reason) == ("no export", "the exporter's process ended with 1")
    assert "torch" in (folder / "export.log").read_text()


def test_a_step_that_was_done_again(tmp_path: Path) -> None:
    """Figures that came after it the last time count no longer."""
    done = [Result("b", "old", "16", "accepted"), Result("a", "new", "16", "accepted", sqnr={"y": 60.0})]
    done += [Result("a", "new", "8", "crashed"), Result("a", "new", IMPORT, "refused")]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(asdict(r)) + "\n" for r in done))
    assert saved(path) == [done[3], done[0]]
    path.write_text("".join(json.dumps(asdict(r)) + "\n" for r in done[:3]))
    assert saved(path) == [done[1], done[2], done[0]]
    assert saved(tmp_path / "none") == []


def test_table() -> None:
    rows = [
        Result("a", "new", "16", "cut", "Loop: no such op", sqnr={"y": 40.0}, costliest="c (conv2d, 9.0 dB)"),
        Result("a", "old", "16", "accepted", sqnr={"y": 71.24, "z": 60.0}, seconds=2.0, mib=300),
        Result("a", "old", "8", "accepted", sqnr={"y": 30.0}, seconds=1.0, mib=310),
        Result("b", "old", "16", "refused", "Mod: a | b"),
    ]
    lines = models.table(rows).splitlines()
    assert lines[3] == "| a | old | accepted | 60.0 | 30.0 | 3 | 310 |"
    assert lines[2] == "| a | new | cut: Loop: no such op; most is lost at c (conv2d, 9.0 dB) | 40.0 | - | 0 | 0 |"
    assert "refused: Mod: a \\| b" in lines[4]
    assert lines[-3:] == [
        "new: 1 models, 1 cut",
        "old: 2 models, 1 accepted, 1 refused",
        "1 have less than 45 dB at 16 bits",
    ]


def test_a_model_whose_output_is_classes(folder: Path) -> None:
    net = Net((1, 2, 6, 6))
    model = net.model([net.add("ArgMax", net.conv("x", 3), axis=1)])
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(model, folder / "timm.net_new.onnx")
    result = measure(files(folder, "new"), "16", BLANK, LIMITS)
    assert result.sqnr == {} and 99 < min(result.equal.values()) <= 100
    assert "| own.net | old | accepted | 100.0 % | - |" in models.table([result])


def test_the_reason_of_a_failed_export() -> None:
    """The first error of a chain, its first line."""
    first, last = ValueError("no such op\nand more"), RuntimeError("failed to convert")
    last.__cause__ = first
    assert described(last) == "ValueError: no such op"
    assert described(KeyError()) == "KeyError: "


def test_what_a_kept_file_takes(folder: Path) -> None:
    exports = Exports(Path("none"), folder, LIMITS, keep=True)
    [result] = run(Row("timm", "net", 32), "old", ("16",), exports, LIMITS)
    path = folder / "timm.net_old.16.nmp"
    found = models_cost.Cost(1e-3, None, models_cost.needs(path.read_bytes(), "cortex-m4").arena, path.stat().st_size)
    assert 6 * 6 * 4 * 2 < found.arena < found.size < 10_000
    assert models_cost.cells(found, result.worst)[:3] == [f"{result.worst:.1f}", "1.00", "-"]


def test_room_of_the_board() -> None:
    assert models_cost.room() == (16 << 20, 4032 << 10)
