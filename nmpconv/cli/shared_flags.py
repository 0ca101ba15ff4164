"""Flags of several commands, and flags whose text needs reading."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from nmpconv.base import files
from nmpconv.base.files import read_file, write_file
from nmpconv.conversion.keywords import FLAGS
from nmpconv.errors import InputError, NmpError, UsageError

SOURCE_HELP = (
    "a folder, .zip or .tar of images, a .csv (file,label, or numbers), a .txt list, a .npy, .npz, .pt or .h5, a .wav, "
    "or one image"
)
STREAM = Path("-")  # stdin in place of a file to read, stdout in place of one to write
STARTS = {b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz"}  # of files; other samples are images, whatever they are called

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL.nmp", help="The converted model; - is stdin.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]
DEVICE_NAME = "PORT[:baud]|tcp:HOST:PORT|sim:BOARD"
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar=DEVICE_NAME,
        help="On a device, auto: the one that answers; `nmpconv device list` shows what is here.",
        show_default=False,
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        min=0, max=86400, metavar="SECONDS", help="Wait so long for a device that starts, and for a port that is lost."
    ),
]
NoReset = Annotated[
    bool,
    typer.Option("--no-reset", help="Leave DTR and RTS of a serial port unset; default: by its USB vendor."),
]
Baud = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="RATE",
        help="Most bits a second to agree on with a board at a serial port; default: the most that both have.",
        show_default=False,
    ),
]
Cpu = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help="Force a CPU level, e.g. portable; default: $NMP_CPU or the best."),
]

Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="Compute with up to N threads, 0: one per core; default: $NMP_THREADS or 1."),
]
Workers = Annotated[
    str | None,
    typer.Option(
        metavar=FLAGS["workers"].metavar,
        help=FLAGS["workers"].help,
        show_default=False,
    ),
]
MaxPixels = Annotated[
    int | None,
    typer.Option(
        min=FLAGS["max_pixels"].low,
        max=FLAGS["max_pixels"].high,
        metavar=FLAGS["max_pixels"].metavar,
        help=FLAGS["max_pixels"].help,
        show_default=False,
    ),
]


class TargetChoice(str, Enum):
    HOST = "host"
    CORTEX_M0PLUS = "cortex-m0plus"
    CORTEX_M3 = "cortex-m3"
    CORTEX_M4 = "cortex-m4"
    CORTEX_M55 = "cortex-m55"
    RV32 = "rv32"


class DecoderChoice(str, Enum):
    NANODET = "nanodet"
    ULTRAFACE = "ultraface"
    YOLOV5 = "yolov5"
    YOLOV8 = "yolov8"
    YOLOX = "yolox"
    YUNET = "yunet"


DecoderName = Annotated[DecoderChoice | None, typer.Option(help="What boxes are read from the outputs as.")]


def value(choice: Enum | None) -> Any:
    """As the functions of nmpconv take it."""
    return None if choice is None else choice.value


def file_or_stdin(model: Path) -> Path | bytes:
    """A file to read as the functions of nmpconv take it: its path, or the bytes of stdin. Raises InputError."""
    if model != STREAM:
        return model
    data = sys.stdin.buffer.read()
    if not data:
        raise InputError("is empty", where="stdin")
    return data


def content(source: Path | bytes) -> bytes:
    """The bytes of what `file_or_stdin` returned. Raises InputError."""
    return source if isinstance(source, bytes) else read_file(source)


@contextmanager
def samples(values: Sequence[str]) -> Iterator[list[str]]:
    """[NAME=]SOURCE, with a temporary file in place of a - for stdin: an image, a .npy, a .npz or a .wav."""
    streams = [value for value in values if value.rpartition("=")[2] == str(STREAM)]
    if len(streams) > 1:
        raise UsageError(f"{len(streams)} sources are stdin; one can be", where="SOURCE")
    if not streams:
        yield list(values)
        return
    import tempfile

    data = content(file_or_stdin(STREAM))
    wave = data[:4] == b"RIFF" and data[8:12] == b"WAVE"
    suffix = ".wav" if wave else next((suffix for start, suffix in STARTS.items() if data.startswith(start)), ".png")
    with tempfile.TemporaryDirectory(prefix="nmpconv-") as folder:
        path = Path(folder) / f"stdin{suffix}"
        path.write_bytes(data)
        try:
            yield [value[: -len(str(STREAM))] + str(path) if value in streams else value for value in values]
        except NmpError as error:
            error.where = error.where.replace(str(path), "stdin")
            raise


def stem(model: Path) -> str:
    """Stem of the names of files that are made of a model."""
    return "model" if model == STREAM else model.stem


def write(path: Path, data: bytes) -> None:
    """A file, or stdout. Raises OutputError."""
    if path == STREAM:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write_file(path, data)


def sources(values: Sequence[str], flag: str) -> dict[str, Path]:
    """SOURCE, or any number of NAME=SOURCE, by input name; '' for the model's only input."""
    paths: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        # A path may hold '='; an input's name before it holds no '/', or the path does not exist as it stands. Behind
        # '@' there are windows of a table.
        if not equals or "@" in name or Path(value).exists():
            name, path = "", value
        if not path:
            raise UsageError(f"{value!r} names no source", where=flag, hint=f"give {flag} NAME=SOURCE")
        if name in paths:
            message = f"input {name!r} has two sources" if name else f"{paths['']} and {path}: which input is which?"
            raise UsageError(message, where=flag, hint=f"give {flag} NAME=SOURCE once per input")
        paths[name] = Path(path)
    if "" in paths and len(paths) > 1:
        raise UsageError(f"{paths['']} has no input name, but others have", where=flag, hint=f"give {flag} NAME=SOURCE")
    return paths


def check_output(path: Path, *inputs: Path, json: bool = False) -> None:
    """Refuses, before any work, a path that nothing can be written to, or that is one of the inputs.

    json: stdout is for that.
    """
    if path == STREAM:
        if json:
            raise UsageError("the file and --json both want stdout", where="-o -", hint="name a file")
        if sys.stdout.isatty():
            raise UsageError("stdout is a terminal, and this is no text", where="-o -", hint="name a file, or pipe it")
        return
    files.check_output(path)
    for source in inputs:
        if path.exists() and source.exists() and path.samefile(source):
            raise UsageError("would overwrite its own input", where=str(path), hint="give another -o")
