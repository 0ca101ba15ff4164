"""Words of a device about itself reach a terminal as text: no control characters, no markup."""

from __future__ import annotations

from pathlib import Path

import lines
import pytest

from nmpconv.cli import main
from nmpconv.device import connect, protocol
from nmpconv.device.protocol import Frame, Type
from nmpconv.errors import ExitCode

EVIL = "\x1b[2J\x07[/red][link=x]\u202e\r\nerror: board"


class Steering(lines.Old):
    """Firmware whose every text steers a terminal; it refuses all but HELLO."""

    name = "steering"

    def answer(self, frame: Frame) -> Frame:
        text = EVIL.encode() + b"\0"
        if frame.type == Type.HELLO:
            plain = lines.hello(frame)
            return Frame(plain.type, plain.seq, plain.payload[: -len(b"v\0b\0c\0t\0")] + 4 * text)
        numbers = bytes([frame.type, protocol.AgentStatus.REQUEST]) + bytes(24)
        return Frame(protocol.REFUSED, frame.seq, numbers + text)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["device", "info", "any"], ExitCode.OK),
        (["device", "info", "any", "--json"], ExitCode.OK),
        (["bench", "m.nmp", "--device", "any"], ExitCode.DEVICE),
        (["bench", "m.nmp", "--device", "any", "--json"], ExitCode.DEVICE),
    ],
)
def test_texts_are_cleaned(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], code: ExitCode
) -> None:
    monkeypatch.setattr(connect, "connect", lambda *_, **__: Steering())
    assert main(command) == code
    told = "".join(capsys.readouterr())
    assert "error: board" in told and "[/red]" in told and r"\u202e" in told
    assert all(character.isprintable() or character == "\n" for character in told)
    assert not any(line.startswith("error: board") for line in told.splitlines())
