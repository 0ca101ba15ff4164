"""Programs of C compiled on this machine, from the sources that nmpconv brings: by make and a compiler of PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from nmpconv.base.files import interpreter
from nmpconv.errors import DeviceError


def zig() -> str | None:
    """The program of PyPI's ziglang, which holds a clang for Arm and WebAssembly; None where it is not installed."""
    package = find_spec("ziglang")
    folders = package.submodule_search_locations if package else None
    return shutil.which("zig", path=os.pathsep.join(folders or ()))


def run_make(part: str, out: str, *variables: str, where: str, there: str = "") -> subprocess.CompletedProcess[str]:
    """Runs make in a folder of the interpreter with ``OUT=out``, where zig keeps what it makes on the way, too.

    where, there: the place and the end of the hint of the DeviceError, raised where make is missing.
    """
    make = shutil.which("make")
    if make is None:
        raise DeviceError("make is missing", where=where, hint=f"apt-get install make{there}")
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    inherited["ZIG_GLOBAL_CACHE_DIR"] = inherited["ZIG_LOCAL_CACHE_DIR"] = out  # not the home of the user
    command = [make, "-s", f"-j{os.cpu_count() or 1}", "-C", str(interpreter() / part), f"OUT={out}", *variables]
    return subprocess.run(command, capture_output=True, text=True, env=inherited, check=False)


def home() -> Path:
    """The folder of what was compiled: the installed package, or build/ of the checkout that runs; build/ of the
    current folder where that is read-only."""
    beside = interpreter().parent
    folder = beside if (beside / "__init__.py").exists() else beside / "build"
    return folder if os.access(beside, os.W_OK) else Path("build")
