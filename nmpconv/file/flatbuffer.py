"""FlatBuffers by schema: nested dicts to bytes and back, the same walk verifying a file that nobody vouches for.

A table is a dict of its fields; a union is a pair (member's table name, dict); a vector of ints or floats is a numpy
array, other vectors are lists. Knows nothing of what the fields mean except the root's checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from nmpconv.base.files import BYTES_MAX
from nmpconv.errors import ModelError
from nmpconv.file._schema import IDENTIFIER, MEMBERS, OP_TABLES, ROOT, TABLES, VERSION, Field

DATA_ALIGN = 64  # of tensor data in the file
KINDS = {table: op for op, table in OP_TABLES.items()}  # names of ops in nmpconv.ops

_FORMATS = {
    "bool": "<?",
    "byte": "<b",
    "ubyte": "<B",
    "short": "<h",
    "ushort": "<H",
    "int": "<i",
    "uint": "<I",
    "float": "<f",
    "ulong": "<Q",
}
_SCALARS = {name: np.dtype(text) for name, text in _FORMATS.items()}
_STRUCTS = {name: struct.Struct(text) for name, text in _FORMATS.items()}
_DEFAULTS = {f: _SCALARS[f.type].type(f.default).item() for t in TABLES.values() for f in t if f.kind == "scalar"}
_CHECKSUM = next(f for f in TABLES[ROOT] if f.name == "checksum")

Table = dict[str, Any]


def pack(root: Mapping[str, Any]) -> bytes:
    """The file of a root table, checksum included; absent fields take their defaults. Deterministic."""
    import flatbuffers  # of writers alone: those that only run files have numpy and no more

    builder = flatbuffers.Builder(1 << 16)
    at = _pack_table(builder, ROOT, {**root, "checksum": 1})  # anything but the default, so that it gets a place
    builder.Finish(at, file_identifier=IDENTIFIER)
    return seal(bytes(builder.Output()))


def seal(file: bytes) -> bytes:
    """The file with its checksum made right; the root table must be intact."""
    at = _checksum_place(memoryview(file))
    return file[:at] + _crc(file, at).to_bytes(4, "little") + file[at + 4 :]


def multiplied(file: bytes | memoryview, fields: Callable[[str, Table], Iterable[str]], by: int) -> bytes:
    """The file with some numbers times ``by``, where they lie: scalars, and first elements of vectors of numbers.

    fields: names of those of a table, which is given by its kind and as `unpack` has it. Absent ones stay absent.
    """
    walk = _Multiplying(memoryview(file), fields, by)
    walk.table(ROOT, walk.follow(0))
    return seal(bytes(walk.made))


def unpack(file: bytes | memoryview) -> Table:
    """The root table of a file, every field present, absent tables and strings None.

    Raises ModelError, with a status, for a wrong identifier, major version or checksum, and for anything out of bounds.
    """
    view = memoryview(file)
    if len(view) < 8 or bytes(view[4:8]) != IDENTIFIER:
        hint = "nmpconv convert makes one from an ONNX model"
        message = "this is not a .nmp file: it does not have the identifier NMP1"
        raise ModelError(message, hint=hint, status="NMP_E_NOT_NMP")
    if len(view) > BYTES_MAX:
        raise ModelError(f"the file has {len(view)} bytes, {BYTES_MAX} are allowed", status="NMP_E_LIMIT")
    walk = _Walk(view)
    at = walk.follow(0)
    slots = walk.frame(ROOT, at)
    major, minor = (int(walk.scalar("ushort", slots[i])) if i in slots else 0 for i in (0, 1))
    if major != VERSION[0]:
        raise ModelError(
            f"the file has format version {major}.{minor}, this program reads {VERSION[0]}.x",
            hint="convert the model again, or use a matching nmpconv",
            status="NMP_E_VERSION",
        )
    if _CHECKSUM.slot not in slots or _crc(view, slots[_CHECKSUM.slot]) != walk.scalar("uint", slots[_CHECKSUM.slot]):
        raise ModelError("the checksum differs: the file is damaged or truncated", status="NMP_E_CHECKSUM")
    return walk.table(ROOT, at)


def _crc(file: bytes | memoryview, at: int) -> int:
    crc = zlib.crc32(file[:at])
    return zlib.crc32(file[at + 4 :], zlib.crc32(bytes(4), crc))


def _checksum_place(view: memoryview) -> int:
    walk = _Walk(view)
    return walk.frame(ROOT, walk.follow(0))[_CHECKSUM.slot]


# --- writing ---------------------------------------------------------------------------------------------------------


def _pack_table(builder: Any, name: str, table: Mapping[str, Any]) -> int:
    fields = [(f, value) for f in TABLES[name] if (value := table.get(f.name)) is not None]
    if len(fields) + sum(value is None for value in table.values()) < len(table):
        unknown = set(table) - {f.name for f in TABLES[name]}
        raise ValueError(f"{name} has no field {', '.join(sorted(unknown))}")
    offsets = {f.name: _pack_reference(builder, f, value) for f, value in fields if f.kind != "scalar"}
    builder.StartObject(TABLES[name][-1].slot + 1 if TABLES[name] else 0)
    for f, value in fields:
        if f.name in offsets:
            if f.kind == "union":
                builder.PrependUint8Slot(f.slot - 1, MEMBERS.index(value[0]) + 1, 0)
            builder.PrependUOffsetTRelativeSlot(f.slot, offsets[f.name], 0)
        else:
            getattr(builder, _SLOT[f.type])(f.slot, value, f.default)
    for f in TABLES[name]:
        if f.required and f.name not in offsets:
            raise ValueError(f"{name} needs {f.name}")
    return int(builder.EndObject())


_SLOT = {
    "bool": "PrependBoolSlot",
    "byte": "PrependInt8Slot",
    "ubyte": "PrependUint8Slot",
    "ushort": "PrependUint16Slot",
    "int": "PrependInt32Slot",
    "uint": "PrependUint32Slot",
    "float": "PrependFloat32Slot",
    "ulong": "PrependUint64Slot",
}


def _pack_reference(builder: Any, f: Field, value: Any) -> int:
    if f.kind == "string":
        return int(builder.CreateString(value))
    if f.kind == "table":
        return _pack_table(builder, f.type, value)
    if f.kind == "union":
        return _pack_table(builder, value[0], value[1])
    if f.type in _SCALARS:
        return _pack_scalars(builder, np.asarray(value, _SCALARS[f.type]))
    element = Field(f.name, 0, "string" if f.type == "string" else "table", f.type, 0, False)
    offsets = np.array([_pack_reference(builder, element, item) for item in value], np.int64)
    builder.StartVector(4, len(offsets), 4)
    from_each = builder.Offset() + 4 * np.arange(len(offsets), 0, -1) - offsets
    return _pack_bytes(builder, from_each.astype(_SCALARS["uint"]))


def _pack_scalars(builder: Any, values: np.ndarray) -> int:
    width = values.dtype.itemsize
    align = DATA_ALIGN if values.dtype == _SCALARS["ubyte"] else width
    builder.StartVector(width, values.size, align)
    return _pack_bytes(builder, values)


def _pack_bytes(builder: Any, values: np.ndarray) -> int:
    """Elements of the vector that was started."""
    head = builder.head - values.nbytes
    builder.Bytes[head : builder.head] = values.tobytes()
    builder.head = head
    return int(builder.EndVector())


# --- reading ---------------------------------------------------------------------------------------------------------


def _widths(f: Field) -> list[tuple[int, int]]:
    """Slots of a field, and the bytes that each refers to."""
    if f.kind == "scalar":
        return [(f.slot, _SCALARS[f.type].itemsize)]
    return [(f.slot - 1, 1), (f.slot, 4)] if f.kind == "union" else [(f.slot, 4)]


_FIELDS = {name: [(f, _widths(f)) for f in fields] for name, fields in TABLES.items()}


def _damaged(part: str) -> ModelError:
    return ModelError(f"the structure is damaged: {part}", status="NMP_E_STRUCTURE")


class _Walk:
    """Reads with a check before every step; the twin of interpreter/src/fb.c, which states the rules."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.budget = len(view) // 8

    def fail(self, part: str, at: int) -> ModelError:
        return _damaged(f"{part} at byte {at} of {len(self.view)} is out of bounds")

    def spend(self, part: str, at: int, nbytes: int = 0) -> None:
        self.budget -= 1 + nbytes // 8
        if self.budget < 0:
            raise self.fail(part, at)

    def scalar(self, kind: str, at: int) -> Any:
        return _STRUCTS[kind].unpack_from(self.view, at)[0]

    def u16(self, at: int) -> int:
        return int(_STRUCTS["ushort"].unpack_from(self.view, at)[0])

    def u32(self, at: int) -> int:
        return int(_STRUCTS["uint"].unpack_from(self.view, at)[0])

    def follow(self, at: int) -> int:
        """The target of the offset at ``at``."""
        to = at + self.u32(at)
        if to == at or to % 4 or to + 4 > len(self.view):
            raise self.fail("an offset", at)
        return to

    def frame(self, name: str, at: int) -> dict[int, int]:
        """Places of the fields that are there, by slot."""
        vtable = (at - self.u32(at)) % 2**32
        if vtable % 2 or vtable + 4 > len(self.view):
            raise self.fail(f"the vtable of {name}", at)
        vtable_bytes, table_bytes = self.u16(vtable), self.u16(vtable + 2)
        in_file = vtable + vtable_bytes <= len(self.view) and at + table_bytes <= len(self.view)
        if vtable_bytes < 4 or vtable_bytes % 2 or table_bytes < 4 or not in_file:
            raise self.fail(f"the vtable of {name}", at)
        offsets = struct.unpack_from(f"<{vtable_bytes // 2 - 2}H", self.view, vtable + 4)
        slots: dict[int, int] = {}
        for f, widths in _FIELDS[name]:
            for slot, width in widths:
                offset = offsets[slot] if slot < len(offsets) else 0
                if offset:
                    if offset < 4 or offset + width > table_bytes or (at + offset) % width:
                        raise self.fail(f"{name}.{f.name}", at)
                    slots[slot] = at + offset
            if f.required and f.slot not in slots:
                raise _damaged(f"{name} at byte {at} has no {f.name}")
        return slots

    def table(self, name: str, at: int) -> Table:
        self.spend(name, at)
        slots = self.frame(name, at)
        return {f.name: self.field(f, slots) for f in TABLES[name]}

    def field(self, f: Field, slots: dict[int, int]) -> Any:
        place = slots.get(f.slot)
        if f.kind == "scalar":
            return _DEFAULTS[f] if place is None else self.scalar(f.type, place)
        if f.kind == "union":
            return self.union(f, slots)
        if place is None:
            return None
        to = self.follow(place)
        if f.kind == "string":
            return self.string(to)
        return self.table(f.type, to) if f.kind == "table" else self.vector(f.type, to)

    def union(self, f: Field, slots: dict[int, int]) -> tuple[str, Table] | None:
        """A member that this schema does not know is given by its number and an empty table."""
        member = self.scalar("ubyte", slots[f.slot - 1]) if f.slot - 1 in slots else 0
        if (member != 0) != (f.slot in slots):
            raise _damaged(f"{f.name} and its type do not agree")
        if member == 0:
            return None
        to = self.follow(slots[f.slot])
        if member > len(MEMBERS):
            return f"op number {member}", {}
        return MEMBERS[member - 1], self.table(MEMBERS[member - 1], to)

    def count(self, at: int, width: int) -> int:
        count = self.u32(at)
        if (at + 4) % width or at + 4 + count * width > len(self.view):
            raise self.fail(f"a vector of {count}", at)
        return count

    def string(self, at: int) -> str:
        count = self.count(at, 1)
        self.spend("a string", at, count)
        end = at + 4 + count
        if end >= len(self.view) or self.view[end] != 0:
            raise self.fail("a string", at)
        return bytes(self.view[at + 4 : end]).decode("utf-8", "replace")

    def vector(self, kind: str, at: int) -> Any:
        if kind in _SCALARS:
            dtype = _SCALARS[kind]
            count = self.count(at, dtype.itemsize)
            self.spend("a vector", at, count * dtype.itemsize)
            return np.frombuffer(self.view, dtype, count, at + 4)
        places = [at + 4 + 4 * i for i in range(self.count(at, 4))]
        if kind == "string":
            return [self.string(self.follow(place)) for place in places]
        return [self.table(kind, self.follow(place)) for place in places]


class _Multiplying(_Walk):
    """Writes products into a copy of the file; vectors that tables share are multiplied once."""

    def __init__(self, view: memoryview, fields: Callable[[str, Table], Iterable[str]], by: int) -> None:
        super().__init__(view)
        self.made = bytearray(view)
        self._fields, self._by = fields, by

    def table(self, name: str, at: int) -> Table:
        table, slots = super().table(name, at), self.frame(name, at)
        wanted = set(self._fields(name, table))
        for f in TABLES[name]:
            if f.name in wanted and f.slot in slots:
                place = slots[f.slot]
                place = place if f.kind == "scalar" else self.follow(place) + 4
                _STRUCTS[f.type].pack_into(self.made, place, self.scalar(f.type, place) * self._by)
        return table
