"""Files of other kinds that ask for too much, lie, or are not what their name says: see the docstrings."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
from hostile.cases import IMAGE, Cases, dry, model
from onnx import helper
from PIL import Image

CASES = case = Cases()


@case
def device_model(folder: Path) -> list[str]:
    """A device in place of a model."""
    return ["convert", "/dev/zero", "--dry-run"]


@case
def sparse_model(folder: Path) -> list[str]:
    """Five gigabytes of nothing in place of a model."""
    with (folder / "m.onnx").open("wb") as file:
        file.truncate(5 * 10**9)
    return dry(folder / "m.onnx")


@case
def device_nmp(folder: Path) -> list[str]:
    """A device in place of a converted model."""
    return ["inspect", "/dev/zero"]


@case
def sparse_nmp(folder: Path) -> list[str]:
    """Five gigabytes of nothing in place of a converted model."""
    with (folder / "m.nmp").open("wb") as file:
        file.truncate(5 * 10**9)
    return ["inspect", str(folder / "m.nmp")]


# -- data -------------------------------------------------------------------------------------------------------------


def _calibrated(folder: Path, name: str, data: bytes, *flags: str) -> list[str]:
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    (folder / name).write_bytes(data)
    return ["convert", str(path), "--data", str(folder / name), "-o", str(folder / "out.nmp"), *flags]


@case
def postscript(folder: Path) -> list[str]:
    """An EPS that is called a PNG: Pillow would start Ghostscript."""
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(%pipe%touch ran) (w) file\n%%EOF\n"
    return _calibrated(folder, "a.png", text.encode())


@case
def many_pixels(folder: Path) -> list[str]:
    """A PNG of a hundred million pixels in a few kilobytes."""
    buffer = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(buffer, "PNG")
    return _calibrated(folder, "a.png", buffer.getvalue())


@case
def long_picture(folder: Path) -> list[str]:
    """A PNG of one by sixty million pixels, whose shorter side is to become eight."""
    buffer = io.BytesIO()
    Image.new("1", (60_000_000, 1)).save(buffer, "PNG")
    return _calibrated(folder, "a.png", buffer.getvalue(), "--resize", "shorter")


@case
def cut_picture(folder: Path) -> list[str]:
    """A PNG that is cut short."""
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, "PNG")
    return _calibrated(folder, "a.png", buffer.getvalue()[:500])


@case
def pipe_picture(folder: Path) -> list[str]:
    """A pipe that nobody writes to, called a list of files."""
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    os.mkfifo(folder / "list.csv")
    return ["convert", str(path), "--data", str(folder / "list.csv"), "-o", str(folder / "out.nmp")]


def _npy_header(text: str) -> bytes:
    body = text.encode("latin1").ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def _npz(folder: Path, entry: bytes, method: int = zipfile.ZIP_STORED, name: str = "x.npy") -> list[str]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, entry)
    return _calibrated(folder, "a.npz", buffer.getvalue())


@case
def lying_npz(folder: Path) -> list[str]:
    """An archive whose array says that it has 2^40 elements."""
    return _npz(folder, _npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**40},), }}") + bytes(64))


@case
def negative_npz(folder: Path) -> list[str]:
    """An archive whose array has a negative size."""
    return _npz(folder, _npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -4), }") + bytes(64))


@case
def bomb_npz(folder: Path) -> list[str]:
    """An archive that unpacks to three gigabytes, as its list says; what there is of them is a megabyte."""
    size = 3 * 2**30
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        header = _npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 4},), }}")
        archive.writestr("x.npy", header + bytes(2**20))
        archive.filelist[0].file_size = size
    return _calibrated(folder, "a.npz", buffer.getvalue())


@case
def strange_npz(folder: Path) -> list[str]:
    """An archive whose array has a type that is no Python."""
    return _npz(folder, _npy_header("{'descr': [(((((, 'fortran_order': False, 'shape': (4,), }") + bytes(64))


@case
def objects_npz(folder: Path) -> list[str]:
    """An archive with pickled objects, which could run anything."""
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([{}, []], dtype=object))
    return _calibrated(folder, "a.npz", buffer.getvalue())


@case
def method_npz(folder: Path) -> list[str]:
    """An archive with a compression that does not exist."""
    command = _npz(folder, _npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (16,), }") + bytes(64))
    data = bytearray((folder / "a.npz").read_bytes())
    data[8] = 77
    data[data.index(b"PK\x01\x02") + 10] = 77
    (folder / "a.npz").write_bytes(bytes(data))
    return command


@case
def bools_npy(folder: Path) -> list[str]:
    """An array of no dimension and of truth values."""
    buffer = io.BytesIO()
    np.save(buffer, np.array(True))
    return _calibrated(folder, "a.npy", buffer.getvalue())


@case
def encoded_npy(folder: Path) -> list[str]:
    """An array with a header that is not text."""
    return _calibrated(folder, "a.npy", b"\x93NUMPY\x03\x00\x10\x00\x00\x00" + bytes(range(128, 256)))


@case
def lying_npy(folder: Path) -> list[str]:
    """An array file whose header says 2^62 elements."""
    return _calibrated(
        folder, "a.npy", _npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**62}, 4), }}")
    )


@case
def large_npy(folder: Path) -> list[str]:
    """An array of doubles that no float32 holds, of which numpy would warn."""
    buffer = io.BytesIO()
    np.save(buffer, np.full(IMAGE, 1e300))
    return _calibrated(folder, "a.npy", buffer.getvalue())


@case
def huge_field(folder: Path) -> list[str]:
    """A table with one field of a megabyte."""
    return _calibrated(folder, "a.csv", b"file,label\n" + b"a" * 2**20 + b",1\n")


@case
def not_text(folder: Path) -> list[str]:
    """A table that is not text."""
    return _calibrated(folder, "a.csv", b"file\n\xff\xfe\x00.png\n")


@case
def many_labels(folder: Path) -> list[str]:
    """Two million class names, of which none has a letter."""
    (folder / "labels.txt").write_bytes(b"\n" * 2_000_000 + b"a")
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    return [*dry(path), "--labels", str(folder / "labels.txt")]


@case
def many_files(folder: Path) -> list[str]:
    """A table of two million files."""
    return _calibrated(folder, "a.csv", b"file\n" + b"a.png\n" * 2_000_000)


def _recipe(folder: Path, text: str) -> list[str]:
    (folder / "recipe.toml").write_text(text)
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    command = ["convert", str(path), "--data", str(folder / "a.png"), "-o", str(folder / "out.nmp")]
    return [*command, "--recipe", str(folder / "recipe.toml")]


@case
def dotted_key(folder: Path) -> list[str]:
    """A recipe with a key of thirty thousand parts, for which the reader of TOML takes memory by the square."""
    return _recipe(folder, f"a{'.a' * 30_000} = 1\n")


@case
def many_tables(folder: Path) -> list[str]:
    """A recipe of half a million tables."""
    return _recipe(folder, "".join(f"[a{i}]\n" for i in range(2_000_000)))


@case
def nested_arrays(folder: Path) -> list[str]:
    """A recipe of arrays in arrays in arrays."""
    return _recipe(folder, f"a = {'[' * 200_000}\n")


@case
def device_labels(folder: Path) -> list[str]:
    """A device in place of class names."""
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    return [*dry(path), "--labels", "/dev/zero"]


@case
def markup_name(folder: Path) -> list[str]:
    """A file whose name is markup and steers a terminal."""
    (folder / "[").mkdir()
    return _calibrated(folder, "[/x]\x1b[31m.png", b"no picture")


@case
def long_header(folder: Path) -> list[str]:
    """An array file whose header claims to be a gigabyte long."""
    return _calibrated(folder, "a.npy", b"\x93NUMPY\x02\x00" + (2**30).to_bytes(4, "little") + b"{'descr': '<f4'")


def _sound(folder: Path, bits: int, chunk: int) -> list[str]:
    """samples of so many bits; chunk: bytes that its first chunk claims."""
    fields = struct.pack("<HHIIHH", 1, 1, 8000, 8000 * bits // 8, bits // 8, bits)
    parts = b"WAVEnone" + struct.pack("<I", chunk) + b"fmt " + struct.pack("<I", len(fields)) + fields
    parts += b"data" + struct.pack("<I", 260) + bytes(260)
    (folder / "a.wav").write_bytes(b"RIFF" + struct.pack("<I", len(parts)) + parts)
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")], shape=(1, 1, 16, 8))
    audio = ["--audio", "rate=8000,window=16,hop=8,bands=8"]
    return ["convert", str(path), "--data", str(folder / "a.wav"), "-o", str(folder / "out.nmp"), *audio]


@case
def wide_samples(folder: Path) -> list[str]:
    """A sound of 520 bits a sample."""
    return _sound(folder, 520, 0)


@case
def chunk_beyond_the_end(folder: Path) -> list[str]:
    """A sound with a part that is longer than the file."""
    return _sound(folder, 16, 2**31)
