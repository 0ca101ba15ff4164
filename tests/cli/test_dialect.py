"""One dialect: all options of all commands read words in any case and numbers with units, and refuse in one form."""

from __future__ import annotations

import errno
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Any

import pytest
import serial
from typer.models import OptionInfo

from nmpconv.base import units
from nmpconv.cli import device, refusals, whole_app
from nmpconv.cli.flags import flag_of, info_of, kind_of
from nmpconv.device.transport import Serial
from nmpconv.errors import DeviceError, ExitCode

FORM = "is not allowed; allowed: "
CONVERT = ("convert", "model.onnx", "--data", "images")


def options() -> Iterator[tuple[tuple[str, ...], Parameter]]:
    """Every option of every command, with the words of the command."""
    for group, commands in (((), whole_app().registered_commands), (("device",), device.app.registered_commands)):
        for command in commands:
            assert command.callback is not None and command.name is not None
            for one in inspect.signature(command.callback).parameters.values():
                if isinstance(info_of(one), OptionInfo):
                    yield (*group, command.name), one


EVERY = [pytest.param(words, one, id=f"{' '.join(words)} {flag_of(one)}") for words, one in options()]
CHOICES = [
    row for row in EVERY if isinstance(kind_of(row.values[1]), type) and issubclass(kind_of(row.values[1]), Enum)
]
NUMBERS = [row for row in EVERY if kind_of(row.values[1]) in (int, float)]


def arguments(words: tuple[str, ...]) -> list[str]:
    """Arguments of a command that fails with them, at the latest since a file is not there."""
    app = whole_app()
    for group in words[:-1]:
        app = next(g.typer_instance for g in app.registered_groups if g.name == group and g.typer_instance)
    parameters = inspect.signature(next(c for c in app.registered_commands if c.name == words[-1]).callback or print)
    needed = [one for one in parameters.parameters.values() if one.default is Parameter.empty]
    flags = [(flag_of(one), "gone") for one in needed if isinstance(info_of(one), OptionInfo)]
    places = ["gone" for one in needed if not isinstance(info_of(one), OptionInfo)]
    return [*words, *places, *(word for pair in flags for word in pair)]


def test_there_are_options() -> None:
    assert len(CHOICES) >= 12
    assert len(NUMBERS) >= 14


@pytest.mark.parametrize(("words", "one"), CHOICES)
def test_words_in_any_case(cli, words: tuple[str, ...], one: Parameter) -> None:
    for member in kind_of(one):
        assert FORM not in cli(*arguments(words), flag_of(one), member.value.upper()).err, member
    ran = cli(*arguments(words), flag_of(one), "nonesuch")
    assert ran.code == ExitCode.USAGE
    allowed = ", ".join(member.value for member in kind_of(one))
    assert ran.err.startswith(f"error: {flag_of(one)}: 'nonesuch' {FORM}{allowed}\n")


@pytest.mark.parametrize(("words", "one"), NUMBERS)
def test_numbers(cli, words: tuple[str, ...], one: Parameter) -> None:
    start = arguments(words) if words[0] != "device" else [*words, "gone"]
    wrong = ["x", "", "nan", "5q", *(["1.5", "5e3"] if kind_of(one) is int else ["5k"])]
    low, high = info_of(one).min, info_of(one).max
    wrong += ([] if low is None else [str(low - 1)]) + ([] if high is None else [str(high + 1)])
    for text in wrong:
        ran = cli(*start, f"{flag_of(one)}={text}", "--json")
        assert ran.code == ExitCode.USAGE
        assert ran.err.startswith(f"error: {flag_of(one)}: {text!r} {FORM}")
        error = ran.json["error"]
        assert (error["where"], error["found"]) == (flag_of(one), repr(text))
        assert error["allowed"]
    if kind_of(one) is int and (high is None or high >= 1000):
        assert FORM not in cli(*start, flag_of(one), "1K").err


@pytest.mark.slow
def test_max_ram_is_read_as_a_budget_is(cli) -> None:
    made = {}
    for text in ("65536", "64k", "64K", "64KiB", "0.0625M"):
        assert cli(*CONVERT, "--max-ram", text, "-o", "m.nmp").code == 0
        made[text] = Path("m.nmp").read_bytes()
    assert len(set(made.values())) == 1
    assert b'"max_ram": 65536' in made["64k"]
    assert "at 8 bits already, 64 allowed" in cli(*CONVERT, "--bits", "auto", "--budget", "RAM=0.0625KiB").err


def test_two_limits_of_ram_are_refused(cli) -> None:
    """Wherever they stand."""
    Path("limit.toml").write_text("[convert]\nmax_ram = 65536\n")
    for limit in (("--max-ram", "64k"), ("--recipe", "limit.toml")):
        ran = cli(*CONVERT, "--ram", "fast=4k,slow=1M", *limit, "-o", "m.nmp")
        assert ran.code == 2 and "--max-ram limits the RAM already" in ran.err


def test_words_of_other_flags_in_any_case(cli) -> None:
    reference = ("--reference", "model.onnx")
    plain = cli("eval", "model.nmp", "--data", "images", *reference, "--metric", "psnr", "--cpu", "portable", "--json")
    upper = cli("eval", "model.nmp", "--data", "images", *reference, "--metric", "PSNR", "--cpu", "PORTABLE", "--json")
    assert (plain.code, upper.code, upper.json) == (0, 0, plain.json)
    assert "there is no simulated board 'gone'" in cli("bench", "model.nmp", "--device", "SIM:GONE").err
    assert cli(*CONVERT, "--bits", "AUTO", "--goal", "SQNR=5").code == 0


def test_older_names_are_taken_by_every_command_that_has_data(cli) -> None:
    named, placed = cli("run", "model.nmp", "--input", "images", "--json"), cli("run", "model.nmp", "images", "--json")
    assert (named.code, named.json) == (0, placed.json)
    assert cli("run", "model.nmp", "--data", "images/00.png", "images/01.png", "--json").code == 0
    missing = cli("run", "model.nmp")
    assert (missing.code, missing.err.splitlines()[0]) == (ExitCode.USAGE, "error: nmpconv run: SOURCE is missing")
    have = {words for words, one in options() if flag_of(one) == "--data"}
    for (name,) in have:
        assert "no option" not in cli(name, "gone", "--input", "gone").err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("inspect", "model.nmp", "--input", "x"), "nmpconv inspect: there is no option --input"),
        (("run", "model.nmp", "--dta", "x"), "nmpconv run: there is no option --dta\nhint: did you mean --data?"),
        (("run", "model.nmp", "--imput", "x"), "nmpconv run: there is no option --imput\nhint: did you mean --data?"),
        (
            ("page", "model.nmp", "--labels", "x"),
            "nmpconv page: there is no option --labels\nhint: nmpconv convert has it",
        ),
        (("bisect", "--model", "x"), "nmpconv bisect: there is no option --model\nhint: nmpconv bisect -h tells more"),
        (("page", "model.nmp", "--zzz"), "nmpconv page: there is no option --zzz\nhint: nmpconv page -h tells more"),
        (
            ("bisect", "a.nmp", "a.onnx"),
            "nmpconv bisect: the float model comes first\nhint: nmpconv bisect a.onnx a.nmp",
        ),
        (("convert", "model.onnx", "-z"), "nmpconv convert: there is no option -z"),
        (("convert", "model.onnx", "-o"), "-o: the flag takes a value"),
        (("convert", "model.onnx", "--calib"), "--calib: the flag takes a value"),
        (("convert", "model.onnx", "--strict=1"), "--strict: the flag takes no value"),
        (("convert", "a", "b"), "nmpconv convert: more arguments than it takes: b"),
        (("eval", "model.nmp"), "nmpconv eval: --data is missing\nhint: Test data: "),
        (
            ("compare", "model.nmp"),
            "nmpconv compare: --device is missing\nhint: The device. For example: nmpconv compare",
        ),
        (
            ("bisect", "m.nmp"),
            "nmpconv bisect: MODEL.nmp is missing\nhint: What it was converted to. For example: nmpconv bisect m",
        ),
        (("inspect", "--json"), "nmpconv inspect: MODEL.nmp... is missing\nhint: A converted model"),
        (("convrt",), "nmpconv: there is no command 'convrt'\nhint: did you mean convert?"),
        (("device", "zzz"), "nmpconv device: there is no command 'zzz'\nhint: there are info, list, build"),
        (
            (*CONVERT, "--equalize=vectr"),
            f"--equalize: 'vectr' {FORM}auto, none, scalar, vector, streams\nhint: did you mean vector?",
        ),
    ],
)
def test_refusals(cli, command: tuple[str, ...], says: str) -> None:
    ran = cli(*command)
    assert (ran.code, ran.left) == (ExitCode.USAGE, [])
    assert ran.err.startswith(f"error: {says}")


LIST, PATTERN = "a list of numbers", "--data takes a folder"
NAMED, MORE = "data are named by a flag", "nmpconv {} -h tells more"


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("convert model.onnx .", NAMED),
        ("convert model.onnx ..", NAMED),
        ("convert model.onnx 2024", NAMED),
        ("bench model.nmp 10", ""),
        ("eval model.nmp . --data d.npy", MORE),
        ("convert model.onnx --data=d.npy x y", MORE),
        ("convert model.onnx --calib a/0.png a/1.png", PATTERN),
        ("convert --data a/0.png a/1.png a/2.png model.onnx", PATTERN),
        ("convert model.onnx --data images --mean 0.5 .5 1E-3", LIST),
        ("convert model.onnx --data images --mean=1 1 1", LIST),
        ("convert model.onnx --data images --mean 0.5, 0.4, 0.3", LIST),
        ("convert model.onnx --data images --mean 0.5 0.4 x", MORE),
    ],
)
def test_hints_for_more_arguments_than_there_are(cli, command: str, hint: str) -> None:
    ran = cli(*command.split())
    assert ran.code == ExitCode.USAGE and "more arguments than it takes" in ran.err
    assert f"hint: {hint.format(command.split()[0])}" in ran.err
    assert (LIST in ran.err) == (hint == LIST)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("sub/*/a.npy", "give the folder: sub"),
        ("*/a.npy", "give the folder: ."),
        ("sub/?.png", "give the folder: sub"),
        ("sub/a*3.npy", "did you mean 'a*b.npy'?"),
        ("a*/x.npy", "the current folder is"),
        ("sub/b.npy", "did you mean 'a*b.npy'?"),
        ("~/none.npy", f"give {Path.home() / 'none.npy'}"),
        ("1x3x8x8", "the sizes of an input are given to convert, by --input-shape x=1x3x8x8"),
    ],
)
def test_patterns_and_names_that_look_like_some(cli, data: str, hint: str) -> None:
    Path("sub/c").mkdir(parents=True)
    Path("sub/a*b.npy").touch()
    Path("a*").mkdir()
    assert hint in cli("convert", "model.onnx", "--data", data).err


def test_a_refusal_that_nobody_foresaw_is_told_as_it_is() -> None:
    class Odd(Exception):
        ctx = None

        def format_message(self) -> str:
            return "odd"

    assert refusals.translated(Odd(), []).message == "odd"


def test_projects_and_recipes_have_the_same_units(cli) -> None:
    rest = '[data]\ncalibration = "images"\n[convert]\nequalize = "None"\nmax_ram = "64k"\nlimit = "0.008k"\n'
    Path("nmpconv.toml").write_text(
        f'model = "model.onnx"\n{rest}[targets.a]\n[gates]\nmax_flash = "1M"\nmax_ram = "1kB"\n'
    )
    ran = cli("build", "--json")
    [row] = ran.json["targets"]
    assert [(gate["gate"], gate["allowed"]) for gate in row["gates"]] == [("max_flash", 1 << 20), ("max_ram", 1000)]
    Path("r.toml").write_text(
        '[convert]\nequalize = "NONE"\nmax_ram = "64K"\nbits = 8\nbias_bits = "auto"\n[tensors]\nr = { bits = "16" }\n'
    )
    assert cli(*CONVERT, "--recipe", "r.toml").code == 0
    assert b'"max_ram": 65536' in Path("model.nmp").read_bytes()


def test_a_serial_error_says_itself_once(monkeypatch: pytest.MonkeyPatch, cli) -> None:
    ran = cli("bench", "model.nmp", "--device", "/dev/gone")
    assert ran.err.startswith("error: /dev/gone: cannot open the port: No such file or directory\nhint: ports found")

    def busy(*args: Any, **more: Any) -> None:
        said = "Could not exclusively lock port /dev/x: [Errno 11] Resource temporarily unavailable"
        raise serial.SerialException(errno.EAGAIN, said)

    monkeypatch.setattr(serial, "Serial", busy)
    with pytest.raises(DeviceError) as error:
        Serial("/dev/x")
    assert error.value.message == "cannot open the port: Resource temporarily unavailable"


def test_units_are_told(root: Path) -> None:
    """The list in the documents has all of them."""
    text = (root / "docs" / "usage.md").read_text()
    told = re.findall(r"`(\w+)`", text.split("Of bytes, ")[1].split("\n- ")[0].lower())
    assert set(told) >= {unit for unit in units.BYTES if unit}
