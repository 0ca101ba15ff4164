"""check_kernels and board_convs on simulated microcontrollers: every level of theirs against the portable one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from board_programs import board_compiler, output

from nmpconv.device.simulator import MACHINES

PROGRAMS = ("check_kernels", "board_convs")
# The kernels of mps2-an386, compiled for other CPUs, and those of mps2-an385-m0plus, for one that can do more.
ALIKE = ("mps2-an500", "mps2-an505", "mps2-an385")
LEVELS = {
    "mps2-an385": "plain32",
    "mps2-an385-m0plus": "plain32",
    "mps2-an386": "dsp",
    "mps2-an500": "dsp",
    "mps2-an505": "dsp",
    "mps3-an547": "mve",
    "rv32": "plain32",
    "lx60": "plain32",
}


@pytest.mark.slow
@pytest.mark.parametrize("board", [pytest.param(b, marks=[pytest.mark.soak] * (b in ALIKE)) for b in LEVELS])
def test_every_level_of_a_board_is_portable(
    board: str, root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    need_tool(board_compiler(board))
    need_tool(MACHINES[board].program)
    folder = root / "interpreter"
    make = ["make", "-s", "-C", folder / "firmware", f"BOARD={board}", f"OUT={tmp_path}", f"NAME={board}"]
    make.append("DEFINES=-DNMP_FIXED_CPU=0")  # a table that has both levels
    for name in PROGRAMS:
        program = tmp_path / f"{board}.elf"
        program.unlink(missing_ok=True)  # the next one is linked with the same interpreter
        subprocess.run([*make, f"MAIN=../tests/{name}.c ../tests/memory.c"], check=True, capture_output=True)
        said = output(board, program)
        assert said.endswith(" 0 differ\n"), said
        assert int(said.splitlines()[-1].split()[0]) > 1000
        if name == "board_convs":
            assert LEVELS[board] in said.split()
