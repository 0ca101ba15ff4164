"""Lines that misbehave, each in its own way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from nmpconv.device import protocol
from nmpconv.device.protocol import Frame, Type
from nmpconv.device.transport import Transport


class Faulty:
    """A line that loses, flips, doubles bytes with these probabilities, in both directions."""

    def __init__(self, line: Transport, seed: int, *, lost: float = 0.0, flipped: float = 0.0, doubled: float = 0.0):
        self.name, self._line, self._random = "faulty", line, random.Random(seed)
        self._rates = (lost, lost + flipped, lost + flipped + doubled)
        self.faults = 0

    def _harm(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            chance = self._random.random()
            if chance >= self._rates[2]:
                out.append(byte)
                continue
            self.faults += 1
            if self._rates[0] <= chance < self._rates[1]:
                out.append(byte ^ 1 << self._random.randrange(8))
            elif chance >= self._rates[1]:
                out += bytes([byte, byte])
        return bytes(out)

    def read(self, seconds: float) -> bytes:
        return self._harm(self._line.read(seconds))

    def write(self, data: bytes) -> None:
        self._line.write(self._harm(data))

    def close(self) -> None:
        self._line.close()


class Cut:
    """A line that is dead, silently, after so many bytes to the device."""

    def __init__(self, line: Transport, after: int) -> None:
        self.name, self._line, self._left = "cut", line, after

    def read(self, seconds: float) -> bytes:
        return self._line.read(seconds)

    def write(self, data: bytes) -> None:
        passed = data[: self._left]
        self._left -= len(passed)
        self._line.write(passed)

    def close(self) -> None:
        self._line.close()


class Reset:
    """A device that is reset once, after so many bytes to it: its program starts again, its memory stays."""

    name = "reset"

    def __init__(self, start: Callable[[], Transport], after: int) -> None:
        self._start, self.left = start, after
        self._line = start()

    def read(self, seconds: float) -> bytes:
        return self._line.read(seconds)

    def write(self, data: bytes) -> None:
        self.left -= len(data)
        if -len(data) <= self.left < 0:
            self._line.close()
            self._line = self._start()
        self._line.write(data)

    def close(self) -> None:
        self._line.close()


class Silent:
    """Nobody there."""

    name = "silent"

    def read(self, seconds: float) -> bytes:
        time.sleep(seconds)
        return b""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Chatter(Silent):
    """Another program, that talks without being asked: text, zeros and noise."""

    name = "chatter"

    def __init__(self) -> None:
        self._random = random.Random(5)

    def read(self, seconds: float) -> bytes:
        time.sleep(min(seconds, 0.01))
        return b"\0login: \0" + self._random.randbytes(40) + b"\0\0\x01\0"


class Old(Silent):
    """Firmware of another version of the link."""

    name = "old"

    def __init__(self) -> None:
        self._answers = b""

    def answer(self, frame: Frame) -> Frame:
        return Frame(frame.type | protocol.REPLY, frame.seq, b"\x63old")

    def write(self, data: bytes) -> None:
        for frame in protocol.Parser().push(data):
            self._answers += protocol.encode(self.answer(frame))

    def read(self, seconds: float) -> bytes:
        found, self._answers = self._answers, b""
        return found


class Busy(Old):
    """Firmware that never gets beyond an op, and then sends that it is at work for ever."""

    name = "busy"

    def answer(self, frame: Frame) -> Frame:
        return Frame(protocol.PROGRESS, frame.seq, bytes(4))


class Stuck(Old):
    """Firmware that answers everything, and keeps nothing of an upload."""

    name = "stuck"

    def answer(self, frame: Frame) -> Frame:
        payload = bytes(4)
        if frame.type == Type.HELLO:
            numbers = b"".join(n.to_bytes(4, "little") for n in (4000, 1, 1, 1 << 20, 1 << 20, 0))
            payload = b"\x01\x00\x01" + numbers + b"v\0b\0c\0t\0"
        return Frame(frame.type | protocol.REPLY, frame.seq, payload)
