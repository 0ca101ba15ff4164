"""Bytes that a Cortex-M4 reads and writes in a fast and a slow memory in one run, counted access by access in QEMU.

    make bench-memories ARGS="model.nmp ..."
    make bench-memories ARGS="--ops model.nmp"      # op by op, too

A file is bundled, compiled, and run on a machine that has the file in flash, a fast and a slow memory. Its outputs are
compared with those of this machine. What is read of the file is counted apart: weights, over and over where they are
not copied. Beside what is counted stands what the plan says of activations; scratch is counted, too. Needs
qemu-system-arm, arm-none-eabi-gcc and gcc.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

from nmpconv.cli import console
from nmpconv.exporters.c_sources import bundle
from nmpconv.file.memory_map import least_slow, memory
from nmpconv.file.reader import read
from nmpconv.runtime import interpreter, targets

PLUGIN = Path(__file__).with_name("count_bytes.c")
FLAGS = ("-mcpu=cortex-m4", "-mthumb", "-O2", "-std=c99", "-ffunction-sections", "-fdata-sections", "-nostartfiles")
MACHINE = ("-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "stdio")
FAST, SLOW = (0x20100000, 3 << 20), (0x21000000, 16 << 20)  # address and bytes

MAIN = """
#include "net_data.h"
#define REG(address) (*(volatile uint32_t *)(address))
static unsigned char fast[NET_FAST_ARENA_BYTES + 16] __attribute__((section(".fast"), aligned(16)));
static unsigned char slow[NET_SLOW_ARENA_BYTES] __attribute__((section(".slow"), aligned(16)));
static nmp_net *net;
static void put(char c) {
  while (REG(0x40004004) & 1u) {
  }
  REG(0x40004000) = (uint32_t)c;
}
__attribute__((noinline)) void mark(void) { __asm__ volatile("nop" ::: "memory"); }
static void fill(void) {
  uint32_t seed = 1;
  nmp_view view;
  for (uint32_t i = 0; nmp_input(net, i, &view) == NMP_OK; i++) {
    for (uint32_t k = 0; k < view.bytes; k++) {
      seed = seed * 1664525u + 1013904223u;
      ((uint8_t *)view.data)[k] = (uint8_t)(seed >> 24);
    }
  }
}
static uint32_t checksum(void) {
  uint32_t sum = ~0u;
  nmp_view view;
  for (uint32_t i = 0; nmp_output(net, i, &view) == NMP_OK; i++) {
    for (uint32_t k = 0; k < view.bytes; k++) {
      sum ^= ((const uint8_t *)view.data)[k];
      for (int bit = 0; bit < 8; bit++) {
        sum = sum & 1 ? sum >> 1 ^ 0xEDB88320u : sum >> 1;
      }
    }
  }
  return ~sum;
}
static void start(void) {
  REG(0xE000ED88) |= 0xFu << 20;
  REG(0x40004010) = 16;
  REG(0x40004008) = 1;
  uint32_t sum = 0;
  if (nmp_create_split(&net, net_data, NET_BYTES, fast, sizeof(fast), slow, sizeof(slow), NULL, NULL) == NMP_OK) {
    fill();
    mark();
    for (uint32_t i = 0; i < OPS; i++) {
      nmp_run_ops(net, i, i + 1);
      mark();
    }
    sum = checksum();
  }
  for (int digit = 28; digit >= 0; digit -= 4) {
    put("0123456789abcdef"[sum >> digit & 15]);
  }
  put('\\n');
  for (;;) {
  }
}
__attribute__((section(".vectors"), used)) static void *const vectors[] = {(void *)0x20100000, start};
"""
LINK = f"""
MEMORY {{
  flash : ORIGIN = 0, LENGTH = 4M
  ram : ORIGIN = 0x20000000, LENGTH = 1M
  fast : ORIGIN = {FAST[0]}, LENGTH = {FAST[1]}
  slow : ORIGIN = {SLOW[0]}, LENGTH = {SLOW[1]}
}}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) }} > flash
  .ARM.exidx : {{ *(.ARM.exidx*) }} > flash
  .data : {{ *(.data*) *(.bss*) *(COMMON) }} > ram
  .fast (NOLOAD) : {{ *(.fast) }} > fast
  .slow (NOLOAD) : {{ *(.slow) }} > slow
}}
"""


@dataclass(frozen=True)
class Counted:
    """Bytes that an op reads and writes in the fast and in the slow memory, and reads of the file."""

    fast: int
    slow: int
    file: int

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.fast + other.fast, self.slow + other.slow, self.file + other.file)


def counted(data: bytes, folder: Path) -> list[Counted]:
    """Each op. Raises RuntimeError where the outputs differ from those of this machine."""
    net = interpreter.load(data)
    elf = _built(data, folder, len(net.model.ops))
    symbols = _symbols(elf)
    plugin = folder / "count_bytes.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", PLUGIN, "-o", plugin], check=True)
    ranges = [(at, at + size) for at, size in (FAST, SLOW)]
    ranges.append((symbols["net_data"], symbols["net_data"] + len(data)))
    options = [f"file={plugin}", f"mark={symbols['mark']}", *(f"range={first}:{end}" for first, end in ranges)]
    with tempfile.TemporaryFile("w+") as report:
        command = ["qemu-system-arm", *MACHINE, "-kernel", elf, "-plugin", ",".join(options)]
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=report)
        try:
            assert running.stdout is not None
            printed = running.stdout.readline().decode().strip()
        finally:
            running.kill()
            running.wait()
        report.seek(0)
        moved = [Counted(*map(int, line.split())) for line in re.findall(r"^moved (.*)$", report.read(), re.MULTILINE)]
    if printed != f"{crc32(b''.join(y.tobytes() for y in net.run(*_inputs(net)))):08x}":
        raise RuntimeError(f"the outputs differ from this machine's: {printed}")
    return moved[1:]  # the first is of what was before the run


def _inputs(net: interpreter.Net) -> list[np.ndarray]:
    """Those of the program."""
    seed, filled = 1, []
    for port in net.inputs:
        x = np.empty(port.shape, port.dtype)
        numbers = bytearray()
        for _ in range(x.nbytes):
            seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
            numbers.append(seed >> 24)
        filled.append(np.frombuffer(bytes(numbers), port.dtype).reshape(port.shape))
    return filled


def _built(data: bytes, folder: Path, ops: int) -> Path:
    for name, text in bundle({"net": data}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    (folder / "main.c").write_text(MAIN)
    (folder / "link.ld").write_text(LINK)
    sources = [*(folder / "src").rglob("*.c"), folder / "main.c"]
    where = [f"-DOPS={ops}", f"-I{folder / 'src'}", f"-T{folder / 'link.ld'}"]
    command = ["arm-none-eabi-gcc", *FLAGS, *where, "-Wl,--gc-sections", *sources, "-o", folder / "net.elf"]
    subprocess.run(command, check=True)
    return folder / "net.elf"


def _symbols(elf: Path) -> dict[str, int]:
    listed = subprocess.run(["arm-none-eabi-nm", elf], check=True, capture_output=True, text=True).stdout
    return {name: int(address, 16) for address, _, name in (line.split() for line in listed.splitlines())}


COLUMNS = ("file", ">fast", ">slow", ">planned fast", ">slow", ">bound", ">of the file", ">weights", ">copied")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--ops", action="store_true", help="a row for each op, too")
    args = parser.parse_args()
    rows = []
    for path in args.files:
        data = path.read_bytes()
        model = read(data)
        with tempfile.TemporaryDirectory() as folder:
            found = counted(data, Path(folder))
        plan = memory(model, targets.scratch(data, "cortex-m4"))
        assert plan is not None
        consts = [[model.tensors[i] for i in op.inputs if model.tensors[i].data is not None] for op in model.ops]
        weights = [sum(tensor.nbytes for tensor in tensors) for tensors in consts]
        for op, step, counts, size in zip(model.ops, plan.steps, found, weights, strict=True) if args.ops else ():
            rows.append(_cells(f"{op.kind} {op.name}", counts, step.moved, 0, size, step.copied))
        moved = [sum(step.moved[i] for step in plan.steps) for i in range(2)]
        copied = sum(step.copied for step in plan.steps)
        total = sum(found, Counted(0, 0, 0))
        rows.append(_cells(path.name, total, moved, least_slow(model) or 0, sum(weights), copied))
    console.table(COLUMNS, rows)


def _cells(name: str, found: Counted, planned: Sequence[int], bound: int, weights: int, copied: int) -> list[str]:
    numbers = (found.fast, found.slow, *planned, bound, found.file, weights, copied)
    return [name, *(str(n) if n else console.NOTHING for n in numbers)]


if __name__ == "__main__":
    main()
