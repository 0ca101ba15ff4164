"""Where samples lie: files (a folder, a csv, a list, one file) or an array of many; found and checked when opened."""

from __future__ import annotations

import csv
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from nmpconv.base.files import BYTES_MAX, open_file, place, read_lines
from nmpconv.data.audio import SUFFIX as SOUND
from nmpconv.data.audio import Ears, deaf
from nmpconv.data.images import CHANNELS, SUFFIXES
from nmpconv.errors import InputError

HEADER_MAX = 1 << 16  # bytes of an array's header
LISTED = 5  # problems that one message lists
LABELS = "labels.csv"  # in a folder: the labels of its samples
Item = Path | Image.Image | np.ndarray


class Source(Protocol):
    """Samples by number. labels: one a sample, or None; of a stack of sequences, a row of them may be one's.
    labelled: of a folder, where the labels come from, or why there are none; "" where that is plain."""

    labels: Sequence[Any] | None
    labelled: str

    def __len__(self) -> int: ...

    def where(self, i: int) -> str:
        """Sample i's name for a message."""

    def image(self, i: int) -> Path | Image.Image | None:
        """The image file of sample i, or the picture; None when it is an array."""

    def array(self, i: int) -> np.ndarray:
        """The array of sample i, unchecked, maybe a view of a file."""


class Items:
    """Samples one by one: image files, .npy files, .wav files, pictures, or arrays. name: what messages call them;
    ears: what makes arrays of .wav files. labelled: as of `Source`.
    """

    def __init__(
        self,
        samples: Sequence[Item],
        labels: Sequence[int] | None = None,
        name: str = "",
        ears: Ears = deaf,
        labelled: str = "",
    ) -> None:
        self.labels = labels
        self.labelled = labelled
        self._samples = tuple(samples)
        self._name = name
        self._ears = ears

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def paths(self) -> list[Path]:
        """Paths of the samples that are files."""
        return [sample for sample in self._samples if isinstance(sample, Path)]

    @property
    def is_sound(self) -> bool:
        """Checks whether the samples are .wav files."""
        return any(path.suffix.lower() == SOUND for path in self.paths)

    def where(self, i: int) -> str:
        sample = self._samples[i]
        return str(sample) if isinstance(sample, Path) else f"{self._name}[{i}]"

    def image(self, i: int) -> Path | Image.Image | None:
        sample = self._samples[i]
        if isinstance(sample, Path):
            return None if sample.suffix.lower() in (".npy", SOUND) else sample
        return sample if isinstance(sample, Image.Image) else None

    def array(self, i: int) -> np.ndarray:
        sample = self._samples[i]
        if not isinstance(sample, Path):
            return np.asarray(sample)
        return self._ears(sample) if sample.suffix.lower() == SOUND else _load_npy(sample)


class Stack:
    """One array [n, ...] of samples: a .npy mapped from its file, or a .npz's array, which is held in memory."""

    def __init__(self, path: Path, array: np.ndarray, labels: Sequence[Any] | None = None) -> None:
        self.labels = labels
        self.labelled = ""
        self.whole = array
        self._path = path

    def __len__(self) -> int:
        return len(self.whole)

    def where(self, i: int) -> str:
        return f"{self._path}[{i}]"

    def image(self, i: int) -> Path | None:
        return None

    def array(self, i: int) -> np.ndarray:
        return np.asarray(self.whole[i])


def open_source(path: Path, input_name: str, shape: tuple[int, ...], ears: Ears = deaf) -> Source:
    """The source that ``path`` is; InputError with what was found and what is allowed. ears: of .wav files."""
    if path.is_dir():
        return _folder(path, ears)
    if not path.exists():
        raise InputError("no such file or folder", where=str(path), hint=place(path))
    if not path.is_file():
        raise InputError("is neither a folder nor a regular file", where=str(path))
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _csv(path, ears)
    if suffix in (".txt", ".lst"):
        return _list(path, ears)
    if suffix == ".npz":
        return _npz(path, input_name)
    if suffix == ".npy":
        array = _load_npy(path)
        return Items([path]) if is_one(array, shape) else _stack(path, array)
    if suffix in SUFFIXES or suffix == SOUND:
        return Items([path], ears=ears)
    raise InputError(
        f"a file of type {suffix or '(none)'}",
        where=str(path),
        hint=f"allowed: a folder, .csv, .txt, .npy, .npz, .wav, or an image ({' '.join(SUFFIXES)})",
    )


def files_of(path: Path) -> list[Path]:
    """The files that a source is read from: itself, or what it holds or names. InputError, as for `open_source`."""
    if path.is_dir():
        return [*_folder(path).paths, *(one for one in [path / LABELS] if one.is_file())]
    read = {".csv": _csv, ".txt": _list, ".lst": _list}.get(path.suffix.lower())
    return [path] if read is None else [path, *read(path).paths]


def is_one(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Checks whether it is one sample, no stack. A uint8 [H,W,C] may be a picture of any size; any other has the
    model's shape."""
    picture = array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in CHANNELS
    return picture or array.shape in (shape, shape[1:])


def _folder(path: Path, ears: Ears = deaf) -> Items:
    entries = [p for p in path.iterdir() if not p.name.startswith(".")]
    folders = [p for p in entries if p.is_dir()]
    entries += [p for folder in folders for p in folder.iterdir() if not p.name.startswith(".")]
    files = sorted((p for p in entries if p.is_file()), key=lambda p: p.relative_to(path).parts)
    pictures = [p for p in files if p.suffix.lower() in SUFFIXES]
    arrays = [p for p in files if p.suffix.lower() == ".npy"]
    sounds = [p for p in files if p.suffix.lower() == SOUND]
    kinds = [f"{len(one)} {name}" for one, name in ((pictures, "images"), (arrays, ".npy"), (sounds, SOUND)) if one]
    if len(kinds) > 1:
        raise InputError(f"{' and '.join(kinds)} files; one kind is allowed", where=str(path))
    found = pictures or arrays or sounds
    if not found:
        others = Counter(p.suffix.lower() or p.name for p in files)
        what = ", ".join(f"{n} {kind}" for kind, n in sorted(others.items())[:LISTED]) or "nothing"
        raise InputError(
            f"no images in the folder (found: {what})",
            where=str(path),
            hint=f"allowed: {' '.join(SUFFIXES)}, .npy arrays, or .wav; folders in it are read one level deep",
        )
    labels, labelled = _labels(path, found)
    return Items(found, labels, ears=ears, labelled=labelled)


def _labels(folder: Path, found: Sequence[Path]) -> tuple[list[int] | None, str]:
    """Returns the labels of a folder's samples, and where they come from, or why there are none.

    1. Of `labels.csv` in it, where that names every sample. Where it does not, or cannot be used, that is said.
    2. The names of the samples' folders, where all are numbers: other names have no order to rely on.
    """
    said = ""
    if (folder / LABELS).is_file():
        try:
            named = _csv(folder / LABELS)
        except InputError as error:
            said = f"{folder / LABELS} is not used: {error.message}"
        else:
            classes = {Path(os.path.normpath(p)): c for p, c in zip(named.paths, named.labels or (), strict=False)}
            rows = [classes.get(Path(os.path.normpath(p))) for p in found]
            if None not in rows:
                return [c for c in rows if c is not None], str(folder / LABELS)
            count = sum(c is not None for c in rows)
            said = f"{folder / LABELS} is not used: it has labels for {count} of {len(found)} samples"
    names = [p.parent.name for p in found]
    if all(p.parent != folder and name.isdecimal() for p, name in zip(found, names, strict=True)):
        return [int(name) for name in names], "; ".join(filter(None, ["the names of the folders", said]))
    return None, said


def _csv(path: Path, ears: Ears = deaf) -> Items:
    rows = csv.reader(read_lines(path, "list of files"))
    header = [cell.strip() for cell in next(_csv_rows(rows, path), [])]
    if "file" not in header:
        raise InputError(f"the header is {','.join(header)!r}; a column `file` is needed", where=str(path))
    file_at, label_at = header.index("file"), header.index("label") if "label" in header else None
    entries: list[tuple[int, str]] = []
    labels: list[int] = []
    for row in _csv_rows(rows, path):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) <= max(file_at, label_at or 0):
            raise InputError(f"{len(row)} columns; the header has {len(header)}", where=f"{path}:{rows.line_num}")
        entries.append((rows.line_num, row[file_at].strip()))
        if label_at is not None:
            try:
                labels.append(int(row[label_at]))
            except ValueError:
                message = f"the label {row[label_at]!r} is not a class number"
                raise InputError(message, where=f"{path}:{rows.line_num}") from None
    return Items(_resolve(path, entries), None if label_at is None else labels, ears=ears)


def _csv_rows(rows: Any, path: Path) -> Iterator[list[str]]:
    """rows: a csv.reader. Source of its errors: a field of more than 131,072 characters, a quote without an end."""
    try:
        yield from rows
    except csv.Error as error:
        raise InputError(f"not a readable .csv file: {error}", where=f"{path}:{rows.line_num}") from None


def _list(path: Path, ears: Ears = deaf) -> Items:
    lines = [(i, line.strip()) for i, line in enumerate(read_lines(path, "list of files"), 1)]
    return Items(_resolve(path, [(i, line) for i, line in lines if line and not line.startswith("#")]), ears=ears)


def _resolve(path: Path, entries: list[tuple[int, str]]) -> list[Path]:
    """The files that a list names, relative to it; all dead and unusable ones are named by line."""
    if not entries:
        raise InputError("the list names no files", where=str(path))
    resolved = [(line, name, path.parent / name) for line, name in entries]
    dead = [f"line {line}: {name}" for line, name, file in resolved if not file.is_file()]
    if dead:
        more = f" and {len(dead) - LISTED} more" if len(dead) > LISTED else ""
        raise InputError(
            f"{len(dead)} of {len(entries)} files do not exist: {'; '.join(dead[:LISTED])}{more}",
            where=str(path),
            hint="paths are relative to the list's folder",
        )
    for suffix in (".npy", SOUND):
        count = sum(file.suffix.lower() == suffix for _, _, file in resolved)
        if count not in (0, len(resolved)):
            others = len(resolved) - count
            raise InputError(f"{count} {suffix} and {others} other files; one kind is allowed", where=str(path))
    return [file for _, _, file in resolved]


def _load_npy(path: Path) -> np.ndarray:
    """The array, mapped from its file: memory is not needed for what is not read."""
    try:
        _check_header(path)
        with np.errstate(all="ignore"):  # of sizes in a header that lies
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # whatever numpy trips over in a header
        raise InputError(f"not a readable .npy file: {_reason(error)}", where=str(path)) from None


def _check_header(path: Path) -> None:
    """numpy takes as much memory as the header claims to be long."""
    with path.open("rb") as file:
        start = file.read(12)
    length = int.from_bytes(start[8:12] if start[6:7] > b"\1" else start[8:10], "little")
    if length > HEADER_MAX:
        raise ValueError(f"a header of {length} bytes; at most {HEADER_MAX} are allowed")


def _npz(path: Path, input_name: str) -> Source:
    try:
        with open_file(path) as (file, _), zipfile.ZipFile(file) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
            names = [name for name in members if name != "labels"]
            name = input_name if input_name in names else names[0] if len(names) == 1 else None
            if name is None:
                raise InputError(
                    f"{len(names)} arrays ({', '.join(names[:LISTED])}); one is allowed, or one named like the input",
                    where=str(path),
                    hint=f"name the array {input_name!r}" if input_name else "",
                )
            array = _member(archive, members[name], path)
            labels = _member(archive, members["labels"], path) if "labels" in members else None
    except (InputError, MemoryError, ImportError):
        raise
    except Exception as error:  # whatever zipfile, a decompressor or numpy trips over
        raise InputError(f"not a readable .npz file: {_reason(error)}", where=str(path)) from None
    if labels is None:
        return _stack(path, array)
    if labels.ndim not in (1, 2) or labels.shape[:1] != array.shape[:1] or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels of {labels.dtype} {list(labels.shape)}; integers {list(array.shape[:1])} are allowed",
            where=str(path),
        )
    return _stack(path, array, labels.tolist())


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    """An array of an archive, once its header, the archive's list and the bytes that there are agree on its size."""
    size = archive.getinfo(name).file_size
    if size > BYTES_MAX:
        raise InputError(
            f"{name} has {size} bytes; at most {BYTES_MAX} can be read",
            where=str(path),
            hint="give a .npy, which is read piece by piece",
        )
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


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def _stack(path: Path, array: np.ndarray, labels: Sequence[int] | None = None) -> Source:
    if array.ndim == 0 or len(array) == 0:
        raise InputError(f"an array of shape {list(array.shape)}; a stack of samples is [n, ...]", where=str(path))
    return Stack(path, array, labels)
