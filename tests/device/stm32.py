"""The STM32F446 of a Nucleo board in Unicorn; see `chips`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from chips import ERROR, CortexM

from nmpconv.device import boards
from nmpconv.device.unicorn_board import segments


class Stm32f446(CortexM):
    """Its reference manual: clocks, power, wait states of flash, GPIO, USART; limits: its data sheet."""

    cpu, board, irq = "M4", "nucleo-f446re", 38
    USART, POWER, GPIO, RCC, FLASH = 0x40004400, 0x40007000, 0x40020000, 0x40023800, 0x40023C00
    CLOCKS: ClassVar = {USART: (0x40, 17), POWER: (0x40, 28), GPIO: (0x30, 0)}  # register and bit of RCC
    START, SEND_AND_HEAR = 16e6, 0x202C
    locks = True  # the PLL

    def started(self, elf: Path) -> Any:
        self.set = {self.RCC: 0x83, self.RCC + 4: 0x24003010, self.POWER: 0xC000, self.GPIO: 0xA8000000}
        return super().started(elf)

    def load(self, elf: Path) -> tuple[int, int]:
        for address, data in segments(elf.read_bytes()):
            self._uc.mem_write(address, data)
        flash = boards.BOARDS[self.board].flash[0]
        self._uc.reg_write(self._sp, self.word(flash))
        return flash, self.word(flash + 4)

    def clocked(self, address: int) -> None:
        register, bit = self.CLOCKS.get(address & ~0x3FF, (0, 0))
        self.demand(not register or self.peek(self.RCC + register) >> bit & 1 == 1, f"{address:#x} has no clock")

    def peek(self, address: int) -> int:
        self.clocked(address)
        value = super().peek(address)
        if address == self.RCC:
            return value | (1 << 25 if value >> 24 & 1 and self.locks and self.vco() else 0)
        if address == self.RCC + 8:
            return value & ~0xC | (value & 3) << 2
        if address == self.POWER + 4:
            on = super().peek(self.POWER) >> 16 if super().peek(self.RCC) >> 24 & 1 else 0
            return (on & 1) << 16 | (on & on >> 1 & 1) << 17
        if address == self.USART:
            return 0xC0 | (0x20 if self.input else 0)
        if address == self.USART + 4:
            return self.input.pop(0) & 0xFF
        return value

    def poke(self, address: int, value: int) -> None:
        self.clocked(address)
        running = super().peek(self.RCC) >> 24 & 1
        if address == self.RCC + 4:
            self.demand(not running, "the PLL is set while it is on")
        if address == self.POWER and value >> 17 & 1:
            others = [
                self.peek(self.RCC + at) & ~(1 << 28 if at == 0x40 else 0) for at in (0x30, 0x34, 0x38, 0x40, 0x44)
            ]
            self.demand(self.peek(self.POWER + 4) >> 16 & 1 == 1, "over-drive is not ready")
            self.demand(not any(others), "peripherals have clocks while over-drive is switched to")
        if address == self.USART + 4:
            pins = self.peek(self.GPIO) >> 4 & 0xF, self.peek(self.GPIO + 0x20) >> 8 & 0xFF
            self.demand(pins == (0xA, 0x77), f"pins are {pins}")
            self.demand(self.peek(self.USART + 12) & self.SEND_AND_HEAR == self.SEND_AND_HEAR, "the USART is off")
            self.send(value)
            return
        super().poke(address, value)
        if address == self.RCC + 8:
            self.demand(value & 3 in (0, 2), "neither the internal oscillator nor the PLL")
            self.check_limits()

    def arrived(self) -> bool:
        if self.input == [ERROR]:
            self.input = [0]  # it is stored, beside a flag that nobody looks at
        return bool(self.input) and self.peek(self.USART + 12) & 0x2024 == 0x2024

    def check_limits(self) -> None:
        waits = self.peek(self.FLASH) & 15
        self.demand(self.hz <= 30e6 * (waits + 1), f"{waits} wait states")
        self.demand(self.hz <= 168e6 or self.peek(self.POWER + 4) >> 17 & 1 == 1, "there is no over-drive")
        self.demand(self.bus(10) <= 45e6 and self.bus(13) <= 90e6, "a bus is too fast")

    def vco(self) -> float:
        setting = super().peek(self.RCC + 4)
        source, times = self.START / max(setting & 63, 1), setting >> 6 & 511
        fine = setting >> 22 & 1 == 0 and setting >> 24 & 15 >= 2 and setting >> 28 >= 2 and 50 <= times <= 432
        return source * times if fine and 1e6 <= source <= 2e6 and 100e6 <= source * times <= 432e6 else 0

    def bus(self, shift: int) -> float:
        setting = self.peek(self.RCC + 8) >> shift & 7
        return self.hz / (2 << (setting & 3) if setting & 4 else 1)

    @property
    def hz(self) -> float:
        if self.peek(self.RCC + 8) & 3 == 0:
            return self.START
        self.demand(self.peek(self.RCC) >> 25 & 1 == 1, "the PLL is not locked")
        return self.vco() / (2 * (self.peek(self.RCC + 4) >> 16 & 3) + 2)

    @property
    def rate(self) -> float:
        return self.bus(10) / self.peek(self.USART + 8)
