"""A model that a program hands over, as the file that the converter reads."""

from __future__ import annotations

import inspect
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import onnx
from numpy.typing import NDArray

from nmpconv.base.files import read_file
from nmpconv.data import tables
from nmpconv.data.columns import is_time
from nmpconv.data.images import CHANNELS
from nmpconv.data.in_memory import WHERE, items, pair
from nmpconv.data.sources import stacked
from nmpconv.errors import InputError, NmpError, UsageError
from nmpconv.file.reader import Model
from nmpconv.frontend.read import hint_for
from nmpconv.runtime.ports import as_array

Examples = tuple[Any, Mapping[str, Any], tuple[int, ...]]  # example_inputs, data and shape of `on_disk`
Names = tuple[Sequence[str] | None, Sequence[str] | None]
OPSET = 17  # that torch exports to: old enough for every exporter since torch 1.13
OPSET_OF_PROGRAMS = 18  # the one that torch's exporter of programs translates to
PROGRAM = ".pt2"  # a program of torch.export, saved
CUTS = ("outputs", "input_values", "stream")  # options that give a file other ports than the model has
FILES = (str, Path, bytes, bytearray, memoryview, onnx.ModelProto)


@contextmanager
def on_disk(
    model: Any,
    example_inputs: Any = None,
    data: Mapping[str, Any] | None = None,
    names: Names = (None, None),
    shape: tuple[int, ...] = (),
) -> Iterator[Path]:
    """The ONNX file of a path, of bytes, of an onnx.ModelProto, of a torch module or program; a temporary one but for a
    path. A file of torch.export is exported, too; torch may run code that it holds.

    example_inputs: a tensor or a tuple of them, that a torch module is called with when it is exported. data: by input,
    as of `file_argument.sources`; without example_inputs, the first sample of a module's only input is taken, or one of
    ``shape``. names: of a module's inputs and outputs; None: torch's own; files have theirs. An error about a temporary
    file names the model instead. Raises UsageError, InputError.
    """
    is_path = isinstance(model, str | Path)
    is_program = Path(model).suffix.lower() == PROGRAM if is_path else hasattr(model, "graph_signature")
    if isinstance(model, FILES) and not is_program:
        _refuse_names(names)
    if is_path and not is_program:
        yield Path(model)
        return
    with tempfile.TemporaryDirectory(prefix="nmpconv-") as folder:
        path = Path(folder) / (Path(model).name if is_path else f"{_name(model)}.onnx")
        shown = str(model) if is_path else path.name
        if is_program:
            _export_program(model, path, shown, names)
        else:
            _write(model, path, (example_inputs, data or {}, shape), names)
        try:
            yield path
        except NmpError as error:
            error.where = error.where.replace(str(path), shown)
            raise


def names_in(file: Model, model: Any) -> Names:
    """Names for the ports of a torch module that a file was made of: the file's. None of other models, which have
    names, and of a file with states, or that was cut: its ports are not the module's, one by one.
    """
    has_others = any(port.state is not None for port in file.inputs) or any(map(file.config.get, CUTS))
    if not _is_module(model) or has_others:
        return None, None
    return [port.name for port in file.inputs], [port.name for port in file.outputs]


def picture_in(file: Model) -> tuple[int, ...]:
    """The shape in the ONNX model of a file's only input, if that takes pictures; else ()."""
    return file.inputs[0].source_shape if len(file.inputs) == 1 and file.inputs[0].preprocess is not None else ()


def _is_module(model: Any) -> bool:
    return hasattr(model, "state_dict") and callable(model)


def _refuse_names(names: Names) -> None:
    """UsageError for names of ports: an ONNX or TFLite file has its own."""
    for key, port_names in zip(("input_names", "output_names"), names, strict=True):
        if port_names:
            message = f"{key} are for torch modules and programs; a file has names of its own"
            raise UsageError(message, where=key, hint="leave it out")


def _name(model: Any) -> str:
    if isinstance(model, onnx.ModelProto):
        name = model.graph.name
    else:
        name = "" if isinstance(model, bytes) else type(model).__name__
    return re.sub(r"[^\w.-]", "_", name)[:100].lstrip(".") or "model"


def _write(model: Any, path: Path, examples: Examples, names: Names) -> None:
    if isinstance(model, bytes | bytearray | memoryview):
        path.write_bytes(model)
    elif isinstance(model, onnx.ModelProto):
        path.write_bytes(model.SerializeToString(deterministic=True))
    elif _is_module(model):
        _export(model, path, examples, names)
    else:
        kind = type(model).__name__
        allowed = "a path, bytes, an onnx.ModelProto, a torch module or program"
        hint = "what convert and load return is integers already" if hasattr(model, "__bytes__") else ""
        if type(model).__module__.startswith("keras."):
            hint = "give the bytes that tf.lite.TFLiteConverter.from_keras_model(model).convert() returns"
        raise UsageError(f"the model is a {kind}; {allowed} is allowed", found=kind, allowed=allowed, hint=hint)


def _export(module: Any, path: Path, examples: Examples, names: Names) -> None:
    """By the exporter that traces, which needs no more than torch."""
    example_inputs, data, shape = examples
    example = None if example_inputs is not None else _example(data)
    if example_inputs is None and example is None and shape:
        example = np.zeros(shape, np.float32)
    if example_inputs is None and example is None:
        raise UsageError(
            "a torch module is exported by calling it, and the data do not tell an input's shape",
            where="example_inputs",
            hint="give a tensor or a tuple of them",
        )
    import torch

    if example is not None:
        example_inputs = torch.from_numpy(example)

    arguments = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    named = inspect.signature(torch.onnx.export).parameters
    options: dict[str, Any] = {"dynamo": False} if "dynamo" in named else {}
    for key, port_names in zip(("input_names", "output_names"), names, strict=True):
        options |= {key: list(port_names)} if port_names else {}
    try:
        torch.onnx.export(module, arguments, str(path), opset_version=OPSET, **options)
    except Exception as error:  # whatever a module's own code raises
        message = f"torch cannot export the module: {type(error).__name__}: {error}"
        hint = "" if example is None else f"an input of shape {list(example.shape)} was tried: give example_inputs"
        raise InputError(message, where=type(module).__name__, hint=hint) from error


def _export_program(program: Any, path: Path, where: str, names: Names) -> None:
    """program: of torch.export, or the file of one."""
    file = None
    if isinstance(program, str | Path):
        data = read_file(program)
        if _is_saved_module(data):
            raise InputError("not a program of torch.export", where=where, hint=hint_for(data))
        file = BytesIO(data)
    for package in ("torch", "onnxscript"):  # the exporter of programs is written with the second
        if find_spec(package) is None:
            message = f"a program of torch.export needs {package}, which is not installed"
            raise UsageError(message, where=where, hint="pip install 'nmpconv[torch]'")
    import torch

    if file is not None and b"quantized_decomposed" in file.getvalue():
        _know_quantized()
    options: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False}
    for key, port_names in zip(("input_names", "output_names"), names, strict=True):
        options |= {key: list(port_names)} if port_names else {}
    # They tell what else could be installed, and the stack of an error that is told below.
    loggers = [logging.getLogger(f"torch.{name}") for name in ("onnx", "export")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = program if file is None else torch.export.load(file)
            torch.onnx.export(loaded, (), str(path), opset_version=OPSET_OF_PROGRAMS, **options)
    except Exception as error:  # whatever torch makes of a damaged file, or of an operator that it cannot export
        lines = str(error).strip().splitlines() or [""]
        raise InputError(
            f"torch cannot read or export the program: {type(error).__name__}: {lines[0]}",
            where=where,
            hint="torch.export.save of the installed torch writes such a file",
        ) from error
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _know_quantized() -> None:
    """Lets torch know the operators of quantization by PT2E: those of torchao are the ones that torch has had."""
    with suppress(ImportError):
        import_module("torch.ao.quantization.fx._decomposed")
        return
    with suppress(ImportError):
        import_module("torchao.quantization.pt2e.quantize_pt2e")


def _is_saved_module(data: bytes) -> bool:
    """Checks for a ZIP of torch.save, or TorchScript, whose pickle torch is not to open."""
    try:
        names = ZipFile(BytesIO(data)).namelist()
    except BadZipFile:
        return False
    # Weights of a program are such ZIPs, too, and of a file that was cut short Python may read one of them.
    is_program = b"/archive_format" in data
    return not is_program and any(name.count("/") == 1 and name.endswith("/data.pkl") for name in names)


def _example(data: Mapping[str, Any]) -> NDArray[Any] | None:
    """The first sample of the only input, as a batch of one; None where it cannot be told.

    1. An array [n, ...], a tensor, a file of one, or a DataFrame of numbers, whose rows are samples.
    2. An iterable that can begin again: of (sample, label) and (batch, labels), or of batches [n,C,H,W].

    Pictures, uint8 [n,H,W,C], are turned to float32 [1,C,H,W], as modules of torch take them.
    """
    if len(data) != 1:
        return None
    [(name, source)] = data.items()
    if tables.is_numeric(source):
        untimed = [i for i, column in enumerate(source.columns) if not is_time(str(column))]
        return tables.numbers(source.iloc[:, untimed] if untimed else source, WHERE)[:1]
    source = items(source)
    if isinstance(source, str | Path):
        source = stacked(Path(source), name)
    if hasattr(source, "shape"):
        array = as_array(source)
    elif source is None or isinstance(source, Iterator):
        return None
    else:
        value, label = pair(next(iter(source), None), name, WHERE)
        if not hasattr(value, "shape"):
            return None
        array = as_array(value)
        if label is not None and as_array(label).ndim == 0:
            array = array[np.newaxis]
        elif label is None and array.ndim != 4:
            return None
    if array.ndim < 2 or not len(array):
        return None
    first = array[:1]
    if first.dtype == np.uint8 and first.ndim == 4 and first.shape[3] in CHANNELS:
        first = first.transpose(0, 3, 1, 2) / 255
    return np.ascontiguousarray(first, None if first.dtype.kind in "iub" else np.float32)
