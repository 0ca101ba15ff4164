"""Puts a change into a process that has loaded and collected everything: functions of Python by their code, those of
the interpreter by jumps into another build of it.

A module's or a class's own statements have run by then: a change of these cannot be put in.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType

from mutation.below import OPTIMIZED

# An absolute jump, before and behind its address.
JUMPS = {"x86_64": (b"\x48\xb8", b"\xff\xe0"), "aarch64": (b"\x50\x00\x00\x58\x00\x02\x1f\xd6", b"")}
ALL = 7  # mprotect: to read, write and execute

Functions = dict[tuple[str, int], list[FunctionType]]


def functions(package: str) -> Functions:
    """Those of files below a folder, by file and first line."""
    places: Functions = {}
    for value in gc.get_objects():
        if isinstance(value, FunctionType) and value.__code__.co_filename.startswith(package):
            places.setdefault((value.__code__.co_filename, value.__code__.co_firstlineno), []).append(value)
    return places


def swap(there: Functions, file: str, before: str, after: str) -> bool:
    """Gives functions of the file their code in its other text; False where more than functions differ."""
    one, two = (compile(text, file, "exec", dont_inherit=True) for text in (before, after))
    pairs = list(_changed(one, two))
    swaps = []
    for old, new in pairs:
        if old is None or new is None:
            return False
        alive = [f for f in there.get((file, old.co_firstlineno), ()) if f.__code__ == old]
        if not alive:
            return False
        swaps += [(f, new) for f in alive]
    for function, code in swaps:
        function.__code__ = code
    return bool(swaps)


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType | None, CodeType | None]]:
    """The outermost functions that differ; None for what is no function."""
    if old.co_flags & OPTIMIZED:
        if old != new:
            yield old, new
        return
    inner, others = ([c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new))
    if len(inner) != len(others) or _own(old) != _own(new):
        yield None, None
        return
    for a, b in zip(inner, others, strict=True):
        yield from _changed(a, b)


def _own(code: CodeType) -> CodeType:
    """Code without that of what it defines."""
    constants = tuple("code" if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_consts=constants, co_linetable=b"")


def redirect(loaded: Path, library: Path, entries: Sequence[tuple[int, int]]) -> None:
    """Calls of the loaded library lead into the other one. entries: where functions begin in both files, which are
    linked for address 0 and begin at multiples of 16."""
    other = ctypes.CDLL(str(library))
    old, new = _begin(loaded), _begin(library)
    before, behind = JUMPS[platform.machine()]
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for at, to in entries:
        jump = before + (new + to).to_bytes(8, "little") + behind
        page = (old + at) // mmap.PAGESIZE * mmap.PAGESIZE
        if protect(page, 2 * mmap.PAGESIZE, ALL):
            raise OSError("code cannot be written")
        ctypes.memmove(old + at, jump, len(jump))
    redirect.other = other  # type: ignore[attr-defined]  # it stays loaded


def _begin(library: Path) -> int:
    """Address where it is loaded; another file may have its name by now."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if str(library) in line).split("-")[0], 16)
