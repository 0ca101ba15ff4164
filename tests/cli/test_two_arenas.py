"""convert --ram: what lies in which memory, and what inspect says of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nmpconv.errors import ExitCode
from nmpconv.file.reader import read
from nmpconv.runtime import interpreter

CONVERT = ("convert", "model.onnx", "--data", "images")
M4 = ("--target", "cortex-m4")


def outputs(path: str) -> list[np.ndarray]:
    net = interpreter.load(Path(path))
    x = np.random.default_rng(0).integers(-128, 128, net.inputs[0].shape).astype(net.inputs[0].dtype)
    return net.run(x)


def test_tensors_lie_in_two_memories(cli) -> None:
    """With the same integers; `inspect` counts what is moved in each, and both ways of asking say the same."""
    assert cli(*CONVERT, *M4, "-o", "one.nmp").code == 0
    peak = read(Path("one.nmp")).arena_bytes
    fast = peak // 2 // 16 * 16
    ran = cli(*CONVERT, *M4, "--ram", f"fast={fast},slow=1M", "-o", "two.nmp", "--json")
    assert ran.code == 0, ran.err
    two = read(Path("two.nmp"))
    assert 0 < two.fast_bytes <= fast and read(Path("one.nmp")).fast_bytes == 0
    for one, other in zip(outputs("one.nmp"), outputs("two.nmp"), strict=True):
        np.testing.assert_array_equal(one, other)
    found = cli("inspect", "two.nmp", "--memory", "--json").json["memory"]
    moved = [sum(step[f"{memory}_moved"] for step in found["steps"]) for memory in ("fast", "slow")]
    plain = cli("inspect", "one.nmp", "--memory", "--json").json["memory"]
    assert sum(moved) == sum(step["slow_moved"] for step in plain["steps"])
    assert 0 < found["least_slow"] <= moved[1] <= 1.05 * found["least_slow"]
    said = cli("inspect", "two.nmp", "--memory").out
    assert f"{moved[1]} B slow, at least {found['least_slow']} B" in said
    assert ran.json["memories"] == [two.fast_bytes, moved[1], found["least_slow"]]


def test_what_fits_in_the_fast_memory_is_planned_as_ever(cli) -> None:
    assert cli(*CONVERT, *M4, "-o", "one.nmp").code == 0
    assert cli(*CONVERT, *M4, "--ram", "fast=1M,slow=8M", "-o", "two.nmp").code == 0
    one, two = (read(Path(name)) for name in ("one.nmp", "two.nmp"))
    assert (two.fast_bytes, two.arena_bytes) == (0, one.arena_bytes)
    assert [t.offset for t in one.tensors] == [t.offset for t in two.tensors]


def test_too_little_memory_says_how_much_of_each(cli) -> None:
    ran = cli(*CONVERT, *M4, "--dry-run", "--ram", "fast=128,slow=64")
    assert ran.code == ExitCode.UNSUPPORTED
    assert "is needed in bytes, fast=128,slow=64 is there" in ran.err


@pytest.mark.parametrize("text", ["fast=1k", "256k", "fast=1k,slow=2k,warm=3k", "fast=1k,slow=", "fast=0,slow=1k"])
def test_wrong_memories(cli, text: str) -> None:
    ran = cli(*CONVERT, "--ram", text)
    assert ran.code == ExitCode.USAGE
    assert "--ram" in ran.err


def test_two_answers_to_one_question(cli) -> None:
    ran = cli(*CONVERT, "--ram", "fast=1k,slow=1M", "--max-ram", "64k")
    assert ran.code == ExitCode.USAGE and "leave one of them out" in ran.err
