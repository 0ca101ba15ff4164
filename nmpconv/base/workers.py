"""Pieces of work that depend on nothing but themselves, in several processes: of this machine, or of a cluster.

Results come in the order of the pieces, so what is made of them does not depend on how many processes there are. A
piece whose process is lost is done again; a piece that raises an error ends all. `function` is one of a module; what
all pieces share and the pieces can be pickled. A process gets what is shared once.
"""

from __future__ import annotations

import os
import pickle
import re
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Protocol, TypeVar

from nmpconv import __version__
from nmpconv.base import thread_pool
from nmpconv.errors import InputError, UsageError

P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")

MOST = 1024  # processes
AHEAD = 2  # pieces for each process that are given out before the first result is taken
CONNECT_SECONDS = 10.0  # for a scheduler to be reached, and as many for its answer
SAFE_PATH = "PYTHONSAFEPATH"
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
    """Processes of this machine. They inherit no state of this process, so threads of its libraries do no harm.

    Each process has its own pipe and works on one piece at a time. If a process dies, only its piece is lost, and no
    write blocks on a process that does not read. (Executors of Python 3.10 and 3.11 may wait for ever in that case.)
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle: list[_Process] = []

    def map(self, function: Callable[[S, P], R], shared: S, pieces: Iterable[P]) -> Generator[R]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "shared"
            path.write_bytes(pickle.dumps(shared))
            yield from self._map((function, path), enumerate(pieces))

    def _map(self, what: tuple[Callable[[S, P], R], Path], pieces: Iterator[tuple[int, P]]) -> Generator[R]:
        busy: dict[_Process, tuple[int, P]] = {}
        done: dict[int, R] = {}
        again: list[tuple[int, P]] = []
        turn = lost = 0
        try:
            while True:
                while len(busy) < self.count and len(busy) + len(done) < AHEAD * self.count:
                    following = again.pop() if again else next(pieces, None)
                    if following is None:
                        break
                    process = self._idle.pop() if self._idle else _Process(self.count)
                    busy[process] = following
                    process.give(*what, following[1])
                if turn in done:
                    yield done.pop(turn)
                    turn += 1
                    continue
                if not busy:
                    return
                ready = wait([process.pipe for process in busy])
                for process in [process for process in busy if process.pipe in ready]:
                    number, piece = busy.pop(process)
                    try:
                        answer = process.answer()
                    except (EOFError, OSError):
                        process.end()
                        lost += 1
                        again.append((number, piece))
                        continue
                    lost = 0
                    self._idle.append(process)
                    done[number] = _result(*answer)
                if lost > LOSSES:
                    raise InputError("worker processes end before they have done anything", where="--workers")
        finally:
            for process in busy:
                process.end()

    def close(self) -> None:
        for process in self._idle:
            process.end()
        self._idle = []


class _Process:
    """One of so many that share the CPUs. pipe: to it and from it."""

    def __init__(self, count: int) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, count), daemon=True)
        with _safe_path():
            self._process.start()
        theirs.close()

    def give(self, *what: Any) -> None:
        """A function, where what is shared lies, and a piece. That it cannot be given is found when it is awaited."""
        with suppress(OSError):
            self.pipe.send(what)

    def answer(self) -> tuple[Any, Exception | None, str]:
        """The arguments of `_result`. Raises EOFError or OSError where the process is lost."""
        reply: tuple[Any, Exception | None, str] = self.pipe.recv()
        return reply

    def end(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Programs of Python (3.11 and later) that are started meanwhile import nothing from the current folder, which is
    first on the path of `python -c`. A process of multiprocessing gets the path of this one a moment later.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def _serve(pipe: Connection, count: int) -> None:
    """Pieces, one after the other, until the other side is closed."""
    thread_pool.among(count)
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            function, path, piece = pipe.recv()
            try:
                answer = pickle.dumps((function(_loaded(path), piece), None, ""))
            except Exception as error:
                answer = pickle.dumps((None, error, traceback.format_exc()))
            pipe.send_bytes(answer)


def _result(result: Any, error: Exception | None, remote_trace: str) -> Any:
    """Raises what the function raised; remote_trace: where, in its process."""
    if error is not None:
        raise error from RuntimeError(f"in a worker process:\n{remote_trace}")
    return result


@lru_cache(maxsize=1)
def _loaded(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


class Cluster:
    """Workers of a dask scheduler, which gives the pieces of a lost process to others."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            hint = "pip install 'nmpconv[dask]'"
            raise UsageError("workers of a cluster need dask", where="--workers", hint=hint) from None
        client: Any = partial(Client, address, timeout=CONNECT_SECONDS, set_as_default=False)  # it has no types
        self._client = _answer(client, address, "no scheduler answers")
        try:
            run = partial(self._client.run, _version, on_error="return")
            versions: dict[str, Any] = _answer(run, address, "not all workers answer")
            for worker, version in versions.items():
                if version != __version__:
                    has = f"has nmpconv {version}" if isinstance(version, str) else f"cannot run nmpconv: {version}"
                    hint = f"install nmpconv {__version__} on all workers: results could differ"
                    raise InputError(f"worker {worker} {has}, this is {__version__}", where=address, hint=hint)
            threads: dict[str, int] = _answer(self._client.nthreads, address, "no scheduler answers")
        except InputError:
            self.close()
            raise
        self.count = max(1, sum(threads.values()))

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
            for future in open_:
                future.cancel()

    def close(self) -> None:
        self._client.close()


def _version() -> str:
    return __version__


def _answer(ask: Callable[[], R], address: str, silence: str) -> R:
    """Answer of a cluster. silence: what it means where there is none. Raises InputError."""
    try:
        return _within(ask, 2 * CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise InputError(f"{silence}: {error}", where=address) from None
    except Exception as error:  # another program may send anything
        raise InputError(f"no scheduler of dask answers there ({error})", where=address) from None


def _within(work: Callable[[], R], seconds: float) -> R:
    """Raises TimeoutError where it takes longer: dask waits without end for an answer of a peer that is silent."""
    answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()

    def run() -> None:
        try:
            answers.put((work(), None))
        except Exception as error:
            answers.put((None, error))

    Thread(target=run, daemon=True).start()
    try:
        result, error = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"nothing within {seconds} seconds") from None
    if error is not None:
        raise error
    return result


def _itself(shared: S) -> S:
    return shared


@contextmanager
def opened(asked: int | str | None) -> Iterator[Workers]:
    """asked: a number of processes, or the address of a scheduler, tcp://host:port; None: this process."""
    text = None if asked is None else str(asked)
    if text is None or text == "1":
        yield Here()
        return
    if re.fullmatch(r"(tcp|tls|ucx|ws|wss)://\S+", text):
        workers: Processes | Cluster = Cluster(text)
    elif text.isdecimal() and 1 < int(text) <= MOST:
        workers = Processes(int(text))
    else:
        allowed = f"1 to {MOST}, or tcp://scheduler:8786"
        raise UsageError(f"{text!r} are no workers", where="--workers", hint=allowed)
    try:
        yield workers
    finally:
        workers.close()
