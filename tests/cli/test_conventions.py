"""What every command line tool does alike: -h, and exit codes that are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmpconv.errors import ExitCode


@pytest.mark.parametrize("command", [(), ("convert",), ("report",), ("device", "list")])
def test_h_is_help(cli, command: tuple[str, ...]) -> None:
    short, long = cli(*command, "-h"), cli(*command, "--help")
    assert (short.code, short.out) == (ExitCode.OK, long.out)
    assert "Usage: nmpconv" in short.out


def test_exit_codes_are_told(cli, root: Path) -> None:
    text = " ".join(cli("-h").out.split())
    assert all(f"{code.value} {code.meaning}" in text for code in ExitCode)
    rows = re.findall(r"^\| (\d) \|", (root / "docs" / "usage.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == [code.value for code in ExitCode]
