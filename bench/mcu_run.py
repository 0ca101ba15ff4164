"""One run of a file's bundle on a simulated microcontroller: instructions, stack, arena and flash.

The program is interpreter/firmware/measure.c with what `nmpconv bundle` writes for the file. Instructions are exact:
QEMU counts them (-icount). Cycles are an estimate (mcu_cycles.py). The stack is painted before a run and looked at
after it. Flash is all code and constants that the linker kept of the bundle and of the C and the compiler's library,
without the model, the board's start-up and measure.c itself.
"""

from __future__ import annotations

import re
import select
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import block_counts
import mcu_cycles
import numpy as np
from block_counts import Report

from nmpconv.device.simulator import MACHINES
from nmpconv.exporters.c_sources import bundle
from nmpconv.runtime.interpreter import load
from nmpconv.runtime.on_device import cases

ROOT = Path(__file__).resolve().parent.parent
FIRMWARE = ROOT / "interpreter" / "firmware"

SECONDS = 600
RIM = ("measure.o", "boards/")  # objects of the program that are not the bundle's
PLACED = re.compile(r"^ (\.[\w.$-]+)\s+0x[0-9a-f]+\s+(0x[0-9a-f]+)\s+(\S+)$")
KEPT = (".text", ".rodata", ".srodata", ".data", ".sdata")


@dataclass(frozen=True)
class Measured:
    """start: instructions of nmp_create. stack: of a run; stack_create: of nmp_create. cycles: None where they were not
    asked for, or nothing tells.
    """

    instructions: int
    start: int
    stack: int
    stack_create: int
    arena: int
    flash: int
    cycles: int | None = None


def program(board: str, path: Path, out: Path) -> tuple[Path, Path]:
    """The bundle of a file with measure.c, and the linker's map of it."""
    name = f"{path.stem}-{board}"
    folder, linked = out / f"{path.stem}-bundle", out / f"{name}.map"
    files = {folder / inside: content for inside, content in bundle({"model": path.read_bytes()}).items()}
    for stale in {old for old in folder.rglob("*") if old.is_file()} - files.keys():
        stale.unlink()
    for target, content in files.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_bytes() != content:  # else what was compiled stays
            target.write_bytes(content)
    make = ["make", "-s", "-C", FIRMWARE, "MAIN=measure.c", f"SRC={(folder / 'src').resolve()}", f"BOARD={board}"]
    command = [*make, f"OUT={out.resolve()}", f"NAME={name}", f"MAP={linked.resolve()}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out / f"{name}.elf", linked


def flash(linked: Path) -> int:
    """Bytes of code and constants but for those of the rim. linked: the map, beside the folder with the objects."""
    text = linked.read_text().partition("Linker script and memory map")[2]
    text = re.sub(r"\n (\.\S+)\n +0x", r"\n \1 0x", text)  # a long name has a line of its own
    kept: Counter[str] = Counter()
    for line in text.splitlines():
        if (found := PLACED.match(line)) and found[1].startswith(KEPT):
            kept[found[3]] += int(found[2], 16)
    rim = tuple(f"{linked.resolve().with_suffix('')}/{part}" for part in RIM)
    return sum(size for name, size in kept.items() if not name.startswith(rim))


def said(board: str, elf: Path, memory: Path, *plugin: str, report: IO[str] | None = None) -> dict[str, str]:
    """The lines that the program prints, as name and value. memory: what it finds where the model is. plugin: options
    of QEMU for one, which writes to `report`.
    """
    machine = MACHINES[board]
    quiet = ["-display", "none", "-monitor", "none", "-serial", "stdio", "-icount", f"shift={machine.shift}"]
    address = model_address(board)
    loader = ["-device", f"loader,file={memory},addr={address:#x},force-raw=on"]
    command = [machine.program, *machine.arguments, *quiet, "-kernel", str(elf), *loader, *plugin]
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=report, bufsize=0)
    assert running.stdout is not None
    text, limit = b"", time.monotonic() + SECONDS
    try:
        while not re.search(rb"status \d+\r?\n", text) and time.monotonic() < limit:
            if select.select([running.stdout], [], [], 1.0)[0]:
                piece = running.stdout.read(4096)
                if not piece:
                    break
                text += piece
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
    return dict(line.split(" ", 1) for line in text.decode().replace("\r", "").splitlines() if " " in line)


def model_address(board: str) -> int:
    folder = FIRMWARE / "boards" / board
    text = "".join(path.read_text() for path in sorted([*folder.glob("config.h"), *folder.glob("link.ld")]))
    found = re.search(r"(?:MODEL_ADDRESS|__model =) (0x[0-9a-fA-F]+)", text)
    assert found is not None
    return int(found[1], 16)


def reported(board: str, elf: Path, memory: Path) -> tuple[dict[str, str], list[Report]]:
    """Lines as of `said`, and reports of blocks: of the run, then of each op of another one."""
    with tempfile.TemporaryFile("w+") as text:
        counter = f"file={block_counts.plugin(elf.parent)},mark={mcu_cycles.mark(elf)}"
        lines = said(board, elf, memory, "-plugin", counter, report=text)
        text.seek(0)
        return lines, block_counts.reports(text.read())[1::2]  # others are of what is not counted


def measured(board: str, path: Path, out: Path, cpu: str = "") -> Measured:
    """One run on the first of the file's test vectors or random integers; the outputs have to be this machine's. cpu:
    whose cycles are estimated; '' for none.
    """
    here, data = load(path), path.read_bytes()
    inputs = cases(here)[0]
    memory = out / f"{path.stem}.memory"
    padded = data + bytes(-len(data) % 16)
    memory.write_bytes(len(data).to_bytes(4, "little") + bytes(12) + padded + b"".join(x.tobytes() for x in inputs))
    elf, linked = program(board, path, out)
    lines, reports = reported(board, elf, memory) if cpu in mcu_cycles.ESTIMATED else (said(board, elf, memory), [])
    if lines.get("status") != "0":
        raise RuntimeError(f"{path.stem} on {board}: {lines}")
    if lines["outputs"] != b"".join(np.ascontiguousarray(y).tobytes() for y in here.run(*inputs)).hex():
        raise RuntimeError(f"{path.stem} on {board}: the outputs differ from this machine's")
    return Measured(
        instructions=round(int(lines["ticks"]) * per_tick(board, lines)),
        start=round(int(lines["start"]) * per_tick(board, lines)),
        stack=int(lines["stack"]),
        stack_create=int(lines["create"]),
        arena=int(lines["arena"]),
        flash=flash(linked),
        cycles=mcu_cycles.cycles(cpu, elf, reports[0]) if reports else None,
    )


def counts_of_ops(board: str, elf: Path, memory: Path) -> list[int]:
    """Instructions of each op, one after the other, on inputs of any bytes. memory: see `said`."""
    lines = said(board, elf, memory)
    if lines.get("status") != "0":
        raise RuntimeError(f"{memory.stem} on {board}: status {lines.get('status')}")
    return [round(int(ticks) * per_tick(board, lines)) for ticks in lines["ops"].split()]


def per_tick(board: str, lines: dict[str, str]) -> float:
    """Instructions."""
    return 1e9 / int(lines["hz"]) / 2 ** MACHINES[board].shift
