"""Frames: what goes in comes out, here and in C; what is damaged does not."""

from __future__ import annotations

import random

import pytest

from nmpconv.device import protocol
from nmpconv.device.link import Link, RequestRefused
from nmpconv.device.protocol import Frame, Parser, Type
from nmpconv.device.transport import Program
from nmpconv.errors import ExitCode


@pytest.mark.parametrize("size", [0, 1, 246, 247, 248, 249, 250, 268])
@pytest.mark.parametrize("fill", [b"\0", b"\1", b"\xff", None])
def test_round_trip(size: int, fill: bytes | None) -> None:
    payload = random.Random(size).randbytes(size) if fill is None else fill * size
    data = protocol.encode(Frame(3, 65535, payload))
    assert data[0] == data[-1] == 0 and 0 not in data[1:-1]
    for step in (1, 7, len(data)):
        parser = Parser()
        found = [frame for at in range(0, len(data), step) for frame in parser.push(data[at : at + step])]
        assert found == [Frame(3, 65535, payload)]


def test_every_single_damage_is_noticed() -> None:
    data = protocol.encode(Frame(3, 9, bytes(range(40))))
    for at in range(1, len(data) - 1):
        for bit in range(8):
            harmed = bytearray(data)
            harmed[at] ^= 1 << bit
            assert Parser().push(bytes(harmed)) == []
        assert Parser().push(data[:at] + data[at + 1 :]) == []


def test_noise_does_not_stop_a_parser() -> None:
    parser, noise = Parser(), random.Random(1)
    good = protocol.encode(Frame(1, 2, b"here"))
    for _ in range(200):
        found = parser.push(noise.randbytes(noise.randrange(1000)) + good)
        assert found[-1:] == [Frame(1, 2, b"here")]


@pytest.mark.parametrize("size", [0, 1, 200, 246, 247, 248, 249, 250])
def test_the_agent_reads_and_writes_the_same_frames(line: Program, size: int) -> None:
    """An unknown request is refused whatever its payload; HELLO with a payload is, too."""
    link = Link(line)
    with pytest.raises(RequestRefused, match="bytes of the request") as refused:
        link.ask(Type.HELLO, b"\0" * size + b"\xff")
    assert refused.value.refusal.found == size + 1
    assert refused.value.code == ExitCode.DEVICE
