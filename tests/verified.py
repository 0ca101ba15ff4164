"""Answers of the two verifiers of a .nmp file, in C and in Python: the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpconv import _nmp
from nmpconv.errors import ModelError, Status
from nmpconv.file import flatbuffer, semantics
from nmpconv.runtime.custom_table import CustomTable

# What the memory of an implementation allows (FORMAT.md), of files that are right. Python has no kernels: it does not
# know.
TABLE = CustomTable.of_installed()
OWN = ("bytes of scratch", "bytes of the arena with scratch", "bytes of packed weights")


def aligned(data: bytes) -> np.ndarray:
    memory = np.zeros(len(data) + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return memory[start : start + len(data)]


def inspected(data: bytes) -> dict[str, Any]:
    """The result of the interpreter, which has the installed custom ops."""
    return _nmp.inspect(aligned(data), "portable", custom=TABLE.address)


def in_c(data: bytes) -> tuple[Status, str]:
    """The status, and the rule that is broken."""
    try:
        inspected(data)
    except _nmp.Fault as fault:
        return Status(fault.args[0]), fault.args[2]
    return Status.OK, ""


def in_python(data: bytes) -> Status:
    try:
        semantics.verify(flatbuffer.unpack(data), data)
    except ModelError as error:
        return next(status for status in Status if status.in_c == error.status)
    return Status.OK


def difference(data: bytes) -> str:
    """The difference of the two, '' where there is none."""
    (status, rule), ours = in_c(data), in_python(data)
    wanted = Status.OK if rule in OWN else status
    return "" if ours == wanted else f"C: {status.name} {rule}, Python: {ours.name}"


def verified(data: bytes) -> tuple[Status, str]:
    """The answer that both give."""
    assert not difference(data), difference(data)
    return in_c(data)
