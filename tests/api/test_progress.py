"""progress=True: bars on a terminal or by tqdm in a notebook, else lines on stderr; never left behind."""

from __future__ import annotations

import io
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any

import cli_files
import numpy as np
import pytest

import nmpconv
from nmpconv.api import progress_bars
from nmpconv.errors import InputError

ARRAYS = np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    converted = nmpconv.convert(cli_files.onnx_model(), ARRAYS, progress=True)
    told = capsys.readouterr()
    assert told.out == ""
    assert "calibrate: 8/8\n" in told.err
    assert "quantize: 1/1\n" in told.err
    nmpconv.evaluate(converted, ARRAYS, progress=True)
    assert capsys.readouterr().err == "evaluate: 8/8\n"
    nmpconv.bench(converted, runs=2, warmup=1, progress=True)
    assert "warm up: 1/1\n" in capsys.readouterr().err


@pytest.mark.parametrize("quiet", [False, None])
def test_nothing_without(quiet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    nmpconv.convert(cli_files.onnx_model(), ARRAYS, progress=quiet)
    assert capsys.readouterr() == ("", "")


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bars.bars() as shown:
        shown("calibrate", 3, 8)
    assert "calibrate" in stream.getvalue()
    assert stream.getvalue().count("\x1b[?25h") == 1  # the cursor is there again


class Bar:
    """As much of tqdm's as is used."""

    made: list[Bar] = []  # noqa: RUF012

    def __init__(self, desc: str, leave: bool) -> None:
        self.desc, self.leave, self.n, self.total, self.seen, self.closed = desc, leave, 0, 0, [], False
        self.made.append(self)

    def refresh(self) -> None:
        self.seen.append((self.n, self.total))

    def close(self) -> None:
        self.closed = True


def test_tqdm_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed after an error, too."""
    tqdm = types.ModuleType("tqdm")
    tqdm.__spec__ = ModuleSpec("tqdm", None)
    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = Bar  # type: ignore[attr-defined]
    for name, module in (("ipykernel", types.ModuleType("ipykernel")), ("tqdm", tqdm), ("tqdm.auto", auto)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Bar, "made", [])
    nmpconv.convert(cli_files.onnx_model(), ARRAYS, progress=True)
    [bar] = [bar for bar in Bar.made if bar.desc == "calibrate"]
    assert bar.seen[-1] == (8, 8)
    assert all(bar.closed and not bar.leave for bar in Bar.made)
    Bar.made.clear()
    broken = [*ARRAYS, np.full((3, 8, 8), np.nan, np.float32)]
    with pytest.raises(InputError):
        nmpconv.evaluate(nmpconv.convert(cli_files.onnx_model(), ARRAYS), broken, progress=True)
    assert Bar.made and all(bar.closed for bar in Bar.made)
