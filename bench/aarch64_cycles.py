"""Figures of one inference on AArch64, from what count_insns.c reports: instructions, and llvm-mca's cycles."""

from __future__ import annotations

from dataclasses import dataclass

import mca
from block_counts import reports

TRIPLE, FEATURES = "aarch64", "+v8.6a,+dotprod,+i8mm,+fullfp16,+crypto"


@dataclass(frozen=True)
class Counts:
    """Figures of one inference. cycles: None where llvm-mca is missing. version: a peer's."""

    instructions: int
    cycles: int | None
    version: str = ""


def counts_of(printed: str, runs: int, scheduled: str) -> Counts:
    """Figures of one run. printed: with three marks; between the first two are `runs` runs, then as many twice.
    scheduled: the CPU of llvm-mca. Raises RuntimeError for other marks."""
    found = reports(printed)
    if len(found) != 3:
        raise RuntimeError(f"{len(found)} marks instead of 3: {printed.strip()[-200:]}")
    instructions = (found[2].instructions - found[1].instructions) // runs
    each = mca.cycles_an_instruction(found[2], mca.Cpu(TRIPLE, FEATURES, scheduled))
    return Counts(instructions, None if each is None else round(each * instructions))
