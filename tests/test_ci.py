"""The continuous integration runs what it says, where users' clones lie."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

STUBS = {
    "dpkg-query": "echo install ok installed",
    "make": 'echo "$* in $PWD of $(git rev-list --count HEAD) commit, zoo $NMP_ZOO"',
}


@pytest.mark.parametrize(("name", "soak"), [("nmpconv", []), ("work", ["test-soak"])])
def test_tests_run_in_a_folder_called_nmpconv(root: Path, tmp_path: Path, name: str, soak: list[str]) -> None:
    here, tools, temporary = (tmp_path / folder for folder in (name, "tools", "temporary"))
    for folder in (here / ".ci", tools, temporary):
        folder.mkdir(parents=True)
    for stub, line in STUBS.items():
        (tools / stub).write_text(f"#!/bin/sh\n{line}\n")
        (tools / stub).chmod(0o755)
    shutil.copy(root / ".ci" / "run", here / ".ci")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(here)]
    for step in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *step], check=True)
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "TMPDIR": str(temporary),
        "NMP_ZOO": str(tmp_path),
        "NMP_SOAK": "1" * len(soak),
    }
    ran = subprocess.run([here / ".ci" / "run"], env=environment, capture_output=True, text=True, check=True)
    lines = [line for line in ran.stdout.splitlines() if not line.startswith("==")]
    asked = [word for line in lines for word in line.partition(" in ")[0].split() if word[0] not in "-.0123456789"]
    lint = re.search(r"^lint: (.*?)  ##", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert lint is not None and set(lint[1].split()) < set(asked)
    assert asked == ["set-up", "lint-c", "lint-analyzer", "lint-packaged", "docs", "demo", "test", "test-slow", *soak]
    assert all(f"/nmpconv of 1 commit, zoo {tmp_path}" in line for line in lines), lines
    assert all(str(here if name == "nmpconv" else temporary) in line for line in lines), lines
    assert ran.stderr == "" and list(temporary.iterdir()) == []  # the clone is gone
