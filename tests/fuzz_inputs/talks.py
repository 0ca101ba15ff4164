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
RUN = bytes((1, 1, 0, 0))  # twice
SIZE, RECEIVED, PREFIX = 7, 15, 16  # bytes of what is kept of an upload; the first two of the highest value


def talks(models: Sequence[Path]) -> Iterator[bytes]:
    """models: those that NMP_MODELS names, in its order."""
    for i, path in enumerate(models):
        if not path.stem.isdecimal():  # refused, or with many ops
            yield _start(i, path) + _request(PROFILE) + HELLO
    for at, request in ((SIZE, DATA), (SIZE, LOAD), (RECEIVED, DATA)):
        yield _lost(models[0], at, goes_on=True) + _request(request) + HELLO
    for at in (RECEIVED, PREFIX, None):
        yield _lost(models[0], at, goes_on=False) + HELLO


def _start(i: int, path: Path) -> bytes:
    """All of the memory; model i; its upload, a byte for each line."""
    return bytes((1, 0, i >> 8, i & 255)) + bytes(_lines(path)) + HELLO


def _lines(path: Path) -> int:
    return 3 + -(-path.stat().st_size // CHUNK)


def _lost(path: Path, at: int | None, *, goes_on: bool) -> bytes:
    """At step 100 two pieces are uploaded anew. A byte of what is kept is harmed; the talk goes on as if nothing had
    been, or the upload is repeated.
    """
    steps = b"".join(RUN if i % 16 == 15 else HELLO for i in range(1, 100))
    harm = bytes((0, 1) if at is None else (0, 0, 1, 1, at, 0x3F, goes_on))
    again = b"" if goes_on else bytes(_lines(path) - 1) + HELLO
    return _start(0, path) + steps + bytes((2, *bytes(3 + 2))) + harm + again


def _request(kind: int) -> bytes:
    """With words of 0."""
    return bytes((1, kind - 1, 1, *((0, 1, 1) * WORDS[kind]), 1, 0))
