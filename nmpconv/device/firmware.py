"""Firmware for a board, compiled on this machine from the sources that nmpconv brings."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

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
    path = output or _home() / f"{board}.elf"
    there = f"; {path} is there already, and sim:{board} takes it" if output is None and path.exists() else ""
    make = shutil.which("make")
    if make is None:
        raise DeviceError("make is missing", where=where, hint=f"apt-get install make{there}")
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    with tempfile.TemporaryDirectory(prefix="nmpconv-") as folder:
        command = [make, "-s", f"-j{os.cpu_count() or 1}", "-C", str(sources), f"BOARD={board}", f"OUT={folder}"]
        inherited["ZIG_GLOBAL_CACHE_DIR"] = inherited["ZIG_LOCAL_CACHE_DIR"] = folder  # not the home of the user
        ran = subprocess.run(command, capture_output=True, text=True, env=inherited, check=False)
        missing = STOPPED.search(ran.stderr) if ran.returncode else None
        if missing and missing[1].startswith(ARM_GCC) and (zig := _zig()):
            command.append(f"ZIG={shlex.quote(zig)}")
            ran = subprocess.run(command, capture_output=True, text=True, env=inherited, check=False)
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


def _zig() -> str | None:
    """The program of PyPI's ziglang, which holds a clang for Arm."""
    package = find_spec("ziglang")
    folders = package.submodule_search_locations if package else None
    return shutil.which("zig", path=os.pathsep.join(folders or ()))


def _home() -> Path:
    """Firmware of the installed package, or of the checkout that runs; of the current folder where that is
    read-only."""
    beside = interpreter().parent
    home = beside / "firmware" if (beside / "__init__.py").exists() else beside / "build" / "firmware"
    return home if os.access(beside, os.W_OK) else Path("build") / "firmware"
