"""Instructions of one inference at the levels of AArch64, counted under QEMU's user emulation.

Nets are converted from the zoo ($NMP_ZOO, default ../shared/zoo) at two settings: strict (int8 throughout) and 16. The
interpreter is compiled by aarch64-linux-gnu-gcc with -O3. A plug-in of QEMU (aarch64/count_insns.c) counts. What a run
takes is the difference between a program with two runs and one with one. The count does not depend on data.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import mcu

from nmpconv.cli import show

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "aarch64"
NETS = {**mcu.NETS, "MobileNetV2": "mobilenetv2_100_224_ptqdeq", "SqueezeNet": "squeezenet1.1_227"}
SETTINGS = ("strict", "16")
CPUS = {"neondot": "cortex-a76", "neon": "cortex-a72"}
COMPILER = ("aarch64-linux-gnu-gcc", "-std=c99", "-D_DEFAULT_SOURCE", "-O3", "-DNDEBUG")


def build() -> tuple[Path, Path]:
    """The program and the plug-in."""
    objects = OUT / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{ROOT / 'interpreter' / folder}" for folder in ("include", "src")]
    sources = sorted((ROOT / "interpreter" / "src").rglob("*.c"))
    subprocess.run([*COMPILER, *includes, "-c", *sources], cwd=objects, check=True)
    program, plugin, here = OUT / "run_times", OUT / "count_insns.so", ROOT / "bench" / "aarch64"
    linked = [*includes, here / "run_times.c", *(objects / f"{source.stem}.o" for source in sources)]
    subprocess.run([*COMPILER, "-static", *linked, "-o", program], check=True)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", here / "count_insns.c", "-o", plugin], check=True)
    return program, plugin


def instructions(program: Path, plugin: Path, path: Path, level: str) -> int:
    """Of one run of the file."""

    def counted(runs: int) -> int:
        command = ["qemu-aarch64", "-cpu", CPUS[level], "-plugin", plugin, program, path, level, str(runs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"^instructions (\d+)$", done.stderr, re.MULTILINE)
        if done.returncode != 0 or found is None:
            raise RuntimeError(f"{path.name} at {level}: {done.stderr.strip()}")
        return int(found[1])

    return counted(2) - counted(1)


def rows(zoo: Path, nets: Sequence[str], settings: Sequence[str], *, reuse: bool) -> Iterator[list[str]]:
    program, plugin = build()
    for net, setting in ((net, setting) for net in nets for setting in settings):
        path = mcu.converted(zoo, net, NETS[net], setting, OUT, reuse=reuse)
        yield [net, setting, *(f"{instructions(program, plugin, path, level) / 1e6:.3f}" for level in CPUS)]


def main() -> int:
    args = mcu.parser_of(__doc__, list(NETS), SETTINGS).parse_args()
    found = []
    for row in rows(args.zoo, args.nets, args.bits, reuse=args.reuse):
        found.append(row)
        show.say(" ".join(row))
    show.table(("net", "bits", *(f">{level}, M insn" for level in CPUS)), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
