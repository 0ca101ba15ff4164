"""Plugin of pytest: appends to $NMP_TOUCHED the functions of nmpconv and the interpreter that each test calls.

A line is a test that passed: its name, its seconds, the numbers of its functions, and the names of functions that no
line before has; they are numbered from 0 on. Calls of Python in processes that the test starts count, those of C there
do not.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

from mutation.below import follow, has_name
from mutation.functions import Functions

ROOT = Path.cwd()
PACKAGE = f"{ROOT / 'nmpconv'}{os.sep}"
CALLED: set[CodeType] = set()


def _called(frame: FrameType, event: str, arg: Any) -> None:
    CALLED.add(frame.f_code)


class _Interpreter:
    """Counters of the C functions; none without the preloaded library."""

    def __init__(self, functions: Functions) -> None:
        self.counters, self.names = np.zeros(0, np.uint8), list[str]()
        try:
            bounds = [
                ctypes.c_void_p.in_dll(ctypes.CDLL(None), f"{kind}_{end}").value
                for kind in ("counters", "places")
                for end in ("first", "last")
            ]
        except ValueError:
            return
        if not bounds[0]:
            return
        first, last, places, end = (value or 0 for value in bounds)
        self.counters = np.ctypeslib.as_array((ctypes.c_uint8 * (last - first)).from_address(first))
        table = np.ctypeslib.as_array((ctypes.c_size_t * ((end - places) // 8)).from_address(places)).reshape(-1, 2)
        self.begins = np.flatnonzero(table[:, 1] & 1)
        path, base = next(
            (line.split()[-1], int(line.split("-")[0], 16))
            for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
            if "_nmp" in line
        )
        text = subprocess.run(
            ["addr2line", "-e", path],
            input="".join(f"{address - base:#x}\n" for address in table[self.begins, 0]),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for line in text.splitlines():
            file, _, number = line.split(" ")[0].rpartition(":")
            name = os.path.relpath(file, ROOT)
            ours = name.startswith("interpreter/src/") and number.isdigit()
            self.names.append(functions.name(name, int(number)) if ours else "")

    def reset(self) -> None:
        self.counters[:] = 0

    def called(self) -> Iterator[str]:
        if self.names:
            yield from (self.names[i] for i in np.flatnonzero(self.counters[self.begins]) if self.names[i])


class Touched:
    """path: of the lines. below: file that other processes append to."""

    def __init__(self, path: Path, below: Path) -> None:
        self.path, self.below = path, below
        self.functions, self.numbers = Functions(ROOT), dict[str, int]()
        self.interpreter: _Interpreter | None = None
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            for name in json.loads(line)["new"]:
                self.numbers[name] = len(self.numbers)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        if self.interpreter is None and "nmpconv._nmp" in sys.modules:
            self.interpreter = _Interpreter(self.functions)
        self.passed = False
        CALLED.clear()
        self.below.write_bytes(b"")
        if self.interpreter:
            self.interpreter.reset()
        start = time.perf_counter()
        threading.settrace(_called)
        sys.settrace(_called)
        try:
            result = yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        if self.passed:
            self.write(item.nodeid, time.perf_counter() - start)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.passed = report.passed

    def write(self, test: str, seconds: float) -> None:
        called = {
            self.functions.name(code.co_filename[len(str(ROOT)) + 1 :], code.co_firstlineno)
            for code in CALLED
            if code.co_filename.startswith(PACKAGE) and has_name(code)
        }
        for place in set(self.below.read_text(encoding="utf-8").splitlines()):
            file, _, line = place.rpartition(":")
            called.add(self.functions.name(file[len(str(ROOT)) + 1 :], int(line)))
        names = sorted(called.union(self.interpreter.called() if self.interpreter else ()))
        new = [name for name in names if name not in self.numbers]
        self.numbers |= {name: len(self.numbers) + i for i, name in enumerate(new)}
        touched = [self.numbers[name] for name in names]
        row = {"test": test, "seconds": round(seconds, 3), "touched": touched, "new": new}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("LD_PRELOAD", None)  # not for other processes
    path = Path(os.environ["NMP_TOUCHED"])
    below = path.with_suffix(".below")
    os.environ |= {"NMP_BELOW": str(below), "NMP_PACKAGE": PACKAGE}
    os.register_at_fork(after_in_child=lambda: follow(str(below), PACKAGE))
    config.pluginmanager.register(Touched(path, below))
