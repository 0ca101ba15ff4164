"""A faster line: agreed on, given up where it does not carry, and at its first rate again for whoever comes next."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lines
import numpy as np
import pytest
import uart
from uart import FIRST, RatedPort

from nmpconv.cli import main
from nmpconv.device import protocol
from nmpconv.device.client import Device
from nmpconv.device.link import Link, RequestRefused
from nmpconv.device.protocol import AgentStatus, Frame, Type
from nmpconv.device.transport import Program, Serial
from nmpconv.errors import DeviceError, ExitCode, NmpError

PORT = Path("ttyUSB0")
BENCH = ["bench", "m.nmp", "--device", str(PORT), "--json"]
BOARDS = Path(__file__).resolve().parents[2] / "interpreter" / "firmware" / "boards"


@contextmanager
def soon(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def told(capsys: pytest.CaptureFixture[str], *flags: str) -> dict:
    assert main([*BENCH, *flags]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] is True
    return found


def test_bits_at_another_rate() -> None:
    """Right at the same rate; a break, which a 0 is, is one at any faster one."""
    data = bytes(range(256))
    assert uart.heard(data, FIRST, FIRST) == data
    for rate in (230400, 460800, 1000000):
        assert uart.heard(data, FIRST, rate) != data
        assert uart.heard(bytes(32), FIRST, rate).count(0) >= 16
        assert uart.heard(data, rate, FIRST) != data


@pytest.mark.parametrize(
    ("flags", "rate"), [((), 1000000), (("--baud", "500000"), 460800), (("--baud", "115200"), FIRST)]
)
def test_the_fastest_that_both_have(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], rate: int
) -> None:
    with RatedPort(PORT, agent) as port:
        found = told(capsys, *flags)
        assert found["baud"] == rate and found["warnings"] == []
        assert port.settle() == FIRST and max(port.rates) == rate
        assert main(["device", "info", str(PORT)]) == ExitCode.OK  # which needs no other rate
        assert max(port.rates) == rate


@pytest.mark.parametrize("command", [["compare", "m.nmp"], ["run", "m.nmp", "x.npy"]], ids=["compare", "run"])
def test_other_commands(
    here: Path, agent: Path, inputs: list[np.ndarray], capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    np.save("x.npy", inputs[0])
    with RatedPort(PORT, agent, most=200000) as port:
        assert main([*command, "--device", str(PORT), "--baud", "230400"]) == ExitCode.OK
        assert "warning: too little came through at 230400 baud" in capsys.readouterr().out
        assert port.settle() == FIRST and 230400 in port.rates


def test_a_line_that_does_not_carry_it(here: Path, agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Board and port take the rate; what is between them makes noise of it."""
    with RatedPort(PORT, agent, most=500000) as port:
        found = told(capsys)
        assert found["baud"] == FIRST and port.settle() == FIRST and 1000000 in port.rates
        assert found["warnings"] == [
            "too little came through at 1000000 baud, so the line is at 115200; --baud sets what is tried"
        ]


@pytest.mark.slow
def test_a_line_that_loses_most_of_it(here: Path, agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RatedPort(PORT, agent, harm=0.015):
        found = told(capsys)
        assert found["baud"] == FIRST and found["warnings"] != []


def test_a_port_without_it(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some drivers refuse a rate."""
    set_rate = Serial.set_rate

    def only_first(port: Serial, rate: int) -> None:
        if rate != FIRST:
            raise DeviceError("the port has no such rate")
        set_rate(port, rate)

    monkeypatch.setattr(Serial, "set_rate", only_first)
    with RatedPort(PORT, agent) as port:
        found = told(capsys)
        assert found["baud"] == FIRST and port.settle() == FIRST and "1000000 baud" in found["warnings"][0]


def test_a_rate_that_the_system_refuses(here: Path, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RatedPort(PORT, agent):
        port = Serial(str(PORT))
        with pytest.raises(DeviceError, match="the port has no 99999999999 baud"):
            port.set_rate(99999999999)
        assert not port.faster and port.rate == FIRST
        assert Device(port).hello.board == "host"
        port.close()


@pytest.mark.parametrize("rate", [230400, 460800, 1000000])
def test_a_host_that_ended_without_a_word(here: Path, agent: Path, model: bytes, rate: int) -> None:
    """The next one is heard at once, and not after its first dozen tries."""
    with RatedPort(PORT, agent) as port:
        line = Serial(str(PORT))
        Device(line, baud=rate).load(model)
        assert line.rate == rate
        line.close()
        with soon(2.5):
            assert main(["device", "info", str(PORT), "--wait", "0"]) == ExitCode.OK
        assert port.settle() == FIRST


@pytest.mark.slow
def test_a_board_that_is_reset(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts at its first rate, with a half of the model; the host hears nothing, and goes back to that."""
    monkeypatch.setattr(Link, "quiet", 10.0)
    with RatedPort(PORT, agent, restart=15_000) as port:
        found = told(capsys)
        assert found["baud"] == FIRST and 1000000 in port.rates


class Before(Program):
    """Firmware of a time when there was no SPEED."""

    def __init__(self, agent: Path) -> None:
        super().__init__([agent])
        self._parser, self._answers = protocol.Parser(), b""

    def write(self, data: bytes) -> None:
        for frame in self._parser.push(data):
            if frame.type == Type.SPEED:
                refusal = (
                    bytes((frame.type, AgentStatus.REQUEST)) + (11).to_bytes(8, "little") + bytes((10,) + 15 * (0,))
                )
                self._answers += protocol.encode(Frame(protocol.REFUSED, frame.seq, refusal + b"type of the request\0"))
            else:
                super().write(protocol.encode(frame))

    def read(self, seconds: float) -> bytes:
        found, self._answers = self._answers, b""
        return found or super().read(seconds)


@pytest.mark.parametrize("start", [Before, lambda agent: Program([agent])], ids=["no request", "no rates"])
def test_firmware_without_rates(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], start: Callable[[Path], Program]
) -> None:
    with lines.Port(PORT, start(agent)):
        found = told(capsys)
        assert found["baud"] == FIRST and found["warnings"] == []


@pytest.mark.parametrize("seed", range(6))
def test_firmware_that_lies(here: Path, model: bytes, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(Link, "quiet", 0.5)
    with lines.Port(PORT, lines.Liar(seed)):
        line = Serial(str(PORT))
        with soon(30), pytest.raises(NmpError):
            Device(line).load(model)
        line.close()


def test_what_the_agent_refuses(agent: Path, tmp_path: Path) -> None:
    file = tmp_path / "rate"
    line = Program([agent], {"NMP_AGENT_RATE": str(file)})
    link = Link(line)
    assert protocol.rates(link.ask(Type.SPEED, protocol.numbers(0))) == (FIRST, 230400, 460800, 1000000)
    with pytest.raises(RequestRefused, match=r"bits a second of the line.*found 9600, allowed 1000000"):
        link.ask(Type.SPEED, protocol.numbers(9600))
    for wrong in (b"", b"\0", bytes(5)):
        with pytest.raises(RequestRefused, match="bytes of the request"):
            link.ask(Type.SPEED, wrong)

    def rate() -> int:
        link.ask(Type.HELLO)
        return int.from_bytes(file.read_bytes(), "little")

    assert rate() == FIRST
    link.ask(Type.SPEED, protocol.numbers(460800))
    line.write(bytes(14))  # with one of the next frame 15, which are too few
    assert rate() == 460800
    line.write(bytes(16))
    assert rate() == FIRST
    line.close()


def test_an_agent_without_rates(line: Program) -> None:
    link = Link(line)
    assert link.ask(Type.SPEED, protocol.numbers(0)) == b""
    with pytest.raises(RequestRefused, match="found 115200, allowed 0"):
        link.ask(Type.SPEED, protocol.numbers(FIRST))
    line.write(bytes(64))
    link.ask(Type.HELLO)


def test_rates_of_boards_are_near_their_clocks() -> None:
    """A receiver bears some 3 % in all, and the other side has an error, too."""
    texts = {path.parent.name: path.read_text() for path in BOARDS.glob("*/config.h")}
    common = (BOARDS / "common" / "mps2.h").read_text()
    assert len(texts) > 5
    nucleo = (BOARDS / "nucleo-f446re" / "clocks.c").read_text()  # its line is on a bus of 45 MHz, or stays at 16
    start, full = (int(re.search(rf"#define {name}_HZ (\d+)u", nucleo)[1]) for name in ("START", "FULL"))
    for board, text in texts.items():
        text += common if "mps2.h" in text else ""
        fixed = re.search(r"#define CLOCK_HZ (\d+)u", text)
        rates = [int(rate) for rate in re.findall(r"\d+", re.search(r"#define RATES (.*)", text)[1])]
        assert rates[0] == FIRST and rates == sorted(rates), board
        for clock in [int(fixed[1])] if fixed else [start, full // 4]:
            for rate in rates:
                divisor = (clock + rate // 2) // rate
                assert divisor >= 16 and abs(clock / divisor / rate - 1) < 0.01, (board, rate)
