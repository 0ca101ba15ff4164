"""Costs of the files that `make models ARGS="... --keep"` left: SQNR, time here, instructions and RAM on a Cortex-M4.

Time is the least of many runs here, on one thread. Instructions are of one run of the file's bundle under QEMU, which
counts them (mcu_run.py); the outputs have to be this machine's. RAM is the arena there. A dash for instructions: the
simulated board has too little memory for the file or its arena.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mcu_run import FIRMWARE, measured
from models import BENCH, STEPS, saved

import nmpconv
from nmpconv.cli import console
from nmpconv.runtime.targets import needs

BOARD, TARGET = "mps2-an386", "cortex-m4"
FIGURES = ("dB", "ms", "M insn", "kB of RAM", "file, MB")


@dataclass(frozen=True)
class Cost:
    """seconds: the least of a run here. instructions: None where the board has no room. arena: bytes of RAM there.
    size: bytes of the file.
    """

    seconds: float
    instructions: int | None
    arena: int
    size: int


def room() -> tuple[int, int]:
    """Bytes that the board has for a file and for an arena."""
    text = "".join((FIRMWARE / "boards" / name).read_text() for name in (f"{BOARD}/config.h", "common/mps2.h"))
    model, arena = (re.search(rf"{what}_BYTES (0x[0-9A-F]+)u", text) for what in ("MODEL", "ARENA"))
    assert model is not None and arena is not None
    return int(model[1], 16), int(arena[1], 16)


def cost(path: Path, out: Path) -> Cost:
    """out: a folder in which bundles are built."""
    size, arena = path.stat().st_size, needs(path.read_bytes(), TARGET).arena
    fits = all(taken < there for taken, there in zip((size, arena), room(), strict=True))
    seconds = nmpconv.bench(path, threads=1).quantile(0)
    return Cost(seconds, measured(BOARD, path, out).instructions if fits else None, arena, size)


def cells(figures: Cost, sqnr: float | None) -> list[str]:
    """The text of `FIGURES`."""
    insn = console.NOTHING if figures.instructions is None else f"{figures.instructions / 1e6:.1f}"
    numbers = [f"{1e3 * figures.seconds:.2f}", insn, f"{figures.arena / 1e3:.0f}", f"{figures.size / 1e6:.1f}"]
    return [console.NOTHING if sqnr is None else f"{sqnr:.1f}", *numbers]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    columns = ["model", "exporter", "bits", *FIGURES]
    return "\n".join("| " + " | ".join(line) + " |" for line in (columns, ["---"] * len(columns), *rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", default=["*"], help="of names such as timm.*vit*; default: all")
    parser.add_argument("--folder", type=Path, default=BENCH.parent / "build" / "models")
    args = parser.parse_args()
    out = args.folder / "cost"
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for result in saved(args.folder / "results.jsonl"):
        path = args.folder / f"{result.model}_{result.exporter}.{result.step}.nmp"
        chosen = any(fnmatch.fnmatch(result.model, pattern) for pattern in args.patterns)
        if result.step in STEPS and chosen and path.is_file():
            row = [result.model, result.exporter, result.step, *cells(cost(path, out), result.worst)]
            rows.append(row)
            print(" ".join(row), file=sys.stderr, flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
