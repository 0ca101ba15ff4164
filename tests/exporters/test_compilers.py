"""Sources of a bundle compile without a warning by each compiler, at each level, for each family of CPUs.

Inline assembly finds fewer registers where a frame pointer is kept, where nothing is optimized and where there is an
FPU. Code of an architecture is compiled in all combinations; what is the same for all CPUs in all of one CPU.
"""

from __future__ import annotations

import platform
import re
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
# Without DSP an M33 has the code and the instructions of an M3.
BY_CPU = pytest.mark.parametrize(
    "cpu", [pytest.param(cpu, marks=[pytest.mark.soak] * (cpu == "M33 without DSP")) for cpu in CPUS]
)
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
@BY_CPU
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


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["M0+", "M3", "M4", "M33", "M55"])
def test_position_independent_code_keeps_the_base_of_data(
    cpu: str, root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """The compiler does not bring r9 back with -frwpi where assembly says that it overwrites it."""
    flags = ["-std=c99", "-fropi", "-frwpi", *WARNINGS, *includes(root)]
    common = [*command("clang", cpu, need_tool), *flags]
    files = [one for one in sources(root, "arch/cortex_m", "arch/plain32", "nmp.c") if "plan" not in one.name]
    assert wrong([*common, "-O2"], files, tmp_path) == []
    assert wrong([*common, "-O0"], sources(root, "arch/cortex_m"), tmp_path) == []
    assert sum(path.stat().st_size for path in tmp_path.glob("*.o")) > 10_000, "nothing is compiled for this CPU"


STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
ASSEMBLY = re.compile(r"\b__asm(?:__)?(?: volatile)?\(")


def late_writes(text: str) -> list[str]:
    """Operands that several instructions read and write, and that the compiler may give an input's register.

    A part of assembly is template : outputs : inputs : what else is written. Vectors have registers of their own.
    """
    found = []
    for start in (match.end() for match in ASSEMBLY.finditer(text)):
        end, depth = start, 1
        while depth > 0:
            quoted = STRING.match(text, end)
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end = quoted.end() if quoted else end + 1
        bare = STRING.sub(lambda quoted: quoted[0].replace(":", " "), text[start : end - 1])
        template, outputs, inputs, *_ = [*bare.split(":"), "", ""]
        read = set(re.findall(r'"([rlw])"', inputs))
        late = [kind for kind in re.findall(r'"\+([rlw])"', outputs) if (read & {"w"} if kind == "w" else read - {"w"})]
        found += [f"{template.strip()[:40]}: +{kind}" for kind in late if template.count("\\n") > 1]
    return found


def test_assembly_tells_what_it_writes_before_it_has_read_all(root: Path) -> None:
    """Otherwise an input of the same value may share the register, and changes on the way."""
    files = [*sources(root, "arch"), *(root / "interpreter" / "src" / "arch").rglob("*.h")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert {name: found for name, text in texts.items() if (found := late_writes(text))} == {}
    loop = texts["conv_dsp.c"].replace('"+&r"', '"+r"')
    assert len(late_writes(loop)) == 3


def test_big_endian_is_refused(root: Path, need_tool: Callable[..., str]) -> None:
    source = root / "interpreter" / "src" / "nmp.c"
    command = [need_tool("arm-none-eabi-gcc"), *CPUS["M4"], "-mbig-endian", "-fsyntax-only", *includes(root), source]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode != 0
    assert "big-endian processors are not supported" in ran.stderr


@pytest.mark.slow
def test_three_functions_of_the_c_library(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """Those, and what a compiler's own library has, are undefined in the whole interpreter."""
    gcc, linker, nm = (need_tool(f"arm-none-eabi-{tool}") for tool in ("gcc", "ld", "nm"))
    flags = [*CPUS["M4"], "-std=c99", "-Os", "-ffreestanding", *includes(root)]
    assert wrong([gcc, *flags], sources(root), tmp_path) == []
    subprocess.run([linker, "-r", *tmp_path.glob("*.o"), "-o", tmp_path / "all"], check=True)
    said = subprocess.run([nm, "-u", tmp_path / "all"], capture_output=True, text=True, check=True).stdout
    needed = {name for name in said.split() if name != "U"}
    assert {name for name in needed if not name.startswith("__aeabi_")} == {"memcpy", "memmove", "memset"}


def test_addresses_of_16_bits_are_refused(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """AVR and MSP430: by a sentence, which every file of the interpreter begins with."""
    (tmp_path / "any.c").write_text('#include "base/build.h"\n')
    for target in ("avr", "msp430"):
        flags = [f"--target={target}", "-std=c99", "-ffreestanding", "-fsyntax-only", *includes(root)]
        command = [need_tool("clang-19", "clang-16", "clang"), *flags, tmp_path / "any.c"]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode != 0 and "processors with addresses of 16 bits are not supported" in ran.stderr, target


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [("gcc",), ("clang-19",), ("clang-16",)])
@pytest.mark.parametrize("standard", ["c11", "c17", "c2x"])
def test_later_standards_of_c(
    standard: str, compiler: tuple[str, ...], root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    flags = [f"-std={standard}", "-DNMP_FIXED_CPU=1", "-fsyntax-only", *WARNINGS, *MORE, *includes(root)]
    assert wrong([need_tool(*compiler), *flags], sources(root, "nmp.c", "core", "ops", "kernels"), tmp_path) == []
