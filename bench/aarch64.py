"""Instructions and cycles of one inference on AArch64, ours and the peers', counted under QEMU's user emulation.

Nets are those of the zoo ($NMP_ZOO, default ../shared/zoo), int8 throughout or 16 bits, beside the peers' int8 or
float32. The interpreter is compiled by aarch64-linux-gnu-gcc with -O3, or the compiler of --compiler. The peers are
LiteRT and ONNX Runtime, from their wheels, with one thread (aarch64_peers.py).

A plug-in of QEMU (count_insns.c) counts between marks. What a run takes is the difference between 2 N runs and
N runs. The count does not depend on data. Cycles are an estimate: llvm-mca's of each of the blocks that have most of
the instructions, repeated, times how often it ran. It has no caches, and no branch is mispredicted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import mcu
from aarch64_cycles import Counts, counts_of
from aarch64_peers import CPUS, ENGINES, Cpu, Peers
from block_counts import plugin

from nmpconv.cli import console

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "aarch64"
NETS = {**mcu.NETS, "MobileNetV2": "mobilenetv2_100_224_ptqdeq", "SqueezeNet": "squeezenet1.1_227"}
SETTINGS = ("strict", "16")
PEER_BITS = {"strict": "int8", "16": "float32"}
COMPILER = "aarch64-linux-gnu-gcc"
FLAGS = ("-std=c99", "-D_DEFAULT_SOURCE", "-O3", "-DNDEBUG")
RUNS = 1  # N: ours take the same number of instructions each time

Key = tuple[str, str, str]  # net, setting, CPU
Row = tuple[Key, dict[str, Counts | None]]  # by engine
Waiting = tuple[Key, dict[str, "Future[Counts] | Future[Counts | None]"]]


def build(compiler: str) -> tuple[Path, Path]:
    """The program and the plug-in."""
    command = [compiler, *(["--target=aarch64-linux-gnu"] if "clang" in compiler else []), *FLAGS]
    objects = OUT / f"objects-{Path(compiler).name}"
    objects.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{ROOT / 'interpreter' / folder}" for folder in ("include", "src")]
    sources = sorted((ROOT / "interpreter" / "src").rglob("*.c"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = [
            pool.submit(subprocess.run, [*command, *includes, "-c", source], cwd=objects, check=True)
            for source in sources
        ]
    for one in done:
        one.result()
    program = objects / "run_times"
    linked = [
        *includes,
        ROOT / "bench" / "aarch64" / "run_times.c",
        *(objects / f"{source.stem}.o" for source in sources),
    ]
    subprocess.run([*command, "-static", *linked, "-o", program], check=True)
    return program, plugin(OUT)


def ours(program: Path, counter: Path, path: Path, cpu: Cpu) -> Counts:
    """Figures of one run of the file."""
    command = ["qemu-aarch64", "-cpu", cpu.emulated, "-plugin", counter, program, path, cpu.level, str(RUNS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{path.name} at {cpu.level}: {done.stderr.strip()[-200:]}")
    return counts_of(done.stderr, RUNS, cpu.scheduled)


def cell(found: Counts | None) -> str:
    return "-" if found is None else f"{found.instructions / 1e6:.3f}"


def cycles_cell(found: Counts | None) -> str:
    return "-" if found is None or found.cycles is None else f"{found.cycles / 1e6:.3f}"


def counted(args: Namespace, files: tuple[Path, Path], peers: Peers | None) -> Iterator[Row]:
    """Each row in order, as soon as it is there. While nets are converted, others are counted, on all cores."""
    waiting: list[Waiting] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for net, setting in ((net, setting) for net in args.nets for setting in args.bits):
            path = mcu.converted(args.zoo, net, NETS[net], setting, OUT, reuse=args.reuse)
            for name in args.cpus:
                counts = {"nmpconv": pool.submit(ours, *files, path, CPUS[name])} | {
                    engine: pool.submit(peers.counts, engine, net, PEER_BITS[setting], name)
                    for engine in (args.engines if peers else ())
                }
                waiting.append(((net, setting, name), counts))
            while waiting and all(count.done() for count in waiting[0][1].values()):
                yield finished(waiting.pop(0))
        yield from map(finished, waiting)


def finished(row: Waiting) -> Row:
    return row[0], {engine: count.result() for engine, count in row[1].items()}


def main() -> int:
    parser = mcu.parser_of(__doc__, list(NETS), SETTINGS)
    parser.add_argument("--cpus", nargs="+", choices=list(CPUS), default=list(CPUS))
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=ENGINES, help="peers; none where it is empty")
    parser.add_argument("--compiler", default=COMPILER, help="gcc for AArch64, or a clang")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench", help="what make bench prepared")
    parser.add_argument("--peers-python", type=Path, default=ROOT / "build" / "bench-venv" / "bin" / "python")
    args = parser.parse_args()
    files = build(args.compiler)
    peers = Peers(OUT, files[1], args.zoo, args.folder, args.peers_python, reuse=args.reuse) if args.engines else None
    found, about = [], {}
    for key, counts in counted(args, files, peers):
        about[" ".join(key)] = {engine: vars(count) for engine, count in counts.items() if count}
        found.append((*key, *map(cell, counts.values()), *map(cycles_cell, counts.values())))
        console.say(" ".join(found[-1]))
    engines = ("nmpconv", *args.engines)
    names = [*(f">{engine}, M insn" for engine in engines), *(f">{engine}, M cycles" for engine in engines)]
    console.table(("net", "bits", "cpu", *names), found)
    (OUT / "results.json").write_text(json.dumps(about, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
