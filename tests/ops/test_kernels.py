"""check_kernels, built here: every level of this machine against the portable kernels."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from c_core import AMX, KERNELS, Library, Once, compiled, emulating_amx, includes, installed_objects, library, sources

from nmpconv.runtime import interpreter

PROGRAM = ("check_kernels", "check_conv", "memory")
FLAGS = ("-std=c99", "-O2", "-DNMP_FIXED_CPU=0")  # as in the package


@pytest.fixture(scope="module")
def kernels(root: Path, once: Once, need_tool: Callable[..., str]) -> Library:
    """Those of the installed extension; compiled here, which takes a minute, where that is of other sources."""
    compiler = need_tool("cc", "gcc", "clang")

    def fill(folder: Path) -> None:
        installed = installed_objects(root, *KERNELS)
        for name, path in installed.items():
            shutil.copy(path, folder / name)
        if not installed:
            compiled(root, folder, compiler, *FLAGS, files=sources(root, *KERNELS))

    return library(root, once("kernels", fill), compiler, FLAGS)


def program_of(root: Path, folder: Path, found: Library) -> Path:
    return found.program(folder / "check_kernels", *(root / "interpreter" / "tests" / f"{name}.c" for name in PROGRAM))


@pytest.fixture(scope="module")
def check_kernels(root: Path, once: Once, kernels: Library) -> Path:
    return once("check_kernels", lambda folder: program_of(root, folder, kernels)) / "check_kernels"


# What /proc/cpuinfo calls the instructions that a level needs, of x86-64 and AArch64.
NEEDED = {
    "sse41": {"sse4_1", "ssse3"},
    "avx2": {"avx2", "pclmulqdq"},
    "avxvnni": {"avx2", "pclmulqdq", "avx_vnni"},
    "avx512vnni": {"avx2", "pclmulqdq", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
    "amx": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "amx_tile", "amx_int8"},
    "neon": {"asimd"},
    "neondot": {"asimd", "asimddp"},
    "i8mm": {"asimd", "asimddp", "i8mm"},
}


def test_all_levels_of_this_cpu_are_there(record_property: Callable[[str, object], None]) -> None:
    """So that the tests that go through runtime.cpus() have run each level that they could."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        pytest.skip("this system has no /proc/cpuinfo")
    lines = [line.split(":", 1) for line in info.read_text().splitlines() if ":" in line]
    flags = {flag for name, value in lines if name.strip() in ("flags", "Features") for flag in value.split()}
    assert interpreter.cpus() == ["portable", *(level for level, needed in NEEDED.items() if needed <= flags)]
    record_property("summary", f"CPU levels: {', '.join(interpreter.cpus())}")


def test_every_level_is_portable(check_kernels: Path) -> None:
    done = subprocess.run([check_kernels], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" 0 differ\n")
    assert [line.split(",")[0] for line in done.stdout.splitlines()[:-1]] == interpreter.cpus()


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program is of x86-64")
@pytest.mark.parametrize(("cpu", "levels"), [("core2duo", ["portable"]), ("Penryn", ["portable", "sse41"])])
def test_cpus_without_avx(check_kernels: Path, need_tool: Callable[..., str], cpu: str, levels: list[str]) -> None:
    """SSSE3 alone, and SSE4.1 without SSE4.2 and PCLMUL."""
    emulated = [need_tool("qemu-x86_64"), "-cpu", cpu, check_kernels]
    done = subprocess.run([*emulated, *levels[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" 0 differ\n")
    assert [line.split(",")[0] for line in done.stdout.splitlines()[:-1]] == (levels[1:] or levels)
    above = subprocess.run([*emulated, "avx2"], capture_output=True, text=True, check=False)
    assert (above.returncode, above.stderr) == (2, "there is no CPU level 'avx2' here\n")


@pytest.mark.slow
@pytest.mark.skipif("avx2" not in interpreter.cpus(), reason="AMX is of x86-64")
def test_amx_emulated_is_portable(
    root: Path, tmp_path: Path, kernels: Library, record_property: Callable[[str, object], None]
) -> None:
    """The source of the level with tiles in plain C, which takes all int8 convolutions, whatever this CPU has."""
    program = program_of(root, tmp_path, emulating_amx(root, tmp_path, kernels, AMX, "-DAMX_REPORT"))
    done = subprocess.run([program, "amx"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" 0 differ\n")
    assert int(done.stderr.split()[1]) > 1000
    here = "and on this CPU" if "amx" in interpreter.cpus() else "this CPU has none"
    record_property("summary", f"AMX: emulated, {here}; {done.stderr.strip()}")


def test_a_level_that_is_not_there_is_an_error(check_kernels: Path) -> None:
    done = subprocess.run([check_kernels, "abacus"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "there is no CPU level 'abacus' here\n")


def test_a_build_that_chooses_its_level_keeps_steps(root: Path, need_tool: Callable[..., str]) -> None:
    flags = ["-fsyntax-only", "-DNMP_FIXED_CPU=0", "-DNMP_KEEP_STEPS=0", *includes(root)]
    command = [need_tool("cc", "gcc", "clang"), *flags, root / "interpreter/src/nmp.c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "NMP_KEEP_STEPS=0 is for NMP_FIXED_CPU=1" in done.stderr
