"""init and build: what they write, what is up to date, and gates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nmpconv
from nmpconv.errors import ExitCode

PROJECT = """
model = "model.onnx"
[data]
calibration = "images"
test = "images/labels.csv"
[convert]
std = 255
equalize = "none"
rounding = "nearest"
[gates]
max_flash = 100000
[targets.a]
[targets.b]
bits = "16"
target = "cortex-m4"
[targets.b.gates]
min_sqnr = 20
"""


@pytest.fixture
def project(cli):
    Path("nmpconv.toml").write_text(PROJECT)
    return cli


def made(ran) -> dict[str, bool]:
    return {row["target"]: row["made"] for row in ran.json["targets"]}


def test_targets_are_made_once(project) -> None:
    first = project("build", "--json")
    assert (first.code, made(first)) == (ExitCode.OK, {"a": True, "b": True})
    assert {path.name for path in Path("build").iterdir()} == {
        f"{t}.{e}" for t in "ab" for e in ("nmp", "html", "json")
    }
    again = project("build", "--json")
    assert made(again) == {"a": False, "b": False}
    assert [row["sha256"] for row in again.json["targets"]] == [row["sha256"] for row in first.json["targets"]]
    alone = project(
        "convert", "model.onnx", "--data", "images", "--std", "255", "--equalize", "none", "--rounding", "nearest"
    )
    assert alone.code == 0
    assert Path("model.nmp").read_bytes() == Path("build/a.nmp").read_bytes()
    assert made(project("build", "--force", "--json")) == {"a": True, "b": True}


@pytest.mark.parametrize("what", ["option", "image", "model", "file", "facts"])
def test_what_a_target_depends_on(project, what: str) -> None:
    assert project("build").code == 0
    if what == "option":
        Path("nmpconv.toml").write_text(PROJECT.replace('bits = "16"', 'bits = "a16w8"'))
    elif what == "image":
        image = next(path for path in sorted(Path("images").iterdir()) if path.suffix == ".png")
        image.write_bytes(image.read_bytes() + b"\0")
    elif what == "model":
        Path("model.onnx").write_bytes(Path("model.onnx").read_bytes() + b"\x3a\x00")  # an empty graph is merged
    elif what == "file":
        Path("build/b.nmp").write_bytes(b"")
    else:
        Path("build/b.json").write_text("{}")
    every = what in ("image", "model")
    assert made(project("build", "--json")) == {"a": every, "b": True}


def test_a_missed_gate(project) -> None:
    Path("nmpconv.toml").write_text(PROJECT.replace("min_sqnr = 20", "min_sqnr = 500\nmax_ram = 10"))
    ran = project("build", "--json")
    assert ran.code == ExitCode.GATE
    missed = [(row["target"], g["gate"]) for row in ran.json["targets"] for g in row["gates"] if not g["met"]]
    assert missed == [("b", "min_sqnr"), ("b", "max_ram")]
    assert ran.json["error"]["kind"] == "gate"
    assert "2 missed gates: b: min_sqnr 500" in ran.err
    assert Path("build/b.nmp").exists()
    assert "2 of 3 missed" in project("build").out


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (PROJECT.replace("[data]", "[date]"), ExitCode.INPUT, "'date' is no key"),
        (PROJECT.replace('"model.onnx"', "3"), ExitCode.INPUT, "model is no path"),
        (PROJECT.replace("model =", "#"), ExitCode.INPUT, "model is missing"),
        (PROJECT.replace("std =", "report ="), ExitCode.INPUT, "'report' of 'a' is no option"),
        (PROJECT.replace("std = 255", 'std = "x"'), ExitCode.USAGE, "std: 'x' is not allowed"),
        (PROJECT.replace("max_flash", "max_cost"), ExitCode.INPUT, "'max_cost' in [gates] is no key"),
        (PROJECT.replace("100000", "true"), ExitCode.INPUT, "the gate max_flash is True"),
        (
            PROJECT.replace("[targets.b]", '[targets."../b"]').replace("[targets.b.gates]", "[no]"),
            ExitCode.INPUT,
            "'no'",
        ),
        (PROJECT.replace("[targets.a]", '[targets."../a"]'), ExitCode.INPUT, "'../a' is no target"),
        (PROJECT.replace('"images"', '"gone"'), ExitCode.INPUT, "gone"),
        (
            PROJECT.replace("test =", "#").replace("min_sqnr", "min_top1"),
            ExitCode.INPUT,
            "min_top1 of 'b' needs labels",
        ),
        ("model = [", ExitCode.INPUT, "not a TOML file"),
    ],
)
def test_what_is_no_project(project, text: str, code: ExitCode, expected: str) -> None:
    Path("nmpconv.toml").write_text(text)
    ran = project("build")
    assert ran.code == code
    assert expected in ran.err


def test_where_a_project_is(project) -> None:
    Path("there").mkdir()
    assert "no nmpconv.toml here" in project("build", "there").err
    text = (
        PROJECT.replace("[", "[tool.nmpconv.")
        .replace("\nmodel", "\n[tool.nmpconv]\nmodel")
        .replace('"images', '"../images')
    )
    Path("there/pyproject.toml").write_text(text.replace('"model.onnx"', '"../model.onnx"'))
    built = nmpconv.build("there")
    assert [one.path for one in built] == [Path("there/build/a.nmp"), Path("there/build/b.nmp")]


def test_init(cli) -> None:
    ran = cli("init", "model.onnx")
    assert (ran.code, ran.left) == (0, ["nmpconv.toml"])
    text = Path("nmpconv.toml").read_text()
    assert 'layout = "nchw"' in text
    assert "# mean = [123.675" in text
    assert cli("init", "model.onnx").code == ExitCode.USAGE
    assert cli("init", "model.onnx", "-o", "-").out == text
    Path("nmpconv.toml").write_text(
        text.replace('"calib/"', '"images"').replace("min_", "# min_").replace("# test", "# t")
    )
    assert json.loads(cli("build", "--json").out)["targets"][0]["target"] == "model"
    assert cli("init", "images/labels.csv", "-o", "x.toml").code == ExitCode.INPUT
