"""Arguments that come in several forms: a .nmp file, and data for its inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsBytes

import numpy as np
from numpy.typing import NDArray

from nmpconv.base.files import read_file
from nmpconv.base.type_check import is_frame
from nmpconv.data.columns import LABELS
from nmpconv.data.samples import Data
from nmpconv.errors import UsageError, refusal
from nmpconv.file.reader import Model, read
from nmpconv.runtime.interpreter import FILES, Net, load
from nmpconv.runtime.ports import as_array

NmpFile = str | Path | bytes | SupportsBytes  # the last: what `nmpconv.convert` or `load` returned


def data_of(model: NmpFile) -> bytes:
    """The bytes of a file. Raises InputError, UsageError."""
    _check(model)
    return read_file(model) if isinstance(model, str | Path) else bytes(model)


def contents_of(model: NmpFile) -> tuple[bytes, Model]:
    """The bytes of a file and what is in it. Raises InputError, UsageError, ModelError, which names a given path."""
    data = data_of(model)
    return data, read(data, where=str(model) if isinstance(model, str | Path) else "")


def net_of(model: NmpFile | Net, cpu: str | None, threads: int | None) -> Net:
    """A net that is loaded, or is loaded now. Raises InputError, UsageError, ModelError."""
    if isinstance(model, Net):
        return model
    _check(model)
    return load(model if isinstance(model, str | Path) else bytes(model), cpu=cpu, threads=threads)


def _check(model: object) -> None:
    if not isinstance(model, str | Path | bytes | bytearray | memoryview) and not hasattr(model, "__bytes__"):
        raise refusal(model, FILES, "model")


def sources(data: Any) -> Mapping[str, Data]:
    """Data by input name; '' is the only input. Raises UsageError for what is no data.

    Besides what `Data` is, and mappings of input names to it:

    1. a tuple (samples, labels), the latter class numbers [n] or [n, 1] for arrays [n, ...], or for a mapping of these;
    2. a mapping with labels [n] under one of the names that `nmpconv.data.columns` has for them. A single other
       array may have any name.
    """
    if isinstance(data, tuple) and len(data) == 2 and _are_labels(data[1], data[0], by_name=False):
        samples, labels = data
        data = _labelled(dict(samples) if isinstance(samples, Mapping) else {"": samples}, labels)
    elif isinstance(data, Mapping) and len(data) > 1:
        for key in LABELS:
            others = {name: source for name, source in data.items() if name != key}
            if key in data and _are_labels(data[key], others, by_name=True):
                data = _labelled(others if len(others) > 1 else {"": next(iter(others.values()))}, data[key])
                break
    for source in data.values() if isinstance(data, Mapping) else [data]:
        if not hasattr(source, "__iter__") and not hasattr(source, "__getitem__") and not isinstance(source, Path):
            allowed = "a path, an array, or an iterable of samples"
            hint = "call the function" if callable(source) else "or a mapping of input names to these"
            raise refusal(source, allowed, "data", hint)
    return data if isinstance(data, Mapping) else {"": data}


def _are_labels(labels: Any, samples: Any, *, by_name: bool) -> bool:
    """Checks for a class number a sample: samples are an array [n, ...], or a mapping of them. Raises UsageError for
    labels of such samples that are neither class numbers nor samples of their own. by_name: maybe of an input.
    """
    arrays = list(samples.values()) if isinstance(samples, Mapping) else [samples]
    if not all(hasattr(array, "shape") and len(array.shape) > 1 for array in arrays) or is_frame(labels):
        return False
    if not hasattr(labels, "shape") and not isinstance(labels, list | tuple):
        return False
    classes, counts = as_array(labels), {len(array) for array in arrays}
    is_column = not by_name and classes.shape[1:] == (1,) and classes.shape != arrays[0].shape
    if classes.dtype.kind in "iu" and (classes.ndim == 1 or is_column) and counts == {len(classes)}:
        return True
    if _may_be_samples(classes, arrays, by_name=by_name):
        return False
    raise UsageError(
        f"labels of {classes.dtype} {list(classes.shape)} for {', '.join(map(str, counts))} samples",
        where="data",
        found=f"{classes.dtype} {list(classes.shape)}",
        allowed="a class number each",
        hint="give a class number each: names.index(name) of names, y.argmax(1) of one-hot rows, y.astype(int)",
    )


def _may_be_samples(classes: NDArray[Any], arrays: Sequence[Any], *, by_name: bool) -> bool:
    """Checks that what is no list of class numbers may be fed: to an input of its name, or as the second sample."""
    first = next(classes.flat, None)
    if isinstance(first, str):
        return by_name and Path(first).is_file()
    shape = arrays[0].shape
    if by_name or classes.size == math.prod(shape[1:]) or classes.shape[1:] == shape[1:]:
        return True
    return classes.ndim == len(shape) and not (len(classes) == shape[0] and _is_one_hot(classes))


def _is_one_hot(rows: NDArray[Any]) -> bool:
    return bool(np.all(np.sort(rows)[..., :-1] == 0) and np.all(rows.max(axis=-1) == 1))


def _labelled(samples: Mapping[str, Any], labels: Any) -> dict[str, Data]:
    """Samples and labels for the first input, the arrays of the others as they are. Rows of a DataFrame get a column of
    labels. Arrays stay one batch, but for bytes: those may be one picture."""
    (first, source), classes = next(iter(samples.items())), as_array(labels).ravel()
    if is_frame(source):
        return {**samples, first: source.assign(label=classes)}
    is_bytes = str(getattr(source, "dtype", "")).endswith("uint8")
    return {**samples, first: list(zip(source, classes, strict=True)) if is_bytes else [(source, classes)]}
