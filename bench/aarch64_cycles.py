"""Reads count_insns.c's report: instructions of one run, and llvm-mca's cycles of its hottest blocks."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

ITERATIONS = 50
COVERED = 0.9  # of the instructions: blocks behind those count as the others do
FEATURES = "-mattr=+v8.6a,+dotprod,+i8mm,+fullfp16,+crypto"


@dataclass(frozen=True)
class Counts:
    """Figures of one inference. cycles: None where llvm-mca is missing. version: a peer's."""

    instructions: int
    cycles: int | None
    version: str = ""


@dataclass(frozen=True)
class Block:
    times: int
    code: bytes

    @property
    def instructions(self) -> int:
        return self.times * len(self.code) // 4


def counts_of(printed: str, runs: int, scheduled: str) -> Counts:
    """Figures of one run. printed: with three marks; between the first two are `runs` runs, then as many twice.
    scheduled: the CPU of llvm-mca. Raises RuntimeError for other marks."""
    marks = re.split(r"^mark ", printed, flags=re.MULTILINE)[1:]
    if len(marks) != 3:
        raise RuntimeError(f"{len(marks)} marks instead of 3: {printed.strip()[-200:]}")
    numbers = [int(mark.split(None, 1)[0]) for mark in marks]
    blocks = [
        Block(int(times), bytes.fromhex(code)) for times, code in re.findall(r"^block (\d+) (\w+)$", marks[2], re.M)
    ]
    instructions = (numbers[2] - numbers[1]) // runs
    cycles = cycles_of(blocks, numbers[2], scheduled)
    return Counts(instructions, None if cycles is None else round(cycles * instructions))


def cycles_of(blocks: list[Block], instructions: int, scheduled: str) -> float | None:
    """Cycles an instruction: of the hottest blocks that have most of them. blocks: hottest first."""
    tools = _tools()
    if tools is None:
        return None
    covered, total, cycles = 0, 0, 0.0
    for block in blocks:
        if total > COVERED * instructions:
            break
        total += block.instructions
        each = _mca(block.code, scheduled, *tools)
        if each is not None:
            covered += block.instructions
            cycles += each * block.times
    return cycles / covered if covered else None


def _tools() -> tuple[str, str] | None:
    """llvm-mc and llvm-mca of one version."""
    for version in ("-19", "-16", ""):
        found = shutil.which(f"llvm-mc{version}"), shutil.which(f"llvm-mca{version}")
        if found[0] and found[1]:
            return found[0], found[1]
    return None


_known: dict[tuple[bytes, str], float | None] = {}


def _mca(code: bytes, scheduled: str, mc: str, mca: str) -> float | None:
    """Cycles of a block that repeats; None for instructions that the model of the CPU does not have."""
    if (code, scheduled) not in _known:
        target = ["-triple=aarch64", FEATURES]
        text = " ".join(f"0x{byte:02x}" for byte in code)
        shown = subprocess.run([mc, *target, "-disassemble"], input=text, capture_output=True, text=True, check=False)
        flags = ["-mtriple=aarch64", FEATURES, f"-mcpu={scheduled}", f"-iterations={ITERATIONS}"]
        less = ["-instruction-info=0", "-resource-pressure=0"]
        done = subprocess.run([mca, *flags, *less], input=shown.stdout, capture_output=True, text=True, check=False)
        found = re.search(r"^Total Cycles: +(\d+)", done.stdout, re.MULTILINE)
        _known[code, scheduled] = int(found[1]) / ITERATIONS if found and done.returncode == 0 else None
    return _known[code, scheduled]
