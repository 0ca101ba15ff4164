"""check_kernels and board_convs for RISC-V with vectors, in QEMU at several vector lengths: all equal to portable."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from c_core import KERNELS, Once, compiled, library, sources

TARGET = ["--target=riscv64-linux-gnu", "-march=rv64gcv", "-static"]
pytestmark = pytest.mark.slow
SHORTEST, LONGEST = 128, 512  # vectors of all lengths run the same code; between these it is met at length
LENGTHS = pytest.mark.parametrize("length", [SHORTEST, pytest.param(256, marks=pytest.mark.soak), LONGEST])
Build = Callable[[str], Path]


@pytest.fixture
def build(root: Path, tmp_path: Path, need_tool: Callable[..., str], once: Once) -> Build:
    """A program of interpreter/tests, with both levels in a table. Its intrinsics need clang 17 or newer."""
    more = {"check_kernels": ["check_conv"], "board_convs": []}
    flags = [*TARGET, "-std=c99", "-O2", "-DNMP_FIXED_CPU=0"]

    def make(name: str) -> Path:
        compiler = need_tool("clang-19", "clang-18", "clang-17")
        need_tool("riscv64-linux-gnu-ld")
        own = [root / "interpreter" / "tests" / f"{part}.c" for part in (name, *more[name], "memory")]
        files = sources(root, *KERNELS)
        folder = once("rvv", lambda folder: compiled(root, folder, compiler, *flags, files=files))
        return library(root, folder, compiler, flags).program(tmp_path / name, *own)

    return make


def said(qemu: str, length: int, program: Path, *arguments: str) -> str:
    cpu = f"rv64,v=true,vext_spec=v1.0,vlen={length}"
    done = subprocess.run([qemu, "-cpu", cpu, program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


def check(text: str) -> None:
    *levels, counted = text.splitlines()
    assert [level.split(",")[0] for level in levels] == ["portable", "rvv"]
    assert counted.endswith(" 0 differ")
    assert int(counted.split()[0]) > 250


@LENGTHS
def test_convolutions(length: int, build: Build, need_tool: Callable[..., str]) -> None:
    check(said(need_tool("qemu-riscv64"), length, build("board_convs"), "300"))


@LENGTHS
def test_every_kernel(length: int, build: Build, need_tool: Callable[..., str]) -> None:
    check(said(need_tool("qemu-riscv64"), length, build("check_kernels")))
