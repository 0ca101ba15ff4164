"""Conventions of command line tools: help, exit codes, streams, colours, older names, errors for programs."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from nmpconv.cli import console, whole_app
from nmpconv.errors import ExitCode

COMMANDS = ("convert", "inspect", "report", "run", "eval", "bench", "compare", "bundle", "ops")
CONVERT = ("convert", "model.onnx", "--data", "images")


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command as a process of its own, whose streams are pipes."""
    command = [sys.executable, "-m", "nmpconv", *arguments]
    return subprocess.run(command, capture_output=True, check=False, env={**os.environ, **environment})


@pytest.mark.parametrize("command", [(), ("convert",), ("report",), ("device", "list")])
def test_h_is_help(cli, command: tuple[str, ...]) -> None:
    short, long = cli(*command, "-h"), cli(*command, "--help")
    assert (short.code, short.out) == (ExitCode.OK, long.out)
    assert "Usage: nmpconv" in short.out


def test_no_summary_of_a_command_is_cut(cli) -> None:
    for command in ((), ("device",)):
        summaries = re.findall(r"^  ([a-z]+)  +(.+)$", cli(*command, "-h").out.split("Commands:")[1], re.MULTILINE)
        assert len(summaries) >= 3
        assert [name for name, text in summaries if len(text) > 55 or text.endswith("...")] == []


def test_exit_codes_are_told(cli, root: Path) -> None:
    text = " ".join(cli("-h").out.split())
    assert all(f"{code.value} {code.meaning}" in text for code in ExitCode)
    rows = re.findall(r"^\| (\d) \|", (root / "docs" / "usage.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == [code.value for code in ExitCode]


def test_every_command_has_the_same_flags(cli) -> None:
    assert {command.name for command in whole_app().registered_commands} >= set(COMMANDS)
    for command in (*((name,) for name in COMMANDS), ("device", "list"), ("device", "info")):
        text = cli(*command, "-h").out
        assert [flag for flag in ("--quiet", "--verbose", "--no-color", "--json") if flag not in text] == [], command


def test_common_flags_come_first_and_those_of_experts_last(cli) -> None:
    text = cli("convert", "-h").out
    flags = re.findall(r"^  (?:-\w, )?--([\w-]+)", text, re.MULTILINE)
    last = ["method", "percentile", "per-tensor", "equalize", "rounding", "bias-correction", "bias-bits", "zero-points"]
    assert flags[:6] == ["output", "data", "limit", "max-pixels", "mean", "std"]
    assert [flag for flag in flags if flag in last] == last
    assert flags.index("json") < flags.index("method") < flags.index("quiet")
    shown = started("convert", "-h", FORCE_COLOR="1", COLUMNS="100").stdout.decode()
    panels = ["Calibration", "Image preprocessing", "Quantization", "Output", "For experts", "Messages"]
    assert sorted(panels, key=shown.index) == panels
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in shown.splitlines()) <= 100


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_help_cuts_no_words(cli, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """In panels, names that are too long for their column end in an ellipsis."""
    for variable, value in (("FORCE_COLOR", "1"), ("COLUMNS", str(columns)), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)
    for command in (*((name,) for name in COMMANDS), ("device", "list"), ("device", "info"), ("device", "build")):
        text = re.sub(r"\x1b\[[\d;]*m", "", cli(*command, "-h").out)
        assert "--verbose" in text and "…" not in text, command
        assert "<bool>" not in text, command  # flags take no value


def test_quiet_and_verbose(cli) -> None:
    plain, quiet, verbose = cli(*CONVERT), cli(*CONVERT, "-q"), cli(*CONVERT, "-v")
    assert plain.out == quiet.out == verbose.out
    assert "calibrate: 8/8\n" in plain.err
    assert quiet.err == ""
    assert re.search(r"calibrate: 8/8, [\d.]+ \w+\n", verbose.err)
    assert re.search(r"model.onnx: \d+ bytes, ", verbose.err)
    assert cli("-q", *CONVERT).err == ""
    assert cli(*CONVERT).err == plain.err
    assert "--quiet and --verbose" in cli(*CONVERT, "-q", "-v").err
    assert "error: gone.onnx" in cli("convert", "gone.onnx", "-q").err


@pytest.mark.slow
def test_colours(cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*flags: str, **environment: str) -> str:
        with monkeypatch.context() as own:
            own.delenv("NO_COLOR", raising=False)
            for name, value in {"TERM": "xterm", "FORCE_COLOR": "", **environment}.items():
                own.setenv(name, value)
            return cli("ops", *flags).out

    forced = started("ops", FORCE_COLOR="1", TERM="xterm").stdout.decode()
    assert shown(FORCE_COLOR="1") == forced
    plain = shown()
    assert all(shown(FORCE_COLOR=off) == plain for off in ("0", "false"))
    assert "\x1b[" not in plain
    assert "\x1b[1m" in forced
    assert "─" in forced  # a box
    for env, flags in (({"NO_COLOR": "1"}, ()), ({}, ("--no-color",))):
        assert re.search(r"\x1b\[[\d;]*3\dm", shown(*flags, FORCE_COLOR="1", **env)) is None
    assert shown("--no-color") == plain == started("ops").stdout.decode()


def test_completion_is_on(here: Path) -> None:
    asked = {"_NMPCONV_COMPLETE": "complete_bash", "COMP_WORDS": "nmpconv in", "COMP_CWORD": "1"}
    assert started(**asked).stdout.split() == [b"inspect", b"init"]
    assert b"--install-completion" in started("-h").stdout


def test_older_names_are_hidden_aliases(cli) -> None:
    ran = cli("convert", "model.onnx", "--calib", "images", "--calib-limit", 6, "--json")
    assert ran.code == 0
    new = cli("convert", "model.onnx", "--data", "images", "--limit", 6, "--json")
    assert ran.json == new.json
    assert cli("bench", "model.nmp", "--runs", 2, "--input", "images").code == 0
    assert all("--calib" not in cli(command, "-h").out for command in COMMANDS)


@pytest.mark.parametrize(
    ("command", "kind", "says"),
    [
        (("convert", "gone.onnx"), ExitCode.INPUT, {"where": "gone.onnx"}),
        (("convert", "model.onnx", "--bits", "12"), ExitCode.USAGE, {}),
        (("inspect", "model.onnx"), ExitCode.MODEL, {"where": "model.onnx"}),
        ((*CONVERT, "--mean", "1,2"), ExitCode.USAGE, {"where": "--mean"}),
        (("inspect",), ExitCode.USAGE, {}),
        (("ops", "--json", "--markdown"), ExitCode.USAGE, {}),
        (("device", "info", "sim:nothing"), ExitCode.USAGE, {}),
    ],
)
def test_json_has_the_error(cli, command: tuple[str, ...], kind: ExitCode, says: dict[str, str]) -> None:
    ran = cli(*command, "--json")
    assert ran.code == kind
    assert ran.json["schema"] == 1
    error: dict[str, Any] = ran.json["error"]
    assert (error["kind"], error["exit_code"]) == (kind.name.lower(), kind)
    assert error["message"] and error["message"].splitlines()[0] in ran.err
    assert {key: error[key] for key in says} == says


def test_json_has_every_node_that_is_refused(cli) -> None:
    import cli_files
    import onnx

    onnx.save(cli_files.onnx_model(extra="RandomNormalLike"), "model.onnx")
    error = cli(*CONVERT, "--json").json["error"]
    assert error["kind"] == "unsupported"
    assert [(row["node"], row["op"]) for row in error["nodes"]] == [("odd_one", "RandomNormalLike")]
    assert "--outputs logits" in error["hint"]


def test_a_bug_is_an_error_for_programs_too(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmpconv.file.reader.read", lambda source, **_: 1 / 0)
    ran = cli("inspect", "model.nmp", "--json")
    assert (ran.code, ran.json["error"]["kind"]) == (ExitCode.INTERNAL, "internal")
    assert "ZeroDivisionError" in ran.json["error"]["message"]


def test_models_from_stdin(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (
        ("inspect", "{}", "--json"),
        ("run", "{}", "images", "--json"),
        ("bundle", "{}", "--name", "net", "-o", "{}.c"),
    ):
        asked = [word.format("model.nmp") for word in command]
        named = cli(*asked)
        stdin(monkeypatch, Path("model.nmp").read_bytes())
        piped = cli(*[word.format("-") if word == "{}" else word.format("new") for word in command])
        assert (piped.code, named.code) == (0, 0), piped.err
        assert piped.out.replace('"-"', '"model.nmp"').replace("new.c", "model.nmp.c") == named.out
    stdin(monkeypatch, b"")
    assert "stdin: is empty" in cli("inspect", "-").err


def test_samples_from_stdin(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "images/00.png"
    picture = Path(path).read_bytes()
    named = cli("run", "model.nmp", path, "--json").json["samples"]
    stdin(monkeypatch, picture)
    found = cli("run", "model.nmp", "-", "--json").json["samples"]
    assert found == [{**named[0], "file": "-"}]
    pixels = io.BytesIO()
    np.save(pixels, np.zeros((2, 8, 8, 3), np.uint8))
    stdin(monkeypatch, pixels.getvalue())
    assert len(cli("run", "model.nmp", "x=-", "--json").json["samples"]) == 2
    assert "2 sources are stdin" in cli("run", "model.nmp", "-", "-").err
    stdin(monkeypatch, b"hello")
    assert cli("run", "model.nmp", "-").err.startswith("error: stdin: not a readable image")


@pytest.mark.slow
def test_files_to_stdout(here: Path) -> None:
    """The file on stdout, all that a person reads on stderr."""
    ran = started(*CONVERT, "-o", "-")
    assert ran.returncode == 0
    assert started(*CONVERT, "-o", "m.nmp").returncode == 0
    assert ran.stdout == Path("m.nmp").read_bytes()
    assert b"quantized" in ran.stderr
    arrays = np.load(io.BytesIO(started("run", "model.nmp", "images", "-o", "-").stdout))
    assert arrays["y"].shape == (8, 3)
    assert started("report", "model.nmp", "-o", "-").stdout.startswith(b"<!DOCTYPE html>")
    assert b"both want stdout" in started(*CONVERT, "-o", "-", "--json").stderr
    assert sorted(p.name for p in here.glob("*")) == ["images", "m.nmp", "model.nmp", "model.onnx"]


@pytest.mark.slow
def test_a_model_from_stdin_to_stdout(here: Path) -> None:
    command = [sys.executable, "-m", "nmpconv", "convert", "-", "--data", "images", "-o", "-", "-q"]
    ran = subprocess.run(command, input=Path("model.onnx").read_bytes(), capture_output=True, check=True)
    assert ran.stdout == started(*CONVERT, "-o", "-").stdout


@pytest.mark.parametrize("force", ["", "1"])
def test_a_broken_pipe_is_no_bug(here: Path, force: str) -> None:
    command = [sys.executable, "-m", "nmpconv", "ops"]
    environment = {**os.environ, "FORCE_COLOR": force, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.parametrize("name", ["/stage{}/Conv", "StatefulPartitionedCall_functional_1_activation_{}_Relu"])
def test_a_wide_table_is_in_parts_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Each with the names of the rows, which fold; no line is longer than the terminal, and no number is cut."""
    for variable, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "60"), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)
    columns = ["layer", *(f">column {i}" for i in range(9))]
    rows = [[name.format(r), *(str(10**8 * r + i) for i in range(1, 10))] for r in (1, 2)]
    console.table(columns, rows, title="wide")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 60
    assert sum("layer" in line for line in lines) == 3
    assert "".join(line.split()[0] for line in lines if line.strip()).count(name.format(2)) == 3
    assert all(any(cell in line for line in lines) for row in rows for cell in row[1:])
    assert sum("wide" in line for line in lines) == 1


def test_names_that_are_joined(cli) -> None:
    """TFLite's converter names a tensor by all that it made it of."""
    model = onnx.load("model.onnx")
    new = {"r": "net/relu/Relu;net/conv/BiasAdd;net/conv/Conv2D;net/conv/BiasAdd/ReadVariableOp/resource"}
    new |= {"g": "net/pool;net/conv/Conv2D1", "f": "net/pool;net/flat/Reshape", "logits": "net/fc;net/fc/BiasAdd"}
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [new.get(name, name) for name in names]
    onnx.save(model, "joined.onnx")
    converted = cli("convert", "joined.onnx", "--data", "images", "--strict", "-o", "joined.nmp")
    shown, found = cli("inspect", "joined.nmp"), cli("inspect", "joined.nmp", "--json").json
    assert set(new.values()) & {row["name"] for row in found["tensors"]} >= {new["r"], new["g"], new["logits"]}
    assert "% of the noise  net/fc;*\n" in converted.out
    assert re.search(r"^net/relu/Relu;\*  +int8 ", shown.out, re.MULTILINE)
    assert not any(new[name] in ran.out for name in ("r", "logits") for ran in (converted, shown))
    assert "dB  net/fc;*\n" in converted.out
    assert re.search(r"^net/pool;\*/Conv2D1 ", shown.out, re.MULTILINE)
    Path("r.toml").write_text('[tensors]\n"net/relu/Relu;*" = { bits = 16 }\n')
    again = cli("convert", "joined.onnx", "--data", "images", "--strict", "--recipe", "r.toml", "-o", "wide.nmp")
    assert again.code == 0
    types = {row["name"]: row["dtype"] for row in cli("inspect", "wide.nmp", "--json").json["tensors"]}
    assert types[new["r"]] == "int16"


def test_shortened_names_differ() -> None:
    expected = {"one": "one", "a;bb": "a;*", "b;c": "b;c", "b;c;e": "b;c;e"}
    expected |= {"c/x;d/y;e/z": "c/x;*/z", "c/x;d/y;e/z.transpose": "c/x;*.transpose", "c/x;d/y;e/w": "c/x;*/w"}
    assert console.shortened([*expected, "a;bb"]) == expected
    for name, text in expected.items():
        assert [other for other in expected if fnmatchcase(other, text)] == [name]


def test_too_little_memory_is_no_bug(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(source: object, **_: bool) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("nmpconv.file.reader.read", read)
    ran = cli("inspect", "model.nmp")
    assert ran.code == ExitCode.INPUT
    assert ran.err.startswith("error: there is not enough memory: Unable to allocate 9 GiB\nhint: ")
