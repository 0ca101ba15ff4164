"""Collections of garbage in a conversion: a graph of thousands of nodes holds none, and a look at it takes long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

SELDOM = 50_000, 20, 20  # thresholds of the three generations

_LOCK = Lock()
_BEFORE: list[tuple[int, int, int]] = []  # thresholds, one for each that is within


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collects garbage seldom within, in whichever thread; a program that does so less often, or never, stays so."""
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else gc.get_threshold())
        if 0 < gc.get_threshold()[0] < SELDOM[0]:
            gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                gc.set_threshold(*before)
