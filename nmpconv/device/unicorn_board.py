"""A board of Arm's MPS2 family in Unicorn, as a program whose stdin and stdout are the board's UART.

    python unicorn_board.py mps2-an386 FIRMWARE.elf

Memory, the UART and the cycle counter are simulated; a cycle is an instruction. Firmware reads its UART only when it
has nothing else to do, so bytes are handed to it when it sleeps. The program imports nothing of nmpconv: it is started
by its path, whatever the path of Python modules is.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BOARDS = {"mps2-an386": ("M4", 0x21000000), "mps2-an500": ("M7", 0x60000000)}  # the processor, and where 16 MB are
MEMORY = {0x00000000: 4 << 20, 0x20000000: 4 << 20}  # address: bytes, of each board
UART, DWT, SYSTEM = 0x40004000, 0xE0001000, 0xE000E000  # pages of registers
UART_DATA, UART_STATE, HAS_BYTE = 0x00, 0x04, 2
CYCCNT = 0x04
RESET_VECTOR, UART_VECTOR = 1, 16  # words of the vector table; word 0 is the stack
NOWHERE = 0x3FFFFC  # an address without code, where handlers return to
TRANSLATED = 32 << 20  # bytes for translated code, where Unicorn would reserve 1 GB of addresses
PIECE = 1024  # bytes of input at a time, fewer than the firmware's ring holds
LOADED = 1  # type of a segment


class Board:
    """name: of `BOARDS`. firmware: an ELF file. send: takes what the UART sends, a frame or more at a time.

    Raises ValueError for another file.
    """

    def __init__(self, name: str, firmware: bytes, send: Callable[[bytes], object]) -> None:
        import unicorn
        from unicorn import arm_const

        self._uc = uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self._sp, self._lr, self._pc = (getattr(arm_const, f"UC_ARM_REG_{name}") for name in ("SP", "LR", "PC"))
        self._fault: type[Exception] = unicorn.UcError
        self._send, self._sent, self._input = send, bytearray(), bytearray()
        self._instructions: dict[tuple[int, int], int] = {}  # of a block, by its address and bytes
        self._executed = self._zero = 0  # instructions in all, and before the cycle counter was 0
        uc.ctl_set_tcg_buffer_size(TRANSLATED)
        cpu, large = BOARDS[name]
        uc.ctl_set_cpu_model(getattr(arm_const, f"UC_CPU_ARM_CORTEX_{cpu}"))
        for address, size in {**MEMORY, large: 16 << 20}.items():
            uc.mem_map(address, size)
        for address, data in segments(firmware):
            try:
                uc.mem_write(address, data)
            except self._fault:
                raise ValueError(f"{len(data)} bytes at {address:#x} lie outside of the board's memory") from None
        uc.mmio_map(UART, 0x1000, self._read_uart, None, self._write_uart, None)
        uc.mmio_map(DWT, 0x1000, self._read_counter, None, self._write_counter, None)
        uc.mmio_map(SYSTEM, 0x1000, lambda *access: 0, None, lambda *access: None, None)
        uc.hook_add(unicorn.UC_HOOK_BLOCK, self._enter_block)
        uc.reg_write(self._sp, self._vector(0))
        uc.reg_write(self._pc, self._vector(RESET_VECTOR))

    def run(self, received: bytes = b"") -> None:
        """Hands bytes to the firmware, and executes it until it sleeps. Raises RuntimeError for a fault."""
        if received:
            self._input += received
            self._interrupt(UART_VECTOR)
        self._execute(self._uc.reg_read(self._pc))
        self._flush()

    def _interrupt(self, vector: int) -> None:
        """Calls a handler as a function, which changes no register for the interrupted program."""
        before = self._uc.context_save()
        self._uc.reg_write(self._lr, NOWHERE | 1)
        self._execute(self._vector(vector))
        self._uc.context_restore(before)

    def _execute(self, address: int) -> None:
        try:
            self._uc.emu_start(address | 1, NOWHERE)  # bit 0: Thumb; it ends at a wfi, too
        except self._fault as error:
            raise RuntimeError(f"a fault near {self._uc.reg_read(self._pc):#x}: {error}") from None

    def _vector(self, index: int) -> int:
        return int.from_bytes(self._uc.mem_read(4 * index, 4), "little")

    def _enter_block(self, uc: Any, address: int, size: int, user: Any) -> None:
        number = self._instructions.get((address, size))
        if number is None:
            number = self._instructions[address, size] = instructions(uc.mem_read(address, size))
        self._executed += number

    def _read_uart(self, uc: Any, offset: int, size: int, user: Any) -> int:
        if offset == UART_STATE:
            return HAS_BYTE if self._input else 0
        return self._input.pop(0) if offset == UART_DATA and self._input else 0

    def _write_uart(self, uc: Any, offset: int, size: int, value: int, user: Any) -> None:
        if offset == UART_DATA:
            self._sent.append(value & 0xFF)
            if value & 0xFF == 0 and len(self._sent) > 1:  # a zero begins a frame and ends it
                self._flush()

    def _flush(self) -> None:
        if self._sent:
            self._send(bytes(self._sent))
            self._sent.clear()

    def _read_counter(self, uc: Any, offset: int, size: int, user: Any) -> int:
        return (self._executed - self._zero) & 0xFFFFFFFF if offset == CYCCNT else 0

    def _write_counter(self, uc: Any, offset: int, size: int, value: int, user: Any) -> None:
        if offset == CYCCNT:
            self._zero = self._executed - value


def instructions(code: bytes) -> int:
    """The number of Thumb-2 instructions in code; each has one or two halfwords."""
    at = number = 0
    while at < len(code):
        at += 4 if code[at + 1] >= 0xE8 else 2
        number += 1
    return number


def segments(elf: bytes) -> Iterator[tuple[int, bytes]]:
    """Address in ROM or RAM, and bytes, of each segment that is loaded. Raises ValueError."""
    try:
        if elf[:6] != b"\x7fELF\x01\x01":  # of 32 bits, least significant byte first
            raise ValueError("no ELF file of a microcontroller")
        [table], (size, count) = struct.unpack_from("<I", elf, 28), struct.unpack_from("<HH", elf, 42)
        for at in range(table, table + size * count, size or 1):
            kind, offset, _, address, filled = struct.unpack_from("<5I", elf, at)
            if kind == LOADED and filled:
                yield address, elf[offset : offset + filled]
    except struct.error:
        raise ValueError("an ELF file that was cut") from None


def main() -> None:
    name, path = sys.argv[1:]
    try:
        board = Board(name, Path(path).read_bytes(), lambda data: os.write(1, data))
        board.run()
        while received := os.read(0, PIECE):
            board.run(received)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"{path}: {error}")


if __name__ == "__main__":
    main()
