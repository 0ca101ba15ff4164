"""Collects tests once. Each line of JSON asks for a fork that has a change in it and runs some of them.

In: {"tests": names, files and folders in their order, "seconds": of the processor for all, "file": a changed source of
Python, with "text" as it was, or "library": another build of the interpreter, and "entries" as `live.redirect` takes
them}. Out: as of `mutation.runner`, and "applied": whether the change could be put in.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mutation import live
from mutation.runner import QUICK, Chosen, in_a_fork

NOT_APPLIED, OVER = 99, 98  # exit statuses
BUSY = 20  # times as long as the processor takes, at most


class Warm:
    """Plugin of pytest, which answers in place of running all tests."""

    def __init__(self, last: Path) -> None:
        self.last = last
        self.lines, self.answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        there = live.functions(f"{Path.cwd()}{os.sep}")
        gc.collect()
        gc.freeze()
        self.tell({"collected": [item.nodeid for item in session.items]})
        for line in self.lines:
            asked = json.loads(line)
            run = partial(_run, session, there, asked, self.last)
            code, over = in_a_fork(run, BUSY * asked["seconds"], self.last)
            failed = self.last.read_text(encoding="utf-8") if code not in (0, NOT_APPLIED, OVER) else None
            self.tell({"failed": failed, "over": over or code == OVER, "applied": code != NOT_APPLIED})
        return True

    def tell(self, answer: dict[str, Any]) -> None:
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()


def _run(session: pytest.Session, there: live.Functions, asked: dict[str, Any], last: Path) -> int:
    """Exit status of the fork."""
    if file := asked.get("file"):
        path = Path.cwd() / file
        if not live.swap(there, str(path), asked["text"], path.read_text(encoding="utf-8")):
            return NOT_APPLIED
    if library := asked.get("library"):
        os.environ.pop("NMP_ONCE", None)  # the change is in what tests compile
        loaded = Path(sys.modules["nmpconv._nmp"].__file__ or "")
        live.redirect(loaded, Path(library), asked["entries"])
    chosen = Chosen(asked["tests"], last)
    session.config.pluginmanager.register(chosen)
    items, before = list(session.items), sum(os.times()[:4])
    chosen.pytest_collection_modifyitems(items)
    for item, following in pairwise((*items, None)):
        assert item is not None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
        if following and sum(os.times()[:4]) - before > asked["seconds"]:
            return OVER
    return 0


def main() -> int:
    """Folders of tests are the program's arguments."""
    last = Path("build/last_warm_test").absolute()
    return int(pytest.main([*QUICK, *sys.argv[1:]], plugins=[Warm(last)]))


if __name__ == "__main__":
    sys.exit(main())
