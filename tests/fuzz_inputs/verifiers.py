"""Mutants of .nmp files, made by the schema, for the two verifiers, in C and in Python: they say the same of each.

The good files are small models of every op, and one of sound, in which every field is there. A mutant has one to three
of these changes and a right checksum: a number is a boundary, a step away or that of the same field elsewhere; a list
is shorter, or two of its elements change places; two references of one kind do; an op is of another kind.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import flatbuffers
import numpy as np

from fuzz_inputs import small
from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes

ELEMENTS = 40  # of a list that may change
NUMBERS = sorted(
    {sign * (2**power + step) for power in (0, 2, 3, 4, 5, 6, 7, 8, 14, 15, 16, 17, 30, 31) for step in (-1, 0, 1)
     for sign in (1, -1)} | {30, -30, 47, 48, 62, -62, 381, 513, 131071, 131072, 32768, 2**32 - 16}
)  # fmt: skip
LEAST = {"byte": -(2**7), "short": -(2**15), "int": -(2**31)}  # others are unsigned


class Place(NamedTuple):
    """The place of a number, of a list's length, or of a reference. field: as "Tensor.axis"; alike ones have one field.

    count, width: of a list, its elements and their bytes, 0 for references.
    """

    at: int
    type: str
    field: str
    count: int = 0
    width: int = 0


class Seed(NamedTuple):
    """numbers: those of scalars, and of the first element of lists of them. lists: their lengths."""

    data: bytes
    checksum: int
    numbers: tuple[Place, ...]
    lists: tuple[Place, ...]
    references: tuple[Place, ...]


def files() -> list[bytes]:
    """Every field is there, so that it can be changed where it is."""
    contents = []
    for data in (*(to_bytes(graph, {}) for graph in small.graphs()), small.sound()):
        if len(data) <= small.BYTES:
            builder = flatbuffers.Builder(1 << 12)
            builder.ForceDefaults(True)
            at = flatbuffer._pack_table(builder, flatbuffer.ROOT, {**flatbuffer.unpack(data), "checksum": 1})
            builder.Finish(at, file_identifier=flatbuffer.IDENTIFIER)
            contents.append(flatbuffer.seal(bytes(builder.Output())))
    return contents


@cache
def seed(data: bytes) -> Seed:
    places = list(
        _places(flatbuffer._Walk(memoryview(data)), flatbuffer.ROOT, flatbuffer._Walk(memoryview(data)).follow(0))
    )
    (checksum,) = (place for place in places if place.field == "Model.checksum")
    kinds = "list", "reference"
    numbers = tuple(place for place in places if place.type not in kinds and place != checksum)
    return Seed(data, checksum.at, numbers, *(tuple(p for p in places if p.type == kind) for kind in kinds))


def _places(walk: Any, table: str, at: int) -> Iterator[Place]:
    slots = walk.frame(table, at)
    for f in flatbuffer.TABLES[table]:
        name = f"{table}.{f.name}"
        if f.slot not in slots or f.type == "string":
            continue
        place = slots[f.slot]
        if f.kind == "scalar":
            yield Place(place, f.type, name)
            continue
        yield Place(place, "reference", f.kind)
        to = walk.follow(place)
        if f.kind == "union":
            yield Place(slots[f.slot - 1], "ubyte", name)
            yield from _places(walk, flatbuffer.MEMBERS[walk.scalar("ubyte", slots[f.slot - 1]) - 1], to)
        elif f.kind == "table":
            yield from _places(walk, f.type, to)
        else:
            yield from _of_list(walk, f.type, name, to)


def _of_list(walk: Any, kind: str, name: str, at: int) -> Iterator[Place]:
    count, width = walk.u32(at), flatbuffer._STRUCTS[kind].size if kind in flatbuffer._STRUCTS else 0
    yield Place(at, "list", name, count, width)
    if width:
        yield from (Place(at + 4 + i * width, kind, name) for i in range(min(count, ELEMENTS)))
        return
    for i in range(count):
        yield Place(at + 4 + 4 * i, "reference", name)
        yield from _places(walk, kind, walk.follow(at + 4 + 4 * i))


def mutant(rng: np.random.Generator, good: list[bytes]) -> bytes:
    start = seed(good[rng.integers(len(good))])
    data = bytearray(start.data)
    vast = rng.integers(12) == 0
    if vast:
        _vast(data, start.numbers, rng)
    for _ in range(int(rng.integers(2)) if vast else 1 + int(rng.integers(4)) // 2):
        choice = rng.integers(16)
        if choice < 13:
            _number(data, start.numbers, rng)
        elif choice < 15:
            _list(data, start.lists, rng)
        else:
            _reference(data, start.references, rng)
    struct.pack_into("<I", data, start.checksum, flatbuffer._crc(bytes(data), start.checksum))
    return bytes(data)


def _vast(data: bytearray, numbers: tuple[Place, ...], rng: np.random.Generator) -> None:
    """An arena and live_ends of ops that end next to 2^31, where scratch behind them has no room."""
    end = 2**31 - 16 * int(rng.integers(1, 5))
    for place in numbers:
        if place.field in ("Model.arena_bytes", "Op.live_end"):
            flatbuffer._STRUCTS[place.type].pack_into(data, place.at, end)


def _number(data: bytearray, numbers: tuple[Place, ...], rng: np.random.Generator) -> None:
    place = numbers[rng.integers(len(numbers))]
    code = flatbuffer._STRUCTS[place.type]
    choice = rng.integers(6)
    if choice == 0 or place.type in ("float", "bool"):
        data[place.at : place.at + code.size] = rng.bytes(code.size)
    elif choice == 1:
        alike = [other for other in numbers if other.field == place.field]
        other = alike[rng.integers(len(alike))]
        data[place.at : place.at + code.size] = data[other.at : other.at + code.size]
    else:
        small = code.unpack_from(data, place.at)[0] + int(rng.integers(-3, 4)) * int(rng.choice((1, 1, 16)))
        value = small if choice < 4 else NUMBERS[rng.integers(len(NUMBERS))]
        least, span = LEAST.get(place.type, 0), 1 << 8 * code.size
        code.pack_into(data, place.at, (value - least) % span + least)


def _list(data: bytearray, lists: tuple[Place, ...], rng: np.random.Generator) -> None:
    place = lists[rng.integers(len(lists))]
    if place.count > 1 and place.width and rng.integers(2):
        a, b = (place.at + 4 + place.width * int(i) for i in rng.integers(place.count, size=2))
        data[a : a + place.width], data[b : b + place.width] = data[b : b + place.width], data[a : a + place.width]
    else:
        struct.pack_into("<I", data, place.at, max(place.count - int(rng.choice((1, 1, 2, place.count))), 0))


def _reference(data: bytearray, references: tuple[Place, ...], rng: np.random.Generator) -> None:
    """Two places refer to what the other one did."""
    first = references[rng.integers(len(references))]
    alike = [other for other in references if other.field == first.field]
    two = alike[rng.integers(len(alike))]
    targets = [place.at + struct.unpack_from("<I", data, place.at)[0] for place in (two, first)]
    for place, target in zip((first, two), targets, strict=True):
        struct.pack_into("<I", data, place.at, (target - place.at) % 2**32)
