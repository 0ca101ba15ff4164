"""The frames of the device link as bytes and values. No I/O, no time.

The page that specifies it is interpreter/firmware/PROTOCOL.md.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from cobs import cobs

VERSION = 1
CHUNK = 256  # bytes of data in a frame
PAYLOAD_MAX = 268
_ENCODED_MAX = PAYLOAD_MAX + 7 + 2
_HELLO = struct.Struct("<BHIIIIII")
_REFUSAL = struct.Struct("<BBqqii")
_UPLOAD = struct.Struct("<5I")
_UPLOAD_MAGIC = 0x3150554E
_UPLOAD_BYTES = 64  # that lie before the file
DIGESTS_MAX = 64  # tensors in a request for digests
FIRST_RATE = bytes(32)  # twice as many zeros as bring a board's line back to its first rate


class Type(IntEnum):
    """Requests; a reply has REPLY added, PROGRESS and REFUSED answer any of them."""

    HELLO = 1
    BEGIN = 2
    DATA = 3
    LOAD = 4
    INPUT = 5
    RUN = 6
    PROFILE = 7
    DIGESTS = 8
    READ = 9
    RESET = 10
    SPEED = 11


REPLY = 0x80
PROGRESS = 0xFE
REFUSED = 0xFF


class AgentStatus(IntEnum):
    """Statuses of the link itself; those below 60 are the interpreter's, of which some are named here."""

    ARENA = 21
    UNKNOWN_OP = 40
    NOT_BUILT = 41
    REQUEST = 60
    NOT_LOADED = 61
    MEMORY = 62
    INCOMPLETE = 63
    DIGEST = 64
    RANGE = 65
    INPUT = 66


@dataclass(frozen=True)
class Frame:
    type: int
    seq: int
    payload: bytes


@dataclass(frozen=True)
class Hello:
    """Description of a device by itself. ring: bytes that may be on their way to it. Rates in Hz, sizes in bytes."""

    chunk: int
    ring: int
    clock_hz: int
    counter_hz: int
    model_bytes: int
    arena_bytes: int
    program_bytes: int
    version: str
    board: str
    cpu: str
    counter: str


@dataclass(frozen=True)
class Refusal:
    """The reason of a refusal. op and tensor: -1 where it is about none."""

    request: int
    status: int
    found: int
    allowed: int
    op: int
    tensor: int
    problem: str


@dataclass(frozen=True)
class Loaded:
    """Needs of a model on the device."""

    arena_bytes: int
    ops: int
    tensors: int
    input_bytes: int


def uploaded(model: bytes) -> bytes:
    """The memory for models of a device after a whole upload: its record of that, then the file."""
    crc = zlib.crc32(model)
    return _UPLOAD.pack(_UPLOAD_MAGIC, len(model), crc, len(model), crc).ljust(_UPLOAD_BYTES, b"\0") + model


def encode(frame: Frame) -> bytes:
    """The bytes on the line, both zeros included."""
    body = struct.pack("<BH", frame.type, frame.seq) + frame.payload
    return b"\0" + cobs.encode(body + struct.pack("<I", zlib.crc32(body))) + b"\0"


class Parser:
    """Finds frames in what comes from the line; what is not a whole, right frame is dropped."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def push(self, data: bytes) -> list[Frame]:
        self._rest += data
        *pieces, rest = bytes(self._rest).split(b"\0")
        self._rest = bytearray(rest[: _ENCODED_MAX + 1])  # too long already: it will be dropped
        frames = [_decode(piece) for piece in pieces if piece]
        return [frame for frame in frames if frame is not None]


def _decode(piece: bytes) -> Frame | None:
    if len(piece) > _ENCODED_MAX:
        return None
    try:
        body = cobs.decode(piece)
    except cobs.DecodeError:
        return None
    if len(body) < 7 or zlib.crc32(body[:-4]) != int.from_bytes(body[-4:], "little"):
        return None
    return Frame(body[0], int.from_bytes(body[1:3], "little"), body[3:-4])


def hello(payload: bytes) -> Hello | None:
    """None when the device speaks another version of the protocol, or what makes no sense."""
    if len(payload) < _HELLO.size or payload[0] != VERSION:
        return None
    texts = payload[_HELLO.size :].split(b"\0")
    if len(texts) != 5:
        return None
    greeting = Hello(*[*_HELLO.unpack_from(payload)[1:], *map(_text, texts[:4])])
    return greeting if greeting.chunk >= CHUNK and greeting.clock_hz and greeting.counter_hz else None


def refusal(payload: bytes) -> Refusal | None:
    if len(payload) <= _REFUSAL.size:
        return None
    return Refusal(*[*_REFUSAL.unpack_from(payload), _text(payload[_REFUSAL.size :].rstrip(b"\0"))])


def _text(data: bytes) -> str:
    """Text that a device says of itself, in one line."""
    text = data.decode("utf-8", "replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def numbers(*values: int) -> bytes:
    """Unsigned 32-bit numbers of a request."""
    return struct.pack(f"<{len(values)}I", *values)


def unpack(payload: bytes, layout: str) -> tuple[int, ...] | None:
    """The numbers of a reply; None when it has another length."""
    return struct.unpack(layout, payload) if len(payload) == struct.calcsize(layout) else None


def rates(payload: bytes) -> tuple[int, ...]:
    """The rates of a board's line, in bits a second; its first one first."""
    return struct.unpack(f"<{len(payload) // 4}I", payload[: len(payload) // 4 * 4])


def loaded(payload: bytes) -> Loaded | None:
    fields = unpack(payload, "<4I")
    return None if fields is None else Loaded(*fields)


def ticks(payload: bytes) -> tuple[int, ...]:
    """The ticks of a page of ops."""
    return struct.unpack(f"<{len(payload) // 8}Q", payload[: len(payload) // 8 * 8])
