"""Cycles of blocks of instructions as llvm-mca estimates them: each repeated, in caches, every branch predicted."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from block_counts import Report

ITERATIONS = 50
COVERED = 0.9  # of the instructions: blocks behind those count as the others do


@dataclass(frozen=True)
class Cpu:
    """Names that LLVM has for a processor. triple: of its instructions."""

    triple: str
    features: str
    name: str


def cycles_an_instruction(report: Report, cpu: Cpu) -> float | None:
    """Average over the hottest blocks, which have most of the instructions; None where llvm-mca is missing or knows
    none.
    """
    tools = _tools()
    if tools is None:
        return None
    covered, total, cycles = 0, 0, 0.0
    for block in report.blocks:
        if total > COVERED * report.instructions:
            break
        total += block.times * block.instructions
        each = _cycles(block.code, cpu, *tools)
        if each is not None:
            covered += block.times * block.instructions
            cycles += each * block.times
    return cycles / covered if covered else None


def _tools() -> tuple[str, str] | None:
    """llvm-mc and llvm-mca of one version."""
    for version in ("-19", "-16", ""):
        found = shutil.which(f"llvm-mc{version}"), shutil.which(f"llvm-mca{version}")
        if found[0] and found[1]:
            return found[0], found[1]
    return None


_known: dict[tuple[bytes, Cpu], float | None] = {}


def _cycles(code: bytes, cpu: Cpu, mc: str, mca: str) -> float | None:
    """Cycles of a block that repeats; None for instructions that the model of the CPU does not have."""
    if (code, cpu) not in _known:
        text = " ".join(f"0x{byte:02x}" for byte in code)
        target = [f"-triple={cpu.triple}", f"-mattr={cpu.features}"]
        shown = subprocess.run([mc, *target, "-disassemble"], input=text, capture_output=True, text=True, check=False)
        flags = [f"-mtriple={cpu.triple}", f"-mattr={cpu.features}", f"-mcpu={cpu.name}", f"-iterations={ITERATIONS}"]
        less = ["-instruction-info=0", "-resource-pressure=0"]
        done = subprocess.run([mca, *flags, *less], input=shown.stdout, capture_output=True, text=True, check=False)
        found = re.search(r"^Total Cycles: +(\d+)", done.stdout, re.MULTILINE)
        _known[code, cpu] = int(found[1]) / ITERATIONS if found and done.returncode == 0 else None
    return _known[code, cpu]
