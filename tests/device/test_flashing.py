"""nmpconv device flash: drives that are folders, and esptool and pyOCD that write down what they are asked."""

from __future__ import annotations

import errno
import json
import os
import struct
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest
from uf2_files import uf2

from nmpconv.cli import main
from nmpconv.device import boards, drives, firmware_images, flashing, serial_ports
from nmpconv.device.serial_ports import SerialPort
from nmpconv.errors import ExitCode

PICO, PICO2, NRF, NUCLEO = (boards.BOARDS[name] for name in ("pico", "pico2", "nrf52840", "nucleo-f446re"))
UF2_TEXT = "UF2 Bootloader v3.0\r\nModel: {model}\r\nBoard-ID: {id}\r\n"
LINK = '<meta http-equiv="refresh" content="0; url=https://os.example/device/?code=07770221B2F3"/>'
Show = Callable[..., Path]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """show(name, file=text, ...): a drive is mounted under this name."""
    monkeypatch.chdir(tmp_path)
    mounted: list[Path] = []
    monkeypatch.setattr(drives, "mount_points", lambda: iter(mounted))
    monkeypatch.setattr(flashing, "SETTLE_SECONDS", 0.05)

    def show(name: str, **files: str) -> Path:
        folder = tmp_path / "media" / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file.replace("_TXT", ".TXT").replace("_HTM", ".HTM")).write_text(text)
        mounted.append(folder)
        return folder

    return show


@pytest.fixture
def pico(show: Show) -> Path:
    return show("RPI-RP2", INFO_UF2_TXT=UF2_TEXT.format(model="Raspberry Pi RP2", id="RPI-RP2"))


@pytest.fixture
def nucleo(show: Show) -> Path:
    return show("NODE_F446RE", MBED_HTM=LINK, DETAILS_TXT="Version: 0221\nBuild: Feb 1 2024\n")


def program(stack: int = 0x20020000, start: int = 0x08000189, size: int = 5000) -> bytes:
    """A Cortex-M's program: its first words, and anything."""
    return struct.pack("<2I", stack, start) + bytes(i % 251 for i in range(size - 8))


def elf(*segments: tuple[int, bytes]) -> bytes:
    """An ELF file with these segments in flash, and one in RAM that the start-up code clears."""
    at, rows, body = 52 + 32 * (len(segments) + 1), [], b""
    for address, part in segments:
        rows.append(struct.pack("<8I", 1, at + len(body), address, address, len(part), len(part), 5, 16))
        body += part
    rows.append(struct.pack("<8I", 1, 0, 0x20000000, 0x08010000, 0, 64, 6, 16))
    head = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    return (
        head + struct.pack("<HHIIIIIHHHHHH", 2, 40, 1, 0, 52, 0, 0, 52, 32, len(rows), 40, 0, 0) + b"".join(rows) + body
    )


def flashed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["device", "flash", *words, "--json"]) == ExitCode.OK
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], code: ExitCode, *words: str) -> str:
    assert main(["device", "flash", *words]) == code
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["pico", "auto", "PICO"])
def test_uf2(name: str, pico: Path, nucleo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.uf2").write_bytes(uf2(PICO.family))
    if name == "auto":
        (nucleo / "MBED.HTM").unlink()
        (nucleo / "DETAILS.TXT").unlink()
    found = flashed(capsys, name, "f.uf2")
    assert found == {"schema": 1, "board": "pico", "by": "drive", "place": str(pico), "bytes": 12 * 512}
    assert (pico / "f.uf2").read_bytes() == Path("f.uf2").read_bytes()


def test_bin(nucleo: Path, pico: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.bin").write_bytes(program())
    assert flashed(capsys, "nucleo-f446re", "f.bin")["place"] == str(nucleo)
    assert (nucleo / "f.bin").read_bytes() == program()
    assert not (pico / "f.bin").exists()


def test_elf(nucleo: Path, pico: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Segments where they are to be loaded; a board with a .uf2 drive gets blocks."""
    Path("f.elf").write_bytes(elf((0x08000000, program(size=100)), (0x08000080, b"more")))
    flashed(capsys, "nucleo-f446re", "f.elf")
    assert (nucleo / "f.bin").read_bytes() == program(size=100).ljust(128, b"\0") + b"more"
    content = bytes(range(256)) * 11
    Path("p.elf").write_bytes(elf((0x10000000, content)))
    flashed(capsys, "pico", "p.elf")
    assert (pico / "p.uf2").read_bytes() == uf2(PICO.family, len(content))


def test_elf_behind_a_bootloader(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    """Only pages that it has something in are written, one of them by two segments."""
    drive = show("NRF52BOOT", INFO_UF2_TXT=UF2_TEXT.format(model="Feather", id="nRF52840-Feather-revD"))
    Path("n.elf").write_bytes(elf((0x26010, b"a" * 300), (0x26150, b"b" * 8)))
    found = flashed(capsys, "nrf52840", "n.elf")
    blocks = [struct.unpack("<8I", (drive / "n.uf2").read_bytes()[i : i + 32]) for i in (0, 512)]
    assert found["bytes"] == 1024
    assert [block[3:] for block in blocks] == [(0x26000, 256, 0, 2, NRF.family), (0x26100, 256, 1, 2, NRF.family)]
    second = (drive / "n.uf2").read_bytes()[512 + 32 : 512 + 288]
    assert second == b"a" * 60 + bytes(20) + b"b" * 8 + bytes(168)


@pytest.mark.parametrize(("begin", "is_taken"), [(0x20000000, True), (0x20000100, False), (0x20041F00, False)])
def test_elf_in_ram(begin: int, is_taken: bool, pico: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The boot ROM starts it at the beginning of the RAM; a probe writes flash alone."""
    Path("r.elf").write_bytes(elf((begin, bytes(range(256)) * 3)))
    if is_taken:
        flashed(capsys, "pico", "r.elf")
        written = (pico / "r.uf2").read_bytes()
        assert [struct.unpack_from("<I", written, at + 12)[0] for at in (0, 512, 1024)] == [
            begin + 256 * i for i in range(3)
        ]
    else:
        assert "and pico has flash at 0x10000000..0x10200000" in refused(capsys, ExitCode.INPUT, "pico", "r.elf")
    assert "and pico has flash at" in refused(capsys, ExitCode.INPUT, "pico", "r.elf", "--by", "pyocd")


def test_elf_over_a_bootloader(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    """A program for an nRF52840 without one, as that of nrf52840-dk is; the DK takes it."""
    show("NRF52BOOT", INFO_UF2_TXT=UF2_TEXT.format(model="Feather", id="nRF52840-Feather-revD"))
    dk = show("DAPLINK", DETAILS_TXT="Unique ID: 1102000044220019\r\n")
    Path("n.elf").write_bytes(elf((0, program(0x20004000, 0x401))))
    message = refused(capsys, ExitCode.INPUT, "nrf52840", "n.elf")
    assert "it is loaded at 0x00000000, and nrf52840 has flash at 0x00001000..0x00100000" in message
    assert flashed(capsys, "nrf52840-dk", "n.elf")["place"] == str(dk)
    assert (dk / "n.bin").read_bytes() == program(0x20004000, 0x401)


@pytest.mark.slow
def test_firmware_of_ours(root: Path, nucleo: Path, capsys: pytest.CaptureFixture[str], firmware) -> None:
    """The ELF file that `device build` writes; that of a simulated board has its flash elsewhere."""
    other = firmware("mps2-an386")
    assert "is for another board: it is loaded at 0x0000" in refused(
        capsys, ExitCode.INPUT, "nucleo-f446re", str(other)
    )
    assert main(["device", "build", "nucleo-f446re", "-o", "n.elf"]) == ExitCode.OK
    capsys.readouterr()
    found = flashed(capsys, "auto", "n.elf")
    written = (nucleo / "n.bin").read_bytes()
    assert found["board"] == "nucleo-f446re" and found["bytes"] == len(written) > 20000
    assert b"nucleo-f446re\0" in written and struct.unpack("<I", written[:4])[0] == 0x20004000


def test_boards_of_another_kind_beside_it(show: Show, pico: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show("RP2350", INFO_UF2_TXT=UF2_TEXT.format(model="Raspberry Pi RP2350", id="RP2350"))
    absolute = uf2(firmware_images.ABSOLUTE, 256)  # what a tool puts before the blocks of an RP2350
    Path("f.uf2").write_bytes(absolute + uf2(PICO2.family))
    assert flashed(capsys, "pico2", "f.uf2")["board"] == "pico2"
    assert "2 drives fit" in refused(capsys, ExitCode.USAGE, "auto", "f.uf2")
    message = refused(capsys, ExitCode.INPUT, "pico", "f.uf2")
    assert "is for another board: family 0xe48bff59, and pico has 0xe48bff56" in message
    assert not (pico / "f.uf2").exists()


def test_two_drives_of_the_kind(show: Show, pico: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = show("RPI-RP21", INFO_UF2_TXT=(pico / "INFO_UF2.TXT").read_text())
    Path("f.uf2").write_bytes(uf2(PICO.family))
    message = refused(capsys, ExitCode.USAGE, "pico", "f.uf2")
    assert f"2 drives fit: {pico} (pico), {second} (pico)" in message and "--drive" in message
    assert flashed(capsys, "pico", "f.uf2", "--drive", str(second))["place"] == str(second)
    assert (second / "f.uf2").exists() and not (pico / "f.uf2").exists()


def test_no_drive(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    show("BACKUP", README_TXT="photos")
    Path("f.uf2").write_bytes(uf2(PICO.family))
    message = refused(capsys, ExitCode.DEVICE, "pico", "f.uf2")
    assert "there is no drive of pico; looked at: " in message
    assert "media/BACKUP" in message and "hold BOOTSEL" in message
    assert "no board's drive is there" in refused(capsys, ExitCode.DEVICE, "pico", "f.uf2", "--drive", ".")
    assert "there is no drive of a board" in refused(capsys, ExitCode.DEVICE, "auto", "f.uf2")


def test_drive_of_another_board(pico: Path, nucleo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.bin").write_bytes(program())
    message = refused(capsys, ExitCode.USAGE, "nucleo-f446re", "f.bin", "--drive", str(pico))
    assert "is the drive of another board" in message and not (pico / "f.bin").exists()


def test_a_board_that_is_not_known(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    """A .uf2 file is copied as it is; nothing is known of the board that its family could be held against."""
    drive = show("FEATHERBOOT", INFO_UF2_TXT=UF2_TEXT.format(model="Feather M4", id="SAMD51G19A-Feather-v0"))
    Path("f.uf2").write_bytes(uf2(0x55114460))
    assert flashed(capsys, "auto", "f.uf2")["board"] is None
    assert (drive / "f.uf2").read_bytes() == uf2(0x55114460)
    Path("f.elf").write_bytes(elf((0, b"x")))
    assert "boards that nmpconv knows" in refused(capsys, ExitCode.INPUT, "auto", "f.elf")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (uf2(PICO.family)[:-100], "ends within a block: 6044 bytes"),
        (uf2(PICO.family)[:-512], "has 11 of 12 blocks"),
        (uf2(PICO.family)[:512] + uf2(PICO.family)[1024:], "has 11 of 12 blocks"),
        (uf2(PICO.family)[:-4] + b"\0\0\0\0", "block 11 of 12 is damaged"),
        (uf2(PICO.family)[:1024].replace(b"UF2\n", b"UF3\n") + uf2(PICO.family)[1024:], "is no .uf2 file"),
        (program(), "is no .uf2 file, and pico takes a .uf2 or ELF file"),
        (uf2(NRF.family), "family 0xada52840, and pico has 0xe48bff56"),
        (elf((0x10000000, b"x"))[:60], "it has no program headers"),
        (elf((0x10000000, bytes(999)))[:-1], "a segment is not all there"),
        (elf(), "a segment is not all there"),
        (elf((0x08000000, b"x")), "it is loaded at 0x08000000, and pico has flash at 0x10000000"),
    ],
)
def test_images_that_pico_does_not_take(
    data: bytes, message: str, pico: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("f").write_bytes(data)
    assert message in refused(capsys, ExitCode.INPUT, "pico", "f")
    assert [path.name for path in pico.iterdir()] == ["INFO_UF2.TXT"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (uf2(PICO.family), "is a .uf2 file, and nucleo-f446re takes a .bin or ELF file"),
        (program(stack=0x20042000), "its stack is at 0x20042000"),
        (program(start=0x10000189), "it starts at 0x10000189"),
        (program(start=0x08000188), "it starts at 0x08000188"),
        (b"four", "its stack is at 0x00000000"),
        (program(size=512 * 1024 + 1), "has 524289 bytes, and the flash of nucleo-f446re 524288"),
    ],
)
def test_images_that_nucleo_does_not_take(
    data: bytes, message: str, nucleo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("f").write_bytes(data)
    assert message in refused(capsys, ExitCode.INPUT, "nucleo-f446re", "f")
    assert not (nucleo / "f").exists()


def test_a_full_drive(pico: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.uf2").write_bytes(uf2(PICO.family))
    usage = namedtuple("usage", "total used free")(1 << 20, 1 << 20, 100)
    with monkeypatch.context() as patched:
        patched.setattr(flashing.shutil, "disk_usage", lambda _: usage)
        assert "the drive is full: 100 bytes are free, 6144 needed" in refused(capsys, ExitCode.DEVICE, "pico", "f.uf2")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(flashing.os, "fsync", full)  # drives may tell more free bytes than they have
    assert "the drive is full" in refused(capsys, ExitCode.DEVICE, "pico", "f.uf2")


def test_it_is_all_written_before_the_command_ends(
    pico: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(flashing.os, "fsync", lambda file: seen.append(os.fstat(file).st_size))
    Path("f.uf2").write_bytes(data := uf2(PICO.family, 300_000))
    flashed(capsys, "pico", "f.uf2")
    assert seen == [len(data)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODEV])
def test_a_drive_that_is_gone_once_all_is_written(
    number: int, pico: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A board starts its program with the last block. Gone before that is an error."""

    def gone(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    Path("f.uf2").write_bytes(uf2(PICO.family))
    with monkeypatch.context() as patched:
        patched.setattr(flashing.os, "fsync", gone)
        flashed(capsys, "pico", "f.uf2")
    monkeypatch.setattr(flashing.shutil, "disk_usage", gone)
    message = refused(capsys, ExitCode.DEVICE, "pico", "f.uf2")
    assert f"cannot write f.uf2: {os.strerror(number)}" in message and "connect it again" in message


def test_an_mbed_board_says_that_it_did_not_take_it(
    nucleo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("f.bin").write_bytes(program())
    (nucleo / "FAIL.TXT").write_text("an earlier one")
    flashed(capsys, "nucleo-f446re", "f.bin")
    monkeypatch.setattr(
        flashing.os, "fsync", lambda _: (nucleo / "FAIL.TXT").write_text("SWD ERROR\r\ntype: interface") and None
    )
    message = refused(capsys, ExitCode.DEVICE, "nucleo-f446re", "f.bin")
    assert "the board did not take the program: SWD ERROR type: interface" in message


def test_list(show: Show, pico: Path, nucleo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show("MICROBIT", DETAILS_TXT="# DAPLink Firmware\r\nUnique ID: 9904360249134e45\r\n")
    xiao = show("XIAO-SENSE", INFO_UF2_TXT=UF2_TEXT.format(model="XIAO", id="Seeed_XIAO_nRF52840_Sense"))
    assert main(["device", "list", "--json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)["drives"]
    rows = {Path(row["drive"]).name: (row["takes"], row["model"], row["board"]) for row in found}
    assert rows == {
        "RPI-RP2": ("uf2", "Raspberry Pi RP2", "pico"),
        "NODE_F446RE": ("mbed", "NODE_F446RE", "nucleo-f446re"),
        "MICROBIT": ("mbed", "MICROBIT", None),
        "XIAO-SENSE": ("uf2", "XIAO", "nrf52840"),
    }
    assert main(["device", "list"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert f"{xiao}" in said and "nucleo-f446re" in said


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux has mounted")
def test_mounts_of_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "proc /proc proc rw 0 0\n/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /media/me/RPI-RP2 vfat rw 0 0\n"
        "/dev/sdc1 /media/me/MY\\040BOARD vfat rw,nosuid 0 0\n"
    )
    monkeypatch.setattr(drives, "MOUNTS", mounts)
    assert list(drives.mount_points()) == [Path("/media/me/RPI-RP2"), Path("/media/me/MY BOARD")]
    monkeypatch.setattr(drives, "MOUNTS", tmp_path / "none")
    assert list(drives.mount_points()) == []


TOOL = """import json, sys
print("said by {name}: 12.5 %\\rand 50%", flush=True)
with open({called!r}, "a") as called:
    called.write(json.dumps(sys.argv[1:]) + "\\n")
sys.exit(int(sys.argv[-1].endswith("fails.bin")))
"""


@pytest.fixture
def tools(show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """Modules esptool and pyocd that write down their arguments; tools(): those of each call."""
    called = tmp_path / "called"
    for name in ("esptool", "pyocd"):
        (tmp_path / f"{name}.py").write_text(TOOL.format(name=name, called=str(called)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    ports = [SerialPort("/dev/ttyS0"), SerialPort("/dev/ttyACM0", "", 0x303A, 0x1001), SerialPort("p", "", 0x2E8A, 10)]
    monkeypatch.setattr(flashing, "serial_ports", lambda: ports)
    return lambda: [json.loads(line) for line in called.read_text().splitlines()]


def merged(chip: int = 9) -> bytes:
    """All partitions of an Espressif chip."""
    head = bytes([0xE9, 3, 2, 0x4F]) + bytes(8) + struct.pack("<H", chip) + bytes(10)
    return head.ljust(0x8000, b"\xff") + b"\xaa\x50" + bytes(30)


def test_esptool(tools: Callable[[], list[list[str]]], capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.bin").write_bytes(merged())
    assert main(["device", "flash", "esp32s3", "m.bin", "--json"]) == ExitCode.OK
    said = capsys.readouterr()
    assert json.loads(said.out)["place"] == "/dev/ttyACM0" and said.err == "write: 100/100\n"
    assert tools() == [["--chip", "esp32s3", "--port", "/dev/ttyACM0", "write-flash", "0x0", "m.bin"]]
    flashed(capsys, "esp32s3", "m.bin", "--port", "COM7")
    assert tools()[1][3] == "COM7"
    Path("fails.bin").write_bytes(merged())
    message = refused(capsys, ExitCode.DEVICE, "esp32s3", "fails.bin")
    assert "esptool failed:\nsaid by esptool: 12.5 %\nand 50%" in message and "hold BOOT" in message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (merged(5), "is for another board: chip 5, and esp32s3 has 9"),
        (merged()[:0x8000], "has no partition table"),
        (program(), "is no image of Espressif"),
        (uf2(0xC47E5767), "is a .uf2 file, and esp32s3 takes a .bin file of all partitions"),
        (elf((0x42000000, b"x")), "is an ELF file, and esp32s3 takes"),
    ],
)
def test_images_that_esptool_does_not_get(data: bytes, message: str, tools, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.bin").write_bytes(data)
    assert message in refused(capsys, ExitCode.INPUT, "esp32s3", "m.bin")
    assert not Path("called").exists()


def test_pyocd(tools: Callable[[], list[list[str]]], capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.bin").write_bytes(program())
    Path("f.elf").write_bytes(elf((0x08000000, program())))
    for file in ("f.bin", "f.elf"):
        assert flashed(capsys, "nucleo-f446re", file, "--by", "pyocd")["by"] == "pyocd"
    first = ["flash", "--target", "stm32f446retx"]
    assert tools() == [
        [*first, "--format", "bin", "--base-address", "0x8000000", "f.bin"],
        [*first, "--format", "elf", "f.elf"],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fpga",), "nmpconv cannot flash a board 'fpga'; it can flash pico, pico2"),
        (("auto", "--by", "pyocd"), "pyocd has to know the board"),
        (("pico", "--port", "COM3"), "a drive and pyOCD need no port"),
        (("esp32c3", "--drive", "."), "esptool writes to no drive"),
        (("esp32c3", "--by", "drive"), "esp32c3 shows no drive"),
        (("esp32c3", "--by", "pyocd"), "pyOCD does not know esp32c3"),
        (("pico", "--by", "esptool"), "esptool does not know pico"),
    ],
)
def test_words_that_do_not_fit(words: tuple[str, ...], message: str, tools, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.bin").write_bytes(program())
    assert message in refused(capsys, ExitCode.USAGE, words[0], "f.bin", *words[1:])


def test_ports_that_do_not_fit(tools, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.bin").write_bytes(merged())
    ports = [SerialPort("a", "", 0x303A, 0x1001), SerialPort("b", "", 0x10C4, 0xEA60)]
    monkeypatch.setattr(flashing, "serial_ports", lambda: ports)
    assert "2 ports fit: a (Espressif" in refused(capsys, ExitCode.USAGE, "esp32s3", "m.bin")
    monkeypatch.setattr(flashing, "serial_ports", lambda: [SerialPort("/dev/ttyS0")])
    assert "no USB port of esp32s3; ports here: /dev/ttyS0" in refused(capsys, ExitCode.DEVICE, "esp32s3", "m.bin")


def test_tools_that_are_missing(
    show: Show, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flashing, "find_spec", lambda name: None)
    Path("m.bin").write_bytes(merged())
    assert "esptool is missing\nhint: pip install esptool" in refused(capsys, ExitCode.DEVICE, "esp32s3", "m.bin")


def test_every_board_can_be_told_from_the_others() -> None:
    ids = [one for board in boards.BOARDS.values() for one in board.ids]
    assert len(set(ids)) == len(ids)
    for name, board in boards.BOARDS.items():
        assert [boards.of_drive(one.replace("*", "-x"), "D") for one in board.ids] == [name] * len(board.ids)
    assert boards.of_drive("", "USB") == ""
    assert serial_ports.RESETTING
