"""Sources of a bundle compile without a warning by each compiler, at each level, for each family of CPUs.

Inline assembly finds fewer registers where a frame pointer is kept, where nothing is optimized and where there is an
FPU. Code of an architecture is compiled in all combinations; what is the same for all CPUs in all of one CPU.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from c_core import WARNINGS, includes, sources

from nmpconv.exporters.c_sources import bundle

LEVELS = {
    "O0": ["-O0"],
    "Og": ["-Og"],
    "Os": ["-Os"],
    "frame pointer": ["-O2", "-fno-omit-frame-pointer"],
    "O3": ["-O3"],
}
CPUS = {
    "M0+": ["-mcpu=cortex-m0plus", "-mthumb"],
    "M3": ["-mcpu=cortex-m3", "-mthumb"],
    "M4": ["-mcpu=cortex-m4", "-mthumb"],
    "M33": ["-mcpu=cortex-m33", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"],
    "M33 without DSP": ["-mcpu=cortex-m33+nodsp", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"],
    "M55": ["-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"],
    "rv32": ["-march=rv32imac", "-mabi=ilp32"],
}
WHOLE = "M33"
MORE = ["-Wshadow", "-Wundef", "-Wcast-align"]  # that projects have


def command(compiler: str, cpu: str, tool: Callable[..., str]) -> list[str]:
    """clang takes the headers of the C library that gcc has."""
    rv32 = cpu == "rv32"
    gcc = [tool("riscv64-unknown-elf-gcc"), "--specs=picolibc.specs"] if rv32 else [tool("arm-none-eabi-gcc")]
    if compiler == "gcc":
        return [*gcc, *CPUS[cpu]]
    said = subprocess.run([*gcc, *CPUS[cpu], "-E", "-v", "-xc", "/dev/null"], capture_output=True, text=True).stderr
    folders = [line.strip() for line in said.splitlines() if line.startswith(" ") and line.endswith("/include")]
    [headers] = [folder for folder in folders if (Path(folder) / "string.h").is_file()]
    target = "riscv32-unknown-elf" if rv32 else "arm-none-eabi"
    return [tool("clang-19", "clang-16", "clang"), f"--target={target}", "-isystem", headers, *CPUS[cpu]]


def wrong(compile_: Sequence[str], files: Sequence[Path], folder: Path) -> list[str]:
    """Returns what the compiler says; the objects are left in the folder."""

    def compile_one(source: Path) -> str:
        return subprocess.run([*compile_, "-c", source], cwd=folder, capture_output=True, text=True).stderr

    with ThreadPoolExecutor(2) as pool:
        return [said for said in pool.map(compile_one, files) if said]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("cpu", CPUS)
def test_code_of_architectures_compiles(
    cpu: str, compiler: str, root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    family = "plain32" if cpu in ("M0+", "M3", "M33 without DSP", "rv32") else "cortex_m"
    parts = [f"arch/{family}"]
    common = [*command(compiler, cpu, need_tool), "-std=c99", *WARNINGS, *MORE, *includes(root)]
    said = {name: wrong([*common, *level], sources(root, *parts), tmp_path) for name, level in LEVELS.items()}
    assert said == {name: [] for name in LEVELS}
    objects = sum(path.stat().st_size for path in tmp_path.glob("*.o"))
    assert objects > 10_000, "nothing is compiled for this CPU"


@pytest.mark.slow
@pytest.mark.parametrize("compilers", [("gcc",), ("clang-19", "clang-16", "clang")])
def test_levels_of_x86_compile(
    compilers: tuple[str, ...], root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    flags = ["-std=c99", "-O0", *WARNINGS, *MORE, "-Wsign-conversion", *includes(root)]
    assert wrong([need_tool(*compilers), *flags], sources(root, "arch/x86"), tmp_path) == []
    if platform.machine() == "x86_64":
        assert sum(path.stat().st_size for path in tmp_path.glob("*.o")) > 100_000, "nothing is compiled"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_bundle_compiles(
    level: str, compiler: str, model: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    for name, content in bundle({"model": model.read_bytes()}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    flags = ["-std=c99", *WARNINGS, *MORE, *LEVELS[level], f"-I{tmp_path / 'src'}"]
    common = [*command(compiler, WHOLE, need_tool), *flags]
    assert wrong(common, sorted(tmp_path.glob("src/**/*.c")), tmp_path) == []


def test_big_endian_is_refused(root: Path, need_tool: Callable[..., str]) -> None:
    source = root / "interpreter" / "src" / "nmp.c"
    command = [need_tool("arm-none-eabi-gcc"), *CPUS["M4"], "-mbig-endian", "-fsyntax-only", *includes(root), source]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode != 0
    assert "big-endian processors are not supported" in ran.stderr
