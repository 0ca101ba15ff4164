"""On a terminal of few columns nothing runs over the edge, and nothing is lost."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cli_files
import onnx
import pytest

import nmpconv
from nmpconv.cli import console
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Node
from nmpconv.ops import OPS

LONG = "StatefulPartitionedCall/net/stage_{}/activation/Relu;functional/conv_{}/BiasAdd;functional/conv_{}/Conv2D"
NUMBER = re.compile(r"(?<![\w/.])[+-]?\d[\d.]*(?: [%kM])?(?![\w/])")


@pytest.fixture
def terminal(cli, monkeypatch: pytest.MonkeyPatch):
    """terminal(columns, *words): the lines that a command shows there."""
    for variable, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)

    def shown(columns: int, *words: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        return re.sub(r"\x1b\[[0-9;]*m", "", cli(*words).out).splitlines()

    return shown


def test_wide_characters_lose_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for variable, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "40"), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)
    label = "エンコーダ第二段畳み込み層その一二三四五六七八"
    console.table(("class", ">score"), [[label, "28.7"]])
    assert label in "".join(re.findall(r"[^\x00-\x7f─]", capsys.readouterr().out))


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_numbers_with_units_fit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns) -> None:
    """A cell such as "0.00 %" or "498 k", and a name such as "own dB", is one word to the reader."""
    for variable, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", str(columns)), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)
    heads = ("layer", "op", ">MACs", ">clipped", ">own dB", ">of all", "in the ONNX model", "fed with")
    rows = [
        [LONG.format(i, i, i), "fully_connected", "498 k", "10.00 %", "43.5", f"{i} %", "1x3x224x224", "one two " * 9]
        for i in range(3)
    ]
    console.table(heads, rows, title="a title that is longer than the table" * 2)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= columns
    assert all(sum(cell in line for line in lines) >= 3 for cell in ("498 k", "10.00 %", "43.5"))


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_no_word_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns) -> None:
    """A cell goes on in the next line behind a separator of its name, or loses the middle of a part."""
    for variable, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", str(columns)), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(console.Talk, "verbose", True)  # whole names
    console.table(("name", "op", ">dB", "fed with"), [[LONG.format(1, 2, 3), "conv2d", "9.9", "(pixel - mean) / std"]])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    for part in re.findall(r"[^/_.:;]+", LONG.format(1, 2, 3)):
        assert part in shown or (part[:4] in shown and "…" in shown)
    assert "(pixel" in shown and "mean)" in shown


def test_a_title_is_as_wide_as_the_terminal(terminal) -> None:
    """Not as wide as its table."""
    Path("images").rename("images_of_a_long_name")
    [title] = [line for line in terminal(60, "run", "model.nmp", "images_of_a_long_name/00.png") if "images" in line]
    assert title.strip() == "images_of_a_long_name/00.png"


@pytest.mark.parametrize("flags", [(), ("--tensors", "--target", "cortex-m4"), ("--memory",)])
def test_inspect_on_narrow_terminals(terminal, flags: tuple[str, ...]) -> None:
    """With the names of TFLite's converter: each number of a wide terminal is on the narrow one."""
    graph, steps = cli_files.nmp_graph(), 20
    values = {name: replace(graph.values["c"], name=name) for name in (LONG.format(*[i] * 3) for i in range(steps))}
    nodes = [Node("requantize", b, (a,), (b,), OPS["requantize"].Params()) for a, b in pairwise(["c", *values])]
    end = replace(graph.nodes[1], inputs=(nodes[-1].name,))
    long = replace(graph, nodes=(graph.nodes[0], *nodes, end), values={**graph.values, **values})
    Path("model.nmp").write_bytes(to_bytes(long, {}))
    wide = numbers(terminal(250, "inspect", "model.nmp", *flags))
    for columns in (40, 60, 80):
        lines = terminal(columns, "inspect", "model.nmp", *flags)
        prose = [line for line in lines if line.startswith("Memory plan") or line.count(" ") < 2]
        assert max(len(line) for line in lines if line not in prose) <= columns
        assert not wide - numbers(lines)


def test_a_digest_is_abbreviated(terminal, cli) -> None:
    """It is cut where the terminal is narrower, stands below inputs and ops, and breaks no number of a picture."""
    mean = "123.675/116.28/103.53"
    flags = ("--mean", mean.replace("/", ","), "--std", "60", "--fast")
    assert cli("convert", "model.onnx", "--data", "images", "-o", "c.nmp", *flags).code == 0
    digest = cli("inspect", "c.nmp", "--json").json["metadata"]["source_sha256"]
    for columns, shown in ((40, f"{digest[:16]}..."), (60, f"{digest[:16]}..."), (80, digest)):
        lines = terminal(columns, "inspect", "c.nmp")
        [(at, line)] = [(i, line) for i, line in enumerate(lines) if line.startswith("source_sha256")]
        assert line.split()[1] == shown
        assert at > lines.index("Memory map")
        assert sum(mean in line for line in lines) == 1
        assert max(map(len, lines)) <= columns


def test_talk_keeps_words_whole(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """On a terminal; elsewhere a message is one line."""
    text = "warning: the float model tells images apart better with, for example, --mean 123.675,116.28,103.53"
    console.say(text)
    monkeypatch.setattr("os.get_terminal_size", lambda _fd: os.terminal_size((40, 24)))
    console.say(text)
    whole, *lines = capfd.readouterr().err.splitlines()
    assert whole == " ".join(lines) == text
    assert max(map(len, lines)) <= 40


def with_long_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with names of TFLite's converter inside."""
    kept, names = {port.name for port in (*model.graph.input, *model.graph.output)}, {}
    for i, node in enumerate(model.graph.node):
        node.name = LONG.format(i, i, i) + "/node"
        for field in (node.input, node.output):
            field[:] = [
                name if name in kept else names.setdefault(name, LONG.format(*[len(names)] * 3)) for name in field
            ]
    for one in model.graph.initializer:
        one.name = names[one.name]
    del model.graph.value_info[:]
    return model


@pytest.mark.slow
def test_bisect_on_narrow_terminals(terminal, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bisected once, shown at each width."""
    onnx.save(with_long_names(onnx.load("model.onnx")), "model.onnx")
    assert cli("convert", "model.onnx", "--data", "images", "-o", "c.nmp", "--rounding", "nearest").code == 0
    found = nmpconv.bisect(Path("model.onnx"), Path("c.nmp"), {"": Path("images")}, output=Path("found"))
    assert found.levers
    monkeypatch.setattr(nmpconv, "bisect", lambda *_, **__: found)
    words = ("bisect", "model.onnx", "c.nmp", "--data", "images", "-o")
    wide = numbers(terminal(250, *words, "at250"))
    for columns in (40, 60, 80):
        lines = terminal(columns, *words, f"at{columns}")
        assert max(map(len, lines)) <= columns
        assert not wide - numbers(lines)


def test_figures_stay_with_their_units(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for variable, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)
    text = "keeps 100 % of 20 answers (84 to 100 %), 49.6 kB RAM, 4.61 M steps, worst 26.6 dB: a.jpg in 3 seconds"
    for columns in range(24, 90):
        monkeypatch.setenv("COLUMNS", str(columns))
        console.facts([("verdict", text)])
        lines = [line[9:] for line in capsys.readouterr().out.splitlines() if line]
        assert " ".join(lines) == text
        assert not [line for line in lines if line.startswith(("%", "dB", "kB", "M "))]


def test_talk_without_a_stderr_is_left_out(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """As under pythonw."""
    monkeypatch.setattr(console.sys, "stderr", None)
    console.say("talk")
    with console.progress() as report:
        report("stage", 1, 1)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("rows", [4, 5])
def test_a_verdict_out_of_sight_comes_again(terminal, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Five layers on a terminal of so many rows."""
    monkeypatch.setenv("LINES", str(rows))
    lines = terminal(80, "convert", "model.onnx", "--data", "images", "-o", "c.nmp", "--fast")
    assert sum(line.startswith("verdict") for line in lines) == (2 if rows < 5 else 1)


@pytest.mark.parametrize("words", [(), ("device",)])
def test_summaries_of_commands_are_whole(terminal, words: tuple[str, ...]) -> None:
    for columns in (60, 80):
        lines = terminal(columns, *words, "--help")
        assert max(map(len, lines)) <= columns
        assert not [line for line in lines[1:] if line.endswith("...")]  # the first one shows how to call it


@pytest.mark.parametrize("command", ["bundle", "report"])
def test_short_answers_on_narrow_terminals(terminal, command: str) -> None:
    for columns in (40, 60, 80):
        lines = terminal(columns, command, "model.nmp", "-o", f"at{columns}")
        assert 0 < max(map(len, lines)) <= columns


def numbers(lines: list[str]) -> Counter[str]:
    """But not the levels of the memory's picture, a digit a step, which goes on in pages."""
    return Counter(number for line in lines if "in % of the arena" not in line for number in NUMBER.findall(line))
