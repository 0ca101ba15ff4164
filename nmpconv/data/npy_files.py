"""Arrays in .npy files, mapped or read. Raises InputError for what is none."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from nmpconv.errors import InputError

HEADER_MAX = 1 << 16  # bytes of an array's header


def load(path: Path) -> np.ndarray:
    """The array, mapped from its file: memory is not needed for what is not read."""
    try:
        _check_header(path)
        with np.errstate(all="ignore"):  # of sizes in a header that lies
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # whatever numpy trips over in a header
        raise InputError(f"not a readable .npy file: {_reason(error)}", where=str(path)) from None


def _check_header(path: Path) -> None:
    """numpy takes as much memory as the header claims to be long."""
    with path.open("rb") as file:
        _check_length(file.read(12))


def _check_length(start: bytes) -> None:
    """start: the first 12 bytes of a .npy."""
    length = int.from_bytes(start[8:12] if start[6:7] > b"\1" else start[8:10], "little")
    if length > HEADER_MAX:
        raise ValueError(f"a header of {length} bytes; at most {HEADER_MAX} are allowed")


def of_bytes(content: bytes, where: str) -> np.ndarray:
    """The array of what is in a .npy. where: names it in messages."""
    try:
        _check_length(content[:12])
        return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # whatever numpy trips over in a header
        raise InputError(f"not a readable .npy file: {_reason(error)}", where=where) from None


def _reason(error: Exception) -> str:
    if "Object arrays" in str(error) or "Python objects" in str(error):
        return "it holds objects of Python; an array of numbers is allowed"
    return (str(error).splitlines() or [""])[0] or type(error).__name__
