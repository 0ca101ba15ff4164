"""Bytes that a Cortex-M4 reads and writes in a fast and a slow memory in one run, counted access by access in Unicorn.

    make bench-memories ARGS="model.nmp ..."

A file is bundled, compiled, and run on a machine that has flash, two memories and a stack. Its outputs are compared
with those of this machine. Beside what is counted stands what the plan says: each input of an op read once, and
each output written once. Kernels read some inputs several times; scratch is counted too. Needs arm-none-eabi-gcc, gcc
and the extra sim.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.exporters.c_sources import bundle
from nmpconv.file.memory_map import least_slow, memory
from nmpconv.file.reader import read
from nmpconv.runtime import interpreter

FAST, SLOW, FLASH, STACK = 0x20000000, 0x60000000, 0x00000000, 0x30000000
ROOM = 16 << 20  # bytes of each
VIEW = 76  # of an nmp_view
FLAGS = ("-mcpu=cortex-m4", "-mthumb", "-O2", "-std=c99", "-ffunction-sections", "-fdata-sections", "-nostartfiles")

MAIN = """
#include "net_data.h"
static unsigned char fast[NET_FAST_ARENA_BYTES + 16] __attribute__((section(".fast"), aligned(16)));
static unsigned char slow[NET_SLOW_ARENA_BYTES] __attribute__((section(".slow"), aligned(16)));
nmp_net *net;
volatile nmp_status status;
nmp_view inputs[8], outputs[8];
typedef char view_is_known[sizeof(nmp_view) == 76 ? 1 : -1];
__attribute__((noinline)) void created(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void done(void) { __asm__ volatile("nop" ::: "memory"); }
void start(void) {
  status = nmp_create_split(&net, net_data, NET_BYTES, fast, sizeof(fast), slow, sizeof(slow), NULL, NULL);
  for (uint32_t i = 0; i < 8 && status == NMP_OK; i++) {
    nmp_input(net, i, &inputs[i]);
    nmp_output(net, i, &outputs[i]);
  }
  created();
  nmp_run(net);
  done();
  for (;;) {
  }
}
"""
LINK = f"""
MEMORY {{
  flash : ORIGIN = {FLASH}, LENGTH = {ROOM}
  fast : ORIGIN = {FAST}, LENGTH = {ROOM}
  slow : ORIGIN = {SLOW}, LENGTH = {ROOM}
  stack : ORIGIN = {STACK}, LENGTH = {ROOM}
}}
ENTRY(start)
SECTIONS {{
  .text : {{ *(.text*) *(.rodata*) }} > flash
  .data : {{ *(.data*) *(.bss*) *(COMMON) }} > stack
  .fast (NOLOAD) : {{ *(.fast) }} > fast
  .slow (NOLOAD) : {{ *(.slow) }} > slow
}}
"""
COUNT = b"""
#include <stdint.h>
void count(void *uc, int type, uint64_t address, int size, int64_t value, uint64_t *totals) {
  totals[address >> 28 & 15] += (uint64_t)size;
}
"""


@dataclass(frozen=True)
class Counted:
    """Bytes that were read and written in the fast and in the slow memory."""

    fast: int
    slow: int


def counted(data: bytes, folder: Path) -> Counted:
    """Raises AssertionError where the outputs differ from those of this machine."""
    import unicorn
    from unicorn import arm_const
    from unicorn.unicorn_py3.unicorn import uclib

    elf = _built(data, folder)
    symbols = _symbols(elf)
    uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
    uc.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M4)
    for address in (FLASH, FAST, SLOW, STACK):
        uc.mem_map(address, ROOM)
    flash = folder / "flash.bin"
    subprocess.run(["arm-none-eabi-objcopy", "-O", "binary", "-j", ".text", elf, flash], check=True)
    uc.mem_write(FLASH, flash.read_bytes())
    uc.reg_write(arm_const.UC_ARM_REG_SP, STACK + ROOM)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-xc", "-", "-o", folder / "count.so"], input=COUNT, check=True)
    count = ctypes.cast(ctypes.CDLL(str(folder / "count.so")).count, ctypes.c_void_p)
    uc.emu_start(symbols["start"] | 1, symbols["created"])
    status = uc.mem_read(symbols["status"], 1)[0]
    assert status == 0, f"nmp_create_split: status {status}"
    net = interpreter.load(data)
    dice = np.random.default_rng(0)
    given = [dice.integers(-100, 100, port.shape).astype(port.dtype) for port in net.inputs]
    for i, x in enumerate(given):
        uc.mem_write(_pointer(uc, symbols["inputs"], i), x.tobytes())
    moved = (ctypes.c_uint64 * 16)()  # by the highest four bits of the address
    kinds, to = unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE, ctypes.cast(moved, ctypes.c_void_p)
    for start in (FAST, SLOW, STACK):  # without the stack Unicorn 2.1 loads wrong registers from it
        handle = ctypes.byref(ctypes.c_ulong())
        assert uclib.uc_hook_add(uc._uch, handle, kinds, count, to, start, start + ROOM - 1) == 0, "uc_hook_add"
    uc.ctl_flush_tb()
    uc.emu_start(uc.reg_read(arm_const.UC_ARM_REG_PC) | 1, symbols["done"])
    for i, y in enumerate(net.run(*given)):
        assert bytes(uc.mem_read(_pointer(uc, symbols["outputs"], i), y.nbytes)) == y.tobytes(), "other outputs"
    return Counted(moved[FAST >> 28], moved[SLOW >> 28])


def _built(data: bytes, folder: Path) -> Path:
    for name, text in bundle({"net": data}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    (folder / "main.c").write_text(MAIN)
    (folder / "link.ld").write_text(LINK)
    sources = [*(folder / "src").rglob("*.c"), folder / "main.c"]
    command = ["arm-none-eabi-gcc", *FLAGS, f"-I{folder / 'src'}", f"-T{folder / 'link.ld'}", "-Wl,--gc-sections"]
    subprocess.run([*command, *sources, "-o", folder / "net.elf"], check=True)
    return folder / "net.elf"


def _symbols(elf: Path) -> dict[str, int]:
    listed = subprocess.run(["arm-none-eabi-nm", elf], check=True, capture_output=True, text=True).stdout
    return {name: int(address, 16) for address, _, name in (line.split() for line in listed.splitlines())}


def _pointer(uc: Any, views: int, i: int) -> int:
    """The address in the i-th nmp_view, whose second field it is."""
    return int.from_bytes(uc.mem_read(views + VIEW * i + 4, 4), "little")


def main() -> None:
    print(f"{'file':32} {'fast':>12} {'slow':>12} {'plan: fast':>12} {'slow':>12} {'bound':>12}")
    for path in map(Path, sys.argv[1:]):
        data = path.read_bytes()
        model = read(data)
        with tempfile.TemporaryDirectory() as folder:
            found = counted(data, Path(folder))
        plan = memory(model, [0] * len(model.ops))
        assert plan is not None
        fast, slow = (sum(step.moved[i] for step in plan.steps) for i in range(2))
        print(
            f"{path.name:32} {found.fast:12} {found.slow:12} {fast:12} {slow:12} {least_slow(model) or 0:12}",
            flush=True,
        )


if __name__ == "__main__":
    main()
