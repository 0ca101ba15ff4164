"""Firmware for a board, compiled on this machine from the sources that nmpconv brings."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

from nmpconv.base.compilers import home, run_make, zig
from nmpconv.base.files import interpreter, write_file
from nmpconv.errors import DeviceError, UsageError

STOPPED = re.compile(r"\*\*\* (.+?): install (.+?)\.  Stop\.")  # a missing compiler, as the firmware's Makefile says it
ARM_GCC = "arm-none-eabi-gcc"


def build(board: str, output: Path | None = None) -> Path:
    """Writes the firmware of a board and returns its path. output: the file; None: where simulated boards look for it.

    Raises UsageError for no such board, DeviceError where a tool is missing or fails, OutputError.
    """
    board = board.lower()
    sources, where = interpreter() / "firmware", f"the firmware of {board}"
    boards = sorted(path.parent.name for path in sources.glob("boards/*/board.mk"))
    if board not in boards:
        raise UsageError(f"there is no board {board!r}; there are {', '.join(boards)}", where="BOARD")
    path = output or home() / "firmware" / f"{board}.elf"
    there = f"; {path} is there already, and sim:{board} takes it" if output is None and path.exists() else ""
    with tempfile.TemporaryDirectory(prefix="nmpconv-") as folder:
        ran = run_make("firmware", folder, f"BOARD={board}", where=where, there=there)
        missing = STOPPED.search(ran.stderr) if ran.returncode else None
        if missing and missing[1].startswith(ARM_GCC) and (program := zig()):
            ran = run_make(
                "firmware", folder, f"BOARD={board}", f"ZIG={shlex.quote(program)}", where=where, there=there
            )
        if ran.returncode:
            if missing := STOPPED.search(ran.stderr):
                other = ", or pip install ziglang" if missing[1].startswith(ARM_GCC) else ""
                raise DeviceError(missing[1], where=where, hint=f"apt-get install {missing[2]}{other}{there}")
            raise DeviceError(f"it does not compile:\n{ran.stderr.strip()}", where=where)
        data = Path(folder, f"{board}.elf").read_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data)
    path.chmod(0o755)
    return path
