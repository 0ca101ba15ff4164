"""A serial port with a board behind it whose line has rates: what is sent at another one arrives as its bits are."""

from __future__ import annotations

import random
import termios
from collections.abc import Sequence
from pathlib import Path

import lines

from nmpconv.device.transport import Program

FIRST = 115200
RATES = {getattr(termios, f"B{rate}"): rate for rate in (9600, FIRST, 230400, 460800, 1000000)}
FINE = 16  # samples of a bit


def heard(data: bytes, sent: int, at: int) -> bytes:
    """Bytes that a receiver of another rate makes of these, those without a right end, too. sent, at: bits a second."""
    bits = [level for byte in data for level in (0, *(byte >> i & 1 for i in range(8)), 1)]
    received, last, now = bytearray(), 1, 0
    while now < len(bits) * FINE * at // sent:
        level = _level(bits, now * sent // at)
        if last == 1 and level == 0:
            received.append(sum(_level(bits, (now + FINE * i + FINE * 3 // 2) * sent // at) << i for i in range(8)))
            now += FINE * 19 // 2
            level = _level(bits, now * sent // at)
        last, now = level, now + 1
    return bytes(received)


def _level(bits: Sequence[int], fine: int) -> int:
    return bits[fine // FINE] if fine // FINE < len(bits) else 1


class RatedPort(lines.Port):
    """most: bits a second above which the line carries noise. harm: share of the bytes that are flipped when it is
    faster than at first. restart: the board is reset after so many bytes to it.
    """

    def __init__(
        self, path: Path, agent: Path, *, most: int = 1 << 31, harm: float = 0.0, restart: int | None = None
    ) -> None:
        self._agent, self._file = agent, path.with_name(f"{path.name}.rate")
        self._most, self._harm, self._restart = most, harm, restart
        self._random, self._known, self._carried_bytes = random.Random(3), FIRST, 0
        self.rates = [FIRST]  # of the board, one after another
        super().__init__(path, self._start())

    def _start(self) -> Program:
        memory = self._file.with_suffix(".memory")
        return Program([self._agent], {"NMP_AGENT_RATE": str(self._file), "NMP_AGENT_MEMORY": str(memory)})

    def _port_rate(self) -> int:
        return RATES[termios.tcgetattr(self._slave)[4]]

    def _board_rate(self) -> int:
        try:
            return int.from_bytes(self._file.read_bytes(), "little") or FIRST
        except FileNotFoundError:
            return FIRST

    def _carried(self, data: bytes, sent: int, at: int) -> bytes:
        if sent != at:
            return heard(data, sent, at)
        if sent > self._most:
            return self._random.randbytes(len(data))
        harm = self._harm if sent != FIRST else 0.0
        return bytes(byte ^ (self._random.random() < harm) << 3 for byte in data)

    def from_board(self) -> bytes:
        """A board that has set another rate has sent all that was before it at the old one."""
        rate = self._board_rate()
        back = self._line.read(0 if rate == self._known else 0.1)
        carried = self._carried(back, self._known, self._port_rate()) if back else b""
        if rate != self._known:
            self._known = rate
            self.rates.append(rate)
        return carried

    def to_board(self, data: bytes) -> None:
        self._line.write(self._carried(data, self._port_rate(), self._known))
        before, self._carried_bytes = self._carried_bytes, self._carried_bytes + len(data)
        if self._restart is not None and before < self._restart <= self._carried_bytes:
            self._line.close()
            self._line = self._start()

    def settle(self) -> int:
        """The board's rate, after what the host sent last has arrived."""
        for _ in range(100):
            if self._known == self._board_rate() == FIRST:
                break
            self._done.wait(0.05)
        return self._known
