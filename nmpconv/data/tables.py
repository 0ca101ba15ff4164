"""Tables of numbers as text: accelerometers, electrocardiograms, features. Rows are moments, columns are channels.

A table fits a model's input in one of these ways, the first that does:

1. A row has as many numbers as the input: it is a sample.
2. A window of rows is a sample, [time, channels] or, where the model wants that, [channels, time]. The model's input
   says how long it is; the next one begins ``step`` rows later, by default behind it. Rows after the last window are
   left out.

A header is optional, and lines that begin with # are left out. A column that it calls by one of `columns.OF_TABLES` has
classes: a window whose rows differ there has no label. A column of time or of an index (`columns.is_time`), which need
be no numbers, is left out where the others fit without it. A second line without a number, as of units, is left out.
Where commas do not part columns, a comma is a decimal one, or parts thousands: see `_comma`.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmpconv.base.type_check import is_frame
from nmpconv.data.columns import OF_TABLES, class_number, is_time, place_of
from nmpconv.errors import InputError

SUFFIXES = (".csv", ".tsv")
MISSING = ("", "na", "n/a", "null", "none", "-")  # in place of numbers
DELIMITERS = "\t;|,"  # the first of these in the first line parts columns; without any, spaces do
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
KEYS = ("window", "step")
ALLOWED = "a table has numbers, and maybe a column `label`; a list of files has a column `file`"
WINDOWED = re.compile(r"(.*)@((?:window|step)=[^@/\\]*)")


class Cut(NamedTuple):
    """Windows that are asked for, in rows. window: None for the length that the model takes. step: from one window to
    the next; None for the length of a window."""

    window: int | None = None
    step: int | None = None


def asked(path: Path) -> tuple[Path, Cut]:
    """Splits "walk.csv@step=64" into the path and the windows; a file of that very name is itself. InputError."""
    match = WINDOWED.fullmatch(str(path))
    if match is None or path.exists():
        return path, WHOLE
    numbers: dict[str, int] = {}
    for part in match[2].split(","):
        key, _, number = part.partition("=")
        if key not in KEYS or not re.fullmatch(r"[1-9][0-9]{0,8}", number):
            raise InputError(f"{part!r} is not allowed", where=str(path), hint="allowed: window=N and step=N, in rows")
        numbers[key] = int(number)
    return Path(match[1]), Cut(**numbers)


WHOLE = Cut()


class Windows:
    """Samples of a table. values: [rows, channels]. labels: of the windows, None where their rows differ."""

    labelled = ""
    remarks: tuple[str, ...] = ()

    def __init__(self, where: str, values: np.ndarray, rows: Sequence[int], shape: tuple[int, ...], cut: Cut) -> None:
        self._where, self._values, self._shape = where, values, shape
        self._length, self._transposed = _fit(values, shape, where)
        if cut.window not in (None, self._length):
            raise InputError(f"window={cut.window}; the model takes {self._length} rows", where=where)
        if len(values) < self._length:
            raise InputError(f"{len(values)} rows; the model's input takes {self._length}", where=where)
        self._starts = range(0, len(values) - self._length + 1, cut.step or self._length)
        self.labels: Sequence[Any] | None = None
        if len(rows):
            spans = [set(rows[a : a + self._length]) for a in self._starts]
            self.labels = [span.pop() if len(span) == 1 else None for span in spans]

    def __len__(self) -> int:
        return len(self._starts)

    def where(self, i: int) -> str:
        return f"{self._where}[{i}]"

    def image(self, i: int) -> None:
        return None

    def array(self, i: int) -> np.ndarray:
        part = self._values[self._starts[i] : self._starts[i] + self._length]
        return (part.T if self._transposed else part).reshape(self._shape)


class Tables:
    """Samples of several tables, one after the other. labels: of the tables, where they are known from elsewhere."""

    remarks: tuple[str, ...] = ()

    def __init__(self, tables: Sequence[Windows], labels: Sequence[Any] | None, labelled: str) -> None:
        self._tables, self.labelled = tables, labelled
        self._ends = list(accumulate(map(len, tables)))
        self.labels: Sequence[Any] | None = None
        if labels is not None:
            self.labels = [label for table, label in zip(tables, labels, strict=True) for _ in range(len(table))]
        elif all(table.labels for table in tables):
            self.labels = [label for table in tables for label in table.labels or ()]

    def __len__(self) -> int:
        return self._ends[-1]

    def where(self, i: int) -> str:
        return self._of(i)[0].where(self._of(i)[1])

    def image(self, i: int) -> None:
        return None

    def array(self, i: int) -> np.ndarray:
        table, at = self._of(i)
        return table.array(at)

    def _of(self, i: int) -> tuple[Windows, int]:
        number = bisect_right(self._ends, i)
        return self._tables[number], i - (self._ends[number - 1] if number else 0)


def read(
    lines: Sequence[str], where: str, shape: tuple[int, ...], cut: Cut = WHOLE, classes: Sequence[str] = ()
) -> Windows:
    """Samples of a table. lines: of its text. shape: of the ONNX input. classes: see `class_number`. InputError."""
    first = next((i for i, line in enumerate(lines) if _has_cells(line)), len(lines))
    if first == len(lines):
        raise InputError("the table is empty", where=where)
    delimiter = _delimiter(lines[first], next(line for line in reversed(lines) if _has_cells(line)))
    if delimiter == " ":
        lines = [" ".join(line.split()) for line in lines]
    header = _cells(lines[first], delimiter)
    if _numeric(header, delimiter) == len(header):
        header = _header_above(lines[:first], delimiter, len(header))
    else:
        first += 1
    at = [i for i in range(first, len(lines)) if _has_cells(lines[i])]
    if header and len(at) > 1 and _are_units(_cells(lines[at[0]], delimiter), delimiter):
        at = at[1:] if _numeric(_cells(lines[at[1]], delimiter), delimiter) else at
    rows, places = [lines[i] for i in at], [f"{where}:{i + 1}" for i in at]
    _check_cells(rows, places, delimiter, header)
    label_at = place_of(header, OF_TABLES)
    columns = [i for i in range(len(header) or rows[0].count(delimiter) + 1) if i != label_at]
    columns = _fed(columns, header, shape)
    values = _numbers(rows, where, places, delimiter, columns, header)
    labels: list[int] = []
    if label_at is not None:
        cells = csv.reader(rows, delimiter=delimiter)
        labels = [class_number(row[label_at], classes, place) for row, place in zip(cells, places, strict=True)]
    return Windows(where, values, labels, shape, cut)


def _are_units(cells: Sequence[str], delimiter: str) -> bool:
    """Checks for a row of words, which is no row of missing numbers."""
    return not _numeric(cells, delimiter) and any(cell.strip().lower() not in MISSING for cell in cells)


def is_numeric_text(lines: Sequence[str]) -> bool:
    """Checks for numbers alone in the last line: other text files are lists of files."""
    last = next((line for line in reversed(lines) if _has_cells(line)), "")
    delimiter = _delimiter(last, last)
    cells = _cells(" ".join(last.split()) if delimiter == " " else last, delimiter) if last else []
    return bool(cells) and _numeric(cells, delimiter) == len(cells)


def _delimiter(first: str, last: str) -> str:
    """The mark that parts columns, by the first line; spaces by the last one, which has numbers alone then, and not
    between commas."""
    cells = last.split()
    spaced = len(cells) > 1 and _numeric(cells, " ") == len(cells)
    if spaced and not all(map(_is_number, last.split(","))):
        first = first.replace(",", ".")
    return next((mark for mark in DELIMITERS if mark in first), " " if spaced else ",")


def _numeric(cells: Sequence[str], delimiter: str) -> int:
    """Counts cells with a number. Programs that part columns by other marks do so since commas are in numbers."""
    if delimiter == ",":
        return sum(map(_is_number, cells))
    return sum(_is_number(cell.replace(",", ".")) or bool(THOUSANDS.fullmatch(cell.strip())) for cell in cells)


def _has_cells(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter))


def _header_above(lines: Sequence[str], delimiter: str, count: int) -> list[str]:
    """Names of ``count`` columns in the last comment above them, as numpy.savetxt writes them; none where these are
    none."""
    above = [line for line in lines if line.startswith("#")]
    names = [cell.strip() for cell in _cells(above[-1].lstrip("# "), delimiter)] if above else []
    return names if len(names) == count > 1 and not all(map(_is_number, names)) else []


def of_frame(frame: Any, shape: tuple[int, ...], where: str, classes: Sequence[str]) -> Windows:
    """Samples of a DataFrame of pandas: those of a CSV of its columns, without its index."""
    header = _header(frame)
    label_at = place_of(header, OF_TABLES)
    labels: list[int] = []
    if label_at is not None:
        cells = frame.iloc[:, label_at].tolist()
        labels = [_class_of(cell, classes, f"{where}, row {i}") for i, cell in enumerate(cells)]
    return Windows(where, numbers(frame, where, shape), labels, shape, WHOLE)


def unlabelled(frame: Any, shape: tuple[int, ...], where: str) -> Windows:
    """The same without classes, whatever they are."""
    return Windows(where, numbers(frame, where, shape), (), shape, WHOLE)


def numbers(frame: Any, where: str, shape: tuple[int, ...] = ()) -> np.ndarray:
    """The numbers of a DataFrame but for its classes, and where a shape tells that they are no input, its times:
    float32 [rows, columns]. InputError."""
    header = _header(frame)
    label_at = place_of(header, OF_TABLES)
    columns = _fed([i for i in range(len(header)) if i != label_at], header, shape)
    if not len(frame) or not columns:
        raise InputError("the table holds no numbers", where=where)
    try:
        values = frame.iloc[:, columns].to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InputError(f"not a table of numbers: {error}", where=where) from None
    return _finite(values, lambda row, column: (f"{header[columns[column]]!r}", f"{where}, row {row}"))


def _header(frame: Any) -> list[str]:
    return [str(name) for name in frame.columns]


def _class_of(cell: Any, classes: Sequence[str], where: str) -> int:
    """Truth values are classes 0 and 1, where no class is called like them."""
    text = str(int(cell)) if isinstance(cell, bool) and str(cell) not in classes else str(cell)
    return class_number(text, classes, where)


def is_numeric(value: Any) -> bool:
    """Checks for a DataFrame of pandas that is a table of numbers: all columns are but for one of classes and
    times."""
    return is_frame(value) and all(
        kind.kind in "iufb" or str(name).strip().lower() in OF_TABLES or is_time(str(name))
        for name, kind in zip(value.columns, value.dtypes, strict=True)
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _check_cells(rows: Sequence[str], places: Sequence[str], delimiter: str, header: Sequence[str]) -> None:
    """InputError names the first row that has not as many cells as the header or the first row; more may be empty."""
    count = len(header) or (rows[0].count(delimiter) + 1 if rows else 0)
    for i, row in enumerate(rows):
        if row.count(delimiter) + 1 != count:  # a quoted cell may hold delimiters
            cells = next(csv.reader([row], delimiter=delimiter))
            if len(cells) < count or any(cell.strip() for cell in cells[count:]):
                reference = "the header" if header else "the first row"
                raise InputError(
                    f"a row of {len(cells)} cells; {reference} has {count}",
                    where=places[i],
                    hint=ALLOWED,
                )


def _comma(rows: Sequence[str], places: Sequence[str], delimiter: str) -> str:
    """Stands in place of commas in numbers: "" if they part thousands, else ".".

    They part thousands if each could, and a number has a point or two commas: 1,234.5, or 1,234 beside 12.5. InputError
    if each could and nothing tells.
    """
    either, is_known = ("", ""), False
    for row, place in zip(rows, places, strict=True):
        for cell in row.replace('"', " ").replace(delimiter, " ").split():
            if "," in cell and THOUSANDS.fullmatch(cell):
                either = either if either[0] else (cell, place)
                is_known |= "." in cell or cell.count(",") > 1
            elif "," in cell and _is_number(cell.replace(",", ".")):
                return "."
            else:
                is_known |= "." in cell and _is_number(cell)
    cell, where = either
    if not cell or is_known:
        return "" if cell else "."
    raise InputError(
        f"{cell} may be {cell.replace(',', '')} or {cell.replace(',', '.')}",
        where=where,
        hint="leave out marks of thousands, or write decimal points",
    )


def _numbers(
    rows: Sequence[str],
    where: str,
    places: Sequence[str],
    delimiter: str,
    columns: Sequence[int],
    header: Sequence[str],
) -> np.ndarray:
    """float32 [rows, columns]. places: of each row, for messages; where: of the table."""
    if not rows or not columns:
        raise InputError("the table holds no numbers", where=where)
    if delimiter != "," and any("," in row for row in rows):
        comma = _comma(rows, places, delimiter)
        rows = [row.replace(",", comma) for row in rows]
    try:
        values = np.loadtxt(
            rows,
            np.float64,
            comments=None,
            delimiter=delimiter,
            usecols=columns,
            ndmin=2,
            quotechar='"',
        )
    except ValueError as error:
        raise _no_number(str(error).splitlines()[0], where, places, header) from None
    return _finite(values, lambda row, column: (str(columns[column] + 1), places[row]))


def _no_number(reason: str, where: str, places: Sequence[str], header: Sequence[str]) -> InputError:
    """The error for a cell that numpy's reason names."""
    match = re.match(r"could not convert string '(.*)' to float64 at row (\d+), column (\d+)", reason)
    if match is None:
        return InputError(f"not a table of numbers: {reason}", where=where, hint=ALLOWED)
    cell, row, column = match[1], int(match[2]), int(match[3])
    name = f"column {column}" + (f" ({header[column - 1].strip()!r})" if header else "")
    where = places[row]
    if not cell.strip():
        return InputError(f"an empty cell in {name}", where=where, hint="fill it, or leave its row out")
    other = "call a column of classes `label`, and leave out other text"
    hint = f"{ALLOWED}; {'part columns by semicolons where numbers have commas' if ',' in cell else other}"
    return InputError(f"not a table of numbers: {cell!r} in {name}", where=where, hint=hint)


def _finite(values: np.ndarray, place: Callable[[int, int], tuple[str, str]]) -> np.ndarray:
    """float32. place: names a column, and where a row is."""
    with np.errstate(over="ignore"):  # becomes infinity, which is refused
        values = values.astype(np.float32)
    if wrong := np.argwhere(~np.isfinite(values)).tolist():
        column, where = place(*wrong[0])
        raise InputError(f"column {column} is no finite number", where=where)
    return values


def _fed(columns: list[int], header: Sequence[str], shape: tuple[int, ...]) -> list[int]:
    """Columns without those of time where all do not fit. header: names of all columns, or none."""
    is_whole = not header or not shape or _fits(len(columns), shape)
    return columns if is_whole else [i for i in columns if not is_time(header[i])]


def _fits(columns: int, shape: tuple[int, ...]) -> bool:
    dims = [dim for dim in shape if dim != 1]
    return columns == prod(shape) or (columns in dims and len(dims) == 2) or (columns == 1 and len(dims) == 1)


def _fit(values: np.ndarray, shape: tuple[int, ...], where: str) -> tuple[int, bool]:
    """The rows of a sample; checks that channels come first in the model."""
    columns, dims = values.shape[1], [dim for dim in shape if dim != 1]
    if columns == prod(shape):
        return 1, False
    if _fits(columns, shape):
        first = len(dims) == 2 and dims[1] != columns
        return prod(shape) // columns, first
    raise InputError(
        f"a table of {columns} column(s); the model's input is {list(shape)}",
        where=where,
        hint=f"a row has {prod(shape)} numbers, or its columns are the channels of windows of time; "
        "a column that the header calls `time` is left out",
    )
