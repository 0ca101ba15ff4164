"""The interpreter's sources and how they are compiled; every list of files is that of a folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

KERNELS = ("base", "kernels", "conv", "arch", "dispatch.c")  # what computes, without files and ops
C99 = ("-std=c99", "-D_POSIX_C_SOURCE=200112L", "-g1", "-O1")
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PORTABLE = ("-DNMP_FIXED_CPU=1", "-DNMP_TWO_MEMORIES=1")  # as on boards, for any model
GATE = "-DNMP_BUILD_CUSTOM(X)=X(gate_op)"  # a custom op, that of samples/gate

AMX = "-DNMP_AMX_GAIN=0"  # all int8 convolutions by tiles

Once = Callable[[str, Callable[[Path], object]], Path]
"""The fixture `once`."""


def sources(root: Path, *parts: str) -> list[Path]:
    """The C files of these folders and files of interpreter/src, of all of it when none is named."""
    places = [root / "interpreter" / "src" / part for part in parts or (".",)]
    return sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.c")))


def includes(root: Path) -> list[str]:
    return [f"-I{root / 'interpreter' / folder}" for folder in ("include", "src")]


def with_amx(levels: Sequence[str]) -> list[str]:
    """The CPU levels of a program that emulates AMX, by those of this machine."""
    return [*levels, *["amx"] * ("avx2" in levels and "amx" not in levels)]


class Library(NamedTuple):
    """The whole interpreter, compiled once for several programs."""

    command: tuple[str, ...]
    objects: tuple[Path, ...]

    def program(self, path: Path, *own: str | Path) -> Path:
        """own: its files and flags."""
        subprocess.run([*self.command, *own, *self.objects, "-o", path], check=True)
        return path


def objects(command: Sequence[str | Path], files: Sequence[Path], folder: Path) -> list[Path]:
    """Compiles each file by itself, as ccache keeps it. folder: an absolute one, of the objects."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / f"{i}-{_object_name(path)}" for i, path in enumerate(files)]

    def compile_one(source: Path, to: Path) -> None:
        ran = subprocess.run([*command, "-c", source, "-o", to], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr[-2000:]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, files, made))
    return made


def built(command: Sequence[str | Path], program: Path) -> Path:
    """The program of a command that compiles and links C files, each of which is compiled by itself.

    Words for the linker alone begin with -Wl or -T: clang warns of these where it does not link.
    """
    files = [Path(word) for word in command if str(word).endswith(".c")]
    others = [str(word) for word in command if not str(word).endswith(".c")]
    made = objects([word for word in others if not word.startswith(("-Wl,", "-T"))], files, program.with_suffix(".o"))
    ran = subprocess.run([*others, *made, "-o", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return program


def compiled(root: Path, folder: Path, compiler: str, *flags: str, files: Sequence[Path] = ()) -> None:
    """The objects of these files, or of all of the interpreter with a custom op, in the folder."""
    command = [compiler, *flags, *([] if files else [GATE]), *includes(root), "-c"]
    chosen = files or [*sources(root), root / "samples" / "gate" / "gate.c"]

    def compile_one(source: Path) -> None:
        subprocess.run([*command, source, "-o", folder / _object_name(source)], check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, chosen))


def installed_objects(root: Path, *parts: str) -> dict[str, Path]:
    """Objects of these folders and files as the installed extension has them, by the names that `compiled` gives them.

    Empty where a source is newer, or where another tree was installed.
    """
    headers = [path for path in (root / "interpreter").rglob("*") if path.suffix in (".h", ".inc")]
    changed = max(path.stat().st_mtime_ns for path in headers)
    for archive in root.glob("build/cp*/libnmp.a"):  # pyproject.toml names the folder
        built = archive.parent / "CMakeFiles" / "nmp.dir" / "interpreter" / "src"
        pairs = [(p, built / f"{p.relative_to(root / 'interpreter' / 'src')}.o") for p in sources(root, *parts)]
        fresh = all(to.is_file() and to.stat().st_mtime_ns > p.stat().st_mtime_ns for p, to in pairs)
        if fresh and archive.stat().st_mtime_ns > changed:
            return {_object_name(p): to for p, to in pairs}
    return {}


def _object_name(source: Path) -> str:
    return f"{source.parent.name}-{source.stem}.o"


def library(root: Path, folder: Path, compiler: str, flags: Sequence[str]) -> Library:
    """The core in a folder that `compiled` has filled with these flags."""
    return Library((compiler, *flags, *includes(root)), tuple(sorted(folder.glob("*.o"))))


def emulating_amx(root: Path, folder: Path, found: Library, *flags: str) -> Library:
    """The same library with tiles of AMX in plain C; what knows of them is compiled anew into the folder."""
    known = [path for path in sources(root) if "NMP_AMX" in path.read_text()]
    compiler, *others = found.command
    header = root / "interpreter" / "tests" / "amx_emulated.h"
    compiled(root, folder, compiler, *others, f'-DNMP_AMX_EMULATED="{header}"', *flags, files=known)
    anew = {path.name: path for path in folder.glob("*.o")}
    return Library(found.command, tuple(anew.pop(path.name, path) for path in found.objects))
