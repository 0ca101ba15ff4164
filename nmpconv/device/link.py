"""Questions and answers over a line that loses, flips and repeats bytes. Every wait has a limit."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from nmpconv import errors
from nmpconv.base.progress import Progress, silent
from nmpconv.device import protocol
from nmpconv.device.protocol import AgentStatus, Frame, Parser, Refusal, Type
from nmpconv.device.transport import LineGone, Serial, Transport
from nmpconv.errors import DeviceError, ExitCode, NmpError

QUIET_SECONDS = 8.0  # without any answer: the device is gone
WAIT_FIRST, WAIT_MIN, WAIT_MAX = 0.25, 0.02, 2.0  # until a request is sent again
# Waits grow slowly and not far: on a line that harms every second frame of 256 bytes, a device must get so many tries
# within QUIET_SECONDS that silence means silence.
GROWTH, GROWN_MAX = 1.5, 0.4
WINDOW = 8  # requests on their way at once
REOPEN_PAUSE = 0.1  # between tries

Request = tuple[Type, bytes]

_HINTS: dict[int, str] = {
    AgentStatus.ARENA: "convert the model with fewer bits or for a smaller input",
    AgentStatus.UNKNOWN_OP: "build and flash the firmware of this nmpconv: nmpconv device build ...",
    AgentStatus.NOT_BUILT: "build the firmware with this op: make firmware BOARD=..., without OPS or with the op in it",
    AgentStatus.NOT_LOADED: "the device was reset meanwhile: start again",
}


class RequestRefused(NmpError):
    """The device's own answer to a request that it does not carry out."""

    def __init__(self, refusal: Refusal, where: str) -> None:
        self.refusal = refusal
        memory = _memory(refusal)
        self.status = errors.Status(refusal.status).in_c if refusal.status in set(errors.Status) else ""
        self.code = ExitCode.MODEL if memory or refusal.status < AgentStatus.REQUEST else ExitCode.DEVICE
        place = f", op {refusal.op}" if refusal.op >= 0 else ""
        place += f", tensor {refusal.tensor}" if refusal.tensor >= 0 else ""
        numbers = memory or f"found {refusal.found}, allowed {refusal.allowed}"
        super().__init__(
            f"the device refuses {_name(refusal.request)}: {refusal.problem}{place}"
            f" ({numbers}; status {refusal.status})",
            where=where,
            hint=_HINTS.get(refusal.status, ""),
        )

    @property
    def forgot(self) -> bool:
        """The device was reset meanwhile: once it has model and inputs again, it will do as it is asked."""
        return self.refusal.status in (AgentStatus.NOT_LOADED, AgentStatus.DIGEST, AgentStatus.INPUT)


def _memory(refusal: Refusal) -> str:
    """Describes what is needed and what there is, where it is about memory."""
    if (
        refusal.status == AgentStatus.ARENA
    ):  # the interpreter found an arena, and it may not be smaller than the model needs
        return f"needs {refusal.allowed} bytes, has {refusal.found}"
    return f"needs {refusal.found} bytes, has {refusal.allowed}" if refusal.status == AgentStatus.MEMORY else ""


def _name(request: int) -> str:
    return Type(request).name if request in list(Type) else f"request {request}"


@dataclass
class _Flight:
    """A request that waits for its answer. wait: seconds until it is sent again."""

    index: int
    frame: Frame
    sent: float
    wait: float
    tries: int = 1


class Link:
    """One line with its parser, its sequence numbers and what is known about its speed.

    away: seconds that a line which is gone is waited for, between two signs of life of the device. quiet: seconds
    without one after which it is given up; a line may know better.
    """

    quiet = QUIET_SECONDS

    def __init__(self, line: Transport, away: float = 0.0, progress: Progress = silent) -> None:
        self.line = line
        self.quiet = getattr(line, "quiet", self.quiet)
        self._away, self._progress = away, progress
        self._gone, self._heard_before = 0.0, 0.0  # seconds that it was gone since then
        self.window = 1
        self.port = line if isinstance(line, Serial) else None  # whose rate can be set
        self.bytes_seen = 0
        self.frames_seen = 0
        self.echoes = 0  # requests, which a device never sends
        self._parser = Parser()
        self._seq = random.Random().randrange(1 << 16)
        self._round_trip = 0.0
        self._spread = 0.0
        self.heard = time.monotonic()  # when something was last answered, or moved on

    @property
    def wait(self) -> float:
        """Seconds after which an answer is late."""
        if not self._round_trip:
            return WAIT_FIRST
        return min(max(self._round_trip + 4 * self._spread, WAIT_MIN), WAIT_MAX)

    def send(self, kind: int, payload: bytes) -> Frame:
        self._seq = (self._seq + 1) % (1 << 16)
        frame = Frame(kind, self._seq, payload)
        self._write(frame)
        return frame

    def receive(self, seconds: float) -> list[Frame]:
        """The frames that have come; waits at most so long for bytes, and for a line that is gone."""
        try:
            data = self.line.read(max(seconds, 0.0))
        except LineGone as gone:
            self._reopen(gone)
            data = b""
        frames = self._parser.push(data)
        self.bytes_seen += len(data)
        self.frames_seen += len(frames)
        self.echoes += sum(frame.type < protocol.REPLY for frame in frames)
        return frames

    def _write(self, frame: Frame) -> None:
        """Sends a frame; one that a broken line loses is sent again, as others are."""
        self._put(protocol.encode(frame))

    def _put(self, data: bytes) -> None:
        try:
            self.line.write(data)
        except LineGone as gone:
            self._reopen(gone)

    @property
    def faster(self) -> bool:
        """The line has another rate than it was opened with."""
        return self.port is not None and self.port.faster

    def slow_down(self) -> None:
        """Has the line at its first rate on both sides: zeros reach a board at any rate of its own."""
        if self.port is not None:
            self.port.set_rate(self.port.first_rate)
            self._put(protocol.FIRST_RATE)

    def _reopen(self, gone: LineGone) -> None:
        """Raises what was raised where the line does not come back in time. The time does not count as silence."""
        start = time.monotonic()
        before = 0.0 if self.heard != self._heard_before else self._gone
        while gone.again is not None and before + (waited := time.monotonic() - start) < self._away:
            self._progress("wait for the line", int(before + waited), int(self._away))
            time.sleep(REOPEN_PAUSE)
            with suppress(DeviceError):
                gone.again()
                if self.port is not None:
                    self.line.write(protocol.FIRST_RATE)  # as it is opened
                waited = time.monotonic() - start
                self.heard += waited
                self._gone, self._heard_before = before + waited, self.heard
                return
        raise gone

    def took(self, seconds: float) -> None:
        """Learns from an answer to a request that was sent once."""
        if not self._round_trip:
            self._round_trip, self._spread = seconds, seconds / 2
        self._spread += (abs(seconds - self._round_trip) - self._spread) / 4
        self._round_trip += (seconds - self._round_trip) / 8

    def check_quiet(self, limit: float | None = None) -> None:
        """DeviceError after so many seconds without an answer. After half of them a line is at its first rate again: a
        board that was reset is, or one that hears nothing right."""
        limit = self.quiet if limit is None else limit
        silent = time.monotonic() - self.heard
        if self.faster and silent > limit / 2:
            self.slow_down()
        if silent > limit:
            raise silence(self)

    def ask(
        self,
        kind: Type,
        payload: bytes = b"",
        *,
        patience: Callable[[int], float | None] | None = None,
        quiet: float | None = None,
    ) -> bytes:
        """The answer to one request. patience: seconds that the device may be silent before this op; None for an op
        that is none of the model's."""
        return self.ask_all([(kind, payload)], patience=patience, quiet=quiet)[0]

    def ask_all(
        self,
        requests: Sequence[Request],
        *,
        patience: Callable[[int], float | None] | None = None,
        quiet: float | None = None,
    ) -> list[bytes]:
        """The answers to requests that do not depend on each other. Raises RequestRefused, DeviceError."""
        answers: list[bytes] = [b""] * len(requests)
        waiting = deque(range(len(requests)))
        flying: dict[int, _Flight] = {}
        step = -1  # the op of the last PROGRESS: only a later one is a sign of life, so every wait ends
        self.heard = time.monotonic()
        while waiting or flying:
            while waiting and len(flying) < self.window:
                index = waiting.popleft()
                frame = self.send(*requests[index])
                flying[frame.seq] = _Flight(index, frame, time.monotonic(), self.wait)
            for frame in self.receive(min(f.sent + f.wait for f in flying.values()) - time.monotonic()):
                flight = flying.get(frame.seq)
                if flight is None:
                    continue
                if frame.type == protocol.PROGRESS and patience is not None:
                    op = int.from_bytes(frame.payload[:4], "little")
                    if op > step and (seconds := patience(op)) is not None:
                        step, quiet, self.heard = op, seconds, time.monotonic()
                elif frame.type == protocol.REFUSED and (why := protocol.refusal(frame.payload)):
                    raise RequestRefused(why, self.line.name)
                elif frame.type == flight.frame.type | protocol.REPLY:
                    answers[flight.index] = frame.payload
                    self.heard = time.monotonic()
                    if flight.tries == 1 and patience is None:
                        self.took(time.monotonic() - flight.sent)
                    del flying[frame.seq]
            self._send_again(flying.values())
            self.check_quiet(quiet)
        return answers

    def _send_again(self, flights: Iterable[_Flight]) -> None:
        now = time.monotonic()
        for flight in flights:
            if now >= flight.sent + flight.wait:
                self._write(flight.frame)
                flight.sent, flight.tries = now, flight.tries + 1
                flight.wait = min(GROWTH * flight.wait, max(GROWN_MAX, self.wait))


def silence(link: Link) -> DeviceError:
    """Names the reason for which nothing was understood, as far as one can tell from here."""
    if link.frames_seen > link.echoes:
        why, hint = "the device stopped answering", "check cable and power; start again: an upload goes on where it was"
    elif link.echoes:
        why = "what is sent comes back, and nothing else"
        hint = "another program on the port that echoes, or a plug that joins both directions"
    elif link.bytes_seen:
        why = f"{link.bytes_seen} bytes came, but no frame of the device link"
        hint = "another program on the port, another baud rate, or firmware that is not nmpconv's"
    else:
        why, hint = "no answer", "is the firmware running, and is this the right port?"
    return DeviceError(why, where=link.line.name, hint=hint)
