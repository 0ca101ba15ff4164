"""Requests to a device: load a model, run it, count, and look at its tensors."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from nmpconv.base.progress import Progress, silent
from nmpconv.device import protocol
from nmpconv.device.link import WAIT_MAX, WINDOW, Link, RequestRefused
from nmpconv.device.protocol import CHUNK, DIGESTS_MAX, AgentStatus, Frame, Hello, Loaded, Type
from nmpconv.device.transport import Transport
from nmpconv.errors import DeviceError, NmpError

HELLO_SECONDS = 4.0  # a simulator may notice an opened port only after a second
RATE_SECONDS = 1.0  # until a rate at which nothing comes through is given up
BAUD_MAX = 4_000_000  # that is asked for where nobody says so
FRAME_BYTES = 280  # on the line, at most
RECOVERIES = 3  # resets in a row that are lived through
# Bytes of data in a frame: half of them after a loss, some more after each that arrives. On a line that harms one byte
# in a hundred, 16 of 17 frames of 256 bytes are lost, and two of five with 32.
PIECE_MIN, PIECE_MORE = 32, 16
OP_SECONDS, MAC_SECONDS = 10.0, 5e-6  # the slowest device that is waited for


@dataclass(frozen=True)
class Upload:
    """resumed: bytes that the device had already. seconds: of the rest."""

    size: int
    resumed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return (self.size - self.resumed) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Run:
    """ticks: of the device's counter, all ops. digest: CRC-32 of all outputs, 0 for a run that ended before them."""

    ticks: int
    digest: int


class Device:
    """A device that answered. Raises DeviceError, RequestRefused (a ModelError's or a DeviceError's code).

    wait: seconds that a line which is gone is waited for, and, from HELLO_SECONDS on, a device that starts late. baud:
    most bits a second to agree on, for a model to come faster; None: the most that board and port have.
    """

    def __init__(
        self, line: Transport, progress: Progress = silent, wait: float = 0.0, baud: int | None = None
    ) -> None:
        self._link = Link(line, wait, progress)
        self._progress = progress
        self._model = b""
        self._there = 0  # bytes of it that the device has
        self._macs: Sequence[int] = ()
        self._ops = 0
        self._inputs = b""
        self._piece = CHUNK
        self._keeps = False
        self._baud = baud
        self._agreed = False
        self._tried: int | None = None  # the faster rate
        self.name = line.name
        self._link.slow_down()  # the host before may have ended at another rate
        self.hello = self._hello(max(HELLO_SECONDS, wait))
        self._link.window = max(1, min(WINDOW, self.hello.ring // 2 // FRAME_BYTES))

    def _hello(self, quiet: float) -> Hello:
        answer = self._link.ask(Type.HELLO, quiet=quiet)
        hello = protocol.hello(answer)
        if hello is None:
            version = answer[0] if answer else 0
            if version == protocol.VERSION:
                raise self._nonsense(Type.HELLO)
            raise DeviceError(
                f"its firmware speaks version {version} of the link, version {protocol.VERSION} is needed",
                where=self.name,
                hint="build and flash the firmware of this nmpconv: nmpconv device build ...",
            )
        return hello

    @property
    def baud(self) -> int | None:
        """Bits a second of its serial port; None: it is at none."""
        return None if self._link.port is None else self._link.port.rate

    @property
    def warnings(self) -> list[str]:
        """Notes about the line for a user."""
        port = self._link.port
        if port is None or self._tried is None or port.faster:
            return []
        why = f"too little came through at {self._tried} baud, so the line is at {port.rate}"
        return [f"{why}; --baud sets what is tried"]

    def close(self) -> None:
        """Leaves the line at its first rate, for the host that comes next."""
        if self._link.faster:
            self._tried = None
            with suppress(DeviceError):
                self._link.slow_down()

    def _speed_up(self) -> None:
        """Agrees on a faster rate, once. The line stays as it is with firmware that knows no rates, or where nothing
        comes through."""
        port, self._agreed = self._link.port, True
        if port is None:
            return
        try:
            known = protocol.rates(self._link.ask(Type.SPEED, protocol.numbers(0)))
        except RequestRefused:
            return
        most = BAUD_MAX if self._baud is None else self._baud
        rate = max((rate for rate in known if port.first_rate < rate <= most), default=None)
        if rate is None:
            return
        self._tried = rate
        try:
            self._link.ask(Type.SPEED, protocol.numbers(rate))
            port.set_rate(rate)
            self._link.ask(Type.HELLO, quiet=2 * RATE_SECONDS)  # half of that at this rate
        except NmpError:
            self._link.slow_down()
            self._hello(HELLO_SECONDS)

    def load(self, model: bytes, macs: Sequence[int] = (), *, keeps: bool = False) -> tuple[Upload, Loaded]:
        """Sends the model, or what is missing of it, and has it verified. Its states begin anew.

        macs: of its ops, for how long to wait. keeps: it has states, which a reset of the device would lose.
        """
        self._model, self._macs, self._there, self._keeps = model, macs, 0, keeps
        if not self._agreed:
            self._speed_up()
        crc = zlib.crc32(model)
        for _ in range(RECOVERIES):
            try:
                sent = self._upload(model, crc)
            except DeviceError as error:
                how_far = f"{error.message}; {self._there} of {len(model)} bytes of the model had arrived"
                raise DeviceError(how_far, where=error.where, hint=error.hint) from None
            try:
                loaded = protocol.loaded(self._link.ask(Type.LOAD, protocol.numbers(crc), quiet=self._load_seconds()))
            except RequestRefused as refused:
                if refused.refusal.status not in (AgentStatus.INCOMPLETE, AgentStatus.DIGEST):
                    raise
                continue
            if loaded is None:
                raise self._nonsense(Type.LOAD)
            self._ops = loaded.ops
            return sent, loaded
        raise DeviceError("the model does not arrive as it is sent", where=self.name)

    def reload(self) -> None:
        """Sends what a reset of the device has lost of the model."""
        self.load(self._model, self._macs, keeps=self._keeps)

    def restart(self) -> None:
        """The model's states begin anew."""
        if self._keeps:
            self.reload()

    def set_inputs(self, data: bytes) -> None:
        """The bytes of all inputs, one after another."""
        self._inputs = data
        step = self._piece
        pieces = range(0, len(data), step)
        self._link.ask_all([(Type.INPUT, protocol.numbers(at) + data[at : at + step]) for at in pieces])

    def run(self, last: int | None = None) -> Run:
        """Runs all ops, or the first ``last``, on the inputs that were set. After fewer than all, states are nothing to
        go on with: `restart`.
        """
        count = self._ops if last is None else last
        fields = protocol.unpack(self._execute(Type.RUN, protocol.numbers(count)), "<QI")
        if fields is None:
            raise self._nonsense(Type.RUN)
        return Run(*fields)

    def profile(self, ops: int) -> list[int]:
        """Ticks of each op in the last run."""
        ticks: list[int] = []
        while len(ticks) < ops:
            page = protocol.ticks(self._link.ask(Type.PROFILE, protocol.numbers(len(ticks))))
            if not page:
                raise self._nonsense(Type.PROFILE)
            ticks += page
        return ticks[:ops]

    def digests(self, tensors: Sequence[int]) -> list[int]:
        """CRC-32 of one tensor per op, right after the op, from the start of the states."""
        checksums: list[int] = []
        for first in range(0, len(tensors), DIGESTS_MAX):
            wanted = tensors[first : first + DIGESTS_MAX]
            self.restart()
            page = self._execute(Type.DIGESTS, protocol.numbers(first, *wanted))
            if len(page) != 4 * len(wanted):
                raise self._nonsense(Type.DIGESTS)
            checksums += struct.unpack(f"<{len(wanted)}I", page)
        return checksums

    def read(self, tensor: int, size: int) -> bytes:
        """The bytes of a tensor as it is now."""
        pieces = [(at, min(self._piece, size - at)) for at in range(0, size, self._piece)]
        answers = self._link.ask_all([(Type.READ, protocol.numbers(tensor, at, n)) for at, n in pieces])
        for (at, n), answer in zip(pieces, answers, strict=True):
            if answer[:4] != protocol.numbers(at) or len(answer) != 4 + n:
                raise self._nonsense(Type.READ)
        return b"".join(answer[4:] for answer in answers)

    def reset(self) -> None:
        """The device forgets its model."""
        self._link.ask(Type.RESET)

    def _execute(self, kind: Type, rest: bytes) -> bytes:
        """A request that runs ops. After a reset of the device it is sent again with all it needs, but not states."""
        payload = protocol.numbers(zlib.crc32(self._model), zlib.crc32(self._inputs)) + rest
        for _ in range(RECOVERIES):
            try:
                return self._link.ask(kind, payload, patience=self._patience)
            except RequestRefused as refused:
                if not refused.forgot or self._keeps:
                    raise
            self.reload()
            self.set_inputs(self._inputs)
        raise DeviceError(f"the device was reset {RECOVERIES} times during a run", where=self.name)

    def _patience(self, op: int) -> float | None:
        if op >= self._ops:
            return None
        return OP_SECONDS + MAC_SECONDS * (self._macs[op] if op < len(self._macs) else 0)

    def _load_seconds(self) -> float:
        return self._link.quiet + 1e-5 * len(self._model)

    def _upload(self, data: bytes, crc: int) -> Upload:
        begun = at = self._begin(data, crc)
        start = time.monotonic()
        for _ in range(RECOVERIES):
            if self._send_from(data, at) == len(data):
                return Upload(len(data), begun, time.monotonic() - start)
            at = self._begin(data, crc)
        raise DeviceError("the device loses its upload again and again", where=self.name)

    def _begin(self, data: bytes, crc: int) -> int:
        answer = self._link.ask(Type.BEGIN, protocol.numbers(len(data), crc), quiet=self._load_seconds())
        return self._received(answer, data)

    def _received(self, answer: bytes, data: bytes) -> int:
        fields = protocol.unpack(answer, "<I")
        if fields is None or fields[0] > len(data):
            raise self._nonsense(Type.DATA)
        self._there = fields[0]
        return fields[0]

    def _send_from(self, data: bytes, received: int) -> int:
        """Sends data from an offset, several frames ahead of the acknowledgements; returns how much the device has.

        The line keeps the order, so an acknowledgement that does not cover its own frame tells of a loss at once.
        """
        link = self._link
        flying: dict[int, tuple[int, float]] = {}  # seq: end of its data, when sent
        at, wait = received, link.wait
        link.heard = moved = time.monotonic()
        while received < len(data):
            while len(flying) < link.window and at < len(data):
                piece = data[at : at + self._piece]
                frame = link.send(Type.DATA, protocol.numbers(at) + piece)
                at += len(piece)
                flying[frame.seq] = (at, time.monotonic())
            for frame in link.receive(moved + wait - time.monotonic()):
                if self._lost(frame, flying):
                    return received
                if frame.type != Type.DATA | protocol.REPLY:
                    continue
                has = self._received(frame.payload, data)
                if has > received:
                    received, wait = has, link.wait
                    self._piece = min(self._piece + PIECE_MORE, CHUNK)
                    moved = link.heard = time.monotonic()
                    self._progress("upload", received, len(data))
                sent = flying.pop(frame.seq, None)
                if sent is not None and has < sent[0]:
                    at, moved = received, time.monotonic()
                    flying.clear()
                    self._lose()
                elif sent is not None:
                    link.took(time.monotonic() - sent[1])
            at = max(at, received)
            flying = {seq: sent for seq, sent in flying.items() if sent[0] > received}
            if time.monotonic() >= moved + wait:
                at, moved, wait = received, time.monotonic(), min(2 * wait, WAIT_MAX)
                flying.clear()
                self._piece = max(self._piece // 2, PIECE_MIN)
            link.check_quiet()
        return received

    def _lose(self) -> None:
        """Sends less at once; where that did not help, at the line's first rate."""
        if self._piece == PIECE_MIN and self._link.faster:
            self._link.slow_down()
        self._piece = max(self._piece // 2, PIECE_MIN)

    def _lost(self, frame: Frame, flying: dict[int, tuple[int, float]]) -> bool:
        """Checks that the device says that it has no upload; other refusals are raised."""
        if frame.type != protocol.REFUSED or frame.seq not in flying:
            return False
        why = protocol.refusal(frame.payload)
        if why is None:
            raise self._nonsense(Type.DATA)
        if why.status in (AgentStatus.INCOMPLETE, AgentStatus.RANGE):
            return True
        raise RequestRefused(why, self.name)

    def _nonsense(self, kind: Type) -> DeviceError:
        return DeviceError(f"the answer to {kind.name} makes no sense", where=self.name, hint="other firmware?")
