"""convert --bits auto: the goal is met with little, the same way every time, and after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nmpconv.errors import ExitCode
from nmpconv.file.reader import read

CONVERT = ("convert", "model.onnx", "--data", "images/labels.csv")
SAMPLE = Path(__file__).parents[2] / "samples" / "shapes"
SHAPES = ("convert", SAMPLE / "model.onnx", "--data", SAMPLE / "calib", "--limit", 40, "--equalize", "vector")
SHAPES += ("--rounding", "gptq", "--std", 64, "--mean", 128)
KILLED = """
import os, signal, sys
from nmpconv import cli
from nmpconv.conversion.mixed_precision import Journal
put = Journal.put
def dies(self, wide, measured):
    put(self, wide, measured)
    os.kill(os.getpid(), signal.SIGKILL)
Journal.put = dies
cli.main(sys.argv[1:])
"""


def score(ran) -> float:
    return ran.json["held_out"]["db"]


def test_nothing_is_wide_without_need(cli) -> None:
    cli(*CONVERT)
    plain = Path("model.nmp").read_bytes()
    for goal in ("sqnr=20", "agreement=60"):
        ran = cli(*CONVERT, "--bits", "auto", "--goal", goal, "-o", "auto.nmp")
        assert (ran.code, ran.left) == (0, ["auto.nmp"])
        assert Path("auto.nmp").read_bytes() == plain
        Path("auto.nmp").unlink()


@pytest.mark.slow
def test_instructions_are_those_of_the_target(cli) -> None:
    """The estimates of the file that was written, and of the same with the lever."""
    budget = ("--bits", "auto", "--budget", "instructions=+8%", "--target", "cortex-m55")
    ran = cli(*SHAPES, *budget, "--json")
    (taken,) = (one for one in ran.json["front"] if one["taken"])
    told = cli("inspect", "model.nmp", "--target", "cortex-m55", "--json").json["estimated_instructions"]
    assert [(one["target"], one["total"]) for one in told] == [("cortex-m55", taken["instructions"])]
    base = cli(*SHAPES, "--bits", "8", "--strict", "-o", "strict.nmp", "--target", "cortex-m55", "--json")
    assert base.code == 0
    (narrow,) = cli("inspect", "strict.nmp", "--target", "cortex-m55", "--json").json["estimated_instructions"]
    assert sum(narrow["ops"]) == narrow["total"] <= taken["instructions"]
    assert "estimated" in cli("inspect", "model.nmp", "--target", "cortex-m55").out


@pytest.mark.slow
def test_a_goal_widens_what_it_needs(cli) -> None:
    base = score(cli(*SHAPES, "--json"))
    goal = ("--bits", "auto", "--goal", f"sqnr={base + 2:.1f}")
    ran = cli(*SHAPES, *goal, "--save-recipe", "r.toml", "--json")
    assert (ran.code, ran.left) == (0, ["model.nmp", "r.toml"])
    assert score(ran) >= base + 2
    taken = next(one for one in ran.json["front"] if one["taken"])
    assert taken["wide"]
    assert taken["flash"] == Path("model.nmp").stat().st_size
    assert taken["ram"] == ran.json["arena_bytes"]
    types = {t.name: t.dtype for t in read(Path("model.nmp")).tensors}
    assert {types[name] for name in taken["wide"]} == {"int16"}
    first = Path("model.nmp").read_bytes()
    assert cli(*SHAPES, "--recipe", "r.toml", "-o", "again.nmp").code == 0
    assert Path("again.nmp").read_bytes() == first

    # Killed after the first candidate: what was measured is not measured again, and the file is the same.
    Path("model.nmp").unlink()
    killed = subprocess.run([sys.executable, "-c", KILLED, *map(str, SHAPES), *goal], capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert not Path("model.nmp").exists()
    assert len(json.loads(Path("model.nmp.auto.json").read_text())["measured"]) == 1
    text = cli(*SHAPES, *goal)
    assert Path("model.nmp").read_bytes() == first
    assert not Path("model.nmp.auto.json").exists()
    assert "Candidates (* is taken" in text.out


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--bits", "auto"), "--bits auto needs a goal or a budget"),
        (("--goal", "sqnr=30"), "a goal and a budget are for --bits auto"),
        (("--bits", "auto", "--goal", "best"), "'best' is not allowed; allowed: sqnr=30"),
        (("--bits", "auto", "--budget", "ram=lots"), "'ram=lots' is not allowed; allowed: bytes, such as"),
        (("--bits", "auto", "--budget", "rom=1k"), "'rom=1k' is not allowed; allowed: instructions=+10%"),
        (("--bits", "auto", "--budget", "ram=1k,ram=2k"), "two budgets of ram"),
        (("--bits", "auto", "--budget", "instructions=+5%"), "a budget of instructions needs a microcontroller"),
        (
            ("--bits", "auto", "--budget", "instructions=+5%", "--target", "host"),
            "--target cortex-m0plus, cortex-m3, cortex-m4, cortex-m55, rv32",
        ),
        (("--bits", "auto", "--budget", "instructions=9", "--target", "rv32"), "at 8 bits already, 9 allowed"),
        (("--bits", "auto", "--budget", "ram=100"), "at 8 bits already, 100 allowed"),
        (("--bits", "auto", "--goal", "top1-drop=1"), "the labels do not fit: the float model is right on"),
        (("--bits", "auto", "--goal", "sqnr=30", "--limit", "4"), "needs images to measure on: at least 6"),
        (("--bits", "auto", "--goal", "top1-drop=1", "--data", "images"), "top1-drop needs labels"),
    ],
)
def test_what_cannot_be(cli, flags: tuple[str, ...], expected: str) -> None:
    command = CONVERT[:2] if "--data" in flags else CONVERT
    if "top1-drop needs labels" in expected:
        Path("images/labels.csv").unlink()
    ran = cli(*command, *flags)
    assert (ran.code, [name for name in ran.left if not name.endswith(".auto.json")]) == (ExitCode.USAGE, [])
    assert expected in ran.err
