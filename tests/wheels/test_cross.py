"""The interpreter and the binding compile for systems that nobody here has, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from c_core import WARNINGS

pytestmark = pytest.mark.slow
QUICK = ("-std=c99", "-O0", "-fno-sanitize=undefined")  # no warning of clang needs optimization
X86_64_COFF = (0x8664).to_bytes(2, "little")
ARM64_MACHO = b"\xcf\xfa\xed\xfe" + (0x0100000C).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("target", "flags", "name", "first"),
    [
        ("x86_64-windows-gnu", ["--compile-only"], "tests-test_nmp.o", X86_64_COFF),
        ("aarch64-macos", [], "test_nmp.exe", ARM64_MACHO),
    ],
    ids=["windows", "macos"],
)
def test_it_compiles(
    root: Path, work: Path, tmp_path: Path, target: str, flags: list[str], name: str, first: bytes
) -> None:
    """The third target, macOS on x86-64, has the kernels of one of these and the headers of the other. A program for
    Windows is linked by `make cross` alone: its C library, which is built first, takes a minute. A function that it
    lacks is not declared, either, which C99 refuses."""
    command = [sys.executable, root / "packaging" / "cross.py", "--python", sys.executable, "--work", work]
    command += ["--targets", target, "--output", tmp_path, *flags, f"--warnings={' '.join((*QUICK, *WARNINGS))}"]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    folder = tmp_path / target
    assert (folder / name).read_bytes().startswith(first)
    assert all((folder / f"{part}.o").stat().st_size > 10_000 for part in ("module", "nb_combined"))
    assert (folder / "gil.o").is_file()
