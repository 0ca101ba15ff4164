"""Microcontrollers in Unicorn, with as much of their registers as firmware of ours touches. They are strict: what a
chip would not do before its clock, reset or pin is set up is an error here."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, ClassVar

from nmpconv.device import boards, firmware_images
from nmpconv.device.unicorn_board import segments

PERIPHERALS, SYSTEM = ((0x40000000, 0x100000), (0x50000000, 0x1000)), 0xE0000000
CYCCNT, INTERRUPTS_ON, INTERRUPTS_OFF, VTOR = 0xE0001004, 0xE000E100, 0xE000E180, 0xE000ED08
FIRST_INTERRUPT = 16  # in the vector table
ERROR = -1  # instead of a byte: one with a wrong stop bit


class Chip:
    """A line to the firmware of a board, which runs while the line is read. cpu: as Unicorn calls it."""

    cpu, board, irq = "", "", 0

    def __init__(self, elf: Path) -> None:
        import unicorn
        from unicorn import arm_const

        self.name, self.output, self.input = self.board, bytearray(), list[int]()
        self.set: dict[int, int] = {}  # registers, as they were written
        self.errors: list[str] = []
        self._enabled, self._ticks = set[int](), 0
        self._uc = uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        uc.ctl_set_cpu_model(getattr(arm_const, f"UC_CPU_ARM_CORTEX_{self.cpu}"))
        self._sp, self._lr, self._pc = (getattr(arm_const, f"UC_ARM_REG_{name}") for name in ("SP", "LR", "PC"))
        known = boards.BOARDS[self.board]
        self._back = known.flash[1] - 4  # an address without code, where handlers return to
        for begin, end in (known.flash, known.ram):
            uc.mem_map(begin, end - begin)
        for begin, size in (*PERIPHERALS, (SYSTEM, 0x100000)):
            uc.mmio_map(begin, size, self._read, begin, self._write, begin)
        self.vectors, entry = self.load(elf)
        uc.reg_write(self._pc, entry)
        self._run()

    def load(self, elf: Path) -> tuple[int, int]:
        """Address of the vector table and of the first instruction; as after a reset, flash is at 0."""
        for address, data in segments(elf.read_bytes()):
            self._uc.mem_write(address, data)
        self._uc.reg_write(self._sp, self.word(0))
        return 0, self.word(4)

    def word(self, address: int) -> int:
        return int.from_bytes(self._uc.mem_read(address, 4), "little")

    def peek(self, address: int) -> int:
        """Reads a register of the chip."""
        return self.set.get(address, 0)

    def poke(self, address: int, value: int) -> None:
        """Writes a register of the chip."""
        self.set[address] = value

    def arrived(self) -> bool:
        """Checks whether the UART interrupts."""
        return bool(self.input)

    def demand(self, fine: bool, what: str) -> None:
        if not fine:
            self.errors.append(what)

    def send(self, byte: int) -> None:
        self.output.append(byte & 0xFF)

    def _read(self, uc: Any, offset: int, size: int, begin: int) -> int:
        if begin != SYSTEM:
            return self.peek(begin + offset)
        if begin + offset == CYCCNT and self.cpu != "M0":
            self._ticks += 1
            return self._ticks
        return 0

    def _write(self, uc: Any, offset: int, size: int, value: int, begin: int) -> None:
        address = begin + offset
        if begin != SYSTEM:
            self.poke(address, value)
        elif INTERRUPTS_ON <= address < INTERRUPTS_ON + 8:
            self._enabled |= {8 * (address - INTERRUPTS_ON) + i for i in range(32) if value >> i & 1}
        elif INTERRUPTS_OFF <= address < INTERRUPTS_OFF + 8:
            self._enabled -= {8 * (address - INTERRUPTS_OFF) + i for i in range(32) if value >> i & 1}
        elif address == VTOR:
            self.demand(value % 256 == 0, "the vectors are not aligned")
            self.vectors = value

    def _run(self, at: int | None = None) -> None:
        """Until it sleeps, or an interrupt's handler returns."""
        self._uc.emu_start((self._uc.reg_read(self._pc) if at is None else at) | 1, self._back)

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), 512):  # fewer than a ring has
            self.hear([*data[at : at + 512]])

    def hear(self, values: list[int]) -> None:
        """Bytes come, one of them at a time as on a line."""
        for value in values:
            self.input.append(value)
            assert self.irq in self._enabled and self.arrived()
            before = self._uc.context_save()
            self._uc.reg_write(self._lr, self._back | 1)
            self._run(self.word(self.vectors + 4 * (FIRST_INTERRUPT + self.irq)))
            self._uc.context_restore(before)
            assert not self.input
        self._run()

    def read(self, seconds: float) -> bytes:
        data = bytes(self.output)
        self.output.clear()
        return data

    def close(self) -> None:
        pass


class Nrf52840(Chip):
    """Its product specification: UART, CLOCK, GPIO."""

    cpu, board, irq = "M4", "nrf52840-dk", 2
    RECEIVED, SENT, FAILED, INTENSET = 0x40002108, 0x4000211C, 0x40002124, 0x40002304
    ERRORSRC, RXD, TXD, BAUDRATE = 0x40002480, 0x40002518, 0x4000251C, 0x40002524
    RATES: ClassVar = {0x01D7E000: 115200, 0x03AFB000: 230400, 0x10000000: 1000000}

    def arrived(self) -> bool:
        if self.input:
            wrong = self.input[0] == ERROR
            self.set[self.FAILED if wrong else self.RECEIVED] = 1
            self.set[self.ERRORSRC] = 12 if wrong else 0
            if wrong:
                self.input.pop(0)  # it is not stored
        return bool(self.peek(self.INTENSET) & (1 << 9 if self.peek(self.FAILED) else 1 << 2))

    def peek(self, address: int) -> int:
        if address == self.RXD:
            self.demand(not self.set[self.RECEIVED], "a byte is read before its event is cleared")
            return self.input.pop(0) if self.input else 0
        return super().peek(address)

    def poke(self, address: int, value: int) -> None:
        if address == 0x40000000:
            self.set[0x40000100] = 1  # the crystal is on
        if address == self.TXD:
            at = {name: self.peek(0x40002000 + offset) for name, offset in (("on", 0x500), ("sends", 8), ("takes", 0))}
            self.demand(at == {"on": 4, "sends": 1, "takes": 1}, f"the UART is off: {at}")
            self.demand(self.peek(0x40000100) == 1, "the crystal is off")
            self.demand((self.peek(0x4000250C), self.peek(0x40002514)) == (6, 8), "other pins")
            self.demand(self.peek(0x50000718) & 1 == 1 and self.set.get(0x50000720) == 0, "pins are not connected")
            self.send(value)
            self.set[self.SENT] = 1
        elif address == self.ERRORSRC:
            self.set[address] &= ~value
        else:
            super().poke(address, value)

    @property
    def rate(self) -> float:
        return self.RATES[self.peek(self.BAUDRATE)]


class Rp2040(Chip):
    """Its data sheet: resets, XOSC, PLL, clocks, GPIO, UART; and how its boot ROM starts a program in RAM."""

    cpu, board, irq = "M0", "pico", 20
    CLOCKS, RESETS, XOSC, PLL = 0x40008000, 0x4000C000, 0x40024000, 0x40028000
    IO, PADS, UART = 0x40014000, 0x4001C000, 0x40034000
    BITS: ClassVar = {IO: 5, PADS: 8, PLL: 12, UART: 22}  # of RESETS
    CRYSTAL, CLEARS = 12e6, 0x3000

    def load(self, elf: Path) -> tuple[int, int]:
        self.set = {self.RESETS: 0x1FFFFFF, self.PLL + 4: 0x2D, self.PLL + 12: 0x77000}
        blocks = self.blocks(elf)
        for address, data in blocks.items():
            self._uc.mem_write(address, data)
        self._uc.reg_write(self._sp, boards.BOARDS[self.board].ram[1])
        return self.start(min(blocks))

    def blocks(self, elf: Path) -> dict[int, bytes]:
        """Bytes that the .uf2 file of a program writes, by address."""
        _, file = firmware_images.content(elf, elf.read_bytes(), "uf2", self.board, boards.BOARDS[self.board])
        return {
            int.from_bytes(file[at + 12 : at + 16], "little"): file[at + 32 : at + 288]
            for at in range(0, len(file), 512)
        }

    def start(self, first: int) -> tuple[int, int]:
        """The ROM jumps to the lowest address; vectors are its own until the program says where they are."""
        self.demand(first == boards.BOARDS[self.board].ram[0], "it is not at the beginning of the RAM")
        return 0, first

    def part(self, address: int) -> int:
        return next((base for base in self.BITS if base <= address < base + 0x4000), 0)

    def peek(self, address: int) -> int:
        ready = 1 << 31
        if (base := self.part(address)) and self.set[self.RESETS] >> self.BITS[base] & 1:
            self.demand(False, f"{address:#x} is read while its part is in reset")
        if address == self.RESETS + 8:
            return ~self.set[self.RESETS] & 0xFFFFFFFF
        if address == self.XOSC + 4:
            fine = self.set.get(self.XOSC) == 0xFABAA0 and self.set.get(self.XOSC + 12, 0) * 256 / self.CRYSTAL >= 1e-3
            return ready if fine else 0
        if address == self.PLL:
            return ready if not self.set[self.PLL + 4] & 0x21 and self.vco() else 0
        if address in (self.CLOCKS + 0x38, self.CLOCKS + 0x44):
            return 1 << (self.set.get(address - 8, 0) & 3)
        if address == self.UART + 0x18:
            return 0 if self.input else 0x10
        if address == self.UART:
            return self.input.pop(0) & 0xFF
        return super().peek(address)

    def poke(self, address: int, value: int) -> None:
        plain = address & ~self.CLEARS if address & self.CLEARS == self.CLEARS else address
        if (base := self.part(plain)) and self.set[self.RESETS] >> self.BITS[base] & 1:
            self.demand(False, f"{plain:#x} is written while its part is in reset")
        if plain != address:
            value = self.peek(plain) & ~value
        if plain == self.UART:
            pins = [self.peek(at) for at in (self.IO + 4, self.IO + 12, self.PADS + 4, self.PADS + 8)]
            self.demand(pins == [2, 2, 0x56, 0x5A], f"pins are {pins}")
            self.demand((self.peek(self.UART + 0x30), self.peek(self.UART + 0x2C)) == (0x301, 0x70), "the UART is off")
            self.send(value)
        else:
            super().poke(plain, value)

    def arrived(self) -> bool:
        if self.input == [ERROR]:
            self.input = [0]  # with bits that tell of it
        return bool(self.input) and self.peek(self.UART + 0x38) & 0x50 == 0x50

    def vco(self) -> float:
        frequency = self.CRYSTAL / max(1, self.set.get(self.PLL, 0) & 63) * self.set.get(self.PLL + 8, 0)
        return frequency if 750e6 <= frequency <= 1600e6 else 0

    @property
    def hz(self) -> float:
        """Frequency of the clocks of system and UART."""
        running = not self.set[self.PLL + 4] & 0x29 and self.set.get(self.CLOCKS + 0x3C) == 1
        self.demand(running and self.set.get(self.CLOCKS + 0x48) == 1 << 11, "clocks are not those of the PLL")
        dividers = self.set[self.PLL + 12]
        return self.vco() / (dividers >> 16 & 7) / (dividers >> 12 & 7)

    @property
    def rate(self) -> float:
        return self.hz / 16 / (self.peek(self.UART + 0x24) + self.peek(self.UART + 0x28) / 64)


class Rp2350(Rp2040):
    """Its data sheet; the boot ROM looks for a block that says what the program is."""

    cpu, board, irq = "M33", "pico2", 33
    CLOCKS, RESETS, XOSC, PLL = 0x40010000, 0x40020000, 0x40048000, 0x40050000
    IO, PADS, UART = 0x40028000, 0x40038000, 0x40070000
    BITS: ClassVar = {IO: 6, PADS: 9, PLL: 14, UART: 26}

    def start(self, first: int) -> tuple[int, int]:
        """The ROM takes stack and start from the vectors that the block names."""
        begin = bytes(self._uc.mem_read(first, 4096))
        at = begin.index(struct.pack("<I", 0xFFFFDED3)) + 4
        items, size = {}, 0
        while begin[at] != 0xFF:
            items[begin[at]] = begin[at : at + 4 * begin[at + 1]]
            size += begin[at + 1]
            at += 4 * begin[at + 1]
        last, following, end = struct.unpack_from("<3I", begin, at)
        self.demand((last, following, end) == (0xFF | size << 8, 0, 0xAB123579), "the block does not end")
        self.demand(items[0x42] == struct.pack("<2BH", 0x42, 1, 0x1021), "it is no secure program for Arm")
        vectors = int.from_bytes(items[3][4:], "little")
        self.demand(vectors % 256 == 0, "the vectors are not aligned")
        self._uc.reg_write(self._sp, self.word(vectors))
        return vectors, self.word(vectors + 4)
