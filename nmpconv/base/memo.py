"""Things that are made once: when they are asked for, and known again by what they were made of."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A thunk: computed on first call, recomputed after it was let go."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._lock = make, Lock()
        self._made: list[T] = []

    def __call__(self) -> T:
        with self._lock:
            self._made = self._made or [self._make()]
            return self._made[0]

    def let_go(self) -> None:
        self._made = []


class Is(NamedTuple):
    """A thing itself, as part of a key: no other one is equal to it."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Is) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)
