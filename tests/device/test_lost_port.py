"""A port that is pulled out and plugged in again while a command runs: it goes on, or ends when its time is over."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lines
import pytest

from nmpconv.cli import main
from nmpconv.device import transport
from nmpconv.device.client import Device
from nmpconv.device.link import Link
from nmpconv.device.transport import LineGone, Program, Serial
from nmpconv.errors import DeviceError, ExitCode

PORT = Path("ttyUSB0")


@contextmanager
def plugged_in_again(agent: Path, memory: dict[str, str], pulled_after: int, later: float) -> Iterator[None]:
    """A port that is pulled out after so many bytes, and comes back so many seconds later with another agent."""
    done = threading.Event()

    def port() -> None:
        with lines.Port(PORT, Program([agent], memory), pulled_after):
            while os.path.lexists(PORT) and not done.is_set():
                time.sleep(0.01)
        time.sleep(later)
        with lines.Port(PORT, Program([agent], memory)):
            done.wait()

    thread = threading.Thread(target=port)
    thread.start()
    while not os.path.lexists(PORT):
        assert thread.is_alive(), "no pseudo terminal can be opened"
        time.sleep(0.01)
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("memory", [{}, {"NMP_AGENT_MEMORY": "memory"}], ids=["forgets", "remembers"])
@pytest.mark.parametrize("pulled_after", [10, 15_000, 28_000])
def test_goes_on(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], memory: dict[str, str], pulled_after: int
) -> None:
    """At HELLO, in the upload, in a run: with an agent that has lost all, and with one that has it still."""
    with plugged_in_again(agent, memory, pulled_after, 0.3):
        assert main(["bench", "m.nmp", "--device", str(PORT), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["verified"] is True


def test_comes_back_too_late(here: Path, agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with plugged_in_again(agent, {}, 15_000, 1.5):
        assert main(["bench", "m.nmp", "--device", str(PORT), "--wait", "0.3"]) == ExitCode.DEVICE
    assert "the line is gone" in capsys.readouterr().err


class Loose(lines.Silent):
    """A plug that falls out as soon as it is in."""

    name = "loose"

    def read(self, seconds: float) -> bytes:
        raise LineGone(self.name, "unplugged", lambda: None)


def test_a_port_that_comes_and_goes_without_end() -> None:
    start = time.monotonic()
    with pytest.raises(LineGone, match="unplugged"):
        Device(Loose(), wait=0.5)
    assert 0.4 < time.monotonic() - start < 5


def test_time_without_a_line_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "quiet", 0.2)
    left = [8]

    def again() -> None:
        left[0] -= 1
        if left[0]:
            raise DeviceError("not yet")

    class Gone(lines.Old):
        name = "gone"

        def read(self, seconds: float) -> bytes:
            if left[0]:
                raise LineGone(self.name, "unplugged", again)
            return super().read(seconds)

        def answer(self, frame: lines.Frame) -> lines.Frame:
            return lines.hello(frame)

    assert Device(Gone(), wait=5).hello.board == "b"


@pytest.mark.skipif(not hasattr(transport, "termios"), reason="ports of this system have no termios")
@pytest.mark.parametrize("act", [lambda port: port.read(0), lambda port: port.write(b"x")], ids=["read", "write"])
def test_an_error_of_termios_is_a_lost_port(here: Path, monkeypatch: pytest.MonkeyPatch, act) -> None:
    def pulled(*_: object) -> None:
        raise transport.termios.error(5, "Input/output error")

    with lines.Port(PORT, None):
        port = Serial(str(PORT))
        monkeypatch.setattr(transport.serial.Serial, "read", pulled)
        monkeypatch.setattr(transport.serial.Serial, "write", pulled)
        with pytest.raises(LineGone, match="Input/output error"):
            act(port)
        port.close()


def test_a_program_that_has_ended_is_a_lost_line() -> None:
    program = Program([sys.executable, "-c", ""])

    def listen() -> None:
        while True:
            program.read(1)

    def talk() -> None:
        while True:  # a system may close the stdin of a program that ends after its stdout
            program.write(b"x")

    with pytest.raises(LineGone, match="the program has ended"):
        listen()
    with pytest.raises(LineGone, match="the program has ended"):
        talk()
    program.close()
