"""Commands that need neither the converter nor the interpreter: inspect, ops, help and version."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import cli_files
import nets
import numpy as np
import pytest
from onnx_text import build

from nmpconv import __version__
from nmpconv.cli import console, inspect
from nmpconv.file.writer import to_bytes
from nmpconv.frontend.onnx import load
from nmpconv.ir import Node
from nmpconv.ops import OPS
from nmpconv.ops.op import Op
from nmpconv.runtime.targets import MICROCONTROLLERS


def test_inspect_json(cli) -> None:
    ran = cli("inspect", "model.nmp", "--json")
    assert (ran.code, ran.err, ran.left) == (0, "", [])
    found = ran.json
    assert found["format_version"] == "1.0"
    assert found["arena_bytes"] == 208
    assert found["weights_bytes"] == 3 * 8 * 8 * 3 + 3
    assert found["metadata"]["producer"] == "a test"
    assert [op["kind"] for op in found["ops"]] == ["conv2d", "reshape"]
    assert found["inputs"][0]["source_shape"] == [1, 3, 8, 8]
    assert found["inputs"][0]["preprocess"]["mean"] == [127.5]
    tensors = {tensor["name"]: tensor for tensor in found["tensors"]}
    assert tensors["w"]["exponent"] == [-13, -14, -13]
    assert tensors["c"] == {
        "name": "c",
        "dtype": "int8",
        "shape": [1, 1, 1, 3],
        "exponent": -2,
        "float_exponent": -2,
        "origin": 0.0,
        "axis": None,
        "clip_min": -128,
        "clip_max": 127,
        "observed_min": -20.0,
        "observed_max": 21.5,
        "calibration": "mse",
        "constant": False,
        "offset": 192,
        "bytes": 3,
        "short": "c",
    }
    assert tensors["x"]["calibration"] is None
    assert tensors["x"]["observed_min"] is None


def test_inspect_text(cli) -> None:
    ran = cli("inspect", "model.nmp", "--tensors")
    assert ran.code == 0
    for text in (
        "hand-made",
        "pixel - 128",
        "mean 127.5, std 64",
        "-14..-13",
        "-20..21.5",
        "Memory map",
        "3: ant, bee, cat",
    ):
        assert text in ran.out


def test_memory_names_the_step_of_the_peak(cli) -> None:
    found = cli("inspect", "model.nmp", "--json").json["memory"]
    assert (found["arena_bytes"], found["lower_bound"], found["peak"]) == (208, 195, 0)
    assert [step["live"] for step in found["steps"]] == [["x", "c"], ["c", "y"]]
    assert [step["live_bytes"] for step in found["steps"]] == [195, 3]
    assert found["tensors"][2] == {"tensor": "y", "offset": 192, "bytes": 3, "first": 1, "last": 2, "over": "c"}
    assert found["steps"][0]["scratch"] == 8 * 8 * 8 * 3  # eight patches, on the hungriest target
    ran = cli("inspect", "model.nmp", "--memory")
    assert "step 0, conv2d n_c: 195 B are alive" in ran.out
    rows = {line.split()[2]: line for line in ran.out.splitlines() if line.strip()[:1].isdigit()}
    assert rows["x"].endswith(" rrr...")
    assert rows["c"].endswith(" WWWrrr")
    assert rows["y"].endswith(" ...@@@")
    assert ran.out.count("<- peak") == 1
    assert max(map(len, ran.out.splitlines())) <= 100


def test_memory_of_many_steps_is_drawn_in_pages(cli) -> None:
    graph = cli_files.nmp_graph()
    first, last, steps = graph.values["c"], graph.values["y"], 150
    values = {f"v{i}": replace(first, name=f"v{i}") for i in range(steps)}
    chain = [first.name, *values]
    nodes = [Node("requantize", b, (a,), (b,), OPS["requantize"].Params()) for a, b in pairwise(chain)]
    end = replace(graph.nodes[1], inputs=(chain[-1],))
    long = replace(graph, nodes=(graph.nodes[0], *nodes, end), values={**graph.values, **values, last.name: last})
    Path("model.nmp").write_bytes(to_bytes(long, {}))
    ran = cli("inspect", "model.nmp", "--memory")
    assert ran.out.count("offset   bytes  tensor") == 3
    assert max(map(len, ran.out.splitlines())) <= 100


def test_text_in_a_pipe_is_plain_and_whole(cli) -> None:
    long = "a_tensor_name_of_an_exporter/" * 8
    Path("model.nmp").write_bytes(cli_files.nmp_bytes(name=long))
    ran = cli("inspect", "model.nmp")
    assert long in ran.out
    assert ran.out.isascii()
    assert "\x1b" not in ran.out
    assert all(row == row.rstrip() for row in ran.out.splitlines())


def test_a_file_cannot_steer_the_terminal(cli) -> None:
    Path("model.nmp").write_bytes(cli_files.nmp_bytes(name="\x1b[2Jgone", labels=("a\x07", "b", "c")))
    ran = cli("inspect", "model.nmp")
    assert "\x1b" not in ran.out
    assert "\\x1b[2Jgone" in ran.out
    assert "\x07" not in ran.out


def test_ops(cli) -> None:
    table, markdown, data = cli("ops"), cli("ops", "--markdown"), cli("ops", "--json")
    assert max(len(line) for line in table.out.splitlines() if not line.startswith("(")) < 400  # but for the last rows
    for name in OPS:
        assert f"\n{name} " in table.out
        assert f"| {name} |" in markdown.out
    assert [row["op"] for row in data.json["ops"]] == list(OPS)
    assert [row["op"] for row in data.json["ops"] if not (row["int8"] and row["int16"])] == ["conv_add"]


def test_ops_page(cli, root: Path, bless: bool) -> None:
    """OPS.md has the table as the command prints it."""
    path = root / "OPS.md"
    before, mark, rest = path.read_text(encoding="utf-8").partition("| op |")
    _, end, after = rest.partition("\n\n")
    table = cli("ops", "--markdown").out.rstrip("\n")
    if bless:
        path.write_text(before + table + end + after, encoding="utf-8")
    assert mark + rest.partition(end)[0] == table or bless, "pytest tests/cli -k ops_page --bless writes it anew"


BY_ANOTHER_OP = {
    "minimum": {"Min": "y = Min(a, b)", "And": "c = Greater(a, b) d = Greater(b, z) y = And(c, d)"},
    "maximum": {
        "Max": "y = Max(a, b)",
        "Or": "c = Greater(a, b) d = Greater(b, z) y = Or(c, d)",
        "PRelu": "y = PRelu(a, slopes)",
    },
    "batch_matmul": {"MatMul": "y = MatMul(a, b)", "Gemm": "y = Gemm(a, b)"},
}


@pytest.mark.parametrize("op", [op for op in OPS.values() if not op.onnx], ids=lambda op: op.name)
def test_ops_of_no_operator_say_where_they_come_from(cli, op: Op, root: Path, tmp_path: Path) -> None:
    [row] = [line for line in cli("ops").out.splitlines() if line.startswith(f"{op.name} ")]
    assert row.endswith(f" ({op.source})") and op.source
    words = set(re.findall(r"\b[A-Z]\w+", op.source))
    assert words == set(BY_ANOTHER_OP.get(op.name, ()))
    for nodes in BY_ANOTHER_OP.get(op.name, {}).values():
        kind = "bool" if "Greater" in nodes else "float"
        text = f"(float[4,4] a, float[4,4] b, float[4,4] z) => ({kind}[4,4] y) {{ {nodes} }}"
        build(text, 17, tmp_path / "m.onnx", arrays={"slopes": np.array([0.1, 0.2, 0.3, 0.4])})
        assert op.name in {node.op for node in load(tmp_path / "m.onnx").nodes}, nodes
    if op.source.startswith("pass "):
        name = op.source.split()[1].rstrip(":")
        assert list((root / "nmpconv" / "passes").rglob(f"{name}.py")), name


def test_version(cli) -> None:
    assert cli("--version").out == f"nmpconv {__version__}\n"


@pytest.mark.parametrize("command", ["convert", "inspect", "run", "eval", "bench", "ops"])
def test_help_has_examples(cli, command: str) -> None:
    ran = cli(command, "--help")
    assert ran.code == 0
    assert f"nmpconv {command}" in ran.out.partition("Examples")[2]


def test_no_command_shows_the_help(cli) -> None:
    ran = cli()
    assert "convert" in ran.out + ran.err
    assert ran.code == 2


def test_metadata_cannot_steer_a_terminal(cli) -> None:
    Path("m.nmp").write_bytes(to_bytes(cli_files.nmp_graph(), {"a\x1b[2J": "b\x1b]0;c\x07"}))
    ran = cli("inspect", "m.nmp")
    assert ran.code == 0 and r"a\x1b[2J" in ran.out
    assert "\x1b" not in ran.out and "\x07" not in ran.out


def test_metadata_are_read_by_people(cli) -> None:
    """A JSON object is shown as its entries that say something."""
    config = '{"bits": "8", "audio": null, "state": [], "bias_correction": true, "shape": {"x": [1, 3]}, "max_ram": 0}'
    deep = "[" * 100_000 + "]" * 100_000
    texts = {"config": config, "note": "[1, 2]", "wrong": "{", "deep": deep}
    Path("m.nmp").write_bytes(to_bytes(cli_files.nmp_graph(), texts))
    shown = cli("inspect", "m.nmp").out.splitlines()
    assert any(line.split() == ["deep", deep] for line in shown)
    assert [line.split(None, 1)[1] for line in shown if line.startswith(("config", "note", "wrong"))] == [
        'bits 8, bias_correction, shape {"x": [1, 3]}',
        "[1, 2]",
        "{",
    ]
    assert config in cli("inspect", "m.nmp", "-v").out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_titles_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    console.table(("file",), [["x" * 40]], title="[/x]\x07.png")
    assert r"[/x]\x07.png" in terminal.getvalue()


def test_memory_of_models_in_turns(cli) -> None:
    """One arena of the largest; handles and states of all; the sum of what is flashed."""
    names = ["model.nmp", "step.nmp"]
    Path("step.nmp").write_bytes(nets.running_sum())
    apart = [next(r for r in cli("inspect", name, "--json").json["ram"] if r["target"] == "rv32") for name in names]
    found = cli("inspect", *names, "--memory", "--target", "rv32", "--json").json
    assert found["models"] == names
    (rv32,) = found["together"]
    assert rv32["target"] == "rv32" and rv32["interpreter"] == [17, 42]
    assert [one["arena_bytes"] for one in rv32["models"]] == [row["arena"] for row in apart]
    assert rv32["arena_bytes"] == max(row["arena"] for row in apart)
    assert rv32["apart_bytes"] == sum(row["arena"] for row in apart)
    states = sum(t["bytes"] for t in cli("inspect", "step.nmp", "--json").json["tensors"] if t["name"] == "s")
    assert [one["state_bytes"] for one in rv32["models"]] == [0, states] and states > 0
    assert [one["suspended_bytes"] for one in rv32["models"]] == [80, 80 + states]
    assert rv32["flash_bytes"] == sum(Path(name).stat().st_size for name in names)
    every = cli("inspect", *names, "--memory", "--json").json["together"]
    assert [one["target"] for one in every] == [None, *MICROCONTROLLERS]
    assert every[0]["arena_bytes"] == cli("bundle", *names, "-o", "c", "--json").json["arena_bytes"]
    told = cli("inspect", *names, "--memory").out
    together = f"{every[0]['arena_bytes'] + every[0]['suspended_bytes']} B: the arena, and what is suspended"
    assert together in told and "conv2d" in told and "on the hungriest target" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "2 files; --memory alone is about several"),
        (("--memory", "--tensors"), "2 files; --memory alone is about several"),
        (("--memory", "--target", "host"), "on this machine each model has an arena of its own"),
    ],
)
def test_several_models_are_refused(cli, words, message: str) -> None:
    Path("b.nmp").write_bytes(Path("model.nmp").read_bytes())
    ran = cli("inspect", "model.nmp", "b.nmp", *words)
    assert ran.code == 2 and message in ran.err


def test_a_damaged_model_among_several_is_named(cli) -> None:
    Path("cut.nmp").write_bytes(Path("model.nmp").read_bytes()[:-8])
    ran = cli("inspect", "model.nmp", "cut.nmp", "--memory")
    assert ran.code == 7 and "cut.nmp: " in ran.err


@pytest.mark.parametrize(
    ("offset", "size", "arena", "picture"),
    [(0, 16, 32, "#" * 16 + "." * 16), (16, 16, 32, "." * 16 + "#" * 16), (0, 0, 0, "#" + "." * 31),
     (1008, 16, 1024, "." * 31 + "#"), (1024, 16, 1024, "." * 31 + "#")],
)  # fmt: skip
def test_pictures_of_places(offset: int, size: int, arena: int, picture: str) -> None:
    tensor = SimpleNamespace(offset=offset, nbytes=size)
    assert inspect._place(tensor, arena) == picture  # type: ignore[arg-type]
