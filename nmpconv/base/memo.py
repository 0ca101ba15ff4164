"""Lazy values, memoized by identity."""

from __future__ import annotations

from collections.abc import Callable, Hashable
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

    def results(self) -> list[T]:
        """The result alone, or nothing where it is not there now."""
        return list(self._made)

    def let_go(self) -> None:
        self._made = []


class Memo:
    """Results by kind and key, each made once while other threads wait for it, until it is dropped.

    What one thread makes may ask for other results. A pickled copy is empty.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, Hashable], Once[Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Memo, ()

    def __call__(self, kind: str, key: Hashable, make: Callable[[], T]) -> T:
        """The result, made by `make` where there is none. Nothing is kept where that raises."""
        once = self._made.setdefault((kind, key), Once(make))
        try:
            return once()
        except BaseException:
            self._made.pop((kind, key), None)
            raise

    def find(self, kind: str, key: Hashable) -> Any | None:
        """The result, or None where none is made yet."""
        once = self._made.get((kind, key))
        return next(iter(once.results()), None) if once else None

    def of(self, kind: str) -> list[tuple[Any, Any]]:
        """(key, result) of all results of a kind, oldest first."""
        return [
            (key, result) for (of, key), once in list(self._made.items()) if of == kind for result in once.results()
        ]

    def only(self, *kinds: str) -> Memo:
        """A memo that begins with the results of these kinds."""
        other = Memo()
        other._made = {key: once for key, once in list(self._made.items()) if key[0] in kinds}
        return other

    def keep(self, kind: str, wanted: Callable[[Any], bool]) -> None:
        """Drops the results of a kind whose keys are not wanted."""
        self._made = {key: once for key, once in self._made.items() if key[0] != kind or wanted(key[1])}


class Recent(Generic[T]):
    """Results of pure functions by what they depend on, the last ones that were asked for. most: number of them."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._results: dict[Hashable, T] = {}  # those asked for last are the last

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result, made by `make` where it is not there."""
        with self._lock:
            if key in self._results:
                self._results[key] = self._results.pop(key)
                return self._results[key]
        result = make()
        with self._lock:
            self._results[key] = result
            while len(self._results) > self._most:
                del self._results[next(iter(self._results))]
        return result


class Is(NamedTuple):
    """A thing itself, as part of a key: no other one is equal to it."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Is) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)
