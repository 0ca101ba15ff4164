"""The interpreter's sources and how they are compiled; every list of files is that of a folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

KERNELS = ("base", "kernels", "conv", "arch", "dispatch.c")  # what computes, without files and ops
C99 = ("-std=c99", "-D_POSIX_C_SOURCE=200112L", "-g", "-O1")
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PORTABLE = "-DNMP_FIXED_CPU=1"

Once = Callable[[str, Callable[[Path], object]], Path]
"""The fixture `once`."""


def sources(root: Path, *parts: str) -> list[Path]:
    """The C files of these folders and files of interpreter/src, of all of it when none is named."""
    places = [root / "interpreter" / "src" / part for part in parts or (".",)]
    return sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.c")))


def includes(root: Path) -> list[str]:
    return [f"-I{root / 'interpreter' / folder}" for folder in ("include", "src")]


class Library(NamedTuple):
    """The whole interpreter, compiled once for several programs."""

    command: tuple[str, ...]
    objects: tuple[Path, ...]

    def program(self, path: Path, *own: str | Path) -> Path:
        """own: its files and flags."""
        subprocess.run([*self.command, *own, *self.objects, "-o", path], check=True)
        return path


def compiled(root: Path, folder: Path, compiler: str, *flags: str) -> None:
    """The interpreter's objects, in the folder."""
    command = [compiler, *flags, *includes(root), "-c"]

    def compile_one(source: Path) -> None:
        subprocess.run([*command, source, "-o", folder / f"{source.parent.name}-{source.stem}.o"], check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources(root)))


def library(root: Path, folder: Path, compiler: str, flags: Sequence[str]) -> Library:
    """Of a folder that `compiled` has filled with these flags."""
    return Library((compiler, *flags, *includes(root)), tuple(sorted(folder.glob("*.o"))))
