"""convert --recipe and --save-recipe: the same bytes again, one changed line, and files that are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmpconv.errors import ExitCode
from nmpconv.file.reader import read

CONVERT = ("convert", "model.onnx", "--data", "images")


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--strict",),
        ("--bits", "16"),
        ("--bits", "a16w8", "--no-zero-points"),
        ("--equalize", "scalar", "--rounding", "nearest", "--per-tensor"),
        ("--method", "percentile", "--percentile", "99.9", "--keep-channels", "--max-ram", "4000"),
        ("--method", "mse4"),
        ("--limit", "3"),
        ("--fast",),
        ("--ram", "fast=1k,slow=1M"),
    ],
)
def test_the_same_bytes_again(cli, flags: tuple[str, ...]) -> None:
    assert cli(*CONVERT, *flags, "--save-recipe", "r.toml").left == ["model.nmp", "r.toml"]
    first = Path("model.nmp").read_bytes()
    data = flags if "--limit" in flags else ()
    ran = cli(*CONVERT, *data, "--recipe", "r.toml", "--save-recipe", "again.toml", "-o", "again.nmp")
    assert (ran.code, ran.left) == (0, ["again.nmp", "again.toml"])
    assert Path("again.nmp").read_bytes() == first
    assert Path("again.toml").read_text() == Path("r.toml").read_text()


def test_a_changed_line_changes_just_that(cli) -> None:
    cli(*CONVERT, "--save-recipe", "r.toml")
    text = Path("r.toml").read_text()
    exponent = int(re.search(r'"r" = \{ bits = 8, exponent = (-?\d+)', text).group(1))
    changed = text.replace(f'"r" = {{ bits = 8, exponent = {exponent}', f'"r" = {{ bits = 8, exponent = {exponent + 1}')
    Path("r.toml").write_text(changed)
    assert cli(*CONVERT, "--recipe", "r.toml", "--save-recipe", "again.toml").code == 0
    assert Path("again.toml").read_text() == changed
    tensor = next(t for t in read(Path("model.nmp")).tensors if t.name == "r")
    assert (tensor.exponents, tensor.method) == ((exponent + 1,), "recipe")


def test_a_recipe_by_hand(cli) -> None:
    """In the long form, with a pattern; what it does not say is decided."""
    Path("r.toml").write_text('[tensors."r"]\nbits = 16\nmethod = "max"\n[ops]\n"f*" = { weight_bits = 16 }\n')
    assert cli(*CONVERT, "--recipe", "r.toml").code == 0
    model = read(Path("model.nmp"))
    weights = {op.kind: model.tensors[op.inputs[1]].dtype for op in model.ops if op.name in ("conv", "fc")}
    assert weights == {"conv2d": "int8", "fully_connected": "int16"}
    assert next(t.dtype for t in model.tensors if t.name == "r") == "int16"
    ran = cli("convert", "model.onnx", "--dry-run", "--recipe", "r.toml", "--json")
    plain = cli("convert", "model.onnx", "--dry-run", "--json")
    assert ran.json["arena_bytes"] > plain.json["arena_bytes"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[convert\n", "r.toml: not a recipe: Expected"),
        ("\n[convert]\nbits = 9\n", 'r.toml:3: bits of [convert] is 9; allowed: "8", "16" or "a16w8"'),
        ("\n[convert]\nbits = true\n", "r.toml:3: bits of [convert] is True; allowed: "),
        ('[convert]\nmax_ram = "64q"\n', "r.toml:2: max_ram of [convert] is '64q'; allowed: bytes from 1 to "),
        ('[convert]\nram = "1k"\n', "ram of [convert] is '1k'; allowed: text such as \"fast=256k,slow=8M\""),
        ("[convert]\nram = 1024\n", "r.toml:2: ram of [convert] is 1024; allowed: text such as"),
        ('[convert]\npercentile = "99"\n', "percentile of [convert] is '99'; allowed: a number from 50 to 100"),
        ("[convert]\nbit = 8\n", "r.toml:2: the key 'bit' in [convert] is unknown; there are bits, widths"),
        ("[tensor]\n", "r.toml:1: the table 'tensor' is unknown; there are convert, tensors, ops"),
        ("tensors = 3\n", "r.toml:1: tensors is no table but 3"),
        ("[tensors]\nr = 8\n", "r.toml:2: 'r' in [tensors] is no row of keys but 8"),
        ('[tensors]\n"r" = { bits = 12 }\n', "r.toml:2: bits of [tensors.r] is 12; allowed: 8 or 16"),
        ('[tensors]\n"r" = { exponent = true }\n', "exponent of [tensors.r] is True; allowed: a whole number from"),
        ('[tensors]\n"r" = { origin = nan }\n', "origin of [tensors.r] is nan; allowed: a finite number"),
        ('[ops]\n\n"conv" = { rounding = "up" }\n', "r.toml:3: rounding of [ops.conv] is 'up'; allowed: \"nearest\""),
        ('[tensors]\n"rr" = { bits = 8 }\n', "r.toml:2: the model has no tensor 'rr'; the nearest are 'r'"),
        ('[tensors]\n"r" = { bits = 8 }\n"r" = { bits = 16 }\n', "not a recipe: Cannot overwrite a value (at line 3"),
        ("x = " + "[" * 5000, "not a recipe: it is nested too deeply"),
        ("x = " + "9" * 9999, "not a recipe: "),
    ],
)
def test_a_wrong_file(cli, text: str, expected: str) -> None:
    Path("r.toml").write_text(text)
    ran = cli(*CONVERT, "--recipe", "r.toml")
    assert (ran.code, ran.left, ran.out) == (ExitCode.INPUT, [], "")
    assert expected in ran.err.replace("\n", " ")


def test_a_flag_that_contradicts(cli) -> None:
    Path("r.toml").write_text('[convert]\nequalize = "none"\n')
    ran = cli(*CONVERT, "--recipe", "r.toml", "--equalize", "vector")
    assert (ran.code, ran.left) == (ExitCode.USAGE, [])
    assert "equalize is vector by a flag, and none by r.toml" in ran.err
