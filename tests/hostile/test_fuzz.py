"""Mutants of files with every op, under AddressSanitizer and UndefinedBehaviorSanitizer: refused, or run to the end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import nets
import pytest
from c_core import Library
from op_cases import BY_OP

from nmpconv.file.writer import to_bytes
from nmpconv.ops import OPS

SMALL = 6000  # bytes of a seed: in larger ones most mutations hit weights
PER_OP = 24


Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(root: Path, tmp_path_factory: pytest.TempPathFactory, sanitized: Callable[..., Library]) -> Build:
    def fuzzer(*, portable: bool = False) -> Path:
        program = tmp_path_factory.mktemp("fuzz") / "fuzz_model"
        return sanitized(portable=portable).program(program, root / "interpreter/tests/fuzz_model.c")

    return fuzzer


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The small net, one with a grid for each channel of its input, and some of the small cases of every op."""
    folder = tmp_path_factory.mktemp("seeds")
    (folder / "small_net.nmp").write_bytes(to_bytes(nets.small_net(), {}))
    (folder / "weather.nmp").write_bytes(to_bytes(nets.weather(), {}))
    for cases in BY_OP.values():
        for case in cases[:: -(-len(cases) // PER_OP)]:
            data = to_bytes(nets.placed(case.graph), {})
            if len(data) < SMALL:
                (folder / f"{case.id.replace('/', '-')}.nmp").write_bytes(data)
    return sorted(folder.iterdir())


def run(fuzzer: Path, mutants: int, seeds: list[Path]) -> None:
    found = subprocess.run([fuzzer, "0", str(mutants), "1", *seeds], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    rows = dict(reversed(line.split(maxsplit=2)[:2]) for line in found.stdout.splitlines())
    assert sum(int(count) for count in rows.values()) == mutants
    for status in ("0", "3", "4", "5", "6", "7"):  # every depth of verification is reached
        assert int(rows[status]) > mutants // 200, found.stdout


def test_every_op_is_among_the_seeds(seeds: list[Path]) -> None:
    assert {path.stem.split("-")[0] for path in seeds} >= set(OPS)


@pytest.mark.slow
def test_mutants(build: Build, seeds: list[Path]) -> None:
    """The portable level: the others take a minute and a half to build."""
    run(build(portable=True), 3_000, seeds)


@pytest.mark.slow
@pytest.mark.soak
def test_many_mutants(build: Build, seeds: list[Path]) -> None:
    run(build(), 50_000, seeds)
