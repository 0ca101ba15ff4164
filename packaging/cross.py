"""Compiles the interpreter and the binding for Windows and macOS, on any machine, with warnings as errors.

    python packaging/cross.py --work build/wheels --warnings="-Wall -Wextra"

Of each target there are then test_nmp, a whole program, and the objects of the binding. Nothing is run. With
--compile-only the interpreter is left in objects, too: to link for Windows, the compiler first builds its C library.
The compiler is that of `make wheels`. The headers of Python are those of this machine, with the sizes of the target:
what else pyconfig.h says is about building Python itself.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from wheels import ROOT, environment, run

TARGETS = {"x86_64-windows-gnu": "windows", "x86_64-macos": "macos", "aarch64-macos": "macos"}
INTERPRETER = ROOT / "interpreter"
INCLUDES = [f"-I{INTERPRETER / name}" for name in ("include", "src")]
SIZES = {"INT": 4, "LONG": 8, "LONG_LONG": 8, "SHORT": 2, "SIZE_T": 8, "TIME_T": 8, "VOID_P": 8, "WCHAR_T": 4}
# Of pyconfig.h: sizes that differ, and what the headers ask for.
SYSTEMS = {
    "windows": ({"LONG": 4, "WCHAR_T": 2}, ("MS_WINDOWS", "MS_WIN64", "NT_THREADS", "Py_ENABLE_SHARED")),
    "macos": ({"PTHREAD_T": 8}, ("HAVE_PTHREAD_H", "HAVE_SYS_TIME_H", "HAVE_UNISTD_H")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=shutil.which("python3"), help="whose headers the binding is compiled with")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "wheels", help="a folder for the compiler")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "cross", help="the folder to write to")
    parser.add_argument("--warnings", default="", help="flags of the C compiler")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS), help="default: all")
    parser.add_argument("--compile-only", action="store_true", help="link no program")
    asked = parser.parse_args()
    tools = environment(asked.python, asked.work)
    code = "import sysconfig, nanobind as n, ziglang as z; "
    code += "print(z.__path__[0], n.__path__[0], sysconfig.get_path('include'))"
    zig, nanobind, headers = map(Path, run([tools, "-c", code], capture_output=True).stdout.splitlines()[0].split())
    for target in asked.targets:
        system = TARGETS[target]
        folder = asked.output / target
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(headers, folder / "python")
        (folder / "python" / "pyconfig.h").write_text(pyconfig(system))
        (objects if asked.compile_only else program)(zig / "zig", target, folder, asked.warnings.split())
        binding(zig / "zig", target, folder, nanobind)
        print(f"{target}: the interpreter is {'compiled' if asked.compile_only else 'linked'}, the binding compiled")


def program(zig: Path, target: str, folder: Path, warnings: Sequence[str]) -> None:
    """The whole interpreter, and its test as a program."""
    run([zig, "cc", "-target", target, *warnings, *INCLUDES, *sources(), "-o", folder / "test_nmp.exe"])


def objects(zig: Path, target: str, folder: Path, warnings: Sequence[str]) -> None:
    """The same files, each for itself."""
    for source in sources():
        place = folder / f"{source.parent.name}-{source.stem}.o"
        run([zig, "cc", "-target", target, *warnings, *INCLUDES, "-c", source, "-o", place])


def sources() -> list[Path]:
    return [*sorted((INTERPRETER / "src").rglob("*.c")), INTERPRETER / "tests" / "test_nmp.c"]


def binding(zig: Path, target: str, folder: Path, nanobind: Path) -> None:
    """Objects of its sources and of nanobind. A library needs the Python of the target, too."""
    places = [f"-I{INTERPRETER / 'include'}", "-isystem", folder / "python"]
    for name in ("include", "ext/robin_map/include"):
        places += ["-isystem", nanobind / name]
    languages = {".c": ("cc", "-std=c99"), ".cpp": ("c++", "-std=c++17", "-include", "stdio.h")}
    flags = ("-O0", "-fno-sanitize=undefined", "-Wall", "-Wextra", "-Werror")
    for source in (*sorted((INTERPRETER / "python").glob("*.c*")), nanobind / "src" / "nb_combined.cpp"):
        compiler, *language = languages[source.suffix]
        command = [zig, compiler, "-target", target, *language, *flags, *places]
        run([*command, "-c", source, "-o", folder / f"{source.stem}.o"])


def pyconfig(system: str) -> str:
    sizes, names = SYSTEMS[system]
    lines = [f"#define SIZEOF_{name} {size}" for name, size in {**SIZES, **sizes}.items()]
    return "\n".join([*lines, *(f"#define {name} 1" for name in names)]) + "\n"


if __name__ == "__main__":
    main()
