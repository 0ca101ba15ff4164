"""Whatever is handed in: a message that names it, the right exit code, nothing on stdout and nothing left behind."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shlex
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cli_files
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from nmpconv.errors import ExitCode
from nmpconv.file import flatbuffer

CONVERT = "convert model.onnx --data images"


class Case(NamedTuple):
    """A mistake, made in a folder with model.onnx, model.nmp and images/, and the message that is expected."""

    id: str
    make: Callable[[], object]
    command: str
    code: ExitCode
    says: tuple[str, ...]


def nothing() -> None:
    """The folder as it is."""


def save(model: onnx.ModelProto) -> None:
    onnx.save(model, "model.onnx")


def cut(path: str, keep: float) -> None:
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: int(len(data) * keep)])


def flip(path: str, at: float) -> None:
    data = bytearray(Path(path).read_bytes())
    data[int(len(data) * at)] ^= 0x10
    Path(path).write_bytes(bytes(data))


def write(path: str, content: str | bytes) -> None:
    Path(path).write_bytes(content.encode() if isinstance(content, str) else content)


def newer() -> None:
    write("model.nmp", flatbuffer.pack({**flatbuffer.unpack(cli_files.nmp_bytes()), "major": 9, "minor": 3}))


def dynamic() -> None:
    model = cli_files.onnx_model()
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "width"
    save(model)


def two_odd_nodes() -> None:
    model = cli_files.onnx_model(extra="RandomNormalLike")
    model.graph.node.append(helper.make_node("RandomUniformLike", ["logits"], ["z"], "odd_too"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3]))
    save(model)


def outside_data() -> None:
    model = cli_files.onnx_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.bin")
    write("model.onnx", model.SerializeToString())


def odd_pixels(kind: str) -> None:
    Path("odd").mkdir()
    Image.fromarray(np.full((8, 8), 9e4).astype(kind)).save("odd/0.tiff")


def gigantic() -> None:
    """A PNG whose header claims more pixels than Pillow opens."""
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)), (b"IDAT", b""), (b"IEND", b"")):
        content += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    write("images/03.png", content)


def saved_model() -> None:
    Path("saved").mkdir()
    write("saved/saved_model.pb", b"\x08\x01\x12\x00")


# Files that people take for a model, by what the hint calls them.
NO_MODELS = [
    Case(f"named-as-{id}", lambda data=data: write("model.onnx", data), CONVERT, ExitCode.INPUT, ("not an ONNX", words))
    for id, data, words in [
        ("git-lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "git lfs pull"),
        ("web-page", b"<!DOCTYPE html><html>404", "a web page"),
        ("gzip", gzip.compress(b"model"), "gunzip"),
        ("pickle", b"\x80\x04\x95", "a pickle"),
        ("safetensors", struct.pack("<Q", 20) + b'{"__metadata__":{}}', "weights and no graph"),
        ("gguf", b"GGUF\3\0\0\0", "weights and no graph"),
        ("openvino", b"<?xml version='1.0'?><net name='x'></net>", "OpenVINO"),
        ("ort", b"\x24\0\0\0ORTM", "an ORT file"),
        ("keras-h5", b"\x89HDF\r\n\x1a\n", "HDF5"),
    ]
]

ONNX = [
    *NO_MODELS,
    Case("saved-model", saved_model, "convert saved --data images", ExitCode.INPUT, ("saved", "ONNX of a SavedModel")),
    Case(
        "frozen-graph",
        lambda: write("model.pb", b"\n\x10\n\x01x\x12\x0bPlaceholder"),
        "convert model.pb --data images",
        ExitCode.INPUT,
        ("holds no graph", "tf2onnx"),
    ),
    Case("missing", lambda: Path("model.onnx").unlink(), CONVERT, ExitCode.INPUT, ("No such file", "current folder")),
    Case("empty", lambda: write("model.onnx", b""), CONVERT, ExitCode.INPUT, ("model.onnx", "not an ONNX model")),
    Case("garbage", lambda: write("model.onnx", b"\xff" * 99), CONVERT, ExitCode.INPUT, ("not an ONNX model",)),
    Case("nmp", lambda: write("model.onnx", cli_files.nmp_bytes()), CONVERT, ExitCode.INPUT, ("a .nmp file, which",)),
    Case("named-nmp", nothing, "convert model.nmp --data images", ExitCode.USAGE, ("converted already", "-o")),
    Case(
        "channels-last",
        lambda: np.save("x.npy", np.zeros((9, 8, 8, 3), np.float32)),
        "convert model.onnx --data x.npy -o m.nmp",
        ExitCode.INPUT,
        ("[8, 8, 3]", "[1, 3, 8, 8]", "in another order: x.transpose(2, 0, 1) of a sample"),
    ),
    Case("torch", lambda: write("model.onnx", b"PK\3\4."), CONVERT, ExitCode.INPUT, ("torch.onnx.export",)),
    Case("tflite", lambda: write("model.onnx", b"\x1c\0\0\0TFL3"), CONVERT, ExitCode.INPUT, ("damaged or cut TFLite",)),
    Case("truncated", lambda: cut("model.onnx", 0.6), CONVERT, ExitCode.INPUT, ("model.onnx", "not an ONNX model")),
    Case(
        "a-folder",
        nothing,
        "convert images --data images",
        ExitCode.INPUT,
        ("images", "Is a directory", "samples is given by --data"),
    ),
    Case("nan", lambda: save(cli_files.onnx_model(weight=np.nan)), CONVERT, ExitCode.INPUT, ("NaN",)),
    Case(
        "inf", lambda: save(cli_files.onnx_model(weight=np.inf)), CONVERT, ExitCode.UNSUPPORTED, ("infinity", "finite")
    ),
    Case("dynamic", dynamic, CONVERT, ExitCode.USAGE, ("'x'", "3 (width)", "--input-shape x=1x3x8x")),
    Case("data-outside", outside_data, CONVERT, ExitCode.INPUT, ("../weights.bin", "model's folder")),
    Case(
        "unsupported",
        two_odd_nodes,
        CONVERT,
        ExitCode.UNSUPPORTED,
        ("2 node(s) cannot be converted", "odd_one (RandomNormalLike)", "odd_too (RandomUniformLike)"),
    ),
    Case("no-such-output", nothing, f"{CONVERT} --outputs logit", ExitCode.USAGE, ("'logit'", "logits")),
    Case("no-such-input", nothing, f"{CONVERT} --input-shape z=1x3", ExitCode.USAGE, ("'z'", "inputs: x")),
]

CALIBRATION = [
    Case("gigantic", gigantic, CONVERT, ExitCode.INPUT, ("03.png", "3600000000 pixels", "67108864 are allowed")),
    Case(
        "float-pixels",
        lambda: odd_pixels("float32"),
        "convert model.onnx --data odd",
        ExitCode.INPUT,
        ("odd/0.tiff", "float pixels"),
    ),
    Case(
        "levels",
        lambda: odd_pixels("int32"),
        "convert model.onnx --data odd",
        ExitCode.INPUT,
        ("odd/0.tiff", "0 to 65535 are allowed"),
    ),
    Case(
        "pattern",
        nothing,
        "convert model.onnx --data images/*.png",
        ExitCode.INPUT,
        ("images/*.png", "give the folder: images"),
    ),
    Case(
        "two-levels-deep",
        lambda: os.renames("images", "a/b"),
        "convert model.onnx --data .",
        ExitCode.INPUT,
        ("one level deeper", "allowed: .bmp"),
    ),
    Case(
        "array-empty",
        lambda: np.save("a.npy", np.zeros((0, 3, 8, 8), np.float32)),
        "convert model.onnx --data a.npy",
        ExitCode.INPUT,
        ("a.npy", "holds no samples"),
    ),
    Case(
        "array-of-objects",
        lambda: np.save("a.npy", np.array([{}, {}]), allow_pickle=True),
        "convert model.onnx --data a.npy",
        ExitCode.INPUT,
        ("a.npy", "objects of Python"),
    ),
    Case(
        "labels-of-another-count",
        lambda: np.savez("a.npz", x=np.ones((6, 3, 8, 8), np.float32), labels=np.zeros(5, int)),
        "convert model.onnx --data a.npz",
        ExitCode.INPUT,
        ("a.npz", "labels of int64 [5]", "[6]"),
    ),
    Case("none", nothing, "convert model.onnx", ExitCode.USAGE, ("--data",)),
    Case("missing", nothing, "convert model.onnx --data nowhere", ExitCode.INPUT, ("no such file", "current folder")),
    Case(
        "empty", lambda: Path("bare").mkdir(), "convert model.onnx --data bare", ExitCode.INPUT, ("bare", "no samples")
    ),
    Case("garbage-image", lambda: write("images/03.png", "hello"), CONVERT, ExitCode.INPUT, ("03.png", "readable")),
    Case("cut-image", lambda: cut("images/03.png", 0.5), CONVERT, ExitCode.INPUT, ("03.png", "not a readable image")),
    Case("channels", lambda: save(cli_files.onnx_model(channels=4)), CONVERT, ExitCode.INPUT, ("1x4x8x8", "channels")),
    Case(
        "array-channels",
        lambda: np.save("a.npy", np.zeros((5, 4, 8, 8), np.float32)),
        "convert model.onnx --data a.npy",
        ExitCode.INPUT,
        ("[4, 8, 8]", "[1, 3, 8, 8]"),
    ),
    Case(
        "array-nan",
        lambda: np.save("a.npy", np.full((5, 3, 8, 8), np.nan, np.float32)),
        "convert model.onnx --data a.npy",
        ExitCode.INPUT,
        ("a.npy", "NaN"),
    ),
    Case(
        "list-dead-path",
        lambda: write("list.txt", "images/00.png\nimages/99.png\n"),
        "convert model.onnx --data list.txt",
        ExitCode.INPUT,
        ("list.txt", "1 of 2 files", "line 2: images/99.png"),
    ),
    Case(
        "csv-dead-path",
        lambda: write("set.csv", "file,label\nnone.png,1\n"),
        "convert model.onnx --data set.csv",
        ExitCode.INPUT,
        ("set.csv", "none.png"),
    ),
    Case(
        "csv-bad-label",
        lambda: write("images/labels.csv", "file,label\n00.png,cat\n"),
        "convert model.onnx --data images/labels.csv",
        ExitCode.INPUT,
        ("labels.csv:2", "'cat'"),
    ),
    Case(
        "size",
        lambda: Image.new("RGB", (9, 8)).save("images/00.png"),
        f"{CONVERT} --resize none",
        ExitCode.INPUT,
        ("00.png", "9x8", "--resize"),
    ),
    Case("wrong-name", nothing, "convert model.onnx --data z=images", ExitCode.USAGE, ("'z'", "x")),
    Case("twice", nothing, f"{CONVERT} --data images", ExitCode.USAGE, ("NAME=SOURCE",)),
    Case("no-profile", nothing, "convert model.onnx --load-profile p.txt", ExitCode.INPUT, ("p.txt",)),
    Case(
        "garbage-profile",
        lambda: write("p.txt", b"\x00\xff{"),
        "convert model.onnx --load-profile p.txt",
        ExitCode.INPUT,
        ("p.txt",),
    ),
]

FLAGS = [
    Case("data-unnamed", nothing, "convert model.onnx images", ExitCode.USAGE, ("more arguments", "--data SOURCE")),
    Case(
        "data-expanded",
        nothing,
        "convert model.onnx --data images/00.png images/01.png images/02.png",
        ExitCode.USAGE,
        ("images/01.png images/02.png", "takes a folder"),
    ),
    Case("mean-spaces", nothing, f"{CONVERT} --mean 0.4 0.5 1e-3", ExitCode.USAGE, ("0.5 1e-3", "commas")),
    Case("one-hyphen", nothing, "convert model.onnx -data images", ExitCode.USAGE, ("no option -data", "mean --data?")),
    Case("help", nothing, "help", ExitCode.USAGE, ("'help'", "nmpconv -h")),
    Case("version", nothing, "version", ExitCode.USAGE, ("'version'", "nmpconv --version")),
    Case("quantize", nothing, "quantize model.onnx", ExitCode.USAGE, ("'quantize'", "nmpconv convert")),
    Case("model-alone", nothing, "model.onnx", ExitCode.USAGE, ("nmpconv convert model.onnx",)),
    Case("file-alone", nothing, "model.nmp", ExitCode.USAGE, ("nmpconv inspect model.nmp",)),
    Case(
        "flag-of-another",
        nothing,
        "eval model.nmp --data images --labels l.txt",
        ExitCode.USAGE,
        ("no option --labels", "nmpconv convert has it"),
    ),
    Case("mean-count", nothing, f"{CONVERT} --mean 1,2", ExitCode.USAGE, ("--mean", "1 or 3")),
    Case("mean-text", nothing, f"{CONVERT} --mean high", ExitCode.USAGE, ("--mean", "'high'")),
    Case("mean-nan", nothing, f"{CONVERT} --mean nan", ExitCode.USAGE, ("--mean", "finite")),
    Case("std-zero", nothing, f"{CONVERT} --std 0", ExitCode.USAGE, ("--std", "above 0")),
    Case("crop", nothing, f"{CONVERT} --resize letterbox --crop 0.5", ExitCode.USAGE, ("--crop",)),
    Case("widths", nothing, f"{CONVERT} --strict --precise", ExitCode.USAGE, ("--strict",)),
    Case("strict-16", nothing, f"{CONVERT} --strict --bits 16", ExitCode.USAGE, ("--bits 8",)),
    Case("bits", nothing, f"{CONVERT} --bits 12", ExitCode.USAGE, ("--bits", "a16w8")),
    Case("value-text", nothing, f"{CONVERT} --input-value x", ExitCode.USAGE, ("--input-value", "sr=16000")),
    Case("no-such-value", nothing, f"{CONVERT} --input-value z=1", ExitCode.USAGE, ("--input-value", "inputs: x")),
    Case("shape-text", nothing, f"{CONVERT} --input-shape x=1xcx8", ExitCode.USAGE, ("--input-shape", "x=1xcx8")),
    Case("labels", nothing, f"{CONVERT} --labels none.txt", ExitCode.INPUT, ("none.txt",)),
    Case("command", nothing, "convrt model.onnx", ExitCode.USAGE, ("convrt",)),
    Case("ops-two-formats", nothing, "ops --json --markdown", ExitCode.USAGE, ("--markdown",)),
]

OUTPUT = [
    Case("no-folder", nothing, f"{CONVERT} -o no/m.nmp", ExitCode.OUTPUT, ("no/m.nmp", "does not exist")),
    Case("a-folder", nothing, f"{CONVERT} -o images", ExitCode.OUTPUT, ("images", "is a folder")),
    Case("a-device", nothing, f"{CONVERT} -o /dev/full", ExitCode.OUTPUT, ("/dev/full", "regular file")),
    Case("itself", nothing, f"{CONVERT} -o model.onnx", ExitCode.USAGE, ("model.onnx", "own input")),
    Case("profile", nothing, f"{CONVERT} --save-profile no/p.txt", ExitCode.OUTPUT, ("no/p.txt",)),
]

NMP = [
    Case(f"{id}-{command.split()[0]}", make, command, code, says)
    for command in (
        "inspect model.nmp",
        "report model.nmp",
        "page model.nmp",
        "export model.nmp",
        "bundle model.nmp -o c",
        "run model.nmp images/00.png",
        "eval model.nmp --data images",
        "bench model.nmp",
    )
    for id, make, code, says in [
        ("missing", lambda: Path("model.nmp").unlink(), ExitCode.INPUT, ("model.nmp", "No such file")),
        ("empty", lambda: write("model.nmp", b""), ExitCode.MODEL, ("model.nmp", "not a .nmp file")),
        ("text", lambda: write("model.nmp", "hello " * 99), ExitCode.MODEL, ("not a .nmp file", "nmpconv convert")),
        ("truncated", lambda: cut("model.nmp", 0.7), ExitCode.MODEL, ("model.nmp",)),
        ("cut-short", lambda: cut("model.nmp", 0.01), ExitCode.MODEL, ("model.nmp",)),
        ("flipped-data", lambda: flip("model.nmp", 0.5), ExitCode.MODEL, ("model.nmp", "damaged or truncated")),
        ("flipped-end", lambda: flip("model.nmp", 0.99), ExitCode.MODEL, ("model.nmp", "damaged or truncated")),
        ("newer", newer, ExitCode.MODEL, ("model.nmp", "9.3", "1.x")),
    ]
]

RUN = [
    Case("no-image", nothing, "run model.nmp nowhere.png", ExitCode.INPUT, ("nowhere.png", "no such file")),
    Case(
        "floats-for-pixels",
        lambda: np.save("a.npy", np.full((3, 8, 8), 1e4, np.float32)),
        "run model.nmp a.npy",
        ExitCode.INPUT,
        ("x", "most are no pixels", "uint8"),
    ),
    Case("swapped", nothing, "run images/00.png model.nmp", ExitCode.USAGE, ("the model comes first",)),
    Case("csv", nothing, "run model.nmp images/00.png -o a.csv", ExitCode.USAGE, ("a.csv", "as an .npz")),
    Case("input-name", nothing, "run model.nmp z=images/00.png", ExitCode.USAGE, ("'z'", "NAME=SOURCE")),
    Case("cpu", nothing, "run model.nmp images/00.png --cpu abacus", ExitCode.USAGE, ("'abacus'", "portable")),
    Case("no-data", nothing, "eval model.nmp --data nowhere", ExitCode.INPUT, ("nowhere",)),
    Case(
        "labels-range",
        nothing,
        "eval model.nmp --data images/labels.csv --label-offset 1",
        ExitCode.INPUT,
        ("class 3", "0 to 2", "--label-offset"),
    ),
    Case(
        "other-reference",
        lambda: onnx.save(_renamed(), "other.onnx"),
        "eval model.nmp --data images --reference other.onnx",
        ExitCode.INPUT,
        ("other.onnx", "no input 'x'"),
    ),
    Case(
        "cut-reference",
        lambda: cut("model.onnx", 0.5),
        "eval model.nmp --data images --reference model.onnx",
        ExitCode.INPUT,
        ("model.onnx", "not an ONNX model"),
    ),
    Case("npz-no-folder", nothing, "run model.nmp images/00.png -o no/a.npz", ExitCode.OUTPUT, ("no/a.npz",)),
]


def _renamed() -> onnx.ModelProto:
    model = cli_files.onnx_model()
    model.graph.input[0].name = model.graph.node[0].input[0] = "picture"
    return model


GROUPS = {"onnx": ONNX, "calibration": CALIBRATION, "flags": FLAGS, "output": OUTPUT, "nmp": NMP, "run": RUN}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{group}/{case.id}") for group, cases in GROUPS.items() for case in cases]
)
def test_bad_input(cli, case: Case) -> None:
    case.make()
    ran = cli(*case.command.split())
    assert (ran.code, [text for text in case.says if text not in ran.err]) == (case.code, []), ran.err
    assert ran.out == "" or ("--json" in case.command and list(ran.json) == ["schema", "error"])
    assert ran.left == []
    assert "Traceback" not in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_full_disk(here: Path, extra: tuple[str, ...]) -> None:
    """The file system refuses to let the file grow: the older file stays, no half or temporary file appears."""
    write("tiny.nmp", "older")
    before = sorted(here.rglob("*"))
    command = [sys.executable, "-m", "nmpconv", *CONVERT.split(), "-o", "tiny.nmp", *extra]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))  # noqa: E731
    kept = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # or half a file of it would stay for those after
    ran = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, env=kept)
    assert ran.returncode == ExitCode.OUTPUT, ran.stderr
    assert "tiny.nmp: cannot write: File too large" in ran.stderr
    assert ran.stdout == "" or list(json.loads(ran.stdout)) == ["schema", "error"]
    assert sorted(here.rglob("*")) == before
    assert Path("tiny.nmp").read_text() == "older"


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_stdout_that_is_full(here: Path, extra: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "nmpconv", "inspect", "model.nmp", *extra]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == ExitCode.OUTPUT
    assert ran.stderr == "error: stdout: No space left on device\n"
    assert "Traceback" not in ran.stderr


def test_reader_that_leaves(here: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m nmpconv ops --json | head -c 1"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert ran.stderr == ""
