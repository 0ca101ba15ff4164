"""Tables of a FlatBuffers file that nobody vouches for: every place is checked before it is read.

Source: the FlatBuffers format (flatbuffers.dev, "FlatBuffer Internals").
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from nmpconv.errors import InputError
from nmpconv.frontend.tflite.tflite_schema import TABLES, TableField

SHARED = 4  # times the file's bytes, that may be read in all: tables can share their parts
_FORMATS = {
    "bool": "<?",
    "byte": "<b",
    "ubyte": "<B",
    "short": "<h",
    "ushort": "<H",
    "int": "<i",
    "uint": "<I",
    "long": "<q",
    "ulong": "<Q",
    "float": "<f",
}


class File:
    """The bytes of a file. where: its name, for messages."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where = data, where
        self._room = SHARED * len(data)

    def root(self, kind: str) -> FlatTable:
        return FlatTable(self, kind, self.follow(0))

    def damaged(self, part: str, at: int) -> InputError:
        problem = f"{part} at byte {at} lies outside of its {len(self.data)} bytes"
        return InputError(
            f"a damaged or cut TFLite file: {problem}", where=self.where, hint="download or export it again"
        )

    def scalar(self, kind: str, at: int) -> Any:
        if not 0 <= at <= len(self.data) - struct.calcsize(_FORMATS[kind]):
            raise self.damaged("a number", at)
        return struct.unpack_from(_FORMATS[kind], self.data, at)[0]

    def follow(self, at: int) -> int:
        """The place that the offset at a place names."""
        return at + int(self.scalar("uint", at))

    def vector(self, kind: str, at: int) -> np.ndarray:
        """Numbers, not copied."""
        dtype = np.dtype(_FORMATS[kind])
        count = int(self.scalar("uint", at))
        self.take(at + 4, count * dtype.itemsize, "a vector")
        return np.frombuffer(self.data, dtype, count, at + 4)

    def take(self, at: int, size: int, part: str) -> None:
        """Checks that these bytes are in the file, and that not too many are read in all."""
        if not 0 <= at <= len(self.data) - size:
            raise self.damaged(f"{part} of {size} bytes", at)
        self._room -= size
        if self._room < 0:
            message = f"its parts share bytes: more than {SHARED} times the file would be read"
            raise InputError(message, where=self.where, hint="an export without shared buffers")


class FlatTable:
    """Fields by name, as `TABLES` has them: numbers and texts as they are, vectors as arrays, tables as tables."""

    def __init__(self, file: File, kind: str, at: int) -> None:
        self._file, self._kind, self._at = file, kind, at
        file.take(at, 4, f"the table {kind}")
        self._vtable = at - int(file.scalar("int", at))
        self._size = int(_unsigned16(file, self._vtable))

    def __getitem__(self, name: str) -> Any:
        """The value of a field; its default, None or no elements where the file does not have it."""
        field = TABLES[self._kind][name]
        place = self._place(field)
        if field.is_vector:
            return self._vector(field.type, place)
        if field.type in _FORMATS:
            return field.default if place is None else self._file.scalar(field.type, place)
        if place is None:
            return "" if field.type == "string" else None
        to = self._file.follow(place)
        return self._text(to) if field.type == "string" else FlatTable(self._file, field.type, to)

    def options(self) -> dict[str, Any]:
        """All fields by name."""
        return {name: self[name] for name in TABLES[self._kind]}

    def as_table(self, name: str, kind: str) -> FlatTable | None:
        """A member of a union, as a table of this kind."""
        place = self._place(TABLES[self._kind][name])
        return None if place is None else FlatTable(self._file, kind, self._file.follow(place))

    def _place(self, field: TableField) -> int | None:
        entry = 4 + 2 * field.slot
        offset = _unsigned16(self._file, self._vtable + entry) if entry + 2 <= self._size else 0
        return self._at + offset if offset else None

    def _vector(self, kind: str, place: int | None) -> Any:
        if kind in _FORMATS:
            empty = np.zeros(0, _FORMATS[kind])
            return empty if place is None else self._file.vector(kind, self._file.follow(place))
        if place is None:
            return []
        start = self._file.follow(place)
        count = len(self._file.vector("uint", start))
        return [FlatTable(self._file, kind, self._file.follow(start + 4 + 4 * i)) for i in range(count)]

    def _text(self, at: int) -> str:
        return self._file.vector("ubyte", at).tobytes().decode("utf-8", "replace")


def _unsigned16(file: File, at: int) -> int:
    return int(file.scalar("ushort", at))
