"""Files that each stop at one guard of the verifiers: what mutants of good files do not reach, or seldom.

They are the start of the corpora of `make fuzz`, and both verifiers are tested on them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import nets
import numpy as np

from fuzz_inputs import verifiers
from nmpconv.errors import Status
from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph

Guard = tuple[str, bytes, Status, str]
"""A sentence, the file, its status, and the rule that C names."""

Tables = dict[str, Any]


def guards() -> Iterator[Guard]:
    yield from _references()
    yield from _lists()
    yield from _meaning()
    yield from _plans()


def _small(change: Callable[[Tables], None]) -> bytes:
    root = flatbuffer.unpack(to_bytes(nets.small_net(), {"producer": "test"}))
    change(root)
    return flatbuffer.pack(root)


def _at(seed: verifiers.Seed, field: str, which: int = 0) -> verifiers.Place:
    found = [place for place in seed.references if place.field == field]
    return sorted(found)[which]


def _slot(walk: Any, table: str, at: int, field: str) -> int:
    """Where a table at this place has the field."""
    slots: dict[int, int] = walk.frame(table, at)
    return slots[next(f.slot for f in flatbuffer.TABLES[table] if f.name == field)]


def _pointing(data: bytes, place: int, to: int) -> bytes:
    """With the reference at the place leading there."""
    changed = bytearray(data)
    struct.pack_into("<I", changed, place, (to - place) % 2**32)
    return flatbuffer.seal(bytes(changed))


def _references() -> Iterator[Guard]:
    seed = verifiers.seed(_small(lambda root: None))
    data, walk = seed.data, flatbuffer._Walk(memoryview(seed.data))
    wrong = Status.STRUCTURE, "offsets and lengths"
    first, last = _at(seed, "Model.ops"), _at(seed, "Model.ops", -1)
    yield "a reference of zero", _pointing(data, last.at, last.at), *wrong
    earlier, later = sorted(_slot(walk, "Op", walk.follow(place.at), "inputs") for place in (first, last))
    yield "a reference that leads back", _pointing(data, later, walk.follow(earlier)), *wrong
    yield "a reference to no multiple of four", _pointing(data, last.at, walk.follow(last.at) + 2), *wrong
    longer = data + bytes(-len(data) % 4 + 2)
    yield "a reference to the last two bytes", _pointing(longer, last.at, len(longer) - 2), *wrong
    at = walk.follow(last.at)
    vtable = at - struct.unpack_from("<i", data, at)[0]
    for field in (f for f in flatbuffer.TABLES["Op"] if f.required):
        changed = bytearray(data)
        struct.pack_into("<H", changed, vtable + 4 + 2 * field.slot, 0)
        yield f"an op without {field.name}", flatbuffer.seal(bytes(changed)), *wrong
    text = data.index(b"n_m\0")
    changed = bytearray(data)
    changed[text + 3] = 1
    yield "a text without an end", flatbuffer.seal(bytes(changed)), *wrong
    changed = bytearray(data)
    struct.pack_into("<I", changed, text - 4, len(data))
    yield "a text that is longer than the file", flatbuffer.seal(bytes(changed)), *wrong


def _lists() -> Iterator[Guard]:
    """More of them share bytes than the file is long."""
    wrong = Status.STRUCTURE, "offsets and lengths"
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 4)
    net.op("gather", "x", "a", axis=1, index=(3,) * 500)
    net.op("gather", "x", "y", axis=1, index=(0, 1))
    good = to_bytes(nets.placed(net.graph("y")), {})
    seed, walk = verifiers.seed(good), flatbuffer._Walk(memoryview(good))
    places = [at for at, *_ in seed.references]
    long = next(p.at for p in seed.lists if p.field == "Gather.index" and p.count == 500)
    short = next(p.at for p in seed.lists if p.field == "Gather.index" and p.count == 2)
    (place,) = (at for at in places if walk.follow(at) == short)
    yield "a list that two ops share", _pointing(good, place, long), *wrong
    for name, one in (("labels", "x" * 40), ("ops", None), ("inputs", None), ("metadata", {"key": "", "value": ""})):
        root = flatbuffer.unpack(good)
        root[name] = root[name] if one is None else [one]
        yield f"{name} that are one again and again", _repeated(flatbuffer.pack(root), name), *wrong


def _repeated(data: bytes, name: str) -> bytes:
    """With a longer list of the first element at the end of the file."""
    walk = flatbuffer._Walk(memoryview(data))
    place = _slot(walk, "Model", walk.follow(0), name)
    first, end, count = walk.follow(walk.follow(place) + 4), -(-len(data) // 4) * 4, len(data) // 2
    table = b"".join(struct.pack("<I", (first - end - 4 - 4 * i) % 2**32) for i in range(count))
    return _pointing(data.ljust(end, b"\0") + struct.pack("<I", count) + table, place, end)


X, W, B, C, K, A, M = range(7)  # tensors of the small net
CONV, ADD, POOL = range(3)  # its ops


def _meaning() -> Iterator[Guard]:
    def awry(root: Tables) -> None:
        root["tensors"][W]["data"] = np.zeros(36, np.uint8)

    seed = verifiers.seed(_small(awry))
    walk, end = flatbuffer._Walk(memoryview(seed.data)), -(-len(seed.data) // 64) * 64
    tensors = walk.follow(_slot(walk, "Model", walk.follow(0), "tensors"))
    place = _slot(walk, "Tensor", walk.follow(tensors + 4 + 4 * W), "data")
    data = seed.data.ljust(end, b"\0") + struct.pack("<I", 36) + bytes(36)
    yield "weights at no multiple of 64", _pointing(data, place, end), Status.TENSOR, "alignment of data"

    def state(root: Tables) -> None:
        root["outputs"][0]["state"] = 0

    yield "an output that is a state", _small(state), Status.TENSOR, "state of an output"

    def large(root: Tables) -> None:
        root["arena_bytes"] = 2**31 - 16
        root["ops"][CONV]["live_end"] = 0

    yield "scratch behind an arena of 2^31 bytes", _small(large), Status.LIMIT, "bytes of the arena with scratch"

    def large_and_awry(root: Tables) -> None:
        large(root)
        root["ops"][ADD]["live_end"] = 2**31 - 1

    yield "a wrong plan, too", _small(large_and_awry), Status.PLAN, "live_end of the op"

    def large_and_illegal(root: Tables) -> None:
        large(root)
        root["ops"][POOL]["params"][1]["kernel_h"] = 0

    yield "an illegal op, too", _small(large_and_illegal), Status.OP, "kernel"

    def long(root: Tables) -> None:
        for tensor in (C, A, M):
            root["tensors"][tensor]["shape"] = [1, 16384, 16384, 2]
        root["ops"] = root["ops"][POOL : POOL + 1]
        pads = {f"pad_{side}": 8191 for side in ("top", "bottom", "left", "right")}
        root["ops"][0]["params"][1].update(kernel_h=16383, kernel_w=16383, stride_h=1, stride_w=1, **pads)

    yield "a pool that takes years", _small(long), Status.LIMIT, "steps of a run"
    net = nets.Net(grid=nets.grid(16, -10))
    net.input("x", 1, 8)
    net.const("t", np.full(512, 1 << 30, np.int32), quant=nets.grid(32, -30))
    net.op("softmax", "x t", "y", quant=nets.grid(16, -15), axis=1)
    root = flatbuffer.unpack(to_bytes(nets.placed(net.graph("y")), {}))
    x, table = root["ops"][0]["inputs"]
    root["ops"][0]["inputs"] = [x, *[table] * 40]
    yield "a table that is read again and again", flatbuffer.pack(root), Status.LIMIT, "steps of verification"
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 4, 2, 2)
    net.op("average_pool", "x", "y", kernel_h=2, kernel_w=2, stride_h=4, stride_w=4, pad_top=1, pad_left=1)
    root = flatbuffer.unpack(to_bytes(nets.placed(net.graph("y")), {}))
    root["ops"][0]["params"][1].update(pad_bottom=5, pad_right=1, stride_h=5)
    root["tensors"][1]["shape"] = [1, 2, 1, 2]
    what = "window that starts in the padding after the input"
    yield "a window beyond the input", flatbuffer.pack(root), Status.OP, what


def _plans() -> Iterator[Guard]:
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 4)
    for i in range(60):
        net.op("add", "x x", f"a{i}")
    net.op("concat", " ".join(["x"] * 1200), "y", axis=1)
    data = to_bytes(nets.placed(net.graph("y")), {})
    yield "a tensor that is read again and again", data, Status.LIMIT, "steps of verification"
    overlaps = Status.PLAN, "output overlaps input"
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 8, 1, quant=nets.grid(16, 0))
    net.const("k", np.ones((1, 8, 2)))
    net.op("add", "x k", "y")
    yield "half as wide and twice as many in place", _over(net.graph("y"), 0, 0), *overlaps
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 4, 8)
    net.op("concat", "x x", "y", axis=2)
    yield "a part of a result that lies in pieces", _over(net.graph("y"), 0, 0), *overlaps


def _over(graph: Graph, x: int, y: int) -> bytes:
    return to_bytes(nets.placed(graph, x=x, y=y), {})
