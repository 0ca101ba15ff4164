"""Input of people and devices is read or refused: some mutants of each kind; `make fuzz` has more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from c_core import C99, Once, includes

from fuzz_inputs import native, unreached, wasm
from fuzz_inputs.kinds import KINDS, Kind
from fuzz_inputs.loop import hunt, outcome
from nmpconv.errors import InputError

MUTANTS = 100
SECONDS = 10.0
NATIVE_SECONDS = 5.0
QUICK = [name for name, kind in KINDS.items() if kind.missing is None]


@pytest.mark.slow
def test_the_command_starts(root: Path) -> None:
    """As `make fuzz` has it, where no conftest is loaded."""
    command = [sys.executable, "-m", "fuzz_inputs", "--help"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root / "tests")}, check=True, capture_output=True)


@pytest.mark.parametrize("name", QUICK)
def test_the_good_files_are_read(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    for ending, files in kind.make(tmp_path).items():
        for data in files:
            path = tmp_path / f"good.{ending}"
            path.write_bytes(data)
            assert outcome(kind, path) == "read"


@pytest.mark.parametrize("name", QUICK)
def test_some_mutants(name: str, tmp_path: Path) -> None:
    found = hunt(KINDS[name], SECONDS, 1, tmp_path, MUTANTS)
    assert not found.faults
    assert found.read + found.refused > 0


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("name", KINDS)
def test_many_mutants(
    name: str, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    if name == "wasm":
        need_tool(*wasm.NODES)
        need_package("ziglang")
    if name == "firmware":
        need_package("unicorn")
    assert not hunt(KINDS[name], SECONDS / 2, 2, tmp_path).faults


@pytest.mark.slow
def test_another_result_in_wasm_is_found(
    tmp_path: Path,
    need_tool: Callable[..., str],
    need_package: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_tool(*wasm.NODES)
    need_package("ziglang")
    kind = KINDS["wasm"]
    good = next(data for data in kind.make(tmp_path)["nmp"] if not wasm.has_states(data))
    path = tmp_path / "good.nmp"
    path.write_bytes(good)
    assert outcome(kind, path) == "read"
    native = wasm._native
    monkeypatch.setattr(wasm, "_native", lambda data: (native(data)[0], native(data)[1][::-1] + b"x"))
    assert outcome(kind, path).startswith("AssertionError in wasm")
    path.write_bytes(good[:-1])
    assert outcome(kind, path) == "refused"
    monkeypatch.setattr(wasm, "in_c", lambda data: (5, "another rule"))
    assert outcome(kind, path).startswith("AssertionError in wasm")


@pytest.mark.slow
def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """An error that is no refusal, a crash and too much memory, each with the mutant that shows it."""

    def read(path: Path) -> None:
        data = path.read_bytes()
        if b"\xff" in data:
            raise KeyError("here")
        if b"[[" in data:
            os.kill(os.getpid(), 9)
        if b"{" in data:
            np.ones(1 << 30)
        if data != b"good":
            raise InputError("not good")

    found = hunt(Kind("own", lambda _: {"txt": [b"good"]}, read), SECONDS, 0, tmp_path, 600)
    line = read.__code__.co_firstlineno + 3
    assert set(found.faults) == {f"KeyError in test_fuzz_inputs:{line}", "ends by SIGKILL", "takes too much memory"}
    assert found.refused > 100 and len(list(tmp_path.glob("fault-own-0-*.txt"))) == len(found.faults)


GUARDED = """#include "guarded.h"
int main(int argc, char **argv) {
  volatile unsigned char *bytes = take(1, 30, 2);
  bytes[29] = 1;
  return argc > 1 ? bytes[30] : bytes[29] - 1;
}
"""


def test_a_read_behind_a_buffer_is_seen(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """Without a sanitizer, by a closed page; targets can be compiled so."""
    tests = root / "interpreter" / "tests"
    (tmp_path / "main.c").write_text(GUARDED)
    flags = (need_tool("cc", "gcc"), *C99, "-DNMP_CLOSED_PAGES", "-DNMP_LIBFUZZER", *includes(root), f"-I{tests}")
    subprocess.run([*flags, tmp_path / "main.c", tests / "memory.c", "-o", tmp_path / "main"], check=True)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0
    assert subprocess.run([tmp_path / "main", "more"], check=False).returncode in (-signal.SIGSEGV, -signal.SIGBUS)
    targets = [tests / f"fuzz_{name}.c" for name in native.TARGETS]
    subprocess.run([*flags, f"-I{root / 'interpreter' / 'firmware'}", "-fsyntax-only", *targets], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", native.TARGETS)
def test_targets(name: str, root: Path, tmp_path: Path, need_tool: Callable[..., str], once: Once) -> None:
    need_tool(*native.COMPILERS)
    target = native.TARGETS[name]
    given = {"NMP_MODELS": ":".join(map(str, native.models(tmp_path / "models")))}
    place = native.corpus(target, tmp_path / name)
    programs = once("fuzz", lambda folder: native.build(root, folder))
    ran = native.run(programs / f"fuzz_{name}", target, place, NATIVE_SECONDS, given)
    assert not ran.failed
    assert ran.runs > 1000


@pytest.mark.slow
@pytest.mark.soak
def test_corpora_reach_every_branch(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """And MC/DC: each condition decides alone, of all that reads files and frames; but for what is named."""
    for tool in (native.COVERING, "llvm-profdata-19", "llvm-cov-19"):
        need_tool(tool)
    given = {"NMP_MODELS": ":".join(map(str, native.models(tmp_path / "models")))}
    for name, target in native.TARGETS.items():
        native.corpus(target, tmp_path / name)
    found = native.coverage(root, tmp_path, given)
    assert set(native.COVERED) < set(found) and sum(file.branches for file in found.values()) > 2000
    assert {name: dict(file.left) for name, file in found.items() if file.left} == {
        name: dict.fromkeys(branches, 1) for name, branches in unreached.BRANCHES.items()
    }
    left = {name: there - taken for name in native.COVERED for taken, there in (found[name].conditions,)}
    named = {name: count for name, (count, _) in unreached.CONDITIONS.items()}
    assert {name: count for name, count in left.items() if count} == named
