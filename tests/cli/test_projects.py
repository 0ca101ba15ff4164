"""init and build: what they write, what is up to date, and gates."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import nmpconv
from nmpconv.api.project import digest, find, read
from nmpconv.device import simulator
from nmpconv.device.simulator import COUNTED_ON, MACHINES
from nmpconv.errors import ExitCode
from nmpconv.frontend.read import external_files
from nmpconv.runtime.targets import MICROCONTROLLERS

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


def test_data_that_are_not_there(project) -> None:
    """As a project begins that `init` wrote. The message names the line to change."""
    for line, key in (('calibration = "images"', "calibration"), ('test = "images/labels.csv"', "test")):
        Path("nmpconv.toml").write_text(PROJECT.replace(line, f'{key} = "imagse"'))
        ran = project("build")
        assert (ran.code, ran.left) == (ExitCode.INPUT, [])
        assert "imagse: no such file or folder" in ran.err
        assert f"[data] {key} of nmpconv.toml names it; did you mean 'images'?" in ran.err


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_conversions_warn_of(project) -> None:
    """Also where the file is up to date, and beside gates that are met."""
    text = "8 calibration images are few"
    for _ in range(2):
        found = project("build")
        assert found.code == 0
        assert f"\nwarning: a: {text}" in found.out and f"\nwarning: b: {text}" in found.out
    assert all(row["warnings"][0].startswith(text) for row in project("build", "--json").json["targets"])
    facts = json.loads(Path("build/a.json").read_text())
    for damaged in ("none", ["fine", 1]):
        Path("build/a.json").write_text(json.dumps({**facts, "warnings": damaged}))
        assert made(project("build", "--json"))["a"]


@pytest.mark.slow
def test_what_no_longer_fits_is_made_anew(project) -> None:
    assert project("build").code == 0
    Path("build/a.nmp").write_bytes(b"")
    Path("build/b.json").write_text("{}")
    assert made(project("build", "--json")) == {"a": True, "b": True}
    Path("nmpconv.toml").write_text(PROJECT.replace('bits = "16"', 'bits = "a16w8"'))
    assert made(project("build", "--json")) == {"a": False, "b": True}


COUNTED = PROJECT.replace("min_sqnr = 20", "min_sqnr = 20\nmax_instructions = 50000")


@pytest.mark.slow
def test_instructions_are_counted_where_a_gate_asks(project, root, need_tool: Callable[..., str]) -> None:
    for tool in ("make", "arm-none-eabi-gcc", "qemu-system-arm"):
        need_tool(tool)
    assert project("device", "build", "mps2-an386").code == 0
    first = project("build", "--json").json["targets"]
    assert [row["instructions"] for row in first] == [None, None]
    Path("nmpconv.toml").write_text(COUNTED)
    ran = project("build", "--json")
    rows = ran.json["targets"]
    assert made(ran) == {"a": False, "b": False}  # the file is the same
    assert rows[0]["instructions"] is None
    bench = project("bench", "build/b.nmp", "--device", "sim:mps2-an386", "--runs", "1", "--json").json
    print(bench)
    assert rows[1]["instructions"] == bench["instructions"]
    [gate] = [gate for gate in rows[1]["gates"] if gate["gate"] == "max_instructions"]
    assert (gate["found"], gate["met"]) == (bench["instructions"], bench["instructions"] <= 50000)
    assert ran.code == (ExitCode.OK if gate["met"] else ExitCode.GATE)
    Path("nmpconv.toml").write_text(COUNTED.replace("50000", "10"))
    missed = project("build")
    assert missed.code == ExitCode.GATE
    assert f"b: max_instructions 10, found {bench['instructions']}" in missed.err
    assert "instructions" in missed.out


def test_instructions_need_a_simulator(project, monkeypatch) -> None:
    """It is said before anything is converted."""
    Path("nmpconv.toml").write_text(COUNTED)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(simulator, "find_spec", lambda name: None)
    ran = project("build")
    assert ran.code == ExitCode.DEVICE
    assert "max_instructions of 'b' counts on the simulated board mps2-an386" in ran.err
    assert "qemu-system-arm is missing" in ran.err
    assert not Path("build").exists()
    Path("nmpconv.toml").write_text(PROJECT.replace("max_flash", "max_instructions"))
    ran = project("build")
    assert ran.code == ExitCode.INPUT
    assert "max_instructions of 'a' needs a target that is simulated" in ran.err


def test_every_target_has_a_board() -> None:
    assert tuple(COUNTED_ON) == MICROCONTROLLERS
    assert set(COUNTED_ON.values()) <= set(MACHINES)


def digests(folder: str = ".") -> list[str]:
    found = read(find(Path(folder)))
    return [digest(found, target, "", external_files(found.model)) for target in found.targets]


def with_classes() -> None:
    Path("nmpconv.toml").write_text(PROJECT.replace("images/labels.csv", "classes"))
    for i, image in enumerate(sorted(Path("images").glob("*.png"))):
        Path("classes", str(i % 2)).mkdir(parents=True, exist_ok=True)
        shutil.copy(image, Path("classes", str(i % 2)))


def with_weights_beside() -> None:
    onnx.save(onnx.load("model.onnx"), "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)


def with_recipe() -> None:
    Path("nmpconv.toml").write_text(PROJECT.replace("[convert]", '[convert]\nrecipe = "recipe"'))
    Path("recipe").write_text("")


def add_to(name: str) -> None:
    path = next(Path().glob(name))
    path.write_bytes(path.read_bytes() + b"\n")


def move() -> None:
    """The bytes of the image are the same; its label is not."""
    image = next(Path("classes/0").iterdir())
    image.rename(Path("classes/1", image.name))


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (list, lambda: add_to("images/*.png")),
        (list, lambda: add_to("model.onnx")),
        (list, lambda: add_to("images/labels.csv")),
        (with_classes, move),
        (with_weights_beside, lambda: add_to("weights")),
        (with_recipe, lambda: add_to("recipe")),
    ],
)
def test_what_a_target_depends_on(project, monkeypatch, before: Callable, change: Callable) -> None:
    before()
    old = digests()
    Path("nothing").mkdir()
    monkeypatch.chdir("nothing")
    assert digests("..") == old
    monkeypatch.chdir("..")
    change()
    assert all(new != was for new, was in zip(digests(), old, strict=True))


def test_a_missed_gate(project) -> None:
    Path("nmpconv.toml").write_text(PROJECT.replace("min_sqnr = 20", "min_sqnr = 500\nmax_ram = 10"))
    ran = project("build", "--json")
    assert ran.code == ExitCode.GATE
    missed = [(row["target"], g["gate"]) for row in ran.json["targets"] for g in row["gates"] if not g["met"]]
    assert missed == [("b", "min_sqnr"), ("b", "max_ram")]
    assert ran.json["error"]["kind"] == "gate"
    assert "missed gates: b: min_sqnr 500" in ran.err
    assert Path("build/b.nmp").exists()
    assert "2 of 3 missed" in project("build").out


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (PROJECT.replace("[data]", "[date]"), ExitCode.INPUT, "'date' is no key"),
        (PROJECT.replace('"model.onnx"', "3"), ExitCode.INPUT, "model is no path"),
        (PROJECT.replace("model =", "#"), ExitCode.INPUT, "model is missing"),
        (PROJECT.replace("std =", "report ="), ExitCode.INPUT, "'report' of 'a' is no option"),
        (PROJECT.replace("std = 255", 'std = "x"'), ExitCode.INPUT, "nmpconv.toml: std of 'a': 'x' is not allowed"),
        (PROJECT.replace("std =", 'max_ram = "9q"\nstd ='), ExitCode.INPUT, "max_ram of 'a': '9q' is not allowed"),
        (PROJECT.replace("max_flash", "max_cost"), ExitCode.INPUT, "'max_cost' in [gates] is no key"),
        (PROJECT.replace("100000", '"9q"'), ExitCode.INPUT, "the gate max_flash: '9q' is not allowed; allowed: bytes"),
        (PROJECT.replace("100000", "true"), ExitCode.INPUT, "the gate max_flash: True is not allowed"),
        (
            PROJECT.replace("[targets.b]", '[targets."../b"]').replace("[targets.b.gates]", "[no]"),
            ExitCode.INPUT,
            "'no'",
        ),
        (PROJECT.replace("[targets.a]", '[targets."../a"]'), ExitCode.INPUT, "'../a' is no target"),
        (PROJECT.replace("[targets.a]", '[targets."a\\u0000b"]'), ExitCode.INPUT, "'a\\x00b' is no target"),
        (PROJECT.replace("[targets.a]", f"[targets.{'a' * 241}]"), ExitCode.INPUT, "is no target"),
        (PROJECT.replace("[targets.a]", '[targets.""]'), ExitCode.INPUT, "'' is no target"),
        (PROJECT.replace('"images"', '"gone"'), ExitCode.INPUT, "gone"),
        (
            PROJECT.replace("test =", "#").replace("min_sqnr", "min_top1"),
            ExitCode.INPUT,
            "min_top1 of 'b' needs labels",
        ),
        (
            PROJECT.replace("[gates]", 'stream = "axis=2,hop=2"\n[gates]'),
            ExitCode.INPUT,
            "test has no meaning for 'a', which has a stream",
        ),
        (
            PROJECT.replace("[gates]", 'state = ["y=x"]\n[gates]'),
            ExitCode.INPUT,
            "test has no meaning for 'a', which has a state",
        ),
        ("model = [", ExitCode.INPUT, "not a TOML file"),
    ],
)
def test_what_is_no_project(project, text: str, code: ExitCode, expected: str) -> None:
    Path("nmpconv.toml").write_text(text)
    ran = project("build")
    assert ran.code == code
    assert expected in ran.err


def as_link(name: str, to: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).symlink_to(to)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize(
    ("output", "link", "expected"),
    [
        ("../up", "", "outside of the project's folder"),
        ("in/../../up", "", "outside of the project's folder"),
        ("{absolute}", "", "outside of the project's folder"),
        ("build", "build", "by the link"),
        ("build/deep", "build", "by the link"),
        ("build", "build/a.nmp", "a.nmp: is a link"),
        ("build", "build/b.html", "b.html: is a link"),
        ("build", "build/b.json", "b.json: is a link"),
    ],
)
def test_a_build_stays_in_the_project(project, tmp_path: Path, output: str, link: str, expected: str) -> None:
    """Whoever wrote the project: a file of the user is as it was."""
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "mine").write_text("mine")
    inner = outer / "project"
    shutil.copytree(".", inner, ignore=shutil.ignore_patterns("outer"))
    os.chdir(inner)
    Path("nmpconv.toml").write_text(f'output = "{output.format(absolute=outer / "up")}"\n{PROJECT}')
    if link:
        as_link(link, str(outer / ("mine" if "." in link else "")))
    ran = project("build")
    assert (ran.code, expected in ran.err) == (ExitCode.INPUT, True), ran.err
    assert sorted(path.name for path in outer.iterdir()) == ["mine", "project"]
    assert (outer / "mine").read_text() == "mine"


def test_a_build_outside_on_request(project) -> None:
    Path("inner").mkdir()
    text = PROJECT.replace('"model.onnx"', '"../model.onnx"').replace('"images', '"../images')
    Path("inner/nmpconv.toml").write_text(f'output = "../elsewhere"\n{text}')
    assert project("build", "inner", "--outside").code == 0
    assert Path("elsewhere/a.nmp").is_file()


def test_where_a_project_is(project) -> None:
    Path("there").mkdir()
    assert "no nmpconv.toml here" in project("build", "there").err
    Path("there/pyproject.toml").write_text("tool = 1")
    assert project("build", "there").code == ExitCode.INPUT
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
