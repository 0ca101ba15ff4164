"""Mutants of files with every op, under AddressSanitizer and UndefinedBehaviorSanitizer: refused, or run to the end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import nets
import pytest

from nmpconv.ops import OPS
from nmpconv.writer import to_bytes

SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
FLAGS = ["-std=c99", "-D_POSIX_C_SOURCE=200112L", "-g", "-O1", *SANITIZE]
SMALL = 6000  # bytes of a seed: in larger ones most mutations hit weights


@pytest.fixture(scope="module")
def fuzzer(root: Path, tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[..., str]) -> Path:
    c = root / "interpreter"
    program = tmp_path_factory.mktemp("fuzz") / "fuzz_model"
    sources = [p for part in ("src", "src/ops", "src/gen") for p in sorted((c / part).glob("*.c"))]
    command = [need_tool("gcc", "clang", "clang-16"), *FLAGS, f"-I{c / 'include'}", f"-I{c / 'src'}"]
    subprocess.run([*command, c / "tests" / "fuzz_model.c", *sources, "-o", program], check=True)
    return program


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The small net and the small cases of every op."""
    folder = tmp_path_factory.mktemp("seeds")
    graphs = {"small_net": nets.small_net()}
    graphs |= {case.id: nets.placed(case.graph) for op in OPS.values() for case in op.cases()}
    files = {name.replace("/", "-"): to_bytes(graph, {}) for name, graph in graphs.items()}
    for name, data in files.items():
        if len(data) < SMALL:
            (folder / f"{name}.nmp").write_bytes(data)
    return sorted(folder.iterdir())


def run(fuzzer: Path, mutants: int, seeds: list[Path]) -> None:
    found = subprocess.run([fuzzer, "0", str(mutants), "1", *seeds], capture_output=True, text=True)
    assert found.returncode == 0, f"{found.stderr}\n{[path.name for path in seeds]}"
    rows = dict(reversed(line.split(maxsplit=2)[:2]) for line in found.stdout.splitlines())
    assert sum(int(count) for count in rows.values()) == mutants
    for status in ("0", "3", "4", "5", "6", "7"):  # every depth of verification is reached
        assert int(rows[status]) > mutants // 200, found.stdout


def test_every_op_is_among_the_seeds(seeds: list[Path]) -> None:
    assert {path.stem.split("-")[0] for path in seeds} >= set(OPS)


def test_mutants(fuzzer: Path, seeds: list[Path]) -> None:
    run(fuzzer, 3_000, seeds)


@pytest.mark.slow
def test_many_mutants(fuzzer: Path, seeds: list[Path]) -> None:
    run(fuzzer, 100_000, seeds)
