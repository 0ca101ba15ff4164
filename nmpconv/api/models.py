"""A model that a program hands over, as the file that the converter reads."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

from nmpconv.errors import InputError, NmpError, UsageError

OPSET = 17  # that torch exports to: old enough for every exporter since torch 1.13


@contextmanager
def on_disk(model: Any, example_inputs: Any = None) -> Iterator[Path]:
    """The ONNX file of a path, of bytes, of an onnx.ModelProto or of a torch module; a temporary one but for a path.

    example_inputs: a tensor or a tuple of them, that a torch module is called with when it is exported. An error about
    a temporary file names the model instead. Raises UsageError, InputError.
    """
    if isinstance(model, str | Path):
        yield Path(model)
        return
    with tempfile.TemporaryDirectory(prefix="nmpconv-") as folder:
        path = Path(folder) / f"{_name(model)}.onnx"
        _write(model, path, example_inputs)
        try:
            yield path
        except NmpError as error:
            error.where = error.where.replace(str(path), path.name)
            raise


def _name(model: Any) -> str:
    if isinstance(model, onnx.ModelProto):
        name = model.graph.name
    else:
        name = "" if isinstance(model, bytes) else type(model).__name__
    return re.sub(r"[^\w.-]", "_", name)[:100].lstrip(".") or "model"


def _write(model: Any, path: Path, example_inputs: Any) -> None:
    if isinstance(model, bytes | bytearray | memoryview):
        path.write_bytes(model)
    elif isinstance(model, onnx.ModelProto):
        path.write_bytes(model.SerializeToString(deterministic=True))
    elif hasattr(model, "state_dict") and callable(model):
        _export(model, path, example_inputs)
    else:
        kind = type(model).__name__
        allowed = "a path, bytes, an onnx.ModelProto or a torch module"
        raise UsageError(f"the model is a {kind}; {allowed} is allowed", found=kind, allowed=allowed)


def _export(module: Any, path: Path, example_inputs: Any) -> None:
    """By the exporter that traces, which needs no more than torch."""
    if example_inputs is None:
        raise UsageError(
            "a torch module is exported by calling it", where="example_inputs", hint="give a tensor or a tuple of them"
        )
    import torch

    arguments = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    named = inspect.signature(torch.onnx.export).parameters
    options = {"dynamo": False} if "dynamo" in named else {}
    try:
        torch.onnx.export(module, arguments, str(path), opset_version=OPSET, **options)
    except Exception as error:  # whatever a module's own code raises
        message = f"torch cannot export the module: {type(error).__name__}: {error}"
        raise InputError(message, where=type(module).__name__) from error
