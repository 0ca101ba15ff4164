"""Programs for the RAM of an Espressif chip, which its boot ROM loads from an image in flash."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from test_flashing import elf

from nmpconv.device import boards, firmware_images, flashing
from nmpconv.errors import InputError

# Two segments for an ESP32-C3, as image-info of esptool 5.6 reads them: head, both of them, checksum.
IMAGE = bytes.fromhex(
    "e902022000000000ee0000000500000000ffff0000000001"
    "00e0c93f0c000000636f6e7374616e7473000000"
    "000038400800000070726f6772616d2e"
    "000000d8"
)


def test_an_elf_file_becomes_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, path = list[bytes](), tmp_path / "f.elf"
    monkeypatch.setattr(flashing, "_run", lambda *words: written.append(Path(words[1][-1]).read_bytes()))
    monkeypatch.setattr(flashing, "_check_program", lambda module: None)
    path.write_bytes(elf((0x3FC9E000, b"constants"), (0x40380000, b"program.")))
    result = flashing.flash("esp32c3", path, port="COM7")
    assert written == [IMAGE + hashlib.sha256(IMAGE).digest()]
    assert (result.by, result.place, result.bytes) == ("esptool", "COM7", len(written[0]))


@pytest.mark.parametrize("address", [0x3FCDFFFE, 0x40380000 + 384 * 1024, 0x20000000])
def test_what_does_not_lie_in_its_ram(address: int) -> None:
    board = boards.BOARDS["esp32c3"]
    with pytest.raises(InputError, match=f"another board: it is loaded at {address:#010x}, and esp32c3 has RAM at"):
        firmware_images.content(Path("f.elf"), elf((address, b"data")), "esptool", "esp32c3", board)
