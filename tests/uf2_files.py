"""Files in the UF2 format, written apart from nmpconv's own writer."""

from __future__ import annotations

import struct


def uf2(family: int, size: int = 3000) -> bytes:
    """As many blocks of 256 bytes as hold `size` bytes, as boards take them."""
    data, blocks = bytes(range(256)) * (size // 256 + 1), -(-size // 256)
    return b"".join(
        struct.pack("<8I", 0x0A324655, 0x9E5D5157, 0x2000, 0x10000000 + 256 * i, 256, i, blocks, family)
        + data[256 * i : 256 * (i + 1)].ljust(476, b"\0")
        + struct.pack("<I", 0x0AB16F30)
        for i in range(blocks)
    )
