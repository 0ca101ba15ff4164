"""Names of columns and arrays as people give them, and classes by number or by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nmpconv.errors import InputError

FILES = ("file", "path", "filename", "file_name", "filepath", "image")
LABELS = ("label", "labels", "target", "targets", "class", "y")  # columns of class numbers
OF_LISTS = ("label", "target", "class", "class_id", "y")  # of lists of files, in which `labels` are files of boxes
OF_TABLES = ("label", "labels", "target", "class")  # of tables, in which y is an axis
# Columns of a table of numbers that no model is fed, maybe with a unit behind.
TIMES = ("time", "timestamp", "t", "index", "date", "datetime", "epoch", "elapsed", "seconds_elapsed")
NO_NAMES = ("", "unnamed: 0")  # of an index that pandas writes
UNIT = re.compile(r"\s*[(\[].*|_(?:s|ms|us|ns)$")
LISTED = 5  # names that a message lists
NAMELESS = "names need --labels FILE of convert: all classes, a line each, in the order of the model's outputs"


def place_of(header: Sequence[str], names: Sequence[str]) -> int | None:
    """The first of these names in a header, whatever its case."""
    known = [cell.strip().lower() for cell in header]
    return next((known.index(name) for name in names if name in known), None)


def is_time(name: str) -> bool:
    """Checks for a column of time or of an index: `Time (s)`, `timestamp_ms`."""
    plain = name.strip().lower()
    return plain in NO_NAMES or UNIT.sub("", plain) in TIMES


def class_number(text: str, classes: Sequence[str], where: str) -> int:
    """A class by its number, or by its name where the model's classes are known. Raises InputError."""
    text = text.strip()
    try:
        return int(text)
    except ValueError:
        pass
    if text in classes:
        return list(classes).index(text)
    listing = ", ".join(classes[:LISTED]) + (", ..." if len(classes) > LISTED else "")
    hint = f"numbers, or the model's classes: {listing}" if classes else NAMELESS
    raise InputError(f"the label {text!r} is not a class number", where=where, hint=hint)
