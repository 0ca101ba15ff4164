"""Firmware for a board, compiled on this machine from the sources that nmpconv brings."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from nmpconv.base.compilers import home, run_make, zig
from nmpconv.base.files import interpreter, write_file
from nmpconv.errors import DeviceError, UsageError

STOPPED = re.compile(r"\*\*\* (.+?): install (.+?)\.  Stop\.")  # a missing compiler, as the firmware's Makefile says it
ARM_GCC = "arm-none-eabi-gcc"


def build(board: str, output: Path | None = None, custom: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Writes the firmware of a board and returns its path. output: the file; None: where simulated boards look for it.

    custom: C files of custom ops by the names of their rows.
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
        asked = [f"BOARD={board}", *_with_custom(custom, Path(folder, "ops"))]
        ran = run_make("firmware", folder, *asked, where=where, there=there)
        missing = STOPPED.search(ran.stderr) if ran.returncode else None
        if missing and missing[1].startswith(ARM_GCC) and (program := zig()):
            ran = run_make("firmware", folder, *asked, f"ZIG={shlex.quote(program)}", where=where, there=there)
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


def _with_custom(custom: Mapping[str, str], folder: Path) -> list[str]:
    """Variables of the Makefile for these files, which are written to a folder."""
    if not custom:
        return []
    folder.mkdir()
    for row, text in custom.items():
        (folder / f"{row}.c").write_text(text, encoding="utf-8")
    return [f"CUSTOM={' '.join(str(folder / f'{row}.c') for row in custom)}", f"ROWS={' '.join(custom)}"]
