"""Mutants of the good files of a kind: each is read or refused by an NmpError, in bounds of memory and time.

A mutant depends on the kind, the seed and its number alone. Many are read in one forked process; where that crashes,
each of them gets its own.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from fuzz_models.limits import Crash, limited

from fuzz_inputs.damage import damaged
from fuzz_inputs.kinds import Kind
from nmpconv.errors import ExitCode, NmpError

BATCH = 200
SECONDS = 20.0  # of the processor, for a mutant


@dataclass
class Found:
    """read, refused: how many mutants. faults: what is wrong, and the first mutant that shows it."""

    kind: str
    read: int = 0
    refused: int = 0
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)


def mutant(kind: Kind, good: list[tuple[str, bytes]], seed: int, number: int) -> tuple[str, bytes]:
    """Its ending and bytes."""
    named = int.from_bytes(hashlib.sha256(kind.name.encode()).digest()[:4], "little")
    rng = np.random.default_rng([named, seed, number])
    if kind.mutant is not None:
        return good[0][0], kind.mutant(rng, [data for _, data in good])
    ending, start = good[rng.integers(len(good))]
    return ending, damaged(rng, start, [data for _, data in good])


def hunt(kind: Kind, seconds: float, seed: int, folder: Path, count: int | None = None) -> Found:
    """Mutants until the time is over, or so many. folder: the files that a good file of the kind names; what is wrong
    is left there."""
    seeds = kind.make(folder)
    good = [(ending, data) for ending, files in seeds.items() for data in files]
    tally, start = Found(kind.name), time.monotonic()
    for first in range(0, 1 << 40, BATCH):
        numbers = range(first, first + BATCH if count is None else min(first + BATCH, count))
        results = limited(lambda _, n=numbers: list(_outcomes(kind, good, seed, n, folder)), SECONDS + len(numbers))
        if isinstance(results, Crash):
            results = [_alone(kind, good, seed, number, folder) for number in numbers]
        for number, result in zip(numbers, results, strict=True):
            tally.read += result == "read"
            tally.refused += result == "refused"
            if result not in ("read", "refused") and result not in tally.faults:
                tally.faults[result] = number
                ending, data = mutant(kind, good, seed, number)
                (folder / f"fault-{kind.name}-{seed}-{number}.{ending}").write_bytes(data)
        tally.seconds = time.monotonic() - start
        if tally.seconds >= seconds or (count is not None and first + BATCH >= count):
            return tally
    return tally


def _alone(kind: Kind, good: list[tuple[str, bytes]], seed: int, number: int, folder: Path) -> str:
    result = limited(lambda _: next(_outcomes(kind, good, seed, range(number, number + 1), folder)), SECONDS)
    return result.why if isinstance(result, Crash) else str(result)


def _outcomes(kind: Kind, good: list[tuple[str, bytes]], seed: int, numbers: range, folder: Path) -> Iterator[str]:
    for number in numbers:
        ending, data = mutant(kind, good, seed, number)
        path = folder / f"mutant.{ending}"
        path.write_bytes(data)
        yield outcome(kind, path)
        path.unlink()


def outcome(kind: Kind, path: Path) -> str:
    """read, refused, or what is wrong."""
    try:
        kind.read(path)
    except NmpError as error:
        if error.code == ExitCode.INTERNAL:
            return f"internal: {error.message}"
        return "refused"
    except MemoryError:
        return "takes too much memory"
    except RecursionError:
        return "RecursionError"
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        name = "" if trace is None else Path(trace.tb_frame.f_code.co_filename).stem
        return f"{type(error).__name__} in {name}:{0 if trace is None else trace.tb_lineno}"
    return "read"
