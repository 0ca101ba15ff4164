"""Estimated cycles of what ran on a simulated microcontroller: blocks times what each takes on its processor.

Cortex-M0+, M3 and M4 go by Arm's tables (cortex_m_cycles.py), M7 and M55 by llvm-mca, whose models of both are in LLVM.
There is none for rv32: its cores differ.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import cortex_m_cycles
import mca
from block_counts import Block, Report

TOOLS = "arm-none-eabi-"
MARK = "board_cycles"  # the function that starts the board's counter and reads it
SCHEDULED = {
    "M7": mca.Cpu("thumbv7em-none-eabi", "", "cortex-m7"),
    "M55": mca.Cpu("thumbv8.1m.main-none-eabi", "+mve,+lob", "cortex-m55"),
}
ESTIMATED = (*cortex_m_cycles.CORES, *SCHEDULED)


def mark(elf: Path) -> int:
    """The address of the function that is called before and after what is counted."""
    listed = subprocess.run([f"{TOOLS}nm", elf], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^([0-9a-f]+) T {MARK}$", listed, re.MULTILINE)
    assert found is not None
    return int(found[1], 16)


def cycles(cpu: str, elf: Path, report: Report) -> int | None:
    """Estimate for all that a report has. cpu: of `ESTIMATED`. None where llvm-mca is missing."""
    if cpu in SCHEDULED:
        each = mca.cycles_an_instruction(report, SCHEDULED[cpu])
        return None if each is None else round(each * report.instructions)
    code = disassembled(elf)
    return cortex_m_cycles.total(
        cpu, ((instructions(code, block), block.times, block.taken) for block in report.blocks)
    )


def instructions(code: dict[int, cortex_m_cycles.Insn], block: Block) -> list[cortex_m_cycles.Insn]:
    """Instructions of a block, by addresses. Raises RuntimeError where the disassembler sees another number of them."""
    addresses = range(block.address, block.address + len(block.code), 2)
    found = [code[address] for address in addresses if address in code]
    if len(found) != block.instructions:
        raise RuntimeError(f"{len(found)} instead of {block.instructions} instructions at {block.address:#x}")
    return found


def disassembled(elf: Path) -> dict[int, cortex_m_cycles.Insn]:
    """Instructions of a program by their addresses."""
    command = [f"{TOOLS}objdump", "-d", "--no-show-raw-insn", elf]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ +([0-9a-f]+):\t(.+)$", shown, re.MULTILINE)
    return {int(address, 16): cortex_m_cycles.insn(text) for address, text in found}
