"""The model file: parsed, its weights loaded from inside its own folder, its opset known."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import ExternalDataInfo

from nmpconv.base.files import BYTES_MAX, read_file
from nmpconv.errors import InputError
from nmpconv.frontend import (
    fixed_batch,
    framework_operators,
    input_values,
    integer_operators,
    local_functions,
    polynomial_features,
    sparse_tensors,
    tflite,
)
from nmpconv.frontend.local_functions import repeated
from nmpconv.frontend.toposort import name_apart, sort

OPSET_MIN = 7
OPSET_MAX = onnx.defs.onnx_opset_version()
DEFAULT_DOMAINS = ("", "ai.onnx")
LINKS_READ = 40  # from a model to the file behind it: Linux follows no more
# Bytes from a place on that mark other files, and what to do with such a one.
OTHERS: tuple[tuple[int, bytes | tuple[bytes, ...], str], ...] = (
    (4, b"NMP1", "this is a .nmp file, which is converted already; nmpconv inspect shows it"),
    (0, b"\x89HDF", "this is an HDF5 file, as of Keras; tf2onnx makes an ONNX model of a Keras model"),
    (0, b"PK\x03\x04", "this is a ZIP file, as of torch.save or Keras; torch.onnx.export or tf2onnx makes ONNX of it"),
    (4, b"ORTM", "this is an ORT file; give the ONNX model that it was made of"),
    (0, b"version https://git-lfs", "this is a pointer of Git LFS; git lfs pull fetches the file"),
    (0, b"\x1f\x8b", "this is compressed by gzip; gunzip it"),
    (
        0,
        (b"<!DOCTYPE", b"<!doctype", b"<html"),
        "this is a web page, as a failed download leaves it; download it again",
    ),
    (0, b"<?xml", "this is XML, as of OpenVINO; give the ONNX model that it was made of"),
    (0, b"GGUF", "this is a GGUF file: weights and no graph; export the model to ONNX where it was trained"),
    (
        0,
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "this is a pickle: objects of Python; build the model there, and export it to ONNX",
    ),
    (8, b'{"', "this is a safetensors file: weights and no graph; export the model to ONNX where it was trained"),
)
# Of a file or folder of TensorFlow.
SAVED_MODEL = "saved_model.pb"
OF_TENSORFLOW = "tf2onnx makes ONNX of {}, and TensorFlow's own converter a .tflite file"
# What torch writes is ZIP files; names in them tell which.
OF_TORCH = (
    (b"/code/__torch__", "this is TorchScript; torch.onnx.export of the module in Python makes ONNX of it"),
    (
        b"/archive_format",
        "this is a program of torch.export; only `nmpconv convert` reads it, where its name ends in .pt2",
    ),
    (
        b"/data.pkl",
        "this is what torch.save writes: parameters, or a module, and no graph; build the module in Python, then "
        "nmpconv.convert(module, data), or torch.export.save(torch.export.export(module, (x,)), 'model.pt2')",
    ),
)


def read(
    path: str | os.PathLike[str],
    values: input_values.Values | None = None,
    shapes: input_values.Shapes | None = None,
    *,
    on_reals: bool = True,
) -> onnx.ModelProto:
    """The model with all weights in memory and dense, nodes in order, local functions inlined, the branches of an If
    taken that constants decide, and operators of frameworks, products of features and operators on integers rewritten
    (`framework_operators`, `polynomial_features`, `integer_operators`).

    values: of inputs that become constants; shapes: of inputs with dynamic dimensions. on_reals: False keeps operators
    on integers. Raises InputError for no such file, UsageError for values that do not fit.
    """
    file = Path(path)
    if file.is_dir():
        saved = OF_TENSORFLOW.format("a SavedModel") if (file / SAVED_MODEL).is_file() else ""
        hint = saved or "the model is a file; a folder of samples is given by --data"
        raise InputError("cannot be read: Is a directory", where=str(path), hint=hint)
    model = _parsed(read_file(file), str(path))
    if not model.ir_version or not model.graph.output:
        hint = OF_TENSORFLOW.format("a graph of TensorFlow") if file.suffix.lower() == ".pb" else ""
        raise InputError("not an ONNX model: it holds no graph with outputs", where=str(path), hint=hint)
    if (text := _not_text(model)) is not None:
        raise InputError(f"not an ONNX model: it has a name that is no UTF-8, {text!r}", where=str(path))
    sparse_tensors.fill(model, str(path))
    if repeated(output.name for output in model.graph.output):  # torch's form of a module that returns a tensor twice
        once = {output.name: output for output in model.graph.output}
        del model.graph.output[:]
        model.graph.output.extend(once.values())
    for role, named in {"input": model.graph.input, "initializer": model.graph.initializer}.items():
        if twice := repeated(port.name for port in named):
            raise InputError(f"its {role} '{twice}' is there twice", where=str(path), hint="names of their own")
    local_functions.check(model, str(path))
    sort(model, str(path))
    if model.functions:
        model = local_functions.inlined(model, str(path))
    input_values.fix(model, values or {}, shapes or {})
    input_values.take_branches(model, opset(model, str(path)), str(path))
    room = BYTES_MAX
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            room -= _load_external(tensor, _folders(file), str(path), room)
    fixed_batch.follow(model, shapes or {})
    framework_operators.rewrite(model.graph, opset(model, str(path)))
    polynomial_features.rewrite(model.graph, str(path))
    if on_reals:
        integer_operators.rewrite(model.graph, str(path))
    else:
        integer_operators.fill_places(model.graph)
    name_apart(model.graph.node)
    return model


def _parsed(data: bytes, where: str) -> onnx.ModelProto:
    """An ONNX file's model, or that of a TFLite file."""
    if tflite.is_tflite(data):
        return tflite.to_onnx(data, where)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf raises DecodeError; which protobuf is onnx's business
        raise InputError(
            "not an ONNX model, or one that is damaged or cut short", where=where, hint=hint_for(data)
        ) from error
    return model


def external_files(path: Path) -> list[Path]:
    """The files that hold tensors of an ONNX model; none for what is no model. They are not opened."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(read_file(path))
    except Exception:  # `read` says what is wrong with it
        return []
    external = [tensor for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    names = {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}
    return [file for name in sorted(names) if (file := _in_first(_folders(path), name)).is_file()]


def opset(model: onnx.ModelProto, where: str) -> int:
    """The version of the default domain, the newest where no node needs one; InputError outside of
    OPSET_MIN..OPSET_MAX."""
    versions = [int(entry.version) for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS]
    if not versions and model.graph.node and not any(node.domain in DEFAULT_DOMAINS for node in model.graph.node):
        return OPSET_MAX
    if not versions:
        raise InputError("names no ONNX opset", where=where)
    if not OPSET_MIN <= versions[0] <= OPSET_MAX:
        raise InputError(
            f"has opset {versions[0]}; {OPSET_MIN} to {OPSET_MAX} can be read",
            where=where,
            hint="export it with another opset, or use onnx.version_converter",
        )
    return versions[0]


def hint_for(data: bytes) -> str:
    """Advice for bytes that are no ONNX model."""
    if data.startswith(b"PK") and (of_torch := next((words for mark, words in OF_TORCH if mark in data), "")):
        return of_torch
    known = (words for start, mark, words in OTHERS if data.startswith(mark, start))
    return next(known, "export or download it again")


def _not_text(message: Any) -> bytes | None:
    """A string in a message or in a part of it that is no text: protobuf gives its bytes."""
    for field, value in message.ListFields():
        if field.type in (field.TYPE_STRING, field.TYPE_MESSAGE):
            for part in [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value:
                text = part if field.type == field.TYPE_STRING else _not_text(part)
                if isinstance(text, bytes):
                    return text
    return None


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initializers and the tensors in attributes."""
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t


def _folders(file: Path) -> list[Path]:
    """The folders that external data may lie in: the model's, and where the model is a link, as in caches of downloads,
    those of the further links and of the file behind them, the nearest first."""
    folders, step = [file.parent.resolve()], file
    for _ in range(LINKS_READ):
        if not step.is_symlink():
            break
        step = step.parent / os.readlink(step)
        folders.append(step.parent.resolve())
    return list(dict.fromkeys([*folders, file.resolve().parent]))


def _in_first(folders: Sequence[Path], name: str) -> Path:
    """A file in the first of the folders that has it; in the first folder where none has."""
    paths = [folder / name for folder in folders]
    return next((path for path in paths if path.exists()), paths[0])


def _load_external(tensor: onnx.TensorProto, folders: Sequence[Path], where: str, room: int) -> int:
    """Moves the tensor's bytes into the tensor; only regular files inside of the folders are opened.

    room: the most bytes that it may have. Returns how many it has.
    """

    def refuse(problem: str, hint: str = "external data must lie in the model's folder") -> InputError:
        return InputError(f"tensor '{tensor.name}' {problem}", where=where, hint=hint)

    try:
        info = ExternalDataInfo(tensor)
        location, offset = Path(info.location), info.offset or 0
        target = _in_first(folders, info.location).resolve()
    except (OSError, ValueError) as error:  # numbers that are none; names that no file can have
        raise refuse(f"names its data in a way that cannot be read: {error}") from error
    if location.is_absolute() or ".." in location.parts:
        raise refuse(f"has its data outside of the model's folder: {info.location}")
    if not any(target.is_relative_to(folder) for folder in folders):
        raise refuse(f"has its data behind a link that leads out of the model's folder: {info.location}")
    if not target.is_file():
        raise refuse(f"has its data in a file that does not exist: {info.location}")
    available = target.stat().st_size - offset
    length = available if info.length is None else info.length
    if offset < 0 or length < 0 or length > available:
        problem = f"needs bytes {offset} to {offset + length} of {info.location}, which has {offset + available}"
        with target.open("rb") as stream:
            raise refuse(problem, hint_for(stream.read(64)))
    if length > room:
        raise InputError(f"its external data has more than {BYTES_MAX} bytes", where=where, hint="a smaller model")
    with target.open("rb") as stream:
        stream.seek(offset)
        tensor.raw_data = stream.read(length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
    return length
