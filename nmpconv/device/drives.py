"""Drives by which boards take a program: a file copied to them is written to the board's flash."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nmpconv.device import boards
from nmpconv.device.boards import Way

UF2, DETAILS, MBED, FAILED = "INFO_UF2.TXT", "DETAILS.TXT", "MBED.HTM", "FAIL.TXT"
BEGINNING = 4096  # bytes of such a file that are read
LINE = re.compile(r"^\s*(Model|Board-ID|Unique ID)\s*:\s*(.*?)\s*$", re.IGNORECASE | re.MULTILINE)
CODE = re.compile(r"\b(?:code|auth)=([0-9A-F]{4})", re.IGNORECASE)  # of a board, in the link of MBED.HTM
MOUNTS = Path("/proc/self/mounts")  # of Linux


@dataclass(frozen=True)
class Drive:
    """path: where it is mounted. way: "uf2" or "mbed". model: what it calls itself. board: of
    `boards.BOARDS`; '' for others.
    """

    path: Path
    way: Way
    model: str = ""
    board: str = ""

    @property
    def words(self) -> str:
        return f"{self.path} ({self.board or self.model or self.way})"


def drives() -> list[Drive]:
    """Drives of boards that are here, by path."""
    candidates = (drive(path) for path in sorted(set(mount_points())))
    return [candidate for candidate in candidates if candidate is not None]


def drive(path: Path) -> Drive | None:
    """The drive of a board that is mounted there; None for any other folder."""
    if text := _text(path / UF2):
        facts = _facts(text)
        return Drive(path, "uf2", facts.get("model", ""), boards.of_drive(facts.get("board-id", ""), path.name))
    details, page = _text(path / DETAILS), _text(path / MBED)
    if not details and not page:
        return None
    code = CODE.search(page)
    id_ = code[1] if code else _facts(details).get("unique id", "")[:4]
    return Drive(path, "mbed", path.name, boards.of_drive(id_, path.name))


def failure(path: Path) -> str:
    """Text that an Mbed board writes to its drive about a program that it did not take; '' for nothing."""
    return " ".join(_text(path / FAILED).split())


def mount_points() -> Iterator[Path]:
    """Folders at which file systems are mounted that may be a board's drive."""
    if sys.platform == "win32":
        yield from (Path(f"{letter}:\\") for letter in "DEFGHIJKLMNOPQRSTUVWXYZ" if os.path.exists(f"{letter}:\\"))
    elif sys.platform == "darwin":
        with suppress(OSError):
            yield from Path("/Volumes").iterdir()
    else:
        with suppress(OSError):
            for line in MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
                _, path, kind, *_ = line.split(" ")
                if kind in ("vfat", "msdos", "exfat", "fuseblk"):
                    yield Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path))


def _text(path: Path) -> str:
    """The beginning of a text file; '' where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(BEGINNING).decode("utf-8", "replace")
    except OSError:
        return ""


def _facts(text: str) -> dict[str, str]:
    return {key.lower(): value for key, value in LINE.findall(text)}
