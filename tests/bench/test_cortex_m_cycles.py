"""The model of cycles of Cortex-M0+, M3 and M4: sequences whose cycles Arm's manuals tell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from block_counts import Block, reports
from cortex_m_cycles import cycles, insn, total

# "Load/store timings" of the manuals of M3 and M4 have the first eight as examples or rules.
BOTH = (
    ("ldr r0, [r1]; ldr r1, [r2]", 3),
    ("ldr r0, [r1, r2]; str r0, [r3, #20]", 3),
    ("ldr r0, [r1, r2]; str r1, [r3, r2]", 3),
    ("ldr r0, [r1, r5]; ldr r1, [r2]; ldr r2, [r3, #4]", 4),
    ("ldr r0, [r1]; ldr r2, [r0]", 4),  # the address is the result
    ("str r0, [r1, #4]", 1),
    ("str r0, [r1, r2]; ldr r3, [r4]", 4),  # nothing is pipelined behind a store
    ("ldmia r0!, {r1, r2, r3}", 4),
    ("stmia.w r0!, {r1-r8}", 9),
    ("ldrd r4, r5, [r0], #8", 3),
    ("ldr r0, [r1]; ldmia r2!, {r3, r4}; ldr r5, [r6]", 2 + 3 + 2),
    ("add r0, r1; ldr r2, [r0]", 1 + 3),  # an address that was just computed
    ("add r0, r1; mov r3, #0; ldr r2, [r0]", 4),
    ("add r2, r1; str r2, [r0]", 2),  # what is stored may be just computed
    ("push {r4, r5, lr}", 4),
    ("ite eq; moveq r0, #1; movne r0, #0", 3),
    ("ldrbne r0, [r1]; ldrsh.w r2, [r3]", 3),
    ("sdiv r0, r1, r2", 7),
    ("smulbb r0, r1, r2; cmp r0, #3", 2),
)
M4 = (
    ("mla r0, r1, r2, r3; smull r4, r5, r6, r7; umlal r4, r5, r6, r7", 3),
    ("smlad r0, r1, r2, r0; smlald r4, r5, r6, r7; sxtb16 r3, r3, ror #8; ssat r0, #8, r0", 4),
)
M3 = (("mla r0, r1, r2, r3; mul r0, r1", 3), ("smull r4, r5, r6, r7", 4), ("umlal r4, r5, r6, r7", 6))
M0PLUS = (
    ("ldr r0, [r1]; ldr r2, [r3]", 4),  # none is pipelined
    ("str r0, [r1]; strb r2, [r3, #1]", 4),
    ("muls r0, r1; adds r0, #1", 2),
    ("push {r4, r5, r6, lr}; ldmia r0!, {r1, r2}", 5 + 3),
)
TAKEN = (
    ("M4", "subs r0, #1; bne.n 8000", 2, 3),
    ("M4", "cbz r0, 8000", 1, 2),
    ("M4", "bl 8000 <f>", 1, 2),
    ("M4", "bls.n 8000", 1, 2),
    ("M4", "bx lr", 1, 3),
    ("M4", "pop {r4, pc}", 3, 6),
    ("M4", "ldr.w pc, [r0, r1, lsl #2]", 2, 5),  # "at least five"
    ("M4", "tbb [pc, r0]", 3, 6),  # "at least six"
    ("M3", "blt.w 8000", 1, 2),
    ("M0+", "bne.n 8000", 1, 2),
    ("M0+", "bl 8000 <f>", 1, 3),
    ("M0+", "bx lr", 1, 2),
    ("M0+", "pop {r4, pc}", 5, 5),
)


def block(text: str) -> list:
    return [insn(one) for one in text.split(";")]


@pytest.mark.parametrize(
    ("core", "text", "expected"),
    [
        *(("M4", *case) for case in (*BOTH, *M4)),
        *(("M3", *case) for case in (*BOTH, *M3)),
        *(("M0+", *case) for case in M0PLUS),
    ],
)
def test_cycles_of_a_sequence(core: str, text: str, expected: int) -> None:
    assert cycles(core, block(text)) == expected


@pytest.mark.parametrize(("core", "text", "goes_on", "branches"), TAKEN)
def test_branches(core: str, text: str, goes_on: int, branches: int) -> None:
    assert cycles(core, block(text)) == goes_on
    assert cycles(core, block(text), taken=True) == branches


def test_a_processor_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no table of M7: there are M0\+, M3, M4"):
        cycles("M7", [])


def test_all_of_a_loop() -> None:
    assert total("M4", [(block("subs r0, #1; bne.n 8000"), 10, 9), (block("bx lr"), 1, 1)]) == 9 * 3 + 2 + 3


def test_reports_of_the_plugin() -> None:
    printed = "mark 7\nblock 1 0 1 0 7047\nnoise\nmark 12\nblock 5 4 2 8a0 013870f3\nblock 1 1 1 8b4 7047\n"
    before, found = reports(printed)
    assert before.blocks == [Block(1, 0, 1, 0, b"\x70\x47")]
    assert found.instructions == 12
    assert found.blocks == [Block(5, 4, 2, 0x8A0, b"\x01\x38\x70\xf3"), Block(1, 1, 1, 0x8B4, b"\x70\x47")]
