"""Crashes and errors of what the fuzzer runs are results, with the place that they come from."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from fuzz_models.limits import Crash, Task, limited, side_by_side
from fuzz_models.outcome import place


def broken() -> NoReturn:
    raise KeyError("planted")


def test_crashes_are_results() -> None:
    assert limited(lambda _: 7) == 7
    assert limited(lambda _: os.kill(os.getpid(), signal.SIGSEGV)) == Crash("ends by SIGSEGV")
    assert limited(lambda _: broken()) == Crash("raises KeyError in test_limits.broken")
    assert limited(lambda _: os._exit(3)) == Crash("exits with 3")
    assert limited(lambda _: signal.pause(), seconds=0.1) == Crash("takes too long")


def test_a_crash_prints_nothing() -> None:
    """Not even where faults are reported to a terminal of their own, as pytest does."""
    code = "\n".join(
        [
            "import faulthandler, os, signal",
            "from fuzz_models.limits import limited",
            "faulthandler.enable(os.dup(2))",
            "print(limited(lambda _: os.kill(os.getpid(), signal.SIGSEGV)).why)",
        ]
    )
    tests = Path(__file__).parent.parent
    ended = subprocess.run([sys.executable, "-c", code], cwd=tests, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("ends by SIGSEGV\n", "")


def test_time_of_the_processor_is_bounded() -> None:
    assert limited(lambda _: all(itertools.repeat(1)), seconds=1) == Crash("takes too long")


def test_memory_is_bounded() -> None:
    found = limited(lambda _: np.ones(1 << 30).sum())
    assert isinstance(found, Crash) and "MemoryError" in found.why


def test_tasks_side_by_side() -> None:
    tasks = (Task(i, lambda _, i=i: i * i) for i in range(20))
    assert dict(side_by_side(tasks, 3)) == {i: i * i for i in range(20)}


def test_the_place_of_an_error_is_one_of_the_package() -> None:
    """In a clone, folders above the tests are called nmpconv, too."""
    test, package = "/me/nmpconv/tests/a.py", "/me/nmpconv/nmpconv/ops/b.py"
    for path, name, expected in ((test, "a", "?"), (package, "nmpconv.ops.b", "b.broken")):
        there = {"__name__": name}
        exec(compile("def broken():\n  raise KeyError('planted')", path, "exec"), there)
        with pytest.raises(KeyError) as caught:
            there["broken"]()
        assert place(caught.value) == expected
