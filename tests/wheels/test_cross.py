"""The interpreter and the binding compile for systems that nobody here has, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from c_core import WARNINGS

pytestmark = pytest.mark.slow
QUICK = ("-std=c99", "-O0", "-fno-sanitize=undefined")  # no warning of clang needs optimization
# The first bytes of a program and where its processor stands in it: PE tells its own start at 0x3c.
X86_64_PE, ARM64_MACHO = 0x8664, 0x0100000C
MACHO = b"\xcf\xfa\xed\xfe"


def processor(program: bytes) -> tuple[str, int]:
    """The system and the processor that a program is for."""
    if program[:2] == b"MZ":
        start = int.from_bytes(program[0x3C:0x40], "little")
        assert program[start : start + 4] == b"PE\0\0"
        return "windows", int.from_bytes(program[start + 4 : start + 6], "little")
    assert program[:4] == MACHO
    return "macos", int.from_bytes(program[4:8], "little")


def test_programs_and_objects_for_windows_and_macos(root: Path, work: Path, tmp_path: Path) -> None:
    """The third target, macOS on x86-64, has the kernels of one of these and the headers of the other."""
    command = [sys.executable, root / "packaging" / "cross.py", "--python", sys.executable, "--work", work]
    command += ["--targets", "x86_64-windows-gnu", "aarch64-macos"]
    command += ["--output", tmp_path, f"--warnings={' '.join((*QUICK, *WARNINGS))}"]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    found = {folder.name: processor((folder / "test_nmp.exe").read_bytes()) for folder in tmp_path.iterdir()}
    assert found == {
        "x86_64-windows-gnu": ("windows", X86_64_PE),
        "aarch64-macos": ("macos", ARM64_MACHO),
    }
    for folder in tmp_path.iterdir():
        assert all((folder / f"{name}.o").stat().st_size > 10_000 for name in ("module", "nb_combined"))
