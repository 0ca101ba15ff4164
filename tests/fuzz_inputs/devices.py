"""A device that a file decides: the numbers that it tells of itself, then, for each answer, what becomes of it.

Time is counted, not spent: a byte of the file can have the line drip a byte a second, lose what is sent, or be gone.
"""

from __future__ import annotations

import sys
import zlib
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
import cli_files

from nmpconv.device import client, link, protocol
from nmpconv.device.client import Device
from nmpconv.device.protocol import Frame, Type
from nmpconv.device.transport import LineGone
from nmpconv.runtime import on_device
from nmpconv.runtime.interpreter import Net, load

HOUR = 3600.0  # longer than any request of a small model may take
NUMBERS = (256, 4096, 1, 1, 1 << 20, 1 << 20, 0)  # of HELLO: chunk, ring, clock, counter, model, arena, program
TOLD = protocol._HELLO.pack(protocol.VERSION, *NUMBERS) + b"v\0b\0c\0t\0"
SPEEDS = protocol.numbers(115200, 1000000)
# Least bytes of a file that have such a thing happen to an answer; what is less is fine.
LOST, DRIPS, GONE, SILLY, OTHER, REFUSED, PROGRESS, HARMED, NOISE = 160, 172, 182, 188, 206, 216, 226, 236, 248


def good_files() -> list[bytes]:
    """A right device, and such on a bad line."""
    calm = bytes([len(TOLD)]) + TOLD
    events = (LOST, HARMED, NOISE, PROGRESS)
    return [calm + bytes(40), *(calm + bytes([*[0] * at, event, 4, *range(8)]) for at, event in enumerate(events))]


class Scripted:
    """A line with the device of a file behind it. now: seconds since it was there."""

    name = "scripted"

    def __init__(self, file: bytes, model: bytes, outputs: bytes) -> None:
        size = file[0] if file else 0
        self.told, self._script = file[1 : 1 + size], iter(file[1 + size :])
        self._model, self._outputs = model, outputs
        self._received, self._drips, self._gone = 0, False, False
        self._parser, self._answers, self.now = protocol.Parser(), bytearray(), 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def _next(self) -> int:
        return next(self._script, 0)

    def _some(self) -> bytes:
        return bytes(self._next() for _ in range(self._next() % 48))

    def write(self, data: bytes) -> None:
        self._check()
        for frame in self._parser.push(data):
            self._answers += self._harmed(Frame(frame.type | protocol.REPLY, frame.seq, self._right(frame)))

    def read(self, seconds: float) -> bytes:
        self._check()
        if not self._answers:
            self.now += max(seconds, 0.001)
            return b""
        self.now += 1.0 if self._drips else 0.001
        count = 1 if self._drips else len(self._answers)
        data = bytes(self._answers[:count])
        del self._answers[:count]
        return data

    def close(self) -> None: ...

    def _check(self) -> None:
        if self.now > HOUR:
            raise AssertionError("a request takes hours")
        if self._gone:
            raise LineGone(self.name, "it was pulled out")

    def _harmed(self, right: Frame) -> bytes:
        event = self._next()
        if event < LOST:
            return protocol.encode(right)
        if event < DRIPS:
            return b""
        if event < GONE:
            self._drips = True
        elif event < SILLY:
            self._gone = True
        elif event < OTHER:
            return protocol.encode(Frame(right.type, right.seq, self._some()))
        elif event < REFUSED:
            return protocol.encode(Frame(self._next(), right.seq, self._some()))
        elif event < PROGRESS:
            numbers = bytes((right.type & 0x7F, self._next())) + bytes(24)
            return protocol.encode(Frame(protocol.REFUSED, right.seq, numbers + self._some() + b"\0"))
        elif event < HARMED:
            return protocol.encode(Frame(protocol.PROGRESS, right.seq, self._some())) + protocol.encode(right)
        elif event < NOISE:
            data = bytearray(protocol.encode(right))
            data[self._next() % len(data)] ^= 1 + self._next() % 255
            return bytes(data)
        return self._some() + protocol.encode(right)

    def _right(self, frame: Frame) -> bytes:
        """Payload of the right answer."""
        numbers = [int.from_bytes(frame.payload[at : at + 4], "little") for at in range(0, len(frame.payload), 4)]
        at = numbers[0] if numbers else 0
        if frame.type == Type.HELLO:
            return self.told
        if frame.type == Type.DATA:
            self._received += len(frame.payload) - 4 if at == self._received else 0
        if frame.type in (Type.BEGIN, Type.DATA):
            return protocol.numbers(self._received)
        if frame.type == Type.LOAD:
            return protocol.numbers(4096, OPS, 3, 4)
        if frame.type == Type.RUN:
            return (77).to_bytes(8, "little") + protocol.numbers(zlib.crc32(self._outputs))
        if frame.type == Type.PROFILE:
            return bytes(8) * OPS
        if frame.type == Type.READ and len(numbers) == 3:
            first, count = numbers[1:]
            return protocol.numbers(first) + self._outputs[first : first + count]
        return SPEEDS if frame.type == Type.SPEED else frame.payload[:4]


def _net() -> tuple[bytes, Net, list[np.ndarray], bytes]:
    data = cli_files.nmp_bytes()
    net = load(data, threads=1)
    inputs = [np.zeros((1, *port.shape), port.dtype) for port in net.inputs]
    return data, net, inputs, b"".join(array.tobytes() for array in net.run(*inputs))


OPS = len(load(cli_files.nmp_bytes(), threads=1).model.ops)


def read(path: Path) -> None:
    """Measures on the device, and looks for an op that differs. NmpError tells what is wrong with it."""
    data, net, inputs, outputs = _net()
    line = Scripted(path.read_bytes(), data, outputs)
    clock = SimpleNamespace(monotonic=line.monotonic, sleep=line.sleep)
    with ExitStack() as stack:
        for module in (link, client):
            stack.enter_context(mock.patch.object(module, "time", clock))
        device = Device(line)
        on_device.measure(device, net, data, [[inputs]], runs=1)
