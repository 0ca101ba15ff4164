"""Pieces of work that depend on nothing but themselves, in several processes: of this machine, or of a cluster.

Results come in the order of the pieces, so what is made of them does not depend on how many processes there are. A
piece whose process is lost is done again; a piece that raises an error ends all. `function` is one of a module; what
all pieces share and the pieces can be pickled. A process gets what is shared once.
"""

from __future__ import annotations

import pickle
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from nmpconv import cores
from nmpconv.errors import InputError, UsageError

P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")

MOST = 1024  # processes
AHEAD = 2  # pieces for each process that are given out before the first result is taken
LOSSES = 5  # of processes in a row, with no piece done between them


class Workers(Protocol):
    """count: how many pieces are worth having at the same time."""

    count: int

    def map(self, function: Callable[[S, P], R], shared: S, pieces: Iterable[P]) -> Generator[R]:
        """The results in the order of the pieces, which are taken as they are needed."""


class Here:
    """This process."""

    count = 1

    def map(self, function: Callable[[S, P], R], shared: S, pieces: Iterable[P]) -> Generator[R]:
        return (function(shared, piece) for piece in pieces)


class Processes:
    """Of this machine. They begin with nothing of this process, so threads of its libraries do no harm."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = self._begun()

    def _begun(self) -> ProcessPoolExecutor:
        context = get_context("spawn")
        return ProcessPoolExecutor(self.count, mp_context=context, initializer=cores.among, initargs=(self.count,))

    def map(self, function: Callable[[S, P], R], shared: S, pieces: Iterable[P]) -> Generator[R]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "shared"
            path.write_bytes(pickle.dumps(shared))
            yield from self._map(lambda piece: self._given(_with_shared, function, path, piece), pieces)

    def _map(self, given: Callable[[P], Future[R]], pieces: Iterable[P]) -> Generator[R]:
        left, lost = iter(pieces), 0
        open_: deque[tuple[P, Future[R]]] = deque()
        try:
            while True:
                for piece in left:
                    open_.append((piece, given(piece)))
                    if len(open_) >= AHEAD * self.count:
                        break
                if not open_:
                    return
                try:
                    done = open_[0][1].result()
                except BrokenProcessPool:
                    lost += 1
                    if lost > LOSSES:
                        what = "worker processes end before they have done anything"
                        raise InputError(what, where="--workers") from None
                    self._renew()
                    open_ = deque((piece, one if _is_done(one) else given(piece)) for piece, one in open_)
                    continue
                lost = 0
                open_.popleft()
                yield done
        finally:
            for _, one in open_:  # nobody asks for these any more
                one.cancel()

    def _given(self, *what: Any) -> Future[Any]:
        try:
            return self._pool.submit(*what)
        except BrokenProcessPool:  # it broke while nobody waited for it
            self._renew()
            return self._pool.submit(*what)

    def _renew(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._begun()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _with_shared(function: Callable[[S, P], R], path: Path, piece: P) -> R:
    return function(_loaded(path), piece)


@lru_cache(maxsize=1)
def _loaded(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def _is_done(one: Future[Any]) -> bool:
    return one.done() and not one.cancelled() and one.exception() is None


class Cluster:
    """What a scheduler of dask has, which gives the pieces of a lost process to others."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            hint = "pip install nmpconv[dask]"
            raise UsageError("workers of a cluster need dask", where="--workers", hint=hint) from None
        try:
            client: Any = Client  # it has no types
            self._client = client(address, timeout=10, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"no scheduler answers: {error}", where=address) from None
        self.count = max(1, sum(self._client.nthreads().values()))

    def map(self, function: Callable[[S, P], R], shared: S, pieces: Iterable[P]) -> Generator[R]:
        left, open_ = iter(pieces), deque[Any]()
        common = self._client.submit(_itself, shared, pure=False)  # what is scattered would be lost with its process
        try:
            while True:
                for piece in left:
                    open_.append(self._client.submit(function, common, piece, pure=False, retries=LOSSES))
                    if len(open_) >= AHEAD * self.count:
                        break
                if not open_:
                    return
                yield open_.popleft().result()
        finally:
            for one in open_:
                one.cancel()

    def close(self) -> None:
        self._client.close()


def _itself(shared: S) -> S:
    return shared


@contextmanager
def opened(asked: int | str | None) -> Iterator[Workers]:
    """asked: a number of processes, or the address of a scheduler, tcp://host:port; None: this process."""
    told = None if asked is None else str(asked)
    if told is None or told == "1":
        yield Here()
        return
    if re.fullmatch(r"(tcp|tls|ucx|ws|wss)://\S+", told):
        found: Processes | Cluster = Cluster(told)
    elif told.isdecimal() and 1 < int(told) <= MOST:
        found = Processes(int(told))
    else:
        allowed = f"1 to {MOST}, or tcp://scheduler:8786"
        raise UsageError(f"{told!r} are no workers", where="--workers", hint=allowed)
    try:
        yield found
    finally:
        found.close()
