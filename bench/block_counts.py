"""The plug-in of QEMU that counts blocks (count_insns.c): its compilation, and the reports that it prints."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("count_insns.c")
BLOCK = re.compile(r"^block (\d+) (\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """taken: how often another block than the next in memory followed; 0 where that was not counted. instructions: of
    one pass.
    """

    times: int
    taken: int
    instructions: int
    address: int
    code: bytes


@dataclass(frozen=True)
class Report:
    """Blocks that ran between two marks. blocks: hottest first; in user emulation not all of them."""

    instructions: int
    blocks: list[Block]


def plugin(folder: Path) -> Path:
    """The plug-in, compiled into a folder."""
    built = folder / "count_insns.so"
    if not built.is_file() or built.stat().st_mtime < SOURCE.stat().st_mtime:
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", SOURCE, "-o", built], check=True)
    return built


def reports(printed: str) -> list[Report]:
    """One for each mark: of what ran before it, since the one before."""
    found = []
    for part in re.split(r"^mark ", printed, flags=re.MULTILINE)[1:]:
        blocks = [
            Block(int(times), int(taken), int(instructions), int(address, 16), bytes.fromhex(code))
            for times, taken, instructions, address, code in BLOCK.findall(part)
        ]
        found.append(Report(int(part.split(None, 1)[0]), blocks))
    return found
