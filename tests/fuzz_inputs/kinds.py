"""Kinds of input that a person gives nmpconv: good files, and the code that reads them."""

from __future__ import annotations

import io
import json
import re
import struct
import sys
import tarfile
import wave
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import soundfile
import tflite_nets
from onnx_text import build
from PIL import Image
from verified import difference

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
import cli_files

from fuzz_inputs import devices, verifiers, wasm
from fuzz_inputs.damage import damaged
from nmpconv.api import project
from nmpconv.calib import profile
from nmpconv.conversion import recipes
from nmpconv.conversion.pipeline import Options, convert, plan
from nmpconv.data import audio, box_labels, images
from nmpconv.data.samples import open_samples
from nmpconv.device import unicorn_board
from nmpconv.errors import DeviceError, NmpError
from nmpconv.exporters import browser
from nmpconv.file import flatbuffer, reader
from nmpconv.ir import Preprocess

SHAPE = (1, 3, 8, 8)
PIXELS_MAX = 1 << 20
NETS = (
    "(float[1,4,6,6] x) => (y) <float[8,4,3,3] w> { a = Conv(x, w) b = Relu(a) y = MaxPool<kernel_shape=[2,2]>(b) }",
    "(float[1,12] x) => (y) <float[12,8] w> { a = MatMul(x, w) b = Softmax<axis=1>(a) y = Mul(b, b) }",
    "(float[1,4,6,6] x) => (y) { a = GlobalAveragePool(x) b = Flatten(a) c = Tanh(b) y = Concat<axis=1>(b, c) }",
)
RECIPE = """[convert]
bits = "8"
equalize = "scalar"
[tensors]
"a*" = { bits = 16, exponent = -12 }
[ops]
conv2d = { rounding = "nearest" }
"""
NAMED = """[tensors]
"x" = { bits = 16 }
"y" = { bits = 8, exponent = -5 }
"?" = { exponent = -5 }
[ops]
a = { per_tensor = true }
"""
PROJECT = """model = "model.onnx"
[data]
calibration = "images"
[gates]
min_sqnr = 15.0
max_ram = 65536
[targets.board]
bits = 8
target = "cortex-m4"
"""


@dataclass(frozen=True)
class Kind:
    """make: the good files, by ending. read: of one file; NmpError is its right to refuse. mutant: of good files; None:
    bytes are changed. missing: a tool that it needs and that is not here, or ''.
    """

    name: str
    make: Callable[[Path], dict[str, list[bytes]]]
    read: Callable[[Path], Any]
    mutant: Callable[[np.random.Generator, list[bytes]], bytes] | None = None
    missing: Callable[[], str] | None = None


def _saved(save: Callable[[Any], Any]) -> bytes:
    to = io.BytesIO()
    save(to)
    return to.getvalue()


def _models(folder: Path) -> dict[str, list[bytes]]:
    models = [build(net, 13).SerializeToString() for net in NETS]
    return {"onnx": [*models, cli_files.onnx_model().SerializeToString()]}


def _pictures(folder: Path) -> dict[str, list[bytes]]:
    pixels = np.random.default_rng(0).integers(0, 255, (9, 11, 4), np.uint8)
    pictures: dict[str, list[bytes]] = {}
    for kind in ("png", "jpeg", "bmp", "webp", "tiff", "gif", "ppm"):
        for mode in ("RGB", "L", "RGBA", "P"):
            try:
                picture = Image.fromarray(pixels).convert(mode)
                pictures.setdefault(kind, []).append(_saved(partial(picture.save, format=kind)))
            except OSError:  # no such mode in this format
                continue
    return pictures


def _arrays(folder: Path) -> dict[str, list[bytes]]:
    x = np.random.default_rng(0).normal(size=(2, *SHAPE[1:])).astype(np.float32)
    few = [x, x[0], x.astype(np.float64), np.asfortranarray(x), (x * 40 + 128).astype(np.uint8)]
    npz = [_saved(lambda to: np.savez(to, x=x)), _saved(lambda to: np.savez_compressed(to, x=x, labels=[0, 1]))]
    return {"npy": [_saved(lambda to, a=a: np.save(to, a)) for a in few], "npz": npz}  # type: ignore[misc]


def _lists(folder: Path) -> dict[str, list[bytes]]:
    cli_files.images(folder / "images", 3)
    names = [f"images/{path.name}" for path in sorted((folder / "images").iterdir()) if path.suffix == ".png"]
    rows = [f"{name},{i}" for i, name in enumerate(names)]
    places = {"images": [{"id": i, "file_name": name} for i, name in enumerate(names)]}
    marked = [{"image_id": i, "category_id": 3 * i} for i in range(len(names))]
    coco = {
        **places,
        "annotations": marked,
        "categories": [{"id": 3 * i, "name": f"kind {i}"} for i in range(len(names))],
    }
    labelled = [{"file": name, "label": i} for i, name in enumerate(names)]
    return {
        "csv": ["\n".join(["file,label", *rows]).encode(), "\n".join(["file", *names]).encode()],
        "json": [json.dumps(form).encode() for form in (dict(zip(names, range(3), strict=True)), labelled, coco)],
        "txt": ["\n".join(names).encode()],
    }


def _tables(folder: Path) -> dict[str, list[bytes]]:
    numbers = np.random.default_rng(0).normal(size=(8, 3)).round(3)
    rows = [",".join(map(str, row)) for row in numbers]
    timed = [f"{i * 0.02:.2f},{row},{i // 4}" for i, row in enumerate(rows)]
    return {
        "csv": ["\n".join(lines).encode() for lines in (rows, ["time,x,y,z,label", *timed])],
        "tsv": ["\n".join(["x,y,z", *rows]).replace(",", mark).encode() for mark in "\t;"],
    }


def _tflite(folder: Path) -> dict[str, list[bytes]]:
    nets = [tflite_nets.net(kind) for kind in ("float32", "float16", "dynamic", "int8", "int16")]
    sparse = [tflite_nets.by_rows("Uint16Vector"), tflite_nets.by_columns(), tflite_nets.by_blocks()]
    nets += [tflite_nets.with_sparse(x.shape, x[x != 0], sparsity) for x, sparsity in sparse]
    return {"tflite": [*nets, tflite_nets.choice(), tflite_nets.loop(tflite_nets.ELSE)]}


def _archives(folder: Path) -> dict[str, list[bytes]]:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    picture = _saved(partial(Image.fromarray(pixels).save, format="png"))
    table = b"file,label\na/1.png,0\nb/2.png,1\n"
    members = {"a/1.png": picture, "b/2.png": picture, "labels.csv": table}

    def zipped(to: Any, compression: int) -> None:
        with zipfile.ZipFile(to, "w", compression) as archive:
            for name, data in members.items():
                archive.writestr(name, data)

    def tarred(to: Any, mode: str) -> None:
        with tarfile.open(fileobj=to, mode=mode) as archive:  # type: ignore[call-overload]
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))

    zips = [_saved(partial(zipped, compression=kind)) for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)]
    return {"zip": zips, "tar": [_saved(partial(tarred, mode="w"))], "tgz": [_saved(partial(tarred, mode="w:gz"))]}


def _applied_recipes(folder: Path) -> dict[str, list[bytes]]:
    """Recipes with names that the model has, and with patterns of them."""
    (folder / "model.onnx").write_bytes(build(NETS[0], 13).SerializeToString())
    return {"toml": [text.encode() for text in (RECIPE.replace("conv2d", "a"), NAMED)]}


def _apply_recipe(path: Path) -> Any:
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 6)).astype(np.float32)
    options = Options(recipe=path)
    return convert(path.parent / "model.onnx", {"": x}, options, lambda *_: None)


def _boxes(folder: Path) -> dict[str, list[bytes]]:
    cli_files.images(folder / "images", 2)
    name = next(path.name for path in sorted((folder / "images").iterdir()) if path.suffix == ".png")
    coco = {
        "images": [{"id": 1, "file_name": name, "width": 8, "height": 8}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 2, "bbox": [1, 1, 3, 4], "iscrowd": 0}],
        "categories": [{"id": 2, "name": "ant"}],
    }
    return {"json": [json.dumps(coco).encode()]}


def _read_boxes(path: Path) -> Any:
    named = [str(image) for image in sorted((path.parent / "images").glob("*.png"))[:1]]
    return box_labels.read(path, named, (8, 8), Preprocess())


def _sounds(folder: Path) -> dict[str, list[bytes]]:
    def sound(channels: int, width: int) -> bytes:
        to = io.BytesIO()
        with wave.open(to, "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(width)
            file.setframerate(8000)
            file.writeframes(bytes(range(240)))
        return to.getvalue()

    def others(kind: str, subtype: str) -> bytes:
        to = io.BytesIO()
        soundfile.write(to, np.linspace(-1, 1, 120).reshape(-1, 2), 8000, subtype, format=kind)
        return to.getvalue()

    seeds = [sound(channels, width) for channels in (1, 2) for width in (1, 2, 3, 4)]
    return {"wav": [*seeds, others("WAV", "FLOAT"), others("WAV", "IMA_ADPCM"), others("WAVEX", "PCM_16")]}


def _profiles(folder: Path) -> dict[str, list[bytes]]:
    (folder / "model.onnx").write_bytes(build(NETS[0], 13).SerializeToString())
    x = np.random.default_rng(0).normal(size=(4, 4, 6, 6)).astype(np.float32)
    options = Options(save_profile=folder / "made", rounding="nearest", equalize="none")
    convert(folder / "model.onnx", {"": x}, options, lambda *_: None)
    return {"profile": [(folder / "made").read_bytes()]}


def _files(folder: Path) -> dict[str, list[bytes]]:
    return {"nmp": [cli_files.nmp_bytes()]}


def _wasm(folder: Path) -> dict[str, list[bytes]]:
    wasm.start(folder)
    return {"nmp": [data for data in verifiers.files() if b"samples.gate::" not in data]}  # it has no ops of users


def _mutant_page(rng: np.random.Generator, good: list[bytes]) -> bytes:
    """With the right checksum: the interpreter reads it first."""
    data = damaged(rng, good[rng.integers(len(good))], good)
    with suppress(NmpError, KeyError):  # no root table is left
        return flatbuffer.seal(data)
    return data


def _read_page(path: Path) -> None:
    """Names and labels of a file add no tag to its page."""
    data = path.read_bytes()
    with mock.patch.object(browser, "wasm", bytes):
        page = browser.page(path.name, reader.read(data), data)
    tags = [
        len(re.findall(tag, page)) for tag in ("(?i)<script", "(?i)</script", "(?i)<style", "(?i)<(?:img|iframe|!--)")
    ]
    assert tags == [4, 4, 1, 0], tags


def _firmware(folder: Path) -> dict[str, list[bytes]]:
    data = struct.pack("<18I", 0x20001000, *[0x49] * 17) + bytes.fromhex("30bffde7")  # it sleeps, and again
    header = b"\x7fELF\x01\x01" + bytes(22) + struct.pack("<I", 52) + bytes(10) + struct.pack("<HH", 32, 2) + bytes(6)
    places = ((84, 0x21000000, 8), (84, 0, len(data)))
    table = b"".join(struct.pack("<8I", 1, at + 32, 0, to, size, size, 5, 4) for at, to, size in places)
    return {"elf": [header + table + data]}


def _read_firmware(path: Path) -> None:
    """Into the memory of a board in Unicorn."""
    try:
        unicorn_board.Board("mps2-an386", path.read_bytes(), lambda data: None)
    except ValueError as error:
        raise DeviceError(str(error)) from None


def _read_nmp(path: Path) -> Any:
    """Files with the right checksum, so that more than the checksum is looked at; C and Python say the same."""
    data = path.read_bytes()
    with suppress(NmpError, KeyError):  # no root table is left
        data = flatbuffer.seal(data)
    path.write_bytes(data)
    return _read_verified(path)


def _read_verified(path: Path) -> Any:
    """NmpError where C and Python do not say the same."""
    data = path.read_bytes()
    if wrong := difference(data):
        raise NmpError(wrong)
    return reader.read(data)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("onnx", _models, lambda path: plan(path, Options(widths="strict"))),
        Kind("images", _pictures, lambda path: images.load(path, (8, 8, 3), Preprocess(), PIXELS_MAX)),
        Kind("arrays", _arrays, lambda path: [s.model_input(0) for s in [open_samples(path, SHAPE, None)]]),
        Kind("lists", _lists, lambda path: open_samples(path, SHAPE, Preprocess()).paths),
        Kind("tables", _tables, lambda path: [s.model_input(0) for s in [open_samples(path, (1, 3, 4), None)]]),
        Kind("archives", _archives, lambda path: [s.model_input(0) for s in [open_samples(path, SHAPE, Preprocess())]]),
        Kind("tflite", _tflite, lambda path: plan(path, Options(widths="strict"))),
        Kind("boxes", _boxes, _read_boxes),
        Kind("sounds", _sounds, lambda path: audio.read_wav(path, 8000)),
        Kind("profiles", _profiles, profile.load),
        Kind("recipes", lambda _: {"toml": [RECIPE.encode()]}, recipes.load),
        Kind("applied", _applied_recipes, _apply_recipe),
        Kind("projects", lambda _: {"toml": [PROJECT.encode()]}, project.read),
        Kind("nmp", _files, _read_nmp),
        Kind("verifiers", lambda _: {"nmp": verifiers.files()}, _read_verified, verifiers.mutant),
        Kind("wasm", _wasm, wasm.read, wasm.mutant, wasm.missing),
        Kind("pages", _files, _read_page, _mutant_page),
        Kind("device", lambda _: {"bytes": devices.good_files()}, devices.read),
        Kind("firmware", _firmware, _read_firmware, missing=lambda: "" if find_spec("unicorn") else "unicorn"),
    )
}
