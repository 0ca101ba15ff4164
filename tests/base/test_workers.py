"""Pieces of work in processes: in their order, done again where a process is lost, and the same files and figures."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nmpconv
from nmpconv.api.file_argument import sources
from nmpconv.base import workers as workers_module
from nmpconv.base.progress import Progress, silent
from nmpconv.base.workers import Here, Processes, Workers, opened
from nmpconv.errors import InputError, UsageError
from nmpconv.evaluation import accuracy
from nmpconv.runtime.interpreter import load

SAMPLE = Path(__file__).parents[2] / "samples" / "shapes"
TEST = str(SAMPLE / "test" / "labels.csv")
LOOK = {"mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375)}


def squared(shared: int, piece: int) -> int:
    return shared + piece * piece


def killed_once(shared: Path, piece: int) -> int:
    """The process that gets the third piece first is lost with it."""
    if piece == 3 and not shared.exists():
        shared.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return piece


def killed_always(shared: None, piece: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return piece


def killed_by_large(shared: Path, piece: bytes) -> int:
    """The first process is lost while pieces are larger than what a pipe holds."""
    return killed_once(shared, 3) + len(piece)


def failing(shared: None, piece: int) -> int:
    if piece == 2:
        raise InputError(f"piece {piece}")
    if piece == 12:
        raise EOFError(f"piece {piece}")
    return piece


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    with opened(2) as workers:
        yield workers


def test_results_come_in_order(two: Workers) -> None:
    wanted = [7 + i * i for i in range(40)]
    assert list(Here().map(squared, 7, range(40))) == wanted
    assert list(two.map(squared, 7, iter(range(40)))) == wanted
    assert list(two.map(squared, 1, [2])) == [5]
    assert list(two.map(squared, 1, [])) == []


def test_a_piece_of_a_lost_process_is_done_again(two: Workers, tmp_path: Path) -> None:
    assert list(two.map(killed_once, tmp_path / "lost", range(20))) == list(range(20))
    assert (tmp_path / "lost").exists()
    assert list(two.map(squared, 0, range(3))) == [0, 1, 4]


ENDS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from nmpconv.base.workers import opened
from test_workers import killed_by_large
if __name__ == "__main__":
    with opened(2) as workers:
        print(list(workers.map(killed_by_large, Path(sys.argv[2]), [bytes(2**20)] * 8)))
"""


@pytest.mark.slow
def test_a_program_that_lost_a_process_ends(tmp_path: Path) -> None:
    """An executor of Python 3.10 would wait for ever for what it was writing to the lost process."""
    program = tmp_path / "ends.py"
    program.write_text(ENDS)
    command = [sys.executable, str(program), str(Path(__file__).parent), str(tmp_path / "lost")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{[2**20 + 3] * 8}\n"


@pytest.mark.slow
def test_what_always_dies_is_an_error() -> None:
    with opened("2") as workers, pytest.raises(InputError, match="end before they have done anything"):
        list(workers.map(killed_always, None, range(3)))


def test_an_error_ends_all(two: Workers) -> None:
    with pytest.raises(InputError, match="piece 2"):
        list(two.map(failing, None, range(5)))
    with pytest.raises(EOFError, match="piece 12"):  # not a lost process
        list(two.map(failing, None, range(10, 15)))
    assert list(two.map(failing, None, range(2))) == [0, 1]


@pytest.mark.parametrize("text", ["0", "-1", "two", "2.5", "tcp:", "tcp://", "10000", "http://x"])
def test_what_are_no_workers(text: str) -> None:
    with pytest.raises(UsageError, match="are no workers"), opened(text):
        pass


@pytest.fixture(scope="module")
def shapes() -> bytes:
    return nmpconv.convert(SAMPLE / "model.onnx", SAMPLE / "calib", **LOOK, equalize="none", rounding="nearest").data


def judged(file: bytes, workers: Workers) -> accuracy.Evaluation:
    return accuracy.evaluate(
        load(file),
        sources(TEST),
        reference=SAMPLE / "model.onnx",
        metrics=("psnr",),
        limit=70,
        workers=workers,
    )


def test_eval_is_the_same(shapes: bytes, two: Workers) -> None:
    """Every figure to the last bit."""
    alone = judged(shapes, Here())
    assert alone.n == 70 and alone.sqnr
    assert judged(shapes, two) == alone


@pytest.mark.slow
def test_eval_is_the_same_where_a_process_is_lost(shapes: bytes) -> None:
    alone = judged(shapes, Here())
    with opened(2) as workers:
        assert isinstance(workers, Processes)
        assert judged(shapes, Losing(workers)) == alone


class Losing:
    """Loses a process after the first result."""

    def __init__(self, workers: Processes) -> None:
        self.count, self._workers, self.lost = workers.count, workers, 0

    def map(self, function: Callable[..., Any], shared: Any, pieces: Any) -> Iterator[Any]:
        for result in self._workers.map(function, shared, pieces):
            if not self.lost:
                self.lost = multiprocessing.active_children()[0].pid or 0
                os.kill(self.lost, signal.SIGKILL)
            yield result


def converted(workers: int | str | None, journal: Path, goal: str) -> nmpconv.Converted:
    return nmpconv.convert(
        SAMPLE / "model.onnx",
        SAMPLE / "calib",
        **LOOK,
        limit=40,
        equalize="vector",
        rounding="gptq",
        bits="auto",
        goal=goal,
        budget="instructions=+20%",
        target="cortex-m4",
        journal=journal,
        workers=workers,
    )


def goal_of(folder: Path) -> str:
    """A little more than the sample has."""
    whole = converted(None, folder / "base.json", "sqnr=1")
    assert whole.report.held_out is not None
    return f"sqnr={whole.report.held_out.db + 3:.1f}"


@pytest.mark.slow
def test_auto_is_the_same(tmp_path: Path) -> None:
    goal = goal_of(tmp_path)
    alone, both = (converted(n, tmp_path / f"{n}.json", goal) for n in (None, 2))
    assert any(one.wide for one in alone.report.front)
    assert both.data == alone.data
    assert both.report.front == alone.report.front
    measured = [json.loads((tmp_path / f"{n}.json").read_text())["measured"] for n in (None, 2)]
    assert measured[0].items() <= measured[1].items()


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker(shapes: bytes, tmp_path: Path) -> None:
    """Two workers of dask, one of which is killed while it computes: the same figures, and the same file."""
    if "NMP_CI" not in os.environ:
        pytest.importorskip("distributed")
    alone = judged(shapes, Here())
    goal = goal_of(tmp_path)
    file = converted(None, tmp_path / "here.json", goal).data
    with cluster(tmp_path) as (address, _):
        with opened(address) as workers:
            assert workers.count == 2
            assert judged(shapes, workers) == alone
            lost = tmp_path / "lost"
            assert list(workers.map(killed_once, lost, range(20))) == list(range(20))
            assert lost.exists()
            assert judged(shapes, workers) == alone
        assert converted(address, tmp_path / "there.json", goal).data == file


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.0.1", r"worker tcp://w has nmpconv 0\.0\.1, this is "),
        (ImportError("no module"), "cannot run nmpconv: no module"),
    ],
    ids=["older", "none"],
)
def test_workers_of_another_version(monkeypatch: pytest.MonkeyPatch, version: Any, message: str) -> None:
    """Their results could be others."""
    closed = fake_cluster(monkeypatch, lambda: {"tcp://v": nmpconv.__version__, "tcp://w": version}, dict)
    with pytest.raises(InputError, match=message), opened("tcp://here:1"):
        pass
    assert closed == [True]


def lost() -> Any:
    raise OSError("in <TCP>: Stream is closed")  # as a CommClosedError of dask is


def silent_peer() -> Any:
    time.sleep(5)


@pytest.mark.parametrize(
    ("versions", "threads", "message"),
    [
        (silent_peer, dict, r"not all workers answer: nothing within 0\.1 seconds"),
        (lost, dict, "not all workers answer: in <TCP>: Stream is closed"),
        (dict, lost, "no scheduler answers: in <TCP>: Stream is closed"),
        (dict, silent_peer, r"no scheduler answers: nothing within 0\.1 seconds"),
    ],
    ids=["hangs", "lost", "no scheduler", "scheduler hangs"],
)
def test_workers_that_do_not_answer(
    monkeypatch: pytest.MonkeyPatch, versions: Callable[[], Any], threads: Callable[[], Any], message: str
) -> None:
    """A scheduler may answer where a worker of it hangs."""
    closed, start = fake_cluster(monkeypatch, versions, threads), time.monotonic()
    monkeypatch.setattr(workers_module, "CONNECT_SECONDS", 0.05)
    with pytest.raises(InputError, match=message) as caught, opened("tcp://here:1"):
        pass
    assert time.monotonic() - start < 4
    assert caught.value.where == "tcp://here:1"
    assert closed == [True]


def fake_cluster(
    monkeypatch: pytest.MonkeyPatch, versions: Callable[[], Any], threads: Callable[[], Any]
) -> list[bool]:
    """versions, threads: give what a scheduler tells of its workers. Returns a list that gets a row at a close."""
    closed: list[bool] = []

    class Client:
        def __init__(self, address: str, **others: Any) -> None: ...

        def run(self, function: Callable[[], str], on_error: str) -> Any:
            return versions()

        def nthreads(self) -> Any:
            return threads()

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    return closed


OTHERS = """
import socket, sys, threading, time
from nmpconv.base import workers
from nmpconv.errors import InputError

workers.CONNECT_SECONDS = 2.0
server, open_ = socket.create_server(("127.0.0.1", 0)), []
address = f"tcp://127.0.0.1:{server.getsockname()[1]}"

def serve():
    while True:
        open_.append(server.accept()[0])
        open_[-1].sendall(bytes.fromhex(sys.argv[1]))

threading.Thread(target=serve, daemon=True).start()
start = time.monotonic()
try:
    with workers.opened(address):
        print("opened")
except InputError as error:
    print(error.message, error.where == address, time.monotonic() - start < 30)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "no scheduler answers: nothing within 4.0 seconds"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no scheduler of dask answers there"),
        (struct.pack("<QQ", 1, 1 << 40), "no scheduler"),
    ],
    ids=["silent", "http", "much"],
)
def test_another_program_is_no_scheduler(sent: bytes, message: str) -> None:
    """Told in words, and soon: dask would wait for a silent one without end."""
    if "NMP_CI" not in os.environ:
        pytest.importorskip("distributed")
    ran = subprocess.run(
        [sys.executable, "-c", OTHERS, sent.hex()], capture_output=True, text=True, timeout=150, check=False
    )
    assert ran.stdout.startswith(message) and ran.stdout.endswith(" True True\n"), ran.stdout + ran.stderr


@pytest.mark.slow
def test_fits_of_a_cluster_that_loses_a_worker(tmp_path: Path) -> None:
    if "NMP_CI" not in os.environ:
        pytest.importorskip("distributed")
    alone = fitted(None)
    with cluster(tmp_path) as (address, processes):
        killer = Killer(lambda: processes[0])
        there = fitted(address, killer)
        assert killer.killed
        assert workers_of(address) == 1
    assert there.data == alone.data
    assert there.report == alone.report


def fitted(workers: int | str | None, told: Progress = silent) -> nmpconv.Converted:
    """All recipes, a lever or more, and 16 bits unasked if they pay."""
    return nmpconv.convert(
        SAMPLE / "model.onnx", SAMPLE / "calib", **LOOK, limit=12, levers=True, workers=workers, progress=told
    )


class Killer:
    """Kills a process once the first recipes are fitted, while others are."""

    def __init__(self, victim: Callable[[], int]) -> None:
        self._victim, self.killed = victim, 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == "choose" and done < total and not self.killed:
            self.killed = self._victim()
            os.kill(self.killed, signal.SIGKILL)


@pytest.mark.slow
def test_fits_are_the_same() -> None:
    """By one process, by two that get recipes of one equalization each, one of which is lost, and by four."""
    alone = fitted(None)
    assert alone.report.levers
    assert alone.report.held_out is not None
    killer = Killer(lambda: next(int(one.pid or 0) for one in active_children()))
    for both in (fitted(2, killer), fitted(4)):
        assert both.data == alone.data
        assert both.report == alone.report
    assert killer.killed


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """A scheduler and two workers, of a thread each, that nobody starts anew: its address, and their process ids."""
    told = folder / "scheduler.json"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    scheduler = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", told]
    worker = ["worker", "--scheduler-file", told, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    running = []
    try:
        for command in (scheduler, worker, worker):
            name = f"distributed.cli.dask_{command[0]}"
            running.append(subprocess.Popen([sys.executable, "-m", name, *command[1:]], cwd=folder, env=environment))
            wait_for(told.exists)
        address = json.loads(told.read_text())["address"]
        wait_for(lambda: workers_of(address) == 2)
        yield address, [process.pid for process in running[1:]]
    finally:
        for process in running:
            process.kill()
            process.wait()


def workers_of(address: str) -> int:
    with opened(address) as workers:
        return workers.count


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.2)
