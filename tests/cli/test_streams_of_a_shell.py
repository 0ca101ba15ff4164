"""Streams that are closed or full, and Ctrl-C at any time: as a shell's own programs do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import cli_files
import onnx
import pytest

from nmpconv import __main__ as program

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as most shells are
PROGRAM = [sys.executable, "-m", "nmpconv"]
CONVERT = "convert model.onnx --data images --rounding nearest --equalize none -o m.nmp"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("streams")
    onnx.save(cli_files.onnx_model(), here / "model.onnx")
    cli_files.images(here / "images")
    return here


def shell(folder: Path, command: str, streams: str) -> int:
    words = " ".join(f"'{word}'" for word in [*PROGRAM, *command.split()])
    return subprocess.run(["sh", "-c", f"{words} {streams}"], cwd=folder, env=BUFFERED, check=False).returncode


@pytest.mark.parametrize(
    ("command", "streams", "code"),
    [
        (CONVERT, ">&- 2>&- <&-", 0),
        (CONVERT, "2>/dev/full >/dev/null", 0),
        (CONVERT, ">/dev/full 2>/dev/null", 6),
        ("inspect absent.nmp", "2>&-", 3),
        ("inspect absent.nmp", "2>/dev/full", 3),
        ("ops --json", ">&-", 0),
        ("ops", ">/dev/full 2>/dev/null", 6),
        ("--version", ">/dev/full 2>/dev/null", 6),
    ],
)
def test_closed_and_full_streams(folder: Path, command: str, streams: str, code: int) -> None:
    (folder / "m.nmp").unlink(missing_ok=True)
    assert shell(folder, command, streams) == code
    assert (folder / "m.nmp").is_file() == command.startswith("convert")
    if command.startswith("convert"):
        assert (folder / "m.nmp").read_bytes()[4:8] == b"NMP1"


@pytest.mark.parametrize("seconds", [0.15, 0.25, 0.4, 0.5, 0.8])
def test_interrupted_while_it_starts(folder: Path, seconds: float) -> None:
    """Before `main` Python itself says that it was interrupted."""
    process = subprocess.Popen(
        [*PROGRAM, *CONVERT.split()],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    before_runpy = "Could not import runpy module" in told  # the interpreter itself then ends with 1
    assert process.returncode in (130, -signal.SIGINT, 0) or before_runpy, told
    assert "Traceback" not in told or ", in main\n" not in told, told
    assert "bug of nmpconv" not in told


def test_an_interrupt_waits_for_a_library_to_start() -> None:
    """In onnx's start an exception was a crash."""
    reached = []

    class Loader(ExtensionFileLoader):
        def create_module(self, spec: object) -> None:  # type: ignore[override]
            signal.raise_signal(signal.SIGINT)
            reached.append(spec)

    def start() -> None:
        Loader("name", "path").create_module("spec")
        for _ in range(500):  # the timer's thread gets the signal: what sleeps here is not woken
            time.sleep(0.02)

    before = signal.signal(signal.SIGINT, program._interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached == ["spec"]
