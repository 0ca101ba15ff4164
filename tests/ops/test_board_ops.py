"""Op cases on simulated microcontrollers, through a file: the bytes of the reference, at every level of theirs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from board_programs import output
from op_cases import CASES

from nmpconv.device.simulator import MACHINES

# Boards and the places of their models; one for each set of kernels.
BOARDS = {"mps2-an386": 0x21000000, "mps2-an385-m0plus": 0x21000000, "mps3-an547": 0x60000000, "rv32": 0x80800000}
COMPILED = [case for case in CASES if case.graph.nodes[0].op != "custom"]
MEMORY = 2 << 20  # bytes of files at a time


def record(file: Path) -> bytes:
    """A file with its test vector, as board_ops.c reads it."""
    data = file.read_bytes()
    return len(data).to_bytes(16, "little") + data + bytes(-len(data) % 16)


@pytest.fixture(scope="module")
def memories(op_files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Records of all cases, in portions that a board has room for."""
    portions = [bytearray()]
    for case in COMPILED:
        one = record(op_files[case.id])
        if len(portions[-1]) + len(one) > MEMORY:
            portions.append(bytearray())
        portions[-1] += one
    folder = tmp_path_factory.mktemp("memories")
    files = [folder / f"{i}.memory" for i in range(len(portions))]
    for file, portion in zip(files, portions, strict=True):
        file.write_bytes(portion + bytes(16))
    return files


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
def test_ops_of_a_board_are_the_reference(
    board: str, memories: list[Path], root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    need_tool("riscv64-unknown-elf-gcc" if board == "rv32" else "arm-none-eabi-gcc")
    need_tool(MACHINES[board].program)
    make = ["make", "-s", "-C", root / "interpreter" / "firmware", f"BOARD={board}", f"OUT={tmp_path}"]
    make.append("MAIN=../tests/board_ops.c ../tests/memory.c")
    subprocess.run(make, check=True, capture_output=True)
    outputs = 0
    for file in memories:
        loader = f"loader,file={file},addr={BOARDS[board]:#x},force-raw=on"
        said = output(board, tmp_path / f"{board}.elf", "-device", loader)
        assert said.endswith(" 0 differ\n"), said
        outputs += int(said.splitlines()[-1].split()[0])
    assert outputs >= len(COMPILED)
