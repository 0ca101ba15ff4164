"""Programs on simulated boards: their compilers, and what they print until they say how many cases differ."""

from __future__ import annotations

import select
import subprocess
import time
from pathlib import Path

from nmpconv.device.simulator import MACHINES

SECONDS = 120
BOARDS = Path(__file__).resolve().parent.parent / "interpreter" / "firmware" / "boards"


def board_compiler(board: str) -> str:
    """Name of the program that compiles for a board."""
    return (BOARDS / board / "board.mk").read_text().partition("CROSS := ")[2].split()[0] + "gcc"


def output(board: str, program: Path, *options: str) -> str:
    """Text of a program until it has counted. options: more of QEMU's."""
    machine = MACHINES[board]
    command = [machine.program, *machine.arguments, "-display", "none", "-monitor", "none", "-serial", "stdio"]
    running = subprocess.Popen(
        [*command, "-kernel", program, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
    )
    assert running.stdout is not None
    received, limit = b"", time.monotonic() + SECONDS
    try:
        while b"differ\n" not in received.replace(b"\r", b"") and time.monotonic() < limit:
            if select.select([running.stdout], [], [], 1.0)[0]:
                piece = running.stdout.read(4096)
                if not piece:
                    break
                received += piece
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
    return received.decode().replace("\r", "")
