"""The GitHub Action, without GitHub: its script on two states of a project, and what its file says of both."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nmpconv.errors import ExitCode

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / ".github" / "build_summary.py"
PROJECT = """
model = "model.onnx"
output = "built"
[data]
calibration = "images"
[convert]
bits = "{bits}"
[gates]
max_flash = {flash}
"""


def write(folder: Path, bits: str, flash: int) -> Path:
    folder.mkdir(exist_ok=True)
    for name in ("model.onnx", "images"):
        if not (folder / name).exists():
            (shutil.copytree if Path(name).is_dir() else shutil.copy)(name, folder / name)
    (folder / "nmpconv.toml").write_text(PROJECT.format(bits=bits, flash=flash))
    return folder


def run(here: Path, *arguments: Path | str) -> tuple[int, str]:
    path = here / "summary.md"
    path.write_text("what another step wrote\n")
    command = [sys.executable, SCRIPT, *arguments]
    ran = subprocess.run(
        command, env={**os.environ, "GITHUB_STEP_SUMMARY": str(path)}, capture_output=True, check=False
    )
    text = path.read_text()
    assert text.startswith("what another step wrote\n## nmpconv build\n"), ran.stderr
    return ran.returncode, text


@pytest.mark.slow
def test_the_difference_and_a_missed_gate(here: Path) -> None:
    before, now = write(here / "before", "8", 10**6), write(here / "now", "16", 10**6)
    code, text = run(here, now, "--before", before)
    assert code == 0
    assert "### model" in text
    rows = {line.split("|")[1].strip(): line.split("|")[2:5] for line in text.splitlines() if line.startswith("| ")}
    assert {"SQNR", "RAM", "flash"} <= set(rows)
    assert rows["RAM"][2].strip().startswith("+")
    assert "worse" in rows["RAM"][2]
    assert rows["SQNR"][2].strip().startswith("+")
    assert "worse" not in rows["SQNR"][2]
    write(now, "16", 10)
    code, text = run(here, now, "--before", here / "gone")
    assert code == ExitCode.GATE
    assert "- missed: max_flash 10, found" in text
    assert re.search(r"\| flash \| – \| [\d,]+ B \| new \|", text)


def test_a_build_that_fails_says_why(here: Path) -> None:
    (here / "broken").mkdir()
    (here / "broken" / "nmpconv.toml").write_text('model = "gone.onnx"\n')
    code, text = run(here, here / "broken")
    assert code not in (0, ExitCode.GATE)
    assert "**" in text


def test_the_action_runs_the_script() -> None:
    text = (ROOT / "action.yml").read_text()
    assert f'"$ACTION/{SCRIPT.relative_to(ROOT).as_posix()}"' in text
    given, used = (
        set(re.findall(r"^  (\w+):\n    description", text, re.MULTILINE)),
        set(re.findall(r"inputs\.(\w+)", text)),
    )
    assert given == used == {"project", "before", "device", "boards", "token"}
