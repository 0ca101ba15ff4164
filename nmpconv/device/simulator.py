"""Simulated boards: started on firmware that was built for them, and stopped at the end.

QEMU simulates all of them. Where it is missing, Unicorn simulates those of `unicorn_board`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from nmpconv.base.near_names import suggestion
from nmpconv.device import protocol, unicorn_board
from nmpconv.device.transport import Output, Program, Serial, Transport, end
from nmpconv.errors import DeviceError, UsageError

START_SECONDS = 10.0
PATIENCE_SECONDS = 60.0  # that QEMU may take and give no bytes: on a busy machine it gets little time
PTY = re.compile(rb"redirected to (\S+)")


@dataclass(frozen=True)
class Machine:
    """shift: an instruction takes 2^shift ns of the simulated time. models: address of the memory for models."""

    program: str
    arguments: tuple[str, ...]
    package: str
    shift: int
    models: int


MODEL_BYTES = 16 << 20  # of the memory for models
ARM = ("qemu-system-arm", "qemu-system-arm")
ARM_MODELS = {
    "mps2-an385": 0x21000000,
    "mps2-an386": 0x21000000,
    "mps2-an500": 0x60000000,
    "mps2-an505": 0x80000000,
    "mps3-an547": 0x60000000,
}
MACHINES = {
    **{name: Machine(ARM[0], ("-M", name), ARM[1], 6, models) for name, models in ARM_MODELS.items()},
    # No machine of QEMU has a Cortex-M0+ and room for a model: a Cortex-M3 runs its code, too.
    "mps2-an385-m0plus": Machine(ARM[0], ("-M", "mps2-an385"), ARM[1], 6, ARM_MODELS["mps2-an385"]),
    "rv32": Machine("qemu-system-riscv32", ("-M", "virt", "-bios", "none"), "qemu-system-misc", 0, 0x80800000),
    "lx60": Machine("qemu-system-xtensa", ("-M", "lx60", "-cpu", "lx106"), "qemu-system-misc", 8, 0x60800000),
}
# The board whose instructions are those of a target (`nmpconv.runtime.targets`).
COUNTED_ON = {
    "cortex-m0plus": "mps2-an385-m0plus",
    "cortex-m3": "mps2-an385",
    "cortex-m4": "mps2-an386",
    "cortex-m55": "mps3-an547",
    "rv32": "rv32",
}
HOST = "host"  # the agent as a program on this machine


def boards() -> list[str]:
    return [*MACHINES, HOST]


def firmware(board: str) -> Path:
    """The firmware of a board, of the installed package or built in a checkout. Raises UsageError, DeviceError."""
    if board not in boards():
        message = f"there is no simulated board {board!r}; there are {', '.join(boards())}"
        raise UsageError(message, where="--device", hint=suggestion(board, boards()))
    name = f"{board}.elf"
    for folder in _folders():
        if (folder / name).is_file():
            return folder / name
    raise DeviceError(
        f"there is no firmware {name}",
        where=f"sim:{board}",
        hint=f"nmpconv device build {board}",
    )


def _folders() -> Iterator[Path]:
    """Folders of an installed package that was built with its firmware, of the checkout that runs, of the current
    checkout."""
    package = Path(__file__).resolve().parent.parent
    yield package / "firmware"
    yield package.parent / "build" / "firmware"
    yield Path("build") / "firmware"


def missing(board: str) -> str:
    """Reason why a board cannot be simulated here, and what to do about it; '' for none."""
    if lacking := _lacking(board):
        return ": ".join(lacking)
    try:
        firmware(board)
    except DeviceError:
        return f"no firmware: nmpconv device build {board}"
    return ""


def start(board: str, model: bytes = b"") -> Transport:
    """A simulated board, running; closing the line stops it. model: of a file that QEMU has in the board's memory from
    the start, as after an upload: byte by byte over its UART a megabyte takes a minute.
    """
    path = firmware(board)
    if board == HOST:
        return Program([path.resolve()])
    if lacking := _lacking(board):
        raise DeviceError(lacking[0], where=f"sim:{board}", hint=lacking[1])
    if shutil.which(MACHINES[board].program):
        return Simulator(board, path, model)
    line = Program([sys.executable, unicorn_board.__file__, board, path], {"PYTHONSAFEPATH": "1"})
    line.name = f"sim:{board}"
    return line


def instructions_per_tick(board: str, counter: str, counter_hz: int) -> float:
    """counter: of the board. QEMU's boards have none of cycles, and a cycle of Unicorn's is an instruction."""
    return 1.0 if counter == "cycles" else 1e9 / counter_hz / 2 ** MACHINES[board].shift


def _lacking(board: str) -> tuple[str, str] | None:
    """The simulator that is missing, and what to do about it."""
    machine = MACHINES.get(board)
    if machine is None or shutil.which(machine.program):
        return None
    if board not in unicorn_board.BOARDS:
        return f"{machine.program} is missing", f"apt-get install {machine.package}"
    if find_spec("unicorn"):
        return None
    return f"{machine.program} is missing", f"apt-get install {machine.package}, or pip install unicorn"


class Simulator:
    """QEMU with the board's UART on a pty. quiet: see `Link`."""

    quiet = PATIENCE_SECONDS

    def __init__(self, board: str, path: Path, model: bytes = b"") -> None:
        machine = MACHINES[board]
        self.name = f"sim:{board}"
        options = ["-display", "none", "-monitor", "none", "-serial", "pty", "-icount", f"shift={machine.shift}"]
        memory = protocol.uploaded(model)
        with TemporaryFile() as file:
            if model and len(memory) <= MODEL_BYTES:
                file.write(memory)
                file.flush()
                options += ["-device", f"loader,file=/dev/fd/{file.fileno()},addr={machine.models:#x},force-raw=on"]
            self._process = subprocess.Popen(
                [machine.program, *machine.arguments, *options, "-kernel", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                pass_fds=[file.fileno()],
            )
        assert self._process.stdout is not None
        self._said = Output(self._process.stdout)
        try:
            self._line = Serial(self._pty(), patience=PATIENCE_SECONDS, again=False)
            self._line.name = self.name
        except BaseException:
            self.close()
            raise

    def _pty(self) -> str:
        """The port that QEMU announces."""
        output = b""
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit:
            piece = self._said.read(0.1)
            if piece is None:
                break
            output += piece
            if (match := PTY.search(output)) and b"\n" in output:
                return match[1].decode()
        text = output.decode("utf-8", "replace").strip() or "it said nothing"
        raise DeviceError(f"QEMU did not start: {text}", where=self.name)

    def read(self, seconds: float) -> bytes:
        return self._line.read(seconds)

    def write(self, data: bytes) -> None:
        self._line.write(data)

    def close(self) -> None:
        with suppress(AttributeError):  # the line never came to be
            self._line.close()
        end(self._process)
        self._said.close()
