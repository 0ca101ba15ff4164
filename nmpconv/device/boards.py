"""Boards whose flash can be written from here, and by which way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nmpconv.errors import UsageError

Way = Literal["uf2", "mbed", "esptool"]  # a drive that takes .uf2, one that takes .bin, a program on a serial port
KB, MB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class FlashBoard:
    """way: how its flash is written without other hardware. ids: of its drive: the Board-ID that it shows, or the
    beginning of it before a *, or four digits of an Mbed board; names: ends of a drive's name that say the same.
    family: of its .uf2 files. flash, ram: addresses where a program and its data lie, begin and end; code: those at
    which code sees the RAM, where they are others. starts_in_ram: its boot ROM also takes a program for RAM. chip: as
    esptool or pyOCD calls it; chip_id: in images of esptool. boot: how to have it take a program.
    """

    way: Way
    ids: Sequence[str] = ()
    names: Sequence[str] = ()
    family: int = 0
    flash: tuple[int, int] = (0, 0)
    ram: tuple[int, int] = (0, 0)
    code: tuple[int, int] = (0, 0)
    starts_in_ram: bool = False
    chip: str = ""
    chip_id: int = 0
    boot: str = ""


# Families: the list of the UF2 format. Addresses: the chips' data sheets.
BOARDS: dict[str, FlashBoard] = {
    "pico": FlashBoard(
        "uf2",
        ("RPI-RP2",),
        family=0xE48BFF56,
        flash=(0x10000000, 0x10000000 + 2 * MB),
        ram=(0x20000000, 0x20000000 + 264 * KB),
        starts_in_ram=True,
        chip="rp2040",
        boot="hold BOOTSEL while you plug it in",
    ),
    "pico2": FlashBoard(
        "uf2",
        ("RP2350",),
        family=0xE48BFF59,
        flash=(0x10000000, 0x10000000 + 4 * MB),
        ram=(0x20000000, 0x20000000 + 520 * KB),
        starts_in_ram=True,
        chip="rp2350",
        boot="hold BOOTSEL while you plug it in",
    ),
    "nrf52840": FlashBoard(
        "uf2",
        ("nRF52840*", "Seeed_XIAO_nRF52840*"),
        family=0xADA52840,
        flash=(0x1000, MB),  # the first page is the bootloader's, always
        ram=(0x20000000, 0x20000000 + 256 * KB),
        chip="nrf52840",
        boot="press reset twice",
    ),
    "nrf52840-dk": FlashBoard(
        "mbed",
        ("1102",),
        flash=(0, MB),
        ram=(0x20000000, 0x20000000 + 256 * KB),
        chip="nrf52840",
        boot="plug in the connector of the J-Link",
    ),
    "nucleo-f446re": FlashBoard(
        "mbed",
        ("0777",),
        ("F446RE",),
        flash=(0x08000000, 0x08000000 + 512 * KB),
        ram=(0x20000000, 0x20000000 + 128 * KB),
        chip="stm32f446retx",
        boot="plug in the connector of the ST-LINK",
    ),
    "esp32s3": FlashBoard("esptool", chip="esp32s3", chip_id=9, boot="hold BOOT, press RESET, release BOOT"),
    "esp32c3": FlashBoard(
        "esptool",
        ram=(0x3FC80000, 0x3FC80000 + 384 * KB),
        code=(0x40380000, 0x40380000 + 384 * KB),
        starts_in_ram=True,
        chip="esp32c3",
        chip_id=5,
        boot="hold BOOT, press RESET, release BOOT",
    ),
}
AUTO = "auto"


def board(name: str) -> FlashBoard:
    """Returns the board of a name. Raises UsageError."""
    if entry := BOARDS.get(name.lower()):
        return entry
    raise UsageError(
        f"nmpconv cannot flash a board {name!r}; it can flash {', '.join(BOARDS)}", where="BOARD", hint=f"or {AUTO}"
    )


def of_drive(id_: str, name: str) -> str:
    """The board of a drive that shows this identity under this name; '' where nothing is known of it."""
    for board_, known in BOARDS.items():
        if any(id_.startswith(pattern[:-1]) if pattern.endswith("*") else id_ == pattern for pattern in known.ids):
            return board_
        if any(name.upper().endswith(end) for end in known.names):
            return board_
    return ""
