"""Images of firmware: .uf2, .bin and ELF files, checked for the board that they are to be written to."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from nmpconv.device.boards import FlashBoard, Way
from nmpconv.errors import InputError

BLOCK, PAYLOAD, PAYLOAD_ROOM = 512, 256, 476  # bytes of a .uf2 file's block, of its data, and at most
HEAD = struct.Struct("<8I")  # two magic numbers, flags, address, bytes, block, blocks, family
MAGICS, LAST_MAGIC = (0x0A324655, 0x9E5D5157), 0x0AB16F30
HAS_FAMILY, ABSOLUTE = 0x2000, 0xE48BFF57  # the family of blocks that a tool puts beside those of an RP2350
ELF, PROGRAM, LOADED = b"\x7fELF\x01\x01", struct.Struct("<8I"), 1  # 32 bits, little-endian; a segment
# Of Espressif's images: segments, how flash is read, entry, a pin, drivers of pins, chip, its versions, whether a hash
# follows. Flash is read by two lines at 40 MHz and has 4 MB.
ESP_HEAD, ESP_FLASH, NO_PIN, HASHED = struct.Struct("<4BIB3xHB2H4xB"), (2, 0x20), 0xEE, 1
ESP, PARTITIONS, PARTITION = 0xE9, 0x8000, b"\xaa\x50"  # an image of Espressif; where its partition table is

Segment = tuple[int, bytes]  # address, content


def content(path: Path, data: bytes, way: Way, name: str, board: FlashBoard | None) -> tuple[str, bytes]:
    """The name and bytes of the file to be written. name, board: where they are known. Raises InputError."""
    where, is_elf = str(path), data.startswith(ELF)
    if not data:
        raise InputError("is empty", where=where)
    if is_elf and way != "esptool":
        if board is None:
            raise InputError("an ELF file is written to boards that nmpconv knows", where=where, hint="name the board")
        segments = _segments(data, where)
        _check_places(segments, board, name, where, in_ram=way == "uf2" and board.starts_in_ram)
        if way == "uf2":
            return path.with_suffix(".uf2").name, _uf2(segments, board)
        binary = _flat(segments, board)
        _check_vectors(binary, board, name, where)
        return path.with_suffix(".bin").name, binary
    if is_elf and board is not None and board.starts_in_ram:
        segments = _segments(data, where)
        _check_ram(segments, board, name, where)
        return path.with_suffix(".bin").name, _esp(segments, data, board)
    if _is_uf2(data) != (way == "uf2") or is_elf:
        wanted = {"uf2": ".uf2 or ELF file", "mbed": ".bin or ELF file", "esptool": ".bin file of all partitions"}[way]
        kind = "an ELF file" if is_elf else "a .uf2 file" if _is_uf2(data) else "no .uf2 file"
        raise InputError(f"is {kind}, and {name or 'the board'} takes a {wanted}", where=where)
    if way == "uf2":
        _check_uf2(data, board, name, where)
    elif board is not None:
        (_check_esp if way == "esptool" else _check_vectors)(data, board, name, where)
    return path.name, data


def _is_uf2(data: bytes) -> bool:
    return data[:8] == struct.pack("<2I", *MAGICS)


def _check_uf2(data: bytes, board: FlashBoard | None, name: str, where: str) -> None:
    """Every block is there, and for the board."""
    if len(data) % BLOCK:
        raise InputError(f"ends within a block: {len(data)} bytes, blocks have {BLOCK}", where=where)
    numbers: dict[int, set[int]] = {}
    counts: dict[int, int] = {}
    for at in range(0, len(data), BLOCK):
        *magics, flags, _, size, number, count, family = HEAD.unpack_from(data, at)
        last = int.from_bytes(data[at + BLOCK - 4 : at + BLOCK], "little")
        if tuple(magics) != MAGICS or last != LAST_MAGIC or size > PAYLOAD_ROOM:
            raise InputError(f"block {at // BLOCK} of {len(data) // BLOCK} is damaged", where=where)
        family = family if flags & HAS_FAMILY else 0
        numbers.setdefault(family, set()).add(number)
        counts[family] = count
    families = set(counts) - {ABSOLUTE}
    for family in families:
        missing = set(range(min(counts[family], len(data)))) - numbers[family]
        if missing or counts[family] != len(numbers[family]):
            raise InputError(
                f"has {len(numbers[family])} of {counts[family]} blocks", where=where, hint="copy it again"
            )
    if board is not None and families - {0, board.family}:
        listing = ", ".join(f"{family:#010x}" for family in sorted(families))
        raise InputError(
            f"is for another board: family {listing}, and {name} has {board.family:#010x}",
            where=where,
            found=listing,
            allowed=f"{board.family:#010x}",
        )


def _check_vectors(data: bytes, board: FlashBoard, name: str, where: str) -> None:
    """A Cortex-M's program that begins the flash: its first words are the stack and the start. On boards with a drive
    for .uf2 files, a bootloader's are there."""
    (begin, end), (ram, ram_end) = board.flash, board.ram
    if len(data) > end - begin:
        raise InputError(f"has {len(data)} bytes, and the flash of {name} {end - begin}", where=where)
    if board.way != "mbed":  # of a .bin file that a probe writes
        return
    stack, start = struct.unpack("<2I", data[:8]) if len(data) >= 8 else (0, 0)
    if not ram < stack <= ram_end or not begin <= start < end or start % 2 == 0:
        raise InputError(
            f"is for another board: its stack is at {stack:#010x} and it starts at {start:#010x}; {name} has RAM at "
            f"{ram:#010x}..{ram_end:#010x}, flash at {begin:#010x}..{end:#010x}",
            where=where,
        )


def _check_esp(data: bytes, board: FlashBoard, name: str, where: str) -> None:
    """All partitions of an Espressif chip in one file, from the beginning of its flash."""
    if data[0] != ESP or len(data) < 24:
        raise InputError(f"is no image of Espressif: it begins with {data[0]:#04x}, not {ESP:#04x}", where=where)
    if (chip := int.from_bytes(data[12:14], "little")) != board.chip_id:
        raise InputError(f"is for another board: chip {chip}, and {name} has {board.chip_id}", where=where)
    if data[PARTITIONS : PARTITIONS + 2] != PARTITION:
        hint = f"esptool --chip {board.chip} merge-bin joins bootloader, partitions and program"
        raise InputError("has no partition table: it is a part of what the flash needs", where=where, hint=hint)


def _segments(data: bytes, where: str) -> list[Segment]:
    """Loaded segments of an ELF file by physical address. Raises InputError."""
    try:
        offset, size, count = (
            struct.unpack_from(layout, data, at)[0] for layout, at in (("<I", 28), ("<H", 42), ("<H", 44))
        )
        headers = [PROGRAM.unpack_from(data, offset + i * size) for i in range(count)]
    except struct.error:
        raise InputError("the ELF file is damaged: it has no program headers", where=where) from None
    loaded = [(address, at, size) for kind, at, _, address, size, *_ in headers if kind == LOADED and size]
    if not loaded or any(at + size > len(data) for _, at, size in loaded):
        raise InputError("the ELF file is damaged: a segment is not all there", where=where)
    return [(address, data[at : at + size]) for address, at, size in sorted(loaded)]


def _check_places(segments: Sequence[Segment], board: FlashBoard, name: str, where: str, *, in_ram: bool) -> None:
    """All segments are loaded into the board's flash, or from the beginning of its RAM on."""
    place = board.ram if in_ram and segments[0][0] == board.ram[0] else board.flash
    for segment in segments:
        if not _lies_in(segment, place):
            raise InputError(
                f"is for another board: it is loaded at {segment[0]:#010x}, and {name} has flash at "
                f"{board.flash[0]:#010x}..{board.flash[1]:#010x}",
                where=where,
            )


def _check_ram(segments: Sequence[Segment], board: FlashBoard, name: str, where: str) -> None:
    """All segments are loaded into RAM, which code may see at other addresses than data."""
    for segment in segments:
        if not (_lies_in(segment, board.ram) or _lies_in(segment, board.code)):
            raise InputError(
                f"is for another board: it is loaded at {segment[0]:#010x}, and {name} has RAM at "
                f"{board.ram[0]:#010x}..{board.ram[1]:#010x}",
                where=where,
            )


def _lies_in(segment: Segment, place: tuple[int, int]) -> bool:
    address, part = segment
    return place[0] <= address <= address + len(part) <= place[1]


def _flat(segments: Sequence[Segment], board: FlashBoard) -> bytes:
    """Bytes from the beginning of the flash on."""
    binary = bytearray()
    for address, part in segments:
        at = address - board.flash[0]
        binary += bytes(max(at + len(part) - len(binary), 0))
        binary[at : at + len(part)] = part
    return bytes(binary)


def _uf2(segments: Sequence[Segment], board: FlashBoard) -> bytes:
    """A .uf2 file with the pages that segments lie in, and no other ones: before them may be a bootloader."""
    pages: dict[int, bytearray] = {}
    for address, part in segments:
        for at in range(address - address % PAYLOAD, address + len(part), PAYLOAD):
            page, first = pages.setdefault(at, bytearray(PAYLOAD)), max(at, address)
            piece = part[first - address : at + PAYLOAD - address]
            page[first - at : first - at + len(piece)] = piece
    blocks = []
    for i, (address, page) in enumerate(sorted(pages.items())):
        head = HEAD.pack(*MAGICS, HAS_FAMILY, address, PAYLOAD, i, len(pages), board.family)
        blocks.append(head + page.ljust(PAYLOAD_ROOM, b"\0") + struct.pack("<I", LAST_MAGIC))
    return b"".join(blocks)


def _esp(segments: Sequence[Segment], elf: bytes, board: FlashBoard) -> bytes:
    """An image that the boot ROM of an Espressif chip loads into RAM from the beginning of the flash."""
    (entry,) = struct.unpack_from("<I", elf, 24)
    image = ESP_HEAD.pack(ESP, len(segments), *ESP_FLASH, entry, NO_PIN, board.chip_id, 0, 0, 0xFFFF, HASHED)
    checksum = 0xEF
    for address, part in segments:
        padded = part + bytes(-len(part) % 4)
        image += struct.pack("<2I", address, len(padded)) + padded
        for byte in padded:
            checksum ^= byte
    image += bytes(15 - len(image) % 16) + bytes([checksum])
    return image + sha256(image).digest()
