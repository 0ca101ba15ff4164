"""Sources of samples: files (a folder, an archive, a csv, a list, one file) or an array of many; found and checked when
opened."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from nmpconv.base.files import decoded, place, read_lines
from nmpconv.data import archives, containers, lists, npy_files, tables
from nmpconv.data.archives import Member
from nmpconv.data.audio import SUFFIX as SOUND
from nmpconv.data.audio import Ears, deaf
from nmpconv.data.columns import LISTED, class_number
from nmpconv.data.images import CHANNELS, SUFFIXES, is_picture
from nmpconv.data.tables import Cut, Tables
from nmpconv.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

LISTS = {
    **{".txt": lists.of_text, ".lst": lists.of_text, ".json": lists.of_json},
    **dict.fromkeys(tables.SUFFIXES, lists.of_csv),
}  # of files
UNREAD = {".heic", ".heif", ".avif", ".jp2", ".jxl", ".svg", ".dng", ".cr2", ".nef", ".arw"}  # pictures
LABELS = "labels.csv"  # in a folder: the labels of its samples
SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing"}  # names of folders that are no classes
Item: TypeAlias = "Path | Member | Image.Image | np.ndarray"


class Source(Protocol):
    """Samples by number. labels: one a sample, or None; of a stack of sequences, a row of them may be one's.
    labelled: of a folder, where the labels come from, or why there are none; "" where that is plain. remarks: on what
    is left out."""

    labels: Sequence[Any] | None
    labelled: str
    remarks: tuple[str, ...]

    def __len__(self) -> int: ...

    def where(self, i: int) -> str:
        """Sample i's name for a message."""

    def image(self, i: int) -> Path | bytes | Image.Image | None:
        """The image file of sample i, or what is in it, or the picture; None when it is an array."""

    def array(self, i: int) -> np.ndarray:
        """The array of sample i, unchecked, maybe a view of a file."""


class Items:
    """Samples one by one: image files, .npy files, .wav files, members of an archive, pictures, or arrays. name: what
    messages call them; ears: what makes arrays of .wav files. labelled, remarks: as of `Source`.
    """

    def __init__(
        self,
        samples: Sequence[Item],
        labels: Sequence[int] | None = None,
        name: str = "",
        ears: Ears = deaf,
        labelled: str = "",
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.labels = labels
        self.labelled = labelled
        self.remarks = remarks
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
        """Checks that the samples are .wav files."""
        return any(path.suffix.lower() == SOUND for path in self.paths)

    def where(self, i: int) -> str:
        sample = self._samples[i]
        if isinstance(sample, Member):
            return sample.place
        return str(sample) if isinstance(sample, Path) else f"{self._name}[{i}]"

    def image(self, i: int) -> Path | bytes | Image.Image | None:
        sample = self._samples[i]
        if isinstance(sample, Member):
            return sample.read() if sample.suffix in SUFFIXES else None
        if isinstance(sample, Path):
            return None if sample.suffix.lower() in (".npy", SOUND) else sample
        return sample if is_picture(sample) else None

    def array(self, i: int) -> np.ndarray:
        sample = self._samples[i]
        if isinstance(sample, Member):
            return npy_files.of_bytes(sample.read(), sample.place)
        if not isinstance(sample, Path):
            return np.asarray(sample)
        return self._ears(sample) if sample.suffix.lower() == SOUND else npy_files.load(sample)


class Stack:
    """One array [n, ...] of samples, which may be mapped from a .npy. name: its file, or what messages call it."""

    labelled = ""
    remarks: tuple[str, ...] = ()

    def __init__(self, name: Path | str, array: np.ndarray, labels: Sequence[Any] | None = None) -> None:
        self.labels = labels
        self.whole = array
        self._name = name

    def __len__(self) -> int:
        return len(self.whole)

    def where(self, i: int) -> str:
        return f"{self._name}[{i}]"

    def image(self, i: int) -> Path | None:
        return None

    def array(self, i: int) -> np.ndarray:
        return np.asarray(self.whole[i])

    def rows(self, indices: Sequence[int]) -> np.ndarray:
        """Samples [n, ...]: a view where they lie side by side."""
        span = range(indices[0], indices[0] + len(indices))
        return np.asarray(self.whole[slice(span.start, span.stop) if list(indices) == list(span) else list(indices)])


def stacked(path: Path, input_name: str) -> np.ndarray | None:
    """The array of a .npy, .npz or HDF5 file; None of other sources."""
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz", *containers.HDF5) or not path.is_file():
        return None
    return npy_files.load(path) if suffix == ".npy" else containers.read(path, input_name)[0]


def open_source(
    path: Path,
    input_name: str,
    shape: tuple[int, ...],
    ears: Ears = deaf,
    classes: Sequence[str] = (),
    scores: int = 0,
) -> Source:
    """The source that ``path`` is; InputError with what was found and what is allowed. ears: of .wav files. classes:
    names of the model's classes, which labels may have instead of numbers; () where they are not known. scores: number
    of classes, 0 where the model has none."""
    path, cut = tables.asked(path)
    if path.is_dir():
        return _folder(path, ears, shape, cut, classes, scores)
    if not path.exists():
        sizes = f"--input-shape {input_name}={path}" if re.fullmatch(r"\d+(x\d+)+", str(path)) else ""
        hint = f"the sizes of an input are given to convert, by {sizes}" if sizes else place(path)
        raise InputError("no such file or folder", where=str(path), hint=hint)
    if not path.is_file():
        raise InputError("is neither a folder nor a regular file", where=str(path))
    suffix = path.suffix.lower()
    if (lines := _table(path)) is not None:
        return tables.read(lines, str(path), shape, cut, classes)
    if suffix in LISTS:
        return _samples(*LISTS[suffix](path, classes), ears, shape, cut, classes)
    if archives.is_archive(path):
        return _archive(path, shape, cut, classes, scores)
    if suffix in containers.TORCH:
        from nmpconv.data.in_memory import gather  # it knows this module

        content = containers.loaded(path)
        return gather(content if isinstance(content, list) else [content], input_name, shape)
    if suffix in containers.SUFFIXES:
        return _stack(path, *containers.read(path, input_name))
    if suffix == ".npy":
        array = npy_files.load(path)
        return Items([path]) if is_one(array, shape) else _stack(path, array)
    if suffix in SUFFIXES or suffix == SOUND:
        return Items([path], ears=ears)
    kinds = (*LISTS, ".npy", *containers.SUFFIXES, *archives.ZIP, ".tar", SOUND)
    allowed = f"a folder, {', '.join(kinds)}"
    raise InputError(
        f"a file of type {suffix or '(none)'}",
        where=str(path),
        hint=f"allowed: {allowed}, or an image ({' '.join(SUFFIXES)})",
    )


def files_of(path: Path) -> list[Path]:
    """The files that a source is read from: itself, or what it holds or names. InputError, as for `open_source`."""
    path, _ = tables.asked(path)
    if path.is_dir():
        files, _ = _files_in(path)
        return [*files, *(file for file in [path / LABELS] if file.is_file())]
    suffix = path.suffix.lower()
    return [path, *LISTS[suffix](path, ())[0]] if suffix in LISTS and _table(path) is None else [path]


def _table(path: Path) -> list[str] | None:
    """The lines of a table of numbers; None for a list of files, and for what is no text."""
    suffix, kind = path.suffix.lower(), "list of files or table of numbers"
    if suffix in tables.SUFFIXES:
        return lines if lists.is_table(path, lines := read_lines(path, kind, western=True)) else None
    if suffix != ".txt":
        return None
    lines = read_lines(path, kind, western=True)
    return lines if tables.is_numeric_text(lines) and not lists.names_file(path, lines) else None


def is_one(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Checks that it is one sample, no stack. A uint8 [H,W,C] may be a picture of any size; any other has the
    model's shape."""
    picture = array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in CHANNELS
    return picture or array.shape in one_sample(shape)


def one_sample(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Shapes of a sample: the model's, and without the batch where that is 1."""
    return (shape, shape[1:]) if shape[:1] == (1,) else (shape,)


def _samples(
    files: Sequence[Path | Member],
    labels: Sequence[Any] | None,
    ears: Ears,
    shape: tuple[int, ...],
    cut: Cut,
    classes: Sequence[str],
    labelled: str = "",
    remarks: tuple[str, ...] = (),
) -> Source:
    """Samples of files of one kind, of which tables may hold several each."""
    if not all(file.suffix.lower() in tables.SUFFIXES for file in files):
        return Items(files, labels, ears=ears, labelled=labelled, remarks=remarks)
    opened = []
    for file in files:
        where, lines = (
            (file.place, _lines(file))
            if isinstance(file, Member)
            else (str(file), read_lines(file, "table", western=True))
        )
        opened.append(tables.read(lines, where, shape, cut, classes))
    return Tables(opened, labels, labelled)


def _lines(member: Member) -> list[str]:
    return decoded(member.read(), "table", member.place, western=True).splitlines()


def _kind(suffix: str) -> str:
    """The kind of samples that a file's suffix tells; "" for none."""
    kinds = {
        ".npy": ".npy",
        SOUND: SOUND,
        **dict.fromkeys(SUFFIXES, "images"),
        **dict.fromkeys(tables.SUFFIXES, ".csv"),
    }
    return kinds.get(suffix.lower(), "")


def _of_one_kind(files: Sequence[Any], where: str, others: str) -> list[Any]:
    """The samples among files; tables only where there is nothing else, since they may describe the others."""
    counts = Counter(kind for file in files if (kind := _kind(file.suffix)))
    if len(counts) > 1:
        counts.pop(".csv", None)
    if len(counts) > 1:
        kinds = " and ".join(f"{counts[kind]} {kind}" for kind in sorted(counts, key=lambda kind: kind[0] == "."))
        raise InputError(f"{kinds} files; one kind is allowed", where=where)
    if not counts:
        other = Counter(file.suffix.lower() or "without a suffix" for file in files)
        listing = ", ".join(f"{n} {kind}" for kind, n in sorted(other.items())[:LISTED]) or "nothing"
        raise InputError(
            f"no samples in the {others} (found: {listing})",
            where=where,
            hint=f"{_advice(other)}allowed: {' '.join(SUFFIXES)}, .npy arrays, .csv tables of numbers, or .wav",
        )
    [kind] = counts
    return [file for file in files if _kind(file.suffix) == kind]


def _advice(suffixes: Collection[str]) -> str:
    """The way out for suffixes that people expect to be read."""
    if any(archives.is_archive(Path(f"x{suffix}")) for suffix in suffixes):
        return "unpack the archives in it; "
    return "save the pictures as .png or .jpg; " if UNREAD.intersection(suffixes) else ""


def _left_out(files: Sequence[Any]) -> tuple[str, ...]:
    """Remarks on pictures that are not read, among others that are."""
    counts = Counter(suffix for file in files if (suffix := file.suffix.lower()) in UNREAD)
    return tuple(f"{n} {kind} file(s) left out: save them as .png or .jpg" for kind, n in sorted(counts.items()))


def _files_in(path: Path) -> tuple[list[Path], list[Path]]:
    """The samples in a folder, and its files."""
    entries = [p for p in path.iterdir() if not p.name.startswith(".")]
    folders = [p for p in entries if p.is_dir()]
    entries += [p for folder in folders for p in folder.iterdir() if not p.name.startswith(".")]
    files = sorted((p for p in entries if p.is_file()), key=lambda p: p.relative_to(path).parts)
    return _of_one_kind([p for p in files if p.name != LABELS], str(path), "folder, or one level deeper"), files


def _folder(path: Path, ears: Ears, shape: tuple[int, ...], cut: Cut, classes: Sequence[str], scores: int) -> Source:
    paths, files = _files_in(path)
    listed = path / LABELS
    named, remark = None, ""
    if listed.is_file():
        try:
            rows, labels = lists.of_csv(listed, classes)
        except InputError as error:
            remark = f"{listed} is not used: {error.message}"
        else:
            named = {Path(os.path.normpath(p)): c for p, c in zip(rows, labels or (), strict=False)}
    names = [Path(os.path.normpath(p)) for p in paths]
    answer = _labels(names, Path(os.path.normpath(path)), named, str(listed), classes, scores, remark)
    return _samples(
        paths, answer.labels, ears, shape, cut, classes, answer.source, (*_left_out(files), *answer.remarks)
    )


def _archive(path: Path, shape: tuple[int, ...], cut: Cut, classes: Sequence[str], scores: int) -> Source:
    files, remarks = archives.members(path)
    samples = _of_one_kind([member for member in files if member.name.name != LABELS], str(path), "archive")
    if samples[0].suffix == SOUND:
        raise InputError("sound in an archive", where=str(path), hint="unpack it, and give the folder")
    listed = min(
        (member for member in files if member.name.name == LABELS),
        key=lambda member: len(member.name.parts),
        default=None,
    )
    named = None
    root = _root([member.name for member in samples])
    if listed is not None:
        root = listed.name.parent
        rows, labels = lists.parsed(_lines(listed), listed.place, classes)
        named = {PurePath(os.path.normpath(root / name)): c for (_, name), c in zip(rows, labels or (), strict=False)}
    where = listed.place if listed else ""
    names = [PurePath(os.path.normpath(member.name)) for member in samples]
    answer = _labels(names, root, named, where, classes, scores)
    return _samples(
        samples, answer.labels, deaf, shape, cut, classes, answer.source, (*remarks, *_left_out(files), *answer.remarks)
    )


def _root(names: Sequence[PurePath]) -> PurePath:
    """The folder that all of these lie in."""
    if len({name.is_absolute() for name in names}) > 1:
        return PurePath()
    return PurePath(os.path.commonpath([name.parent for name in names]) if names else "")


class _Labels(NamedTuple):
    """Labels of a folder's samples. source: where they come from, or the reason why there are none."""

    labels: list[int] | None
    source: str
    remarks: tuple[str, ...] = ()


def _labels(
    paths: Sequence[PurePath],
    folder: PurePath,
    named: Mapping[Any, int] | None,
    where: str,
    classes: Sequence[str],
    scores: int,
    remark: str = "",
) -> _Labels:
    """Returns the labels of a folder's samples.

    1. Of `labels.csv` in it, where that names every sample. Where it does not, or cannot be used, that is said.
    2. The names of the samples' folders, where all are numbers of classes, or their names.
    3. The order of these names, as torchvision's ImageFolder numbers them, where the model has as many classes, whose
       names are not known. This is a guess, and remarked.

    named: labels by path, of the list ``where``; None without one. scores: number of the model's classes, or 0.
    """
    if named is not None:
        rows = [named.get(p) for p in paths]
        if None not in rows:
            return _Labels([c for c in rows if c is not None], where)
        count = sum(c is not None for c in rows)
        remark = f"{where} is not used: it has labels for {count} of {len(paths)} samples"
    names = [p.parent.name for p in paths]
    order = sorted(set(names))
    if SPLITS.issuperset(order) or any(p.parent == folder for p in paths):
        order = []
    if order and all(name.isdecimal() or name in classes for name in order) and not _is_gapped(order, scores):
        numbers = [class_number(name, classes, str(folder)) for name in names]
        return _Labels(numbers, _sentence("the names of the folders", remark))
    if order and len(order) == scores and not classes:
        first = ", ".join(f"{i}: {name}" for i, name in enumerate(order[:LISTED])) + ", ..." * (scores > LISTED)
        guess = f"{folder}: its folders are taken for the classes in the order of their names: {first}"
        return _Labels([order.index(name) for name in names], _sentence("the order of the folders", remark), (guess,))
    if len(order) > 1 and scores:
        strange = next((name for name in order if name not in classes), "") if classes else ""
        why = f"{strange!r} is no class of the model" if strange else f"{len(order)} for {scores} classes"
        return _Labels(None, _sentence(remark, f"none; the folders are not the classes: {why}"))
    return _Labels(None, remark)


def _is_gapped(names: Sequence[str], scores: int) -> bool:
    """Checks for numbers that are too large for classes, and no classes with an offset either: 0 and 180 of two."""
    numbers = sorted(int(name) for name in names if name.isdecimal())
    return len(numbers) == scores > 0 and numbers[-1] - numbers[0] >= scores


def _sentence(*clauses: str) -> str:
    return "; ".join(filter(None, clauses))


def _stack(path: Path, array: np.ndarray, labels: Sequence[int] | None = None) -> Source:
    if array.ndim and len(array) == 0:
        raise InputError(f"an array of shape {list(array.shape)}: it holds no samples", where=str(path))
    if array.ndim == 0:
        raise InputError(f"an array of shape {list(array.shape)}; a stack of samples is [n, ...]", where=str(path))
    return Stack(path, array, labels)
