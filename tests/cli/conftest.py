"""A command line in its own folder: what a command printed, its exit code, and what it left behind."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cli_files
import every_command
import onnx
import pytest

from nmpconv.cli import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    left: list[str]  # files that were not there before, and those that have changed

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Ran]


@pytest.fixture(scope="session")
def inputs(once: Callable[..., Path], agent: Path) -> Path:
    """The folder that the command lines of `every_command` name; to be copied."""

    def write(here: Path) -> None:
        every_command.write_inputs(here)
        for name in (agent.name, "built.json"):
            shutil.copy(agent.parent / name, here)

    return once("inputs-of-every-command", write)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with model.onnx, model.nmp and images/."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("NMP_DEBUG", raising=False)
    onnx.save(cli_files.onnx_model(), "model.onnx")
    Path("model.nmp").write_bytes(cli_files.nmp_bytes())
    cli_files.images(Path("images"))
    return tmp_path / "here"


@pytest.fixture
def cli(here: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """cli(*arguments): runs one command in `here`."""

    def run(*arguments: object) -> Ran:
        before = _contents(here)
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert not (twice := _said_twice(err)), twice
        after = _contents(here)
        return Ran(int(code), out, err, sorted(name for name in after if after[name] != before.get(name)))

    return run


def _said_twice(err: str) -> list[str]:
    """Errors whose message repeats the place that they begin with, or a system's or a library's way of saying error."""
    errors = [line.partition(": ")[2].partition(": ") for line in err.splitlines() if line.startswith("error: ")]
    odd = ("[Errno", "Value error", "Invalid value for", "Input should be", "error: ")
    again = [where for where, _, message in errors if re.search(r"[-./]", where) and where in message.split()]
    return [*again, *(message for _, _, message in errors if any(text in message for text in odd))]


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
