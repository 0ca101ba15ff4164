"""Cycles that the processors Cortex-M0+, M3 and M4 take for blocks of instructions, by Arm's tables of timings.

The tables are those of the technical reference manuals, chapter "Instruction set summary": DDI 0484 (M0+, with the
multiplier of one cycle), DDI 0337 (M3) and DDI 0439 (M4, without its FPU); for M3 and M4 with what the manuals say
under "Load/store timings". Memory has no wait states. A block is entered with an empty pipeline of loads.

- An access at an address that the instruction before has computed, not loaded, waits for a cycle on M3 and M4.
- A load behind a load is in the pipeline with it and takes a cycle less, unless it needs its result as an address. So
  is a store behind a load. Nothing is so behind a store, LDM, LDRD and their like.
- A branch that is taken refills the pipeline in P cycles, which the manuals of M3 and M4 leave at 1 to 3. `FAR` holds
  what is taken here: 1 where the target is in the instruction, 2 where a register has it, 3 where it is loaded.
- Division takes the middle of 2 to 12 cycles, and the multiplications to 64 bits of the M3 the middle of their ranges,
  since their operands are not known.
- IT takes a cycle, and so does an instruction that its condition skips; it counts as if it were not skipped.
- Accesses are aligned. Of those that are not, each takes a cycle or two more.
- Stores do not wait: they go to a write buffer, which is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CORES = ("M0+", "M3", "M4")
FAR = {"immediate": 1, "register": 2, "memory": 3}  # M3, M4: cycles of a refill
DIVISION = 7
LONG = {"M3": {"smull": 4, "umull": 4, "smlal": 6, "umlal": 6, "mla": 2, "mls": 2}, "M4": {}}  # others take 1
TAKEN_ON_M0PLUS = {"b": 2, "bl": 3, "bx": 2, "blx": 2}
CONDITIONS = ("eq", "ne", "cs", "cc", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al")
LOADS = {"ldr", "ldrb", "ldrh", "ldrsb", "ldrsh"}
STORES = {"str", "strb", "strh"}
MULTIPLE = {"ldm", "ldmia", "ldmdb", "stm", "stmia", "stmdb", "push", "pop"}
DOUBLE = {"ldrd", "strd"}
SYSTEM = {"mrs": 2, "msr": 2}
BARRIERS = {"dsb", "dmb", "isb"}
# No result in a first register.
NO_RESULT = {
    "cmp",
    "cmn",
    "tst",
    "teq",
    "nop",
    "it",
    "cbz",
    "cbnz",
    "b",
    "bl",
    "bx",
    "blx",
    *STORES,
    *DOUBLE,
    *MULTIPLE,
}
# Names that are told apart from the same ones with flags or a condition.
BRANCHES = {"b", "bl", "bx", "blx", "cbz", "cbnz"}
KNOWN = {"mov", "add", "mul", "mla", "mls", "smull", "umull", "smlal", "umlal", "sdiv", "udiv", "tbb", "tbh", "cmp"}
KNOWN |= {"sub", "tst"} | BRANCHES | BARRIERS | set(SYSTEM) | LOADS | STORES | MULTIPLE | DOUBLE


@dataclass(frozen=True)
class Insn:
    """Instruction of Thumb-2. name: without condition, width and flags. operands: as disassemblers write them."""

    name: str
    operands: str = ""

    @property
    def registers(self) -> list[str]:
        """Registers of the list in braces, lowest first."""
        listed = self.operands.partition("{")[2].partition("}")[0]
        found = []
        for part in filter(None, (part.strip() for part in listed.split(","))):
            first, _, last = part.partition("-")
            found += [f"r{n}" for n in range(int(first[1:]), int(last[1:]) + 1)] if last else [part]
        return found

    @property
    def address(self) -> set[str]:
        """Registers that an address is made of."""
        if self.name in ("push", "pop"):
            return {"sp"}
        if self.name in MULTIPLE:
            return {self.operands.partition(",")[0].rstrip("! ")}
        return set(re.findall(r"r\d+|sp|ip|lr|fp|sl", self.operands.partition("[")[2].partition("]")[0]))

    @property
    def is_indexed(self) -> bool:
        """The address is a sum of registers."""
        return len(self.address) > 1

    @property
    def result(self) -> str:
        """The register that it writes first; '' for none."""
        return "" if self.name in NO_RESULT else self.operands.partition(",")[0].strip()

    @property
    def to_pc(self) -> bool:
        if self.name in ("pop", "ldm", "ldmia", "ldmdb"):
            return "pc" in self.registers
        return self.name in ("tbb", "tbh") or self.result == "pc"


def insn(text: str) -> Insn:
    """An instruction as objdump writes it: "ldrb.w r0, [r1, #4]"."""
    name, *rest = text.strip().split(None, 1)
    name = name.partition(".")[0].lower()
    operands = re.split(r"[;@]", rest[0])[0].strip() if rest else ""
    if re.fullmatch(r"it[te]{0,3}", name):
        return Insn("it")
    if name not in KNOWN:
        bare = [name[: -len(end)] for end in (*CONDITIONS, "s") if name.endswith(end) and name[: -len(end)] in KNOWN]
        name = bare[0] if bare else name
    return Insn(name, operands)


def cycles(core: str, block: Sequence[Insn], taken: bool = False) -> int:
    """Cycles of one pass through a block. taken: it ends with a branch that goes elsewhere than on."""
    if core not in CORES:
        raise ValueError(f"no table of {core}: there are {', '.join(CORES)}")
    each = _m0plus if core == "M0+" else _m3
    total, before = 0, None
    for i, one in enumerate(block):
        total += each(core, one, before, taken and i == len(block) - 1)
        before = one
    return total


def _branches(one: Insn) -> bool:
    return one.name in BRANCHES or one.to_pc


def _m0plus(core: str, one: Insn, before: Insn | None, taken: bool) -> int:
    if one.name in MULTIPLE:
        return (3 if one.to_pc else 1) + len(one.registers)
    if one.name in LOADS | STORES:
        return 2
    if one.name in SYSTEM or one.name in BARRIERS:
        return 3
    if _branches(one):
        return TAKEN_ON_M0PLUS.get(one.name, 2) if taken else 1
    return 1


def _m3(core: str, one: Insn, before: Insn | None, taken: bool) -> int:
    """M3 and M4."""
    waits = before is not None and before.name not in LOADS and before.result in one.address
    far = 0
    if taken:
        far = FAR[
            "memory" if one.to_pc and one.name not in ("mov", "add") else "register" if _indirect(one) else "immediate"
        ]
    if one.name in MULTIPLE:
        return 1 + len(one.registers) + waits + far
    if one.name in DOUBLE:
        return 3 + waits
    if one.name in ("tbb", "tbh"):
        return 3 + waits + far
    if one.name in LOADS:
        return 2 - _pipelined(one, before) + waits + far
    if one.name in STORES:
        return 1 + (one.is_indexed and not _pipelined(one, before)) + waits
    if one.name in ("sdiv", "udiv"):
        return DIVISION
    return SYSTEM.get(one.name) or LONG[core].get(one.name, 1) + far


def _indirect(one: Insn) -> bool:
    return one.name in ("bx", "blx") or one.to_pc


def _pipelined(one: Insn, before: Insn | None) -> bool:
    """True behind a load whose result is not a part of its address."""
    return before is not None and before.name in LOADS and before.result not in one.address


def total(core: str, blocks: Iterable[tuple[Sequence[Insn], int, int]]) -> int:
    """Sum over blocks: instructions, how often they ran, how often the last one branched."""
    return sum(
        (times - taken) * cycles(core, block) + taken * cycles(core, block, taken=True)
        for block, times, taken in blocks
    )
