"""Work on the CPUs that are idle, in threads. Results do not depend on how many there are.

Numpy, onnxruntime and the interpreter let other threads run while they compute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from threading import Lock, Semaphore, Thread
from typing import Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")

MOST = 4  # threads for the same items; each holds the memory of one


def cpu_count() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_idle = Semaphore(cpu_count() - 1)


def among(processes: int) -> None:
    """Shares the CPUs among so many processes, this one included. Call it before starting work."""
    global _idle
    _idle = Semaphore(max(cpu_count() // processes, 1) - 1)


def each(function: Callable[[S], T], items: Iterable[S], most: int = MOST) -> list[T]:
    """[function(item) for item in items]; what is given out inside of a function finds only what is left idle.

    most: threads. Items are begun in their order; the first one's error is raised, and those after it are left out.
    """
    items = list(items)
    if most == 1 or len(items) < 2:
        return [function(item) for item in items]
    return _Run(function, items, most).results()


class _Run(Generic[S, T]):
    def __init__(self, function: Callable[[S], T], items: Sequence[S], most: int) -> None:
        self._function, self._left, self._most = function, items, most
        self._begun, self._lock = 0, Lock()
        self._found: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}
        self._helpers: list[Thread] = []

    def results(self) -> list[T]:
        while (i := self._next()) is not None:
            self._ask_for_help()
            self._do(i)
        if self._helpers:
            _idle.release()  # who waits leaves a CPU idle
            for helper in self._helpers:
                helper.join()
            _idle.acquire()
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._found[i] for i in range(len(self._left))]

    def _next(self) -> int | None:
        with self._lock:
            if self._errors or self._begun == len(self._left):
                return None
            self._begun += 1
            return self._begun - 1

    def _do(self, i: int) -> None:
        try:
            self._found[i] = self._function(self._left[i])
        except BaseException as error:
            self._errors[i] = error

    def _ask_for_help(self) -> None:
        while len(self._helpers) + 1 < self._most and self._begun < len(self._left) and _idle.acquire(blocking=False):
            helper = Thread(target=self._help, daemon=True)
            self._helpers.append(helper)
            helper.start()

    def _help(self) -> None:
        try:
            while (i := self._next()) is not None:
                self._do(i)
        finally:
            _idle.release()
