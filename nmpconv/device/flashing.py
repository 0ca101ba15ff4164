"""Firmware written to a board: by a copy to its drive, or by esptool or pyOCD."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from nmpconv.base.files import read_file
from nmpconv.base.progress import Progress, silent
from nmpconv.device import boards, drives, firmware_images
from nmpconv.device.boards import AUTO, FlashBoard
from nmpconv.device.drives import Drive
from nmpconv.device.serial_ports import RESETTING, serial_ports
from nmpconv.errors import DeviceError, UsageError

By = Literal["drive", "esptool", "pyocd"]
IMAGE_MB_MAX = 64
PIECE = 1 << 16  # bytes written between two reports
SETTLE_SECONDS = 3.0  # in which an Mbed board says that it did not take a program
# A board that has all of its program starts it, and its drive is gone before the file is closed.
GONE = (errno.EIO, errno.ENODEV, errno.ENOENT, errno.ENXIO, errno.EBADF)
STAGE = "write"
PERCENT = re.compile(rb"(\d+)(?:\.\d+)? ?%")  # as tools show how far they are
LAST_LINES = 8  # of a tool that failed


@dataclass(frozen=True)
class Flashed:
    """board: '' where it is not known. place: a drive, a port or a probe. bytes: that were written."""

    board: str
    by: By
    place: str
    bytes: int


def flash(
    name: str,
    image: Path,
    *,
    by: By | None = None,
    drive: Path | None = None,
    port: str | None = None,
    progress: Progress = silent,
) -> Flashed:
    """Writes firmware to a board.

    name: of `boards.BOARDS`, or auto: that of the only drive that is here. image: a .uf2, .bin or ELF file. by: what
    writes it; default: the board's usual way. drive: where its drive is mounted; default: looked for. port: a serial
    port, for esptool; default: the only one that fits.

    Raises UsageError, InputError for an image of another board, DeviceError.
    """
    board = None if name.lower() == AUTO else boards.board(name)
    way = by or ("esptool" if board is not None and board.way == "esptool" else "drive")
    if drive is not None and way != "drive":
        raise UsageError(f"{way} writes to no drive", where="--drive", hint="leave it out")
    if port is not None and way != "esptool":
        raise UsageError("a drive and pyOCD need no port", where="--port", hint="leave it out")
    data = read_file(image, IMAGE_MB_MAX << 20)
    if way == "drive":
        return _by_drive(_found(name, board, drive), name.lower(), board, image, data, progress)
    if board is None:
        raise UsageError(f"{way} has to know the board", where="BOARD", hint=f"one of {', '.join(boards.BOARDS)}")
    tool = _by_esptool if way == "esptool" else _by_pyocd
    return tool(name.lower(), board, image, data, port, progress)


def _found(name: str, board: FlashBoard | None, path: Path | None) -> Drive:
    """The drive to write to: that of `path`, or the only one of the board, or for auto the only one of all."""
    if board is not None and board.way == "esptool":
        raise UsageError(f"{name} shows no drive", where="--by drive", hint="leave it out: esptool writes it")
    if path is not None:
        drive = drives.drive(path)
        if drive is None:
            there = f"{drives.UF2}, {drives.DETAILS} or {drives.MBED}"
            raise DeviceError(f"no board's drive is there: there is no {there}", where=str(path))
        return _fitting(drive, name, board)
    here = drives.drives()
    fits = [candidate for candidate in here if board is None or candidate.board == name.lower()]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise UsageError(
            f"{len(fits)} drives fit: {', '.join(candidate.words for candidate in fits)}",
            where="BOARD",
            hint="name one: --drive",
        )
    looked = (
        ", ".join(candidate.words for candidate in here)
        or ", ".join(map(str, drives.mount_points()))
        or "none is mounted"
    )
    do = "connect it and have it show its drive" if board is None else board.boot
    linux = "; a drive has to be mounted" if sys.platform == "linux" else ""
    owner = "of a board" if board is None else f"of {name}"
    raise DeviceError(f"there is no drive {owner}; looked at: {looked}", where=name, hint=f"{do}{linux}")


def _fitting(drive: Drive, name: str, board: FlashBoard | None) -> Drive:
    """A drive that was named. One that says nothing known may be of the board, if it takes its files."""
    if board is not None and (drive.board not in ("", name.lower()) or drive.way != board.way):
        raise UsageError(f"is the drive of another board: {drive.words}, not of {name}", where=str(drive.path))
    return drive


def _by_drive(
    drive: Drive, name: str, board: FlashBoard | None, image: Path, data: bytes, progress: Progress
) -> Flashed:
    if board is None and drive.board:
        name, board = drive.board, boards.BOARDS[drive.board]
    known = "" if board is None else name
    file, content = firmware_images.content(image, data, drive.way, known, board)
    _write(drive, file, content, progress)
    return Flashed(known, "drive", str(drive.path), len(content))


def _write(drive: Drive, file: str, data: bytes, progress: Progress) -> None:
    """Copies a file to a drive, whole and past all caches. Raises DeviceError."""
    before, where, done = drives.failure(drive.path), str(drive.path), 0
    try:
        if (free := shutil.disk_usage(drive.path).free) < len(data):
            raise _full(where, free, len(data))
        with open(drive.path / file, "wb", buffering=0) as out:
            while done < len(data):
                progress(STAGE, done, len(data))
                done += out.write(data[done : done + PIECE])
            os.fsync(out.fileno())
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(where, 0, len(data)) from None
        if done < len(data) or error.errno not in GONE:
            hint = "the board has a part of the program at most: connect it again and repeat the command"
            raise DeviceError(f"cannot write {file}: {error.strerror}", where=where, hint=hint) from None
    progress(STAGE, len(data), len(data))
    if drive.way == "mbed":
        _check_taken(drive, before)


def _full(where: str, free: int, needed: int) -> DeviceError:
    hint = "delete files from it that are not the board's own, or connect it again"
    return DeviceError(f"the drive is full: {free} bytes are free, {needed} needed", where=where, hint=hint)


def _check_taken(drive: Drive, before: str) -> None:
    """An Mbed board writes to its drive why it did not take a program. before: what it said of an earlier one."""
    end = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        if (failure := drives.failure(drive.path)) and failure != before:
            raise DeviceError(f"the board did not take the program: {failure}", where=str(drive.path))
        time.sleep(SETTLE_SECONDS / 30)


def _by_esptool(
    name: str, board: FlashBoard, image: Path, data: bytes, port: str | None, progress: Progress
) -> Flashed:
    if board.way != "esptool":
        raise UsageError(f"esptool does not know {name}", where="--by", hint="leave it out")
    file, content = firmware_images.content(image, data, "esptool", name, board)
    _check_program("esptool")
    place = port or _port(name)
    with TemporaryDirectory() as folder:
        path = image
        if content is not data:
            path = Path(folder) / file
            path.write_bytes(content)
        arguments = ["--chip", board.chip, "--port", place, "write-flash", "0x0", str(path)]
        _run("esptool", arguments, place, board.boot, progress)
    return Flashed(name, "esptool", place, len(content))


def _port(name: str) -> str:
    """The only port that a board with esptool may be at."""
    ports = [port for port in serial_ports() if port.vid in RESETTING]
    if len(ports) == 1:
        return ports[0].device
    if ports:
        words = ", ".join(f"{port.device} ({port.board or port.usb})" for port in ports)
        raise UsageError(f"{len(ports)} ports fit: {words}", where="BOARD", hint="name one: --port")
    here = ", ".join(port.device for port in serial_ports()) or "none"
    raise DeviceError(f"there is no USB port of {name}; ports here: {here}", where=name, hint="name one: --port")


def _by_pyocd(name: str, board: FlashBoard, image: Path, data: bytes, _: str | None, progress: Progress) -> Flashed:
    if board.way == "esptool":
        raise UsageError(f"pyOCD does not know {name}", where="--by", hint="leave it out: esptool writes it")
    firmware_images.content(image, data, "mbed", name, board)
    _check_program("pyocd")
    is_elf = data.startswith(firmware_images.ELF)
    kind = ["--format", "elf"] if is_elf else ["--format", "bin", "--base-address", hex(board.flash[0])]
    command = ["flash", "--target", board.chip, *kind]
    pack = f"where it does not know the target: pyocd pack install {board.chip}"
    _run("pyocd", [*command, str(image)], name, pack, progress)
    return Flashed(name, "pyocd", "probe", len(data))


def _check_program(module: By) -> None:
    if find_spec(module) is None:
        raise DeviceError(f"{module} is missing", where=f"--by {module}", hint=f"pip install {module}")


def _run(module: By, arguments: Sequence[str], place: str, hint: str, progress: Progress) -> None:
    """Runs a tool as a program of its own. Raises DeviceError with what it said last."""
    command = [sys.executable, "-m", module, *arguments]
    output = b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as tool:
        assert isinstance(tool.stdout, BufferedReader)
        while piece := tool.stdout.read1():
            output += piece
            if percent := PERCENT.findall(piece):
                progress(STAGE, min(int(percent[-1]), 99), 100)
    if tool.returncode:
        last = "\n".join(output.decode("utf-8", "replace").replace("\r", "\n").strip().splitlines()[-LAST_LINES:])
        raise DeviceError(f"{module} failed:\n{last}", where=place, hint=hint)
    progress(STAGE, 100, 100)
