"""Runs tests in forks of a process that has loaded their libraries: a line of JSON in, a line out.

In: {"tests": [...], "seconds": of all, "once": whether what other runs compiled may be used, of NMP_ONCE}. Out:
{"failed": the first test that fails or takes too long, or null,
"over": whether the time was over first}.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

QUICK = ("-q", "-x", "-m", "not slow and not zoo", "-p", "no:cacheprovider")
SECONDS = 20  # of the processor for one test with what it sets up; nine times as long in all, on a busy machine
COMPILING = {"once", "need_tool"}  # fixtures of tests that take long to set up
EARLY = "tests/device/"  # all of these need what is compiled for all of them
COLLECTING = "the collection of tests"
PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR)  # no such file


class Chosen:
    """Plugin of pytest: these tests, files and folders in their order, but those last that compile something before
    they begin. last: file with the test that began last."""

    def __init__(self, tests: list[str], last: Path) -> None:
        self.order, self.last = {test: i for i, test in enumerate(tests)}, last

    def _place(self, item: pytest.Item) -> tuple[bool, int]:
        compiles = not COMPILING.isdisjoint(getattr(item, "fixturenames", ())) and not item.nodeid.startswith(EARLY)
        return compiles, self.order.get(item.nodeid, len(self.order))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wholes = [test for test in self.order if "::" not in test]
        chosen = [item for item in items if item.nodeid in self.order or item.nodeid.startswith(tuple(wholes))]
        items[:] = sorted(chosen, key=self._place)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self.last.write_text(item.nodeid, encoding="utf-8")
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # ends the process: C code may hold the lock
            faulthandler.dump_traceback_later(9 * SECONDS, exit=True, file=nowhere)
            try:
                return (yield)
            finally:
                faulthandler.cancel_dump_traceback_later()
                signal.setitimer(signal.ITIMER_PROF, 0)


def in_a_fork(task: Callable[[], int], seconds: float, last: Path) -> tuple[int, bool]:
    """Exit status of a process of its own that does this, not 0 where a signal ended it, and whether it was out of
    time."""
    last.write_text(COLLECTING, encoding="utf-8")
    end = time.monotonic() + seconds
    child = os.fork()
    if not child:
        os.setsid()
        code = 1
        try:
            code = task()
        finally:
            os._exit(code)
    while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.02)
    over = not done[0]
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what its tests started
    if over:
        os.waitpid(child, 0)
    return 0 if over else os.waitstatus_to_exitcode(done[1]), over


def answer(tests: list[str], seconds: float, last: Path, once: bool = True) -> dict[str, Any]:
    """Answers one line: what these tests, run in a process of their own, say."""

    def run() -> int:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        if not once:
            os.environ.pop("NMP_ONCE", None)
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        return pytest.main([*QUICK, *files], plugins=[Chosen(tests, last)])

    code, over = in_a_fork(run, seconds, last)
    return {"failed": None if code in PASSED else last.read_text(encoding="utf-8"), "over": over}


if __name__ == "__main__":
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(threads, "1")
    for library in ("numpy", "onnx", "onnxruntime"):
        import_module(library)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line), last=Path("build/last_test").absolute())), flush=True)
