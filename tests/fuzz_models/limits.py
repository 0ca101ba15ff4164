"""Work in a forked process with bounds on memory and time: a crash of it is a result."""

from __future__ import annotations

import faulthandler
import math
import os
import pickle
import resource
import selectors
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 60.0  # of the processor, for one check
PATIENCE = 5.0  # times as long by the clock, for machines that do other things too
BYTES = 512 << 20  # more than the process had when it was forked


@dataclass(frozen=True)
class Crash:
    """The process ended without a result."""

    why: str


class Task(NamedTuple):
    """work(folder), in at most so many seconds of the processor. Its folder is empty and goes with it."""

    key: Any
    work: Callable[[Path], Any]
    seconds: float = SECONDS


class _Child:
    """A forked process that does the work and writes the pickled result to a pipe."""

    def __init__(self, task: Task) -> None:
        self.key, self.parts = task.key, list[bytes]()
        self.deadline = time.monotonic() + PATIENCE * task.seconds
        self.pipe, end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _run(task, end)
        os.close(end)

    def finished(self) -> Any:
        """The result, or how it ended."""
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            late = number == signal.SIGXCPU or (number == signal.SIGKILL and time.monotonic() > self.deadline)
            return Crash("takes too long" if late else f"ends by {signal.Signals(number).name}")
        data = b"".join(self.parts)
        return pickle.loads(data) if data else Crash(f"exits with {os.WEXITSTATUS(status)}")


def _run(task: Task, end: int) -> None:
    """Never returns."""
    try:
        os.setpgid(0, 0)
        faulthandler.disable()  # pytest's writes to the terminal, and a crash is a result
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = used + BYTES if hard == resource.RLIM_INFINITY else min(used + BYTES, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(task.seconds), resource.RLIM_INFINITY))
        with tempfile.TemporaryDirectory(prefix="fuzz-models-") as folder, os.fdopen(end, "wb") as pipe:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries talk there
            pipe.write(pickle.dumps(_result(task.work, Path(folder))))
    except BaseException:  # whatever it is: the process must end here
        os._exit(1)
    os._exit(0)


def _result(work: Callable[[Path], Any], folder: Path) -> Any:
    try:
        return work(folder)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Crash(f"raises {type(error).__name__} in {Path(last.filename).stem}.{last.name}")


def limited(work: Callable[[Path], Any], seconds: float = SECONDS) -> Any:
    """work(folder) in a process of its own; Crash where that ends without a result."""
    [(_, result)] = side_by_side([Task(None, work, seconds)], 1)
    return result


def side_by_side(tasks: Iterable[Task], jobs: int) -> Iterator[tuple[Any, Any]]:
    """(key, result) of each task as it ends, at most ``jobs`` at a time. Tasks are taken when there is room."""
    waiting = iter(tasks)
    running: dict[int, _Child] = {}
    more = True
    with selectors.DefaultSelector() as ready:
        while more or running:
            while more and len(running) < jobs:
                task = next(waiting, None)
                if task is None:
                    more = False
                else:
                    child = _Child(task)
                    running[child.pipe] = child
                    ready.register(child.pipe, selectors.EVENT_READ)
            for event, _ in ready.select(0.5) if running else ():
                child = running[event.fd]
                if part := os.read(event.fd, 1 << 20):
                    child.parts.append(part)
                else:
                    ready.unregister(event.fd)
                    del running[event.fd]
                    yield child.key, child.finished()
            for child in running.values():
                if time.monotonic() > child.deadline:
                    os.kill(child.pid, signal.SIGKILL)
