"""Microcontrollers in Unicorn, with as much of their registers as firmware of ours touches. They are strict: what a
chip would not do before its clock, reset or pin is set up is an error here."""

from __future__ import annotations

import struct
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from nmpconv.device import boards, firmware_images
from nmpconv.device.unicorn_board import segments

PERIPHERALS, SYSTEM = ((0x40000000, 0x100000), (0x50000000, 0x1000)), 0xE0000000
CYCCNT, INTERRUPTS_ON, INTERRUPTS_OFF, VTOR = 0xE0001004, 0xE000E100, 0xE000E180, 0xE000ED08
FIRST_INTERRUPT = 16  # in the vector table
ERROR = -1  # instead of a byte: one with a wrong stop bit


class Chip:
    """A line to the firmware of a board, which runs while the line is read."""

    board = ""

    def __init__(self, elf: Path) -> None:
        self.name, self.output, self.input = self.board, bytearray(), list[int]()
        self.set: dict[int, int] = {}  # registers, as they were written
        self.errors: list[str] = []
        self._ticks = 0
        self._uc = self.started(elf)
        self._run()

    def started(self, elf: Path) -> Any:
        """The processor with all its memory, before the program's first instruction."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Runs the handler of the UART, or finds that it does not interrupt."""
        raise NotImplementedError

    def _run(self) -> None:
        """Until the program sleeps."""
        raise NotImplementedError

    def word(self, address: int) -> int:
        return int.from_bytes(self._uc.mem_read(address, 4), "little")

    def peek(self, address: int) -> int:
        """Reads a register of the chip."""
        return self.set.get(address, 0)

    def poke(self, address: int, value: int) -> None:
        """Writes a register of the chip."""
        self.set[address] = value

    def demand(self, fine: bool, error: str) -> None:
        if not fine:
            self.errors.append(error)

    def send(self, byte: int) -> None:
        self.output.append(byte & 0xFF)

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), 512):  # fewer than a ring has
            self.hear([*data[at : at + 512]])

    def hear(self, values: list[int]) -> None:
        """Bytes come, one of them at a time as on a line."""
        for value in values:
            self.input.append(value)
            before = self._uc.context_save()
            self.interrupt()
            self._uc.context_restore(before)
            assert not self.input
        self._run()

    def read(self, seconds: float) -> bytes:
        data = bytes(self.output)
        self.output.clear()
        return data

    def close(self) -> None:
        pass


class CortexM(Chip):
    """cpu: as Unicorn calls it. irq: of the UART."""

    cpu, irq = "", 0

    def started(self, elf: Path) -> Any:
        import unicorn
        from unicorn import arm_const

        self._enabled = set[int]()
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
        return uc

    def load(self, elf: Path) -> tuple[int, int]:
        """Address of the vector table and of the first instruction; as after a reset, flash is at 0."""
        for address, data in segments(elf.read_bytes()):
            self._uc.mem_write(address, data)
        self._uc.reg_write(self._sp, self.word(0))
        return 0, self.word(4)

    def arrived(self) -> bool:
        """Checks that the UART interrupts."""
        return bool(self.input)

    def interrupt(self) -> None:
        assert self.irq in self._enabled and self.arrived()
        self._uc.reg_write(self._lr, self._back | 1)
        self._run(self.word(self.vectors + 4 * (FIRST_INTERRUPT + self.irq)))

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


class Nrf52840(CortexM):
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


class Rp2040(CortexM):
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


class Esp32c3(Chip):
    """Its technical reference manual: watchdogs, clocks, IO MUX, interrupt matrix, UART; and how its boot ROM loads an
    image. RAM lies at two addresses, for code and for data."""

    board = "esp32c3"
    RAM, CODE, SIZE, ROM_DATA, BACK = 0x3FC80000, 0x40380000, 0x60000, 0x3FCCAE00, 0x403DFFF0
    REGISTERS = ((0x60000000, 0x10000), (0x6001F000, 0x2000), (0x600C0000, 0x3000))
    UART, MATRIX, CRYSTAL = 0x60000000, 0x600C2000, 40e6
    FIFO, ENABLED, CLEAR, STATUS, UPDATE = 0x60000000, 0x6000000C, 0x60000010, 0x6000001C, 0x60000080
    # The registers of watchdogs, their locks and keys, and what they are at the start.
    LOCKED: ClassVar = {
        0x6001F048: (0x6001F064, 0x50D83AA1, 0x8004C000),
        0x60020048: (0x60020064, 0x50D83AA1, 0x0004C000),
        0x60008090: (0x600080A8, 0x50D83AA1, 0x80013214),
        0x600080AC: (0x600080B0, 0x8F1D312A, 0x04B00000),
    }

    def started(self, elf: Path) -> Any:
        import ctypes

        import unicorn
        from unicorn import riscv_const

        self._const = riscv_const
        self.set = {register: value for register, (_, _, value) in self.LOCKED.items()}
        self.set |= {self.UART + 0x78: 0x03701000, self.UPDATE: 0x40000500, 0x600C0058: 1, self.UART + 0x20: 0x1000001C}
        self._uc = uc = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
        self._memory = (ctypes.c_uint8 * self.SIZE)(*b"\xa5" * self.SIZE)
        uc.mem_map_ptr(self.RAM, self.SIZE, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE, self._memory)
        uc.mem_map_ptr(self.CODE, self.SIZE, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC, self._memory)
        for begin, size in self.REGISTERS:
            uc.mmio_map(begin, size, self._read, begin, self._write, begin)
        uc.hook_add(unicorn.UC_HOOK_INTR, self._own_register)
        uc.reg_write(riscv_const.UC_RISCV_REG_PC, self.load(elf))
        return uc

    def load(self, elf: Path) -> int:
        """The boot ROM: loads the image from flash."""
        known = boards.BOARDS[self.board]
        _, image = firmware_images.content(elf, elf.read_bytes(), "esptool", self.board, known)
        magic, count, _, _, entry, _, chip = struct.unpack_from("<4BIB3xH", image)
        self.demand((magic, chip, image[23]) == (0xE9, 5, 1), "it is no image of the chip")
        at, checksum = 24, 0xEF
        for _ in range(count):
            address, size = struct.unpack_from("<2I", image, at)
            data = image[at + 8 : at + 8 + size]
            to = address - (self.CODE if address >= self.CODE else self.RAM)
            self.demand(
                size % 4 == 0 and 0 <= to <= to + size <= self.ROM_DATA - self.RAM, "it lies over the ROM's data"
            )
            self._memory[to : to + size] = data
            for byte in data:
                checksum ^= byte
            at += 8 + size
        at += 15 - at % 16
        self.demand(image[at] == checksum, "the checksum is wrong")
        self.demand(sha256(image[: at + 1]).digest() == image[at + 1 :], "the hash is wrong")
        return int(entry)

    def _read(self, uc: Any, offset: int, size: int, begin: int) -> int:
        return self.peek(begin + offset)

    def _write(self, uc: Any, offset: int, size: int, value: int, begin: int) -> None:
        self.poke(begin + offset, value)

    def _own_register(self, uc: Any, number: int, user: Any) -> None:
        """Registers of Espressif's processor, which Unicorn's has not: the count of cycles. It stands behind them."""
        at = uc.reg_read(self._const.UC_RISCV_REG_PC) - 4
        code = self.word(at)
        self.demand(number == 2 and code & 0x7F == 0x73 and code >> 20 in (0x7E0, 0x7E1, 0x7E2), f"a fault at {at:#x}")
        if code >> 20 == 0x7E2:
            self._ticks += 1
            uc.reg_write(self._const.UC_RISCV_REG_X0 + (code >> 7 & 31), self._ticks)

    def peek(self, address: int) -> int:
        if address == self.FIFO:
            return self.input.pop(0) & 0xFF if self.input else 0
        if address == self.STATUS:
            return len(self.input)
        return super().peek(address)

    def poke(self, address: int, value: int) -> None:
        if address in self.LOCKED:
            lock, key, _ = self.LOCKED[address]
            self.demand(self.peek(lock) == key, f"{address:#x} is locked")
        if address == self.UPDATE:
            self._divider = self.peek(self.UART + 0x14)
            value &= 0x7FFFFFFF
        if address == self.FIFO:
            self.demand([self.peek(at) >> 31 for at in self.LOCKED] == [0, 0, 0, 1], "a watchdog is on")
            self.demand(
                [self.peek(at) >> bit & 1 for at, bit in ((0x6001F048, 14), (0x60008090, 12))] == [0, 0], "boot's"
            )
            self.demand(self.peek(self.UART + 0x20) == 0x1000001C, "the UART is not 8N1")
            self.demand(self.peek(self.UART + 0x78) >> 20 & 0x7F == 0x37, "the UART is not at the crystal")
            self.demand(self._divider == self.peek(self.UART + 0x14), "the rate was not taken over")
            pins = [self.set.get(0x60009004 + 4 * pin, -1) for pin in (20, 21)]
            self.demand(pins[0] >> 12 & 7 == pins[1] >> 12 & 7 == 0 and pins[0] >> 9 & 1 == 1, f"pins are {pins}")
            self.send(value)
        else:
            super().poke(address, value)

    def interrupt(self) -> None:
        const, line = self._const, self.peek(self.MATRIX + 0x54)
        self.input = [0] if self.input == [ERROR] else self.input  # it is stored
        assert self.peek(self.ENABLED) & 1 and self.peek(self.UART + 0x24) & 0x1FF == 1
        assert self.peek(self.MATRIX + 0x104) == 1 << line and line and not self.peek(self.MATRIX + 0x108)
        assert self.peek(self.MATRIX + 0x114 + 4 * line) >= self.peek(self.MATRIX + 0x194) > 0
        vectors = self._uc.reg_read(const.UC_RISCV_REG_MTVEC)
        self.demand(vectors % 256 == 1, "the vectors are not aligned")
        self._uc.reg_write(const.UC_RISCV_REG_MEPC, self.BACK)
        self._uc.reg_write(const.UC_RISCV_REG_MCAUSE, 1 << 31 | line)
        self._uc.reg_write(const.UC_RISCV_REG_MSTATUS, 0x1880)  # back to where interrupts are on
        self._uc.emu_start(vectors - 1 + 4 * line, self.BACK)
        self.demand(self.peek(self.CLEAR) & 1 == 1, "the interrupt was not cleared")

    def _run(self) -> None:
        self._uc.emu_start(self._uc.reg_read(self._const.UC_RISCV_REG_PC), self.BACK)

    @property
    def hz(self) -> float:
        clock = self.peek(0x600C0058)
        self.demand(clock >> 10 & 3 == 0, "the clock is not that of the crystal")
        return self.CRYSTAL / ((clock & 0x3FF) + 1)

    @property
    def rate(self) -> float:
        source = self.CRYSTAL / ((self.peek(self.UART + 0x78) >> 12 & 0xFF) + 1)
        return source / ((self._divider & 0xFFF) + (self._divider >> 20) / 16)
