"""The interpreter's sources and how they are compiled; every list of files is that of a folder."""

from __future__ import annotations

from pathlib import Path

KERNELS = ("base", "kernels", "conv", "arch", "dispatch.c")  # what computes, without files and ops


def sources(root: Path, *parts: str) -> list[Path]:
    """The C files of these folders and files of interpreter/src, of all of it when none is named."""
    places = [root / "interpreter" / "src" / part for part in parts or (".",)]
    return sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.c")))


def includes(root: Path) -> list[str]:
    return [f"-I{root / 'interpreter' / folder}" for folder in ("include", "src")]
