"""Bytes of good files that are changed, cut out, put in or exchanged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WORDS = (b"-1", b"0", b"1e999", b"nan", b"99999999999999999999", b'"', b"'", b"[", b"]", b"{", b"}", b",", b"\n", b"=",
         b"\0", b"\xff\xfe", b"../", b"%s", b"\x1b[2J", b"true", b"null", b"[[", b"#")  # fmt: skip


def damaged(rng: np.random.Generator, start: bytes, others: Sequence[bytes]) -> bytes:
    """One to three changes of a good file. others: what parts of are put in."""
    data = bytearray(start)
    for _ in range(1 + int(rng.integers(3))):
        at = int(rng.integers(len(data) + 1))
        left = min(1 + int(rng.integers(16)), len(data) - at)
        choice = rng.integers(7)
        if choice == 0:
            data[at : at + 1] = bytes([rng.integers(256)])
        elif choice == 1 and at < len(data):
            data[at] ^= 1 << int(rng.integers(8))
        elif choice == 2:
            data[at : at + (left if rng.integers(2) else 0)] = WORDS[rng.integers(len(WORDS))]
        elif choice == 3:
            del data[at : at + left]
        elif choice == 4:
            data[at:at] = data[at : at + left]
        elif choice == 5:
            word = int(rng.choice([0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]))
            data[at : at + 4] = word.to_bytes(4, "little" if rng.integers(2) else "big")
        else:
            other = others[rng.integers(len(others))]
            data[at : at + left] = other[at : at + left]
        if not data:
            data = bytearray(start[:1])
    return bytes(data)
