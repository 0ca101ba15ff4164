"""Writer of FlatBuffers: bytes grow from the end to the start, as the format's own builders have them.

A place is counted from the end of the file. A table is written at once, by the layout that its fields have there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from nmpconv.file.flatbuffer import REFERENCE


class _Layout(NamedTuple):
    """distances: from the end of the table's bytes to the start of each field. vtable: what the table refers to."""

    table: struct.Struct
    distances: tuple[int, ...]
    vtable: bytes
    align: int


class FlatWriter:
    """Takes strings, vectors and tables; each `add_` method returns the place of what it writes. defaults: numbers are
    to be written, too, where they are the schema's defaults."""

    def __init__(self, *, defaults: bool = False) -> None:
        self.defaults = defaults
        self._parts: list[bytes] = []  # the last of the file first
        self._size, self._align = 0, 1
        self._vtables: dict[bytes, int] = {}

    def add_bytes(self, data: bytes, count: int, align: int) -> int:
        """Vector of ``count`` elements, whose first one lies at a multiple of ``align``."""
        self._pad(4, len(data))
        self._pad(align, len(data))
        self._put(data)
        self._put(count.to_bytes(4, "little"))
        return self._size

    def add_string(self, text: str) -> int:
        data = text.encode()
        self._pad(4, len(data) + 1)
        self._put(data + b"\0")
        self._put(len(data).to_bytes(4, "little"))
        return self._size

    def add_references(self, places: Sequence[int]) -> int:
        """Vector of offsets to tables or strings."""
        self._pad(4, 4 * len(places))
        end = self._size + 4 * len(places)
        self._put(struct.pack(f"<{len(places)}I", *(end - 4 * i - place for i, place in enumerate(places))))
        self._put(len(places).to_bytes(4, "little"))
        return self._size

    def add_table(self, fields: Sequence[tuple[int, str, Any]]) -> int:
        """fields: slot, format and value of those that are written; that of a reference is its place."""
        layout = _layout(tuple((slot, kind) for slot, kind, _ in fields), self._size % 8)
        self._align = max(self._align, layout.align)
        values = [
            self._size + distance - value if kind == REFERENCE else value
            for distance, (_, kind, value) in zip(layout.distances, fields, strict=True)
        ]
        place = self._size + layout.table.size
        known = self._vtables.get(layout.vtable)
        to_vtable = len(layout.vtable) if known is None else known - place
        self._put(layout.table.pack(to_vtable, *reversed(values)))
        if known is None:
            self._put(layout.vtable)
            self._vtables[layout.vtable] = self._size
        return place

    def finish(self, root: int, identifier: bytes) -> bytes:
        """The file of a root table."""
        self._pad(self._align, 4 + len(identifier))
        self._put(identifier)
        self._put((self._size + 4 - root).to_bytes(4, "little"))
        return b"".join(reversed(self._parts))

    def _pad(self, width: int, following: int) -> None:
        """Aligns the place that comes after so many bytes."""
        self._align = max(self._align, width)
        self._put(bytes(-(self._size + following) % width))

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)


@cache
def _layout(fields: tuple[tuple[int, str], ...], start: int) -> _Layout:
    """fields: slot and format, the last of the table first. start: place behind the table, modulo 8."""
    at, align, text, distances = start, 4, "", []
    entries = [0] * (1 + max((slot for slot, _ in fields), default=-1))
    for slot, kind in fields:
        width = struct.calcsize(f"<{kind}")
        gap = -at % width
        at += gap + width
        align = max(align, width)
        text = f"{kind}{gap}x{text}"
        distances.append(at - start)
        entries[slot] = at
    gap = -at % 4
    table = struct.Struct(f"<i{gap}x{text}")
    end = start + table.size
    entries = [end - entry if entry else 0 for entry in entries]
    vtable = struct.pack(f"<{2 + len(entries)}H", 4 + 2 * len(entries), table.size, *entries)
    return _Layout(table, tuple(distances), vtable, align)
