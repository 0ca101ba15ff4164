"""Lists of files with or without labels: .csv with a header or without, .txt with one a line, and .json."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nmpconv.base.files import read_lines
from nmpconv.data import json_labels
from nmpconv.data.audio import SUFFIX as SOUND
from nmpconv.data.columns import FILES, LISTED, OF_LISTS, class_number, place_of
from nmpconv.data.images import SUFFIXES
from nmpconv.errors import InputError

KINDS = (".npy", SOUND, ".csv", ".tsv")  # of which a list has all or none


def located(folder: Path, name: str) -> Path:
    """A file that a list in a folder names; lists that were written on Windows have backslashes."""
    file = folder / name
    return file if "\\" not in name or _is_file(file) else folder / name.replace("\\", "/")


def _is_file(path: Path) -> bool:
    """Checks for a file, whatever a list has for its name: Path.is_file raises OSError for one that is too long."""
    return os.path.isfile(path)


def is_table(path: Path, lines: Sequence[str]) -> bool:
    """Checks that a .csv has numbers, and names no files."""
    first = next((row for row in _cells(path, lines[:1])), [])
    if place_of(first, FILES) is not None:
        return False
    name = first[0].strip() if first else ""
    return not (_is_file(located(path.parent, name)) or Path(name).suffix.lower() in (*SUFFIXES, ".npy", SOUND))


def names_file(path: Path, lines: Sequence[str]) -> bool:
    """Checks that a text begins with a file, maybe with a class behind it."""
    first = next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")
    return any(_is_file(located(path.parent, name)) for name in (first, *first.replace(",", " ").split()[:1]))


def _cells(path: Path, lines: Sequence[str]) -> Iterator[list[str]]:
    return _csv_rows(csv.reader(lines), path)


def of_csv(path: Path, classes: Sequence[str] = ()) -> tuple[list[Path], list[int] | None]:
    """The files that a list names, and their labels."""
    entries, labels = parsed(read_lines(path, "list of files", western=True), str(path), classes, path.parent)
    return _resolve(path, entries), labels


def of_json(path: Path, classes: Sequence[str] = ()) -> tuple[list[Path], list[int] | None]:
    """The files that a JSON names, and their labels."""
    entries, labels = json_labels.parsed(path, classes)
    folders = [path.parent / name for name in json_labels.image_folders(path)]
    folder = next((at for at in folders if entries and _is_file(located(at, entries[0][1]))), path.parent)
    return _resolve(path, entries, "entry", folder), labels


def parsed(
    lines: Sequence[str], where: str, classes: Sequence[str], folder: Path | None = None
) -> tuple[list[tuple[int, str]], list[int] | None]:
    """The names in a list, with their lines, and the labels. folder: that names are relative to; without a header, the
    first of them is a file there."""
    rows = csv.reader(lines)
    all_rows = _csv_rows(rows, Path(where))
    header = [cell.strip() for cell in next(all_rows, [])]
    file_at, label_at, first_rows = place_of(header, FILES), place_of(header, OF_LISTS), []
    if file_at is None:
        if not header or folder is None or not _is_file(located(folder, header[0])):
            raise InputError(f"the header is {','.join(header)!r}; a column `file` is needed", where=where)
        file_at, label_at, first_rows = 0, 1 if len(header) > 1 else None, [(1, header)]
    entries: list[tuple[int, str]] = []
    labels: list[int] = []
    for number, row in [*first_rows, *((rows.line_num, row) for row in all_rows)]:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) <= max(file_at, label_at or 0):
            raise InputError(f"{len(row)} columns; the header has {len(header)}", where=f"{where}:{number}")
        entries.append((number, row[file_at].strip()))
        if label_at is not None:
            labels.append(class_number(row[label_at], classes, f"{where}:{number}"))
    return entries, None if label_at is None else labels


def _csv_rows(rows: Any, path: Path) -> Iterator[list[str]]:
    """rows: a csv.reader. Source of its errors: a field of more than 131,072 characters, a quote without an end."""
    try:
        yield from rows
    except csv.Error as error:
        raise InputError(f"not a readable .csv file: {error}", where=f"{path}:{rows.line_num}") from None


def of_text(path: Path, classes: Sequence[str] = ()) -> tuple[list[Path], list[int] | None]:
    """The files of a list with one a line, maybe with a label behind a space or a comma."""
    lines = [(i, line.strip()) for i, line in enumerate(read_lines(path, "list of files", western=True), 1)]
    entries = [(i, line) for i, line in lines if line and not line.startswith("#")]
    parts = [entry[1].replace(",", " ").rsplit(maxsplit=1) for entry in entries]
    whole = [_is_file(located(path.parent, name)) for _, name in entries[:1]]
    if whole == [False] and len(parts[0]) == 2 and _is_file(located(path.parent, parts[0][0])):
        if short := next((i for (i, _), row in zip(entries, parts, strict=True) if len(row) != 2), None):
            raise InputError("a line without a label, where others have one", where=f"{path}:{short}")
        labels = [class_number(row[1], classes, f"{path}:{i}") for (i, _), row in zip(entries, parts, strict=True)]
        return _resolve(path, [(i, row[0]) for (i, _), row in zip(entries, parts, strict=True)]), labels
    return _resolve(path, entries), None


def _resolve(path: Path, entries: list[tuple[int, str]], place: str = "line", folder: Path | None = None) -> list[Path]:
    """The files that a list names; all dead and unusable ones are named by their place. folder: that they are relative
    to, the list's by default."""
    if not entries:
        raise InputError("the list names no files", where=str(path))
    resolved = [(line, name, located(folder or path.parent, name)) for line, name in entries]
    dead = [f"{place} {line}: {name}" for line, name, file in resolved if not _is_file(file)]
    if dead:
        more = f" and {len(dead) - LISTED} more" if len(dead) > LISTED else ""
        raise InputError(
            f"{len(dead)} of {len(entries)} files do not exist: {'; '.join(dead[:LISTED])}{more}",
            where=str(path),
            hint="paths are relative to the list's folder" + (json_labels.BESIDE if folder else ""),
        )
    for suffix in KINDS:
        count = sum(file.suffix.lower() == suffix for _, _, file in resolved)
        if count not in (0, len(resolved)):
            others = len(resolved) - count
            raise InputError(f"{count} {suffix} and {others} other files; one kind is allowed", where=str(path))
    return [file for _, _, file in resolved]
