"""Hostile frames for the agent, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import nets
import pytest
from c_core import includes, sources

from nmpconv.file.writer import to_bytes
from nmpconv.ops import OPS

# The interpreter as on boards, without the CPU levels of PCs.
FLAGS = ["-std=c99", "-D_POSIX_C_SOURCE=200112L", "-DNMP_FIXED_CPU=1", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="module")
def fuzzer(root: Path, tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[..., str]) -> Path:
    c = root / "interpreter"
    program = tmp_path_factory.mktemp("fuzz") / "fuzz_agent"
    files = [*sources(root), c / "firmware" / "agent.c", c / "firmware" / "frame.c", c / "tests" / "fuzz_agent.c"]
    command = [
        need_tool("gcc", "clang", "clang-16"),
        *FLAGS,
        *SANITIZE,
        *includes(root),
        f"-I{c / 'firmware'}",
        *files,
        "-o",
        program,
    ]
    subprocess.run(command, check=True)
    return program


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    graphs = [nets.small_net(), *(nets.placed(next(iter(op.cases())).graph) for op in OPS.values())]
    for i, graph in enumerate(graphs):
        (folder / f"{i}.nmp").write_bytes(to_bytes(graph, {}))
    return sorted(path for path in folder.iterdir() if path.stat().st_size < 3000)


def run(fuzzer: Path, frames: int, models: list[Path], seed: int = 1) -> None:
    found = subprocess.run([fuzzer, str(seed), str(frames), *models], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    answered, refused, runs = (int(word) for word in found.stdout.split()[::2])
    assert answered > frames // 2 and refused > frames // 8 and runs > frames // 100, found.stdout


def test_frames(fuzzer: Path, models: list[Path]) -> None:
    run(fuzzer, 100_000, models)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_ten_million_frames(fuzzer: Path, models: list[Path], seed: int) -> None:
    run(fuzzer, 1_000_000, models, seed)
