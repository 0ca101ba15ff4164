"""Hostile frames for the agent, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import nets
import pytest
from c_core import Library
from op_cases import BY_OP

from nmpconv.file.writer import to_bytes


@pytest.fixture(scope="module")
def fuzzer(root: Path, tmp_path_factory: pytest.TempPathFactory, sanitized: Callable[..., Library]) -> Path:
    """With the interpreter as on boards, without the CPU levels of PCs."""
    c = root / "interpreter"
    files = [c / "firmware" / "agent.c", c / "firmware" / "frame.c", c / "tests" / "fuzz_agent.c"]
    program = tmp_path_factory.mktemp("fuzz") / "fuzz_agent"
    return sanitized(portable=True).program(program, f"-I{c / 'firmware'}", *files)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    graphs = [nets.small_net(), *(nets.placed(cases[0].graph) for cases in BY_OP.values())]
    for i, graph in enumerate(graphs):
        (folder / f"{i}.nmp").write_bytes(to_bytes(graph, {}))
    return sorted(path for path in folder.iterdir() if path.stat().st_size < 3000)


def run(fuzzer: Path, frames: int, models: list[Path]) -> None:
    found = subprocess.run([fuzzer, "1", str(frames), *models], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    answered, refused, runs = (int(word) for word in found.stdout.split()[::2])
    assert answered > frames // 2 and refused > frames // 8 and runs > frames // 100, found.stdout


@pytest.mark.slow
def test_many_frames(fuzzer: Path, models: list[Path]) -> None:
    run(fuzzer, 300_000, models)
