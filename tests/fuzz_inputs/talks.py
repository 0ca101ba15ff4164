"""Conversations with the agent that chance seldom finds, as bytes that `fuzz_agent.c` decides by.

They follow its picks: a pick below n takes as many bytes as n - 1 has, and is their number modulo n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

CHUNK = 256  # AGENT_CHUNK
DATA, LOAD, PROFILE = 3, 4, 7
WORDS = {DATA: 5, LOAD: 1, PROFILE: 1}  # of a request's payload
HELLO = bytes((1, 0, 1, 1, 0))  # the request, of its right length, unharmed, number 0
HARMED = bytes((1, 0, 1, 0, 0, 5, 0x55, 1))  # the same with another byte in its middle
SPEED = bytes((1, 1, 1, 1, 1, 7, 1, 1, 1, 0))  # in place of BEGIN; its rate is the faster one
RUN = bytes((1, 1, 0, 0))  # twice
SIZE, RECEIVED, PREFIX = 7, 15, 16  # bytes of what is kept of an upload; the first two of the highest value
IN_FILE = 500  # a byte of the file behind it


def talks(models: Sequence[Path]) -> Iterator[bytes]:
    """models: those that NMP_MODELS names, in its order."""
    for i, path in enumerate(models):
        if not path.stem.isdecimal():  # refused, or with many ops
            yield _start(i, path) + _request(PROFILE) + HELLO
    for at, request in ((SIZE, DATA), (SIZE, LOAD), (RECEIVED, DATA)):
        yield _lost(models[0], at, goes_on=True) + _request(request) + HELLO
    for at in (RECEIVED, PREFIX, None):
        yield _lost(models[0], at, goes_on=False) + HELLO
    yield _another(models[0]) + HELLO
    yield _whole(models[0], IN_FILE) + _request(LOAD) + HELLO
    yield _start(0, models[0]) + SPEED + HARMED * 9 + HELLO
    for tensor in range(12):
        yield _start(0, models[0]) + HELLO * 14 + _digest(tensor)


def _start(i: int, path: Path) -> bytes:
    """All of the memory; model i; its upload, a byte for each line."""
    return bytes((1, 0, i >> 8, i & 255)) + bytes(_lines(path)) + HELLO


def _lines(path: Path) -> int:
    return 3 + -(-path.stat().st_size // CHUNK)


def _lost(path: Path, at: int | None, *, goes_on: bool) -> bytes:
    """At step 100 two pieces are uploaded anew. A byte of what is kept is harmed; the talk goes on as if nothing had
    been, or the upload is repeated.
    """
    harm = bytes((0, 1) if at is None else (0, 0, 1, 1, at, 0x3F, goes_on))
    again = b"" if goes_on else bytes(_lines(path) - 1) + HELLO
    return _begun(path, 2) + harm + again


def _begun(path: Path, pieces: int) -> bytes:
    """At step 100 so many pieces are uploaded anew."""
    steps = b"".join(RUN if i % 16 == 15 else HELLO for i in range(1, 100))
    return _start(0, path) + steps + bytes((pieces, *bytes(3 + min(pieces, _lines(path) - 3))))


def _another(path: Path) -> bytes:
    """After a lost upload, one of another file of the same size."""
    return _begun(path, 2) + bytes((0, 0, 0, 1, 5, 0x3F)) + bytes(_lines(path) - 1)


def _whole(path: Path, at: int) -> bytes:
    """A board that is reset; a byte of the file that it holds is another then."""
    return _begun(path, 7) + bytes((0, 0, 1, 0, at >> 8, at & 255, 0x3F, 1))


def _request(kind: int) -> bytes:
    """With words of 0."""
    return bytes((1, kind - 1, 1, *((0, 1, 1) * WORDS[kind]), 1, 0))


def _digest(tensor: int) -> bytes:
    """Asked for after the first op; there may be no such tensor."""
    return bytes((0, 0, 1, tensor, 0))
