"""Files that hold arrays by name: .npz of numpy, .pt of torch and .h5 of HDF5, where torch and h5py are installed.

The array of an input has its name, or any where it is the only one. Class numbers have one of `columns.LABELS`. A .pt
may also hold one tensor, a list of samples, or a pair of a tensor and its labels. No file runs code: torch loads
tensors only, and of HDF5 no link to another file is followed.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.base.files import BYTES_MAX, open_file
from nmpconv.data.columns import LABELS, LISTED
from nmpconv.errors import InputError, UsageError

TORCH, HDF5 = (".pt", ".pth"), (".h5", ".hdf5")
SUFFIXES = (".npz", *TORCH, *HDF5)


def names(path: Path) -> set[str]:
    """Names of the arrays in a file; none for what holds a single one. Raises InputError, UsageError."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return set(_archived(path))
    if suffix in HDF5:
        with _hdf5(path) as file:
            return {name for name, _ in _datasets(file)}
    content = loaded(path) if suffix in TORCH else None
    return set(map(str, content)) if isinstance(content, Mapping) else set()


def for_inputs(data: Mapping[str, Any], inputs: Sequence[str]) -> Mapping[str, Any]:
    """The same, but one file that holds an array for each of several inputs is the source of all of them. InputError
    for one that has other arrays."""
    only = data[""] if set(data) == {""} else None
    if len(inputs) < 2 or not isinstance(only, str | Path) or Path(only).suffix.lower() not in SUFFIXES:
        return data
    known = names(Path(only)) if Path(only).is_file() else set()
    if known and (missing := [name for name in inputs if name not in known]):
        raise InputError(
            f"no array for {', '.join(map(repr, missing[:LISTED]))}; it has {', '.join(sorted(known)[:LISTED])}",
            where=str(only),
            hint="name its arrays like the model's inputs, or give --data INPUT=SOURCE for each",
        )
    return dict.fromkeys(inputs, only) if known else data


def read(path: Path, input_name: str) -> tuple[np.ndarray, list[Any] | None]:
    """The array of an input in a .npz or .h5, and its labels. Raises InputError, UsageError."""
    if path.suffix.lower() == ".npz":
        members = _archived(path)
        name, labelled = _chosen(members, input_name, path)
        with open_file(path) as (file, _), _guarded(path, ".npz"), zipfile.ZipFile(file) as archive:
            array = _member(archive, members[name], path)
            labels = _member(archive, members[labelled], path) if labelled else None
    else:
        with _hdf5(path) as file, _guarded(path, "HDF5"):
            sets = dict(_datasets(file))
            if not sets:
                raise InputError(
                    f"no array at its top, where it has {', '.join(list(file)[:LISTED]) or 'nothing'}",
                    where=str(path),
                    hint="groups and links are not looked into; from Python, give h5py.File(PATH)[NAME][()]",
                )
            name, labelled = _chosen(sets, input_name, path)
            array, labels = _dataset(sets[name], path), _dataset(sets[labelled], path) if labelled else None
    if labels is None:
        return array, None
    if labels.ndim not in (1, 2) or labels.shape[:1] != array.shape[:1] or labels.dtype.kind not in "iu":
        if labelled != "labels":  # what is called y may be anything
            return array, None
        raise InputError(
            f"labels of {labels.dtype} {list(labels.shape)}; integers {list(array.shape[:1])} are allowed",
            where=str(path),
        )
    return array, labels.tolist()


def loaded(path: Path) -> Any:
    """Tensors of a .pt, as torch has them. Raises InputError, UsageError without torch."""
    torch = _package("torch", path)
    with open_file(path) as (file, _), _guarded(path, ".pt"):
        return torch.load(file, map_location="cpu", weights_only=True)


def _chosen(known: Mapping[str, Any] | Sequence[str], input_name: str, path: Path) -> tuple[str, str]:
    """Names of the array of an input, and of its labels or ''."""
    labels = [name for name in LABELS if name in known and name != input_name]
    arrays = [name for name in known if name not in labels] or labels
    labelled = "" if arrays == labels else "labels" if "labels" in labels else next(iter(labels), "")
    if input_name in arrays:
        return input_name, labelled
    if len(arrays) == 1:
        return arrays[0], labelled
    raise InputError(
        f"{len(arrays)} arrays ({', '.join(arrays[:LISTED])}); one is allowed, or one named like the input",
        where=str(path),
        hint=f"name the array {input_name!r}" if input_name else "",
    )


@contextmanager
def _guarded(path: Path, kind: str) -> Iterator[None]:
    """Turns whatever a decompressor or a parser trips over into an InputError."""
    try:
        yield
    except (InputError, UsageError, MemoryError, ImportError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise InputError(f"not a readable {kind} file: {reason}", where=str(path)) from None


def _archived(path: Path) -> dict[str, str]:
    """Members of a .npz by the names of their arrays."""
    with open_file(path) as (file, _), _guarded(path, ".npz"), zipfile.ZipFile(file) as archive:
        return {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    """An array of an archive, once its header, the archive's list and the bytes that there are agree on its size."""
    size = archive.getinfo(name).file_size
    _check_size(size, name, path)
    with archive.open(name) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"{name} has a header of version {version}")
        shape, by_columns, dtype = read_header[version](stream)
        if dtype.hasobject or any(n < 0 for n in shape) or size - stream.tell() != prod(shape) * dtype.itemsize:
            raise ValueError(f"{name} has {size} bytes, its header says {dtype} {list(shape)}")
        flat = np.frombuffer(stream.read(), dtype)
    return flat.reshape(shape, order="F" if by_columns else "C")


def _hdf5(path: Path) -> Any:
    h5py = _package("h5py", path)
    with open_file(path), _guarded(path, "HDF5"):
        return h5py.File(path, "r")


def _datasets(file: Any) -> list[tuple[str, Any]]:
    """Arrays at the top of a file that are in it; links to others are no arrays."""
    h5py = import_module("h5py")
    hard = [name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
    return [(name, file[name]) for name in hard if isinstance(file[name], h5py.Dataset)]


def _dataset(dataset: Any, path: Path) -> np.ndarray:
    if dataset.external is not None or dataset.is_virtual:
        raise InputError(f"{dataset.name} lies in another file", where=str(path))
    if dataset.dtype.kind not in "biuf":
        raise InputError(f"{dataset.name} holds {dataset.dtype}; numbers are allowed", where=str(path))
    _check_size(prod(dataset.shape) * dataset.dtype.itemsize, dataset.name, path)
    return np.asarray(dataset[()])


def _check_size(size: int, name: str, path: Path) -> None:
    if size > BYTES_MAX:
        hint = "give a .npy, which is read piece by piece"
        raise InputError(f"{name} has {size} bytes; at most {BYTES_MAX} can be read", where=str(path), hint=hint)


def _package(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(
            f"{path.suffix} needs {name}, which is not installed", where=str(path), hint=f"pip install {name}"
        ) from None
