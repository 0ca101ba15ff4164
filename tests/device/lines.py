"""Lines that misbehave, each in its own way."""

from __future__ import annotations

import math
import os
import random
import select
import threading
import time
import tty
from collections import deque
from collections.abc import Callable
from pathlib import Path

from nmpconv.device import protocol
from nmpconv.device.protocol import Frame, Type
from nmpconv.device.transport import Transport


class Faulty:
    """A line that loses, flips, doubles bytes with these probabilities, in both directions."""

    def __init__(self, line: Transport, seed: int, *, lost: float = 0.0, flipped: float = 0.0, doubled: float = 0.0):
        self.name, self._line, self._random = "faulty", line, random.Random(seed)
        self._rates = (lost, flipped, doubled)
        self.faults = 0
        self._fine = self._distance()

    def _distance(self) -> int:
        """Bytes until the next that is harmed."""
        return int(math.log(1 - self._random.random()) / math.log(1 - sum(self._rates)))

    def _harm(self, data: bytes) -> bytes:
        out, at = bytearray(), 0
        while self._fine < len(data) - at:
            byte = data[at + self._fine]
            out += data[at : at + self._fine]
            harms = (b"", bytes([byte ^ 1 << self._random.randrange(8)]), bytes([byte, byte]))
            out += self._random.choices(harms, self._rates)[0]
            at += self._fine + 1
            self.faults += 1
            self._fine = self._distance()
        self._fine -= len(data) - at
        return bytes(out + data[at:])

    def read(self, seconds: float) -> bytes:
        return self._harm(self._line.read(seconds))

    def write(self, data: bytes) -> None:
        self._line.write(self._harm(data))

    def close(self) -> None:
        self._line.close()


class Late:
    """A line that holds back some pieces, and all behind them, for up to so many seconds, in both directions."""

    name = "late"

    def __init__(self, line: Transport, seed: int, longest: float, share: float = 1 / 30) -> None:
        self._line, self._random, self._longest, self._share = line, random.Random(seed), longest, share
        self._to: deque[tuple[float, bytes]] = deque()
        self._back: deque[tuple[float, bytes]] = deque()
        self.faults = 0

    def _hold(self, queue: deque[tuple[float, bytes]], data: bytes) -> None:
        late = self._random.random() < self._share
        self.faults += late
        queue.append((time.monotonic() + late * self._random.random() * self._longest, data))

    def read(self, seconds: float) -> bytes:
        end = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            while self._to and self._to[0][0] <= now:
                self._line.write(self._to.popleft()[1])
            if self._back and self._back[0][0] <= now:
                return self._back.popleft()[1]
            due = min([end, *(queue[0][0] for queue in (self._to, self._back) if queue)])
            if data := self._line.read(max(due - now, 0)):
                self._hold(self._back, data)
            elif now >= end:
                return b""

    def write(self, data: bytes) -> None:
        self._hold(self._to, data)

    def close(self) -> None:
        self._line.close()


class Shared:
    """A line on which another program writes, too, to both sides: text, noise and zeros between, and within, frames."""

    name = "shared"

    def __init__(self, line: Transport, seed: int) -> None:
        self._line, self._random = line, random.Random(seed)
        self.faults = 0

    def _mixed(self, data: bytes) -> bytes:
        if not data or self._random.random() < 0.9:
            return data
        self.faults += 1
        at = self._random.choice((0, self._random.randrange(len(data)), len(data)))
        noise = self._random.choice((b"AT\r\n", b"login: ", b"\0", self._random.randbytes(400)))
        return data[:at] + noise + data[at:]

    def read(self, seconds: float) -> bytes:
        return self._mixed(self._line.read(seconds))

    def write(self, data: bytes) -> None:
        self._line.write(self._mixed(data))

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
        answers, self._answers = self._answers, b""
        return answers


class Echo(Old):
    """A program that says back what it is told, with a word of its own now and then."""

    name = "echo"

    def write(self, data: bytes) -> None:
        self._answers += b"$ " + data


class Liar(Old):
    """Firmware that answers every request, HELLO apart, with something random in a right frame."""

    name = "liar"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def answer(self, frame: Frame) -> Frame:
        kind = self._random.choice((frame.type | protocol.REPLY,) * 4 + (protocol.PROGRESS, protocol.REFUSED))
        size = self._random.choice((0, 1, 4, 4, 8, 12, 16, 40, 260))
        payload = self._random.choice((self._random.randbytes(size), bytes(size)))
        return hello(frame) if frame.type == Type.HELLO else Frame(kind, frame.seq, payload)


class Busy(Old):
    """Firmware that never gets beyond an op, and then sends that it is at work for ever."""

    name = "busy"

    def answer(self, frame: Frame) -> Frame:
        return Frame(protocol.PROGRESS, frame.seq, bytes(4))


class Counting(Old):
    """Firmware that answers HELLO and then sends PROGRESS with ever new numbers."""

    name = "counting"

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step, self._op, self._seq = step, 0, 0

    def answer(self, frame: Frame) -> Frame:
        self._seq = frame.seq
        if frame.type == Type.HELLO:
            return hello(frame)
        return Frame(protocol.PROGRESS, frame.seq, (self._op % (1 << 32)).to_bytes(4, "little"))

    def read(self, seconds: float) -> bytes:
        self._op += self._step
        progress = Frame(protocol.PROGRESS, self._seq, (self._op % (1 << 32)).to_bytes(4, "little"))
        return super().read(seconds) + protocol.encode(progress)


class Stuck(Old):
    """Firmware that answers everything, and keeps nothing of an upload."""

    name = "stuck"

    def answer(self, frame: Frame) -> Frame:
        return hello(frame) if frame.type == Type.HELLO else Frame(frame.type | protocol.REPLY, frame.seq, bytes(4))


class Keeping(Old):
    """Firmware that takes uploads, but not the first so many pieces. pieces: bytes of each that came."""

    name = "keeping"

    def __init__(self, harmed: int = 0) -> None:
        super().__init__()
        self.begun, self.pieces, self._received, self._harmed = 0, list[int](), 0, harmed

    def answer(self, frame: Frame) -> Frame:
        if frame.type == Type.HELLO:
            return hello(frame)
        if frame.type == Type.BEGIN:
            self.begun, self._received = self.begun + 1, 0
        else:
            self.take(int.from_bytes(frame.payload[:4], "little"), len(frame.payload) - 4)
        return Frame(frame.type | protocol.REPLY, frame.seq, protocol.numbers(self._received))

    def take(self, at: int, size: int) -> None:
        self.pieces.append(size)
        if len(self.pieces) > self._harmed and at == self._received:
            self._received += size


class Forgetful(Keeping):
    """Firmware that forgets its first upload, and then refuses pieces until the next one begins."""

    name = "forgetful"

    def answer(self, frame: Frame) -> Frame:
        if frame.type != Type.DATA or self.begun > 1:
            return super().answer(frame)
        numbers = bytes((frame.type, protocol.AgentStatus.INCOMPLETE)) + bytes(24)
        return Frame(protocol.REFUSED, frame.seq, numbers + b"no upload\0")


def hello(frame: Frame) -> Frame:
    """A device's answer to HELLO."""
    numbers = b"".join(n.to_bytes(4, "little") for n in (4000, 1, 1, 1 << 20, 1 << 20, 0))
    return Frame(frame.type | protocol.REPLY, frame.seq, b"\x01\x00\x01" + numbers + b"v\0b\0c\0t\0")


class Port:
    """A serial port under a path, a pty, with a line behind it (None: nothing); it can be pulled out at once, or after
    so many bytes to the device."""

    def __init__(self, path: Path, line: Transport | None, pulled_after: int | None = None) -> None:
        self._path, self._line, self._left = path, line, pulled_after
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        path.symlink_to(os.ttyname(self._slave))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()

    def __enter__(self) -> Port:
        return self

    def __exit__(self, *why: object) -> None:
        self._done.set()
        self._thread.join()
        if self._line is not None:
            self._line.close()

    def from_board(self) -> bytes:
        return b"" if self._line is None else self._line.read(0)

    def to_board(self, data: bytes) -> None:
        if self._line is not None:
            self._line.write(data)

    def _pass(self) -> None:
        while not self._done.is_set() and (self._left is None or self._left > 0):
            if back := self.from_board():
                os.write(self._master, back)
            if select.select([self._master], [], [], 0.001)[0]:
                data = os.read(self._master, 64)
                self.to_board(data)
                if self._left is not None:
                    self._left -= len(data)
        self._path.unlink()
        os.close(self._slave)
        os.close(self._master)
