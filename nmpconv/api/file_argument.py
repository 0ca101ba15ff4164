"""Arguments that come in several forms: a .nmp file, and data for its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsBytes

from nmpconv.base.files import read_file
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

    1. a tuple (samples, labels), the latter class numbers [n] for arrays [n, ...], or for a mapping of these;
    2. a mapping with labels [n] under one of the names that `nmpconv.data.columns` has for them. A single other
       array may have any name.
    """
    if isinstance(data, tuple) and len(data) == 2 and _are_labels(data[1], data[0]):
        samples, labels = data
        data = _labelled(dict(samples) if isinstance(samples, Mapping) else {"": samples}, labels)
    elif isinstance(data, Mapping) and len(data) > 1:
        for key in LABELS:
            others = {name: source for name, source in data.items() if name != key}
            if key in data and _are_labels(data[key], others):
                data = _labelled(others if len(others) > 1 else {"": next(iter(others.values()))}, data[key])
                break
    for source in data.values() if isinstance(data, Mapping) else [data]:
        if not hasattr(source, "__iter__") and not hasattr(source, "__getitem__") and not isinstance(source, Path):
            allowed = "a path, an array, or an iterable of samples"
            raise refusal(source, allowed, "data", "or a mapping of input names to these")
    return data if isinstance(data, Mapping) else {"": data}


def _are_labels(labels: Any, samples: Any) -> bool:
    """Checks for a class number a sample: samples are an array [n, ...], or a mapping of them. Raises UsageError for
    labels of such samples that are no class numbers.
    """
    arrays = list(samples.values()) if isinstance(samples, Mapping) else [samples]
    if not all(hasattr(array, "shape") and len(array.shape) > 1 for array in arrays):
        return False
    if not hasattr(labels, "shape") and not isinstance(labels, list | tuple):
        return False
    classes, counts = as_array(labels), {len(array) for array in arrays}
    if classes.ndim > 1 and classes.dtype.kind not in "OSU" and classes.shape[1:] == arrays[0].shape[1:]:
        return False  # two batches
    if classes.dtype.kind in "iu" and classes.ndim == 1 and counts == {len(classes)}:
        return True
    raise UsageError(
        f"labels of {classes.dtype} {list(classes.shape)} for {', '.join(map(str, counts))} samples",
        where="data",
        found=f"{classes.dtype} {list(classes.shape)}",
        allowed="a class number each",
        hint="give a class number each: names.index(name) of names, y.argmax(1) of one-hot rows, y.astype(int)",
    )


def _labelled(samples: Mapping[str, Any], labels: Any) -> dict[str, Data]:
    """Pairs of sample and label for the first input, the arrays of the others as they are."""
    first = next(iter(samples))
    return {**samples, first: list(zip(samples[first], as_array(labels), strict=True))}
