"""Instructions of a hop of sound on simulated microcontrollers: samples heard, the frame, its integers in the input.

QEMU counts them (-icount), on noise. RAM is what nmp_sound_create takes; tables are what the file has of sound, flash
that of the code. `make bench-sound`; docs/streams.md has the figures.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mcu_run import FIRMWARE, per_tick, said

from nmpconv.cli import console
from nmpconv.data.audio import parse
from nmpconv.exporters.c_sources import bundle
from nmpconv.file.writer import to_bytes
from nmpconv.graph.text import parse as parse_graph
from nmpconv.passes.memory import plan_memory

BOARDS = {"mps2-an386": "M4", "mps2-an385": "M3", "mps2-an385-m0plus": "M0+", "mps3-an547": "M55", "rv32": "rv32"}
FRONTS = {
    "samples/words": "rate=8000,window=512,hop=256,bands=20",
    "30 ms at 16 kHz": "rate=16000,window=480,hop=320,bands=40,fft=512,low=125,high=7500",
    "its 10 MFCC": "rate=16000,window=480,hop=320,bands=40,fft=512,low=125,high=7500,mfcc=10",
    "64 ms at 16 kHz": "rate=16000,window=1024,hop=512,bands=128",
    "its 40 MFCC": "rate=16000,window=1024,hop=512,bands=128,mfcc=40",
}
GRAPH = """graph heard
input x : int8[1,{numbers}] bits=8 exp=[0] lo=-128 hi=127
y_op = requantize(x)
  y : int8[1,{numbers}] bits=8 exp=[1] lo=-128 hi=127
output y
"""


def hop(board: str, text: str, out: Path) -> int:
    """Instructions. Raises RuntimeError where the board refuses the model."""
    front = parse(text)
    graph = plan_memory.run(parse_graph(GRAPH.format(numbers=front.width)))
    data = to_bytes(graph, {}, sounds={"x": replace(front.whole, shifts=(12,))})
    folder = out / f"{front.rate}-{front.width}"
    for path, content in bundle({"heard": data}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    make = ["make", "-s", "-C", FIRMWARE, "MAIN=../tests/sound_hop.c ../tests/memory.c", f"BOARD={board}"]
    command = [*make, f"SRC={folder / 'src'}", f"OUT={out}", f"NAME={folder.name}-{board}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (out / "memory").write_bytes(bytes(16))
    lines = said(board, out / f"{folder.name}-{board}.elf", out / "memory")
    if lines.get("status") != "0":
        raise RuntimeError(f"{text} on {board}: {lines}")
    return round(int(lines["ticks"]) * per_tick(board, lines))


def main(boards: Sequence[str]) -> int:
    rows = []
    for name, text in FRONTS.items():
        front = parse(text)
        shorts = front.whole.window + front.whole.weights + front.whole.cepstrum
        tables = 2 * len(shorts) + 4 * len(front.whole.turns) + 4 * front.bands
        with TemporaryDirectory() as out:
            counts = [hop(board, text, Path(out)) for board in boards]
        rows.append([name, *map(str, counts), str(front.whole.memory), str(tables)])
        console.say(" ".join(rows[-1]))
    console.table(("front end", *(f">{BOARDS[board]}" for board in boards), ">RAM", ">tables"), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(BOARDS)))
