"""Boards in Unicorn, where QEMU is missing, and their firmware by zig, where gcc is."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nmpconv.cli import main
from nmpconv.device import simulator, unicorn_board
from nmpconv.errors import ExitCode

# Instructions between the reading of the cycle counter and that of SysTick, which QEMU counts by; with SysTick's step.
APART = 3
Found = dict[str, object]


@pytest.fixture
def tools(tmp_path: Path, need_tool: Callable[..., str]) -> Path:
    """A folder with what a machine has that has make, and neither QEMU nor a compiler."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in ("make", "find", "mkdir", "sh", "expr", "nproc", "git"):
        (folder / tool).symlink_to(need_tool(tool))
    return folder


def bench(capsys: pytest.CaptureFixture[str], board: str) -> Found:
    assert main(["bench", "m.nmp", "--device", f"sim:{board}", "--runs", "2", "--json"]) == ExitCode.OK
    found: Found = json.loads(capsys.readouterr().out)
    assert found["verified"] is True and found["board"] == board and found["latency_ms"] is None
    return found


def counts(found: Found) -> list[int]:
    return [found["instructions"], *(op["instructions"] for op in found["ops"])]  # type: ignore[attr-defined, list-item]


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an500"])
def test_unicorn_counts_what_qemu_counts(
    here: Path, tools: Path, monkeypatch, capsys, firmware: Callable[..., Path], need_package, board: str
) -> None:
    """The same firmware, with the same bytes as here: one that has a counter of cycles, and one that has none."""
    need_package("unicorn")
    folder = firmware(board).parent
    monkeypatch.setattr(simulator, "_folders", lambda: [folder])
    by_qemu = bench(capsys, board)
    monkeypatch.setenv("PATH", str(tools))
    by_unicorn = bench(capsys, board)
    assert (by_qemu["counter"], by_unicorn["counter"]) == ("systick", "cycles")
    assert counts(bench(capsys, board)) == counts(by_unicorn)
    for one, other in zip(counts(by_qemu), counts(by_unicorn), strict=True):
        assert 0 <= one - other <= APART < other / 1000


@pytest.mark.slow
def test_neither_qemu_nor_gcc(here: Path, tools: Path, monkeypatch, capsys, need_tool, need_package) -> None:
    """Firmware by zig and a board in Unicorn: the same bytes as here, and of the same firmware QEMU's counts."""
    need_package("unicorn", "ziglang")
    need_tool("qemu-system-arm")
    monkeypatch.setattr(simulator, "_folders", lambda: [here])
    path, caches = os.environ["PATH"], here / "home"
    monkeypatch.setenv("HOME", str(caches))
    monkeypatch.setenv("PATH", str(tools))
    assert main(["device", "build", "mps2-an386", "-o", "mps2-an386.elf"]) == ExitCode.OK
    assert not caches.exists()
    capsys.readouterr()
    by_unicorn = bench(capsys, "mps2-an386")
    monkeypatch.setenv("PATH", path)
    by_qemu = bench(capsys, "mps2-an386")
    assert (by_qemu["counter"], by_unicorn["counter"]) == ("systick", "cycles")
    for one, other in zip(counts(by_qemu), counts(by_unicorn), strict=True):
        assert 0 <= one - other <= APART < other / 1000


def test_zig_compiles_for_arm_only(tools: Path, tmp_path: Path, monkeypatch, root: Path) -> None:
    monkeypatch.setenv("PATH", str(tools))
    command = ["make", "-s", "-C", root / "interpreter" / "firmware", f"OUT={tmp_path}", "ZIG=zig", "BOARD=rv32"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode and "ZIG compiles for boards of Arm only" in ran.stderr


def test_the_demo_installs_what_the_machine_lacks(root: Path, tools: Path, monkeypatch, need_tool) -> None:
    """Both QEMU and gcc are there, or both of their stand-ins; the board is measured in any case."""
    monkeypatch.delenv("NMP_CI", raising=False)

    def planned() -> str:
        return subprocess.run(["make", "-n", "demo", "VENV=none"], cwd=root, capture_output=True, text=True).stdout

    monkeypatch.setenv("PATH", str(tools))
    without = planned()
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        assert "packaging/locks/sim.lock" in planned()
        (tools / tool).symlink_to("/bin/true")
        (tools / tool).chmod(0o755)
    assert "packaging/locks/sim.lock" not in planned()
    for plan in (without, planned()):
        assert "nmpconv bench build/demo/shapes.nmp --device sim:mps2-an386" in plan


SLEEP, UNDEFINED = b"\x30\xbf", b"\x00\xde"
# At 0x48: sleep, and again. At 0x4c, the handler: r0 = the UART, r1 = its byte, which it sends, return.
ECHO = SLEEP + bytes.fromhex("fde7 0148 0168 0160 7047".replace(" ", "")) + struct.pack("<I", unicorn_board.UART)


def elf(code: bytes) -> bytes:
    """A file whose one segment, at 0, has a vector table and after it code."""
    data = struct.pack("<18I", 0x20001000, *[0x49] * 15, 0x4D, 0x49) + code
    header = b"\x7fELF\x01\x01" + bytes(22) + struct.pack("<I", 52) + bytes(10) + struct.pack("<HH", 32, 1) + bytes(6)
    return header + struct.pack("<8I", 1, 84, 0, 0, len(data), len(data), 5, 4) + data


def test_a_program_that_sends_back_what_it_gets(need_package) -> None:
    need_package("unicorn")
    sent: list[bytes] = []
    board = unicorn_board.Board("mps2-an386", elf(ECHO), sent.append)
    for received in (b"", b"A", b"\0", b"B"):
        board.run(received)
    assert sent == [b"A", b"\0", b"B"]


def test_a_fault_ends_the_board(tmp_path: Path, need_package, monkeypatch, capsys) -> None:
    need_package("unicorn")
    board = unicorn_board.Board("mps2-an386", elf(UNDEFINED), lambda data: None)
    with pytest.raises(RuntimeError, match="a fault near 0x48"):
        board.run()
    (tmp_path / "f.elf").write_bytes(elf(UNDEFINED))
    monkeypatch.setattr(simulator, "firmware", lambda board: tmp_path / "f.elf")
    monkeypatch.setattr(simulator.shutil, "which", lambda name: None)
    assert main(["device", "info", "sim:mps2-an386", "--wait", "0"]) == ExitCode.DEVICE
    assert "sim:mps2-an386: the line is gone: the program has ended" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"", b"MZ" + bytes(100), elf(SLEEP)[:60]])
def test_firmware_that_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="ELF file"):
        list(unicorn_board.segments(data))
    assert [address for address, _ in unicorn_board.segments(elf(SLEEP))] == [0]


def test_firmware_for_another_memory(need_package) -> None:
    need_package("unicorn")
    other = bytearray(elf(SLEEP))
    other[52 + 12 : 52 + 16] = struct.pack("<I", 0x10000000)
    with pytest.raises(ValueError, match="bytes at 0x10000000 lie outside of the board's memory"):
        unicorn_board.Board("mps2-an386", bytes(other), lambda data: None)


def test_instructions_are_told_by_their_first_halfword() -> None:
    assert unicorn_board.instructions(b"") == 0
    assert unicorn_board.instructions(bytes.fromhex("00bf 4ff0 0100 fee7".replace(" ", ""))) == 3  # nop, mov.w, b


def test_instructions_of_one_and_two_halfwords() -> None:
    narrow, wide = bytes.fromhex("00bf"), bytes.fromhex("00f00080")
    for code, count in ((b"", 0), (narrow, 1), (wide, 1), (narrow + wide, 2), (wide + narrow + narrow + wide, 4)):
        assert unicorn_board.instructions(code) == count
