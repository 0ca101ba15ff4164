"""Many uploads to an agent on this machine, over a line that loses, flips, doubles and holds back bytes.

    python tests/device/uploads.py --agent build/firmware/host.elf --model kws.nmp --count 10000 --results uploads.jsonl

After each upload one inference is compared with this machine's. An upload depends on its number alone; one that is
in the results is not made again. Exit status 1 where one was wrong or did not end.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import lines
import numpy as np

from nmpconv.device.client import Device
from nmpconv.device.transport import WRITE_SECONDS, Tcp, end
from nmpconv.errors import DeviceError, NmpError
from nmpconv.runtime import on_device
from nmpconv.runtime.interpreter import Net, load

_JOB: dict[str, Any] = {}  # what every upload of a process takes
LIMIT = 300  # seconds: an upload that takes as long hangs, since every wait is for 10 s at most
RIGHT, GIVEN_UP, WRONG, HANGS = "right", "given up", "wrong", "hangs"


@dataclass(frozen=True)
class Harm:
    """Shares of the bytes that are lost, flipped and doubled; of pieces that are late, by up to `longest` seconds."""

    lost: float = 0.001
    flipped: float = 0.001
    doubled: float = 0.0002
    late: float = 0.01
    longest: float = 0.1


@dataclass(frozen=True)
class Upload:
    number: int
    outcome: str
    seconds: float
    faults: int
    said: str = ""


class Agent(Tcp):
    """The program behind a socket; no thread has to carry its bytes."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._socket, behind = socket.socketpair()
        self._socket.settimeout(WRITE_SECONDS)
        self._process = subprocess.Popen([path], stdin=behind, stdout=behind)
        behind.close()

    def close(self) -> None:
        super().close()
        end(self._process)


class _Hangs(BaseException):
    pass


@contextmanager
def clock(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def upload(agent: Path, data: bytes, net: Net, number: int, harm: Harm) -> Upload:
    """The model to an agent that has none, and a run of it on numbers of its own."""
    rng = np.random.default_rng(number)
    inputs = [rng.integers(p.lo, p.hi + 1, p.shape).astype(p.dtype) for p in net.inputs]
    harmed = lines.Faulty(Agent(agent), number, lost=harm.lost, flipped=harm.flipped, doubled=harm.doubled)
    line = lines.Late(harmed, number, harm.longest, harm.late)
    start, outcome, message = time.monotonic(), RIGHT, ""
    try:
        with clock(LIMIT):
            device = Device(line)
            on_device.load(device, net, data)
            on_device.verify(device, net, inputs)
    except _Hangs:
        outcome = HANGS
    except DeviceError as error:
        outcome, message = GIVEN_UP, str(error)
    except NmpError as error:
        outcome, message = WRONG, str(error)
    seconds = time.monotonic() - start
    line.close()
    return Upload(number, outcome, round(seconds, 3), harmed.faults, message)


def uploads(agent: Path, data: bytes, numbers: Sequence[int], harm: Harm, jobs: int = 1) -> Iterator[Upload]:
    """As they end: most of the time of an upload is waiting, so that several jobs share a processor."""
    with Pool(jobs, _begin, (agent, data, harm)) as pool:
        yield from pool.imap_unordered(_next, numbers)


def _begin(agent: Path, data: bytes, harm: Harm) -> None:
    _JOB.update(agent=agent, data=data, net=load(data, cpu="portable"), harm=harm)


def _next(number: int) -> Upload:
    return upload(number=number, **_JOB)


def summary(results: Sequence[Upload]) -> str:
    counts = Counter(result.outcome for result in results)
    seconds = sorted(result.seconds for result in results) or [0.0]
    outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in (RIGHT, GIVEN_UP, WRONG, HANGS))
    faults = sum(result.faults for result in results)
    return (
        f"{len(results)} uploads: {outcomes}; {faults} bytes harmed; "
        f"median {seconds[len(seconds) // 2]:.2f} s, worst {seconds[-1]:.2f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agent", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--results", type=Path, required=True, help="JSON lines; the run goes on where it was")
    for name, value in asdict(Harm()).items():
        parser.add_argument(f"--{name}", type=float, default=value)
    asked = parser.parse_args()
    harm = Harm(**{name: getattr(asked, name) for name in asdict(Harm())})
    rows = asked.results.read_text().splitlines() if asked.results.exists() else []
    results = [Upload(**json.loads(line)) for line in rows]
    left = sorted(set(range(asked.count)) - {result.number for result in results})
    with asked.results.open("a") as file:
        for result in uploads(asked.agent, asked.model.read_bytes(), left, harm, asked.jobs):
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            results.append(result)
    print(summary(results))
    return int(any(result.outcome in (WRONG, HANGS) for result in results))


if __name__ == "__main__":
    sys.exit(main())
