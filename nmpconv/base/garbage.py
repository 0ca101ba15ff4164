"""Collections of garbage: what a graph of thousands of nodes is made of is none, and to look through it takes long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 50_000, 20, 20  # thresholds of the three generations


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collects garbage seldom within."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
