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
    for group in GROUPS:
        yield from group()


def _small(change: Callable[[Tables], None]) -> bytes:
    root = flatbuffer.unpack(to_bytes(nets.small_net(), {"producer": "test"}))
    change(root)
    return flatbuffer.pack(root)


def _at(seed: verifiers.Seed, field: str, which: int = 0) -> verifiers.Place:
    found = [place for place in seed.references if place.field == field]
    return sorted(found)[which]


def _slot(walk: Any, table: str, at: int, field: str) -> int:
    """The place of the field of a table at this place."""
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
    end = len(data) + -len(data) % 4
    empty = data.ljust(end, b"\0") + struct.pack("<iHH", -4, 4, 4)
    place = _slot(walk, "Op", walk.follow(_at(seed, "Model.ops", ADD).at), "params")
    yield "no guard: a table without fields, whose frame ends the file", _pointing(empty, place, end), Status.OK, ""
    yield "a frame that is cut off", flatbuffer.seal(_pointing(empty, place, end)[:-2]), *wrong
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
    root = flatbuffer.unpack(good)
    del root["ops"][0]
    for spare in range(8, 80, 8):  # one of them ends at a table, the others in one
        again = _repeated(flatbuffer.pack(root).ljust(len(good) + spare, b"\0"), "ops")
        yield f"ops that are one again and again, and {spare} bytes", again, *wrong


def _repeated(data: bytes, name: str) -> bytes:
    """With a longer list of the first element behind the file, and another file behind that: references lead ahead."""
    walk = flatbuffer._Walk(memoryview(data))
    place = _slot(walk, "Model", walk.follow(0), name)
    first, end, count = walk.follow(walk.follow(place) + 4), -(-len(data) // 8) * 8, len(data)
    again = end + 4 + 4 * count
    again += -again % 8
    table = b"".join(struct.pack("<I", again + first - end - 4 - 4 * i) for i in range(count))
    longer = (data.ljust(end, b"\0") + struct.pack("<I", count) + table).ljust(again, b"\0") + data
    return _pointing(longer, place, end)


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
    rule = "window that starts in the padding after the input"
    yield "a window beyond the input", flatbuffer.pack(root), Status.OP, rule


def _float_grids() -> Iterator[Guard]:
    """Exponents and offsets of the float model's numbers that do not fit together."""

    def changed(tensor: int, **fields: Any) -> bytes:
        return _small(lambda root: root["tensors"][tensor].update(fields))

    number, offsets = "number of float exponents", "number of float offsets"
    yield "a float axis without exponents", changed(X, float_axis=1), Status.TENSOR, number
    yield "float exponents of a constant", changed(W, float_exponents=[0]), Status.TENSOR, number
    both = {"float_exponents": [0], "float_offsets": [1.0, 2.0]}
    yield "more float offsets than exponents", changed(X, **both), Status.TENSOR, offsets
    for text in ("nan", "inf"):
        odd = changed(X, float_exponents=[0], float_offsets=[float(text)])
        yield f"a float offset of {text}", odd, Status.TENSOR, "bits of a float offset"
    both = {"float_exponents": [0], "float_mantissas": [1.0, 1.5]}
    yield "more float mantissas than exponents", changed(X, **both), Status.TENSOR, "number of float mantissas"
    for mantissa in (0.75, 2.0):
        odd = changed(X, float_exponents=[0], float_mantissas=[mantissa])
        yield f"a float mantissa of {mantissa}", odd, Status.TENSOR, "bits of a float mantissa"
    last = {"float_axis": 3, "float_exponents": [0, 0], "float_mantissas": [1.5, 2.0]}
    yield "a float mantissa of 2 behind one of 1.5", changed(X, **last), Status.TENSOR, "bits of a float mantissa"
    yield "exponents along an axis beyond the last", changed(W, axis=4), Status.TENSOR, "axis"
    yield "an exponent twice", changed(X, exponents=[0, 0]), Status.TENSOR, "number of exponents"


def _states() -> Iterator[Guard]:
    def changed(change: Callable[[Tables], None], shape: tuple[int, ...] = (1, 4)) -> bytes:
        """One sum; its input holds its output from one call to the next, but for the change."""
        net = nets.Net(grid=nets.grid(8, 0))
        net.input("x", *shape)
        net.const("k", np.ones((1, 4)))
        net.op("add", "x k", "y")
        root = flatbuffer.unpack(to_bytes(nets.placed(net.graph("y")), {}))
        root["inputs"][0]["state"] = 0
        change(root)
        return flatbuffer.pack(root)

    def port(**fields: Any) -> Callable[[Tables], None]:
        return lambda root: root["inputs"][0].update(fields)

    def start(root: Tables) -> None:
        root["inputs"][0]["start"] = 1
        root["tensors"][0].update(clip_min=-1, clip_max=0)

    def exponent(root: Tables) -> None:
        root["tensors"][2]["exponents"] = [1]

    def wide(root: Tables) -> None:
        root["tensors"][2].update(dtype=1)

    def rank(root: Tables) -> None:
        root["tensors"][0]["shape"] = [4]

    def crowd(root: Tables) -> None:
        """More pairs of a state and an output than steps."""
        (held,), (x, *others) = root["inputs"], root["tensors"]
        root["inputs"] = [{**held, "tensor": i} for i in range(301)]
        root["tensors"] = [x, *({**x, "offset": 64 * i} for i in range(1, 301)), *others]
        root["ops"][0].update(inputs=[0, 301], outputs=[302])
        root["outputs"] = [{**root["outputs"][0], "tensor": 302}] * 3000
        root["arena_bytes"] = 64 * 301

    rule = "shape or grid of a state's output"
    yield "a state of an output before the first", changed(port(state=-2)), Status.TENSOR, "output of a state"
    yield "a state of an output after the last", changed(port(state=7)), Status.TENSOR, "output of a state"
    yield "a state that starts above its range", changed(start), Status.TENSOR, "start of a state"
    yield "a state of another scale", changed(exponent), Status.TENSOR, rule
    yield "a state of another width", changed(wide), Status.TENSOR, rule
    yield "a state of another rank", changed(rank), Status.TENSOR, rule
    yield "states beside very many outputs", changed(crowd), Status.LIMIT, "steps of verification"


def _plans() -> Iterator[Guard]:
    net = nets.Net(grid=nets.grid(8, 0))
    for i in range(3000):
        net.input(f"x{i}", 1)
    net.op("add", "x0 x1", "y")
    data = to_bytes(nets.placed(net.graph("y")), {})
    yield "very many inputs", data, Status.LIMIT, "steps of verification"
    yield from _memories()
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 4)
    for i in range(60):
        net.op("add", "x x", f"a{i}")
    net.op("concat", " ".join(["x"] * 1200), "y", axis=1)
    data = to_bytes(nets.placed(net.graph("y")), {})
    yield "a tensor that is read again and again", data, Status.LIMIT, "steps of verification"
    net, count = nets.Net(grid=nets.grid(8, 0)), 1200
    net.input("x", 1, 16)
    for i in range(count):
        net.op("reshape", f"a{i - 1}" if i else "x", f"a{i}", shape=(1, 16))
    net.op("concat", " ".join(f"a{i}" for i in range(count)), "y", axis=1)
    places = {"x": 16 * count, "y": 0, **{f"a{i}": 16 * i for i in range(count)}}
    yield "very many parts of a result", _over(net.graph("y"), **places), Status.PLAN, "output overlaps input"
    overlaps = Status.PLAN, "output overlaps input"
    yield "a result over its input when all but a few steps are spent", _almost(1025), *overlaps
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 8, 1, quant=nets.grid(16, 0))
    net.const("k", np.ones((1, 8, 2)))
    net.op("add", "x k", "y")
    yield "half as wide and twice as many in place", _over(net.graph("y"), x=0, y=0), *overlaps
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 4, 8)
    net.op("concat", "x x", "y", axis=2)
    yield "a part of a result that lies in pieces", _over(net.graph("y"), x=0, y=0), *overlaps


def _memories() -> Iterator[Guard]:
    """The small net has x in the fast memory, and c and a in the slow one, but for the change."""

    def changed(*changes: tuple[str, int, dict[str, int]], **fields: int) -> bytes:
        def change(root: Tables) -> None:
            root["fast_bytes"] = 64
            root["arena_bytes"] += 64
            for tensor in root["tensors"]:
                tensor["offset"] += 0 if tensor["data"] is not None else 64
            for op in root["ops"]:
                op["live_end"] += 64
            root["tensors"][X]["offset"] = 0
            for kind, i, new in changes:
                root[kind][i].update(new)
            root.update(fields)

        return _small(change)

    fast, scratch, over = "fast_bytes", "scratch in the fast memory", "scratch over a tensor, at offset"
    yield "two memories", changed(("ops", CONV, {"scratch_at": 32, "scratch_room": 32})), Status.OK, ""
    yield "scratch before what lies there", changed(*_moved(32, 0, 32)), Status.OK, ""
    yield "a fast memory of an odd size", changed(fast_bytes=40), Status.PLAN, fast
    yield "a fast memory larger than the arena", changed(fast_bytes=1 << 20), Status.PLAN, fast
    yield "a tensor in both memories", changed(fast_bytes=16), Status.PLAN, "end in the fast memory"
    for at, room in ((8, 16), (80, 0), (32, 48)):
        odd = changed(("ops", CONV, {"scratch_at": at, "scratch_room": room}))
        yield f"scratch of {room} bytes at {at} of 64", odd, Status.PLAN, scratch
    yield "scratch over what is read", changed(*_moved(0, 0, 16)), Status.PLAN, over
    yield "scratch over the result", changed(*_moved(0, 32, 32), ("tensors", C, {"offset": 32})), Status.PLAN, over
    late = ("tensors", X, {"exponents": np.array([-4])}), ("ops", ADD, {"scratch_at": 0, "scratch_room": 16})
    yield "scratch over what is read later", changed(*late, ("ops", POOL, {"inputs": [X]})), Status.PLAN, over


def _moved(x: int, at: int, room: int) -> tuple[tuple[str, int, dict[str, int]], ...]:
    return ("tensors", X, {"offset": x}), ("ops", CONV, {"scratch_at": at, "scratch_room": room})


def _over(graph: Graph, **places: int) -> bytes:
    return to_bytes(nets.placed(graph, **places), {})


def _almost(count: int) -> bytes:
    """A tensor that is read so often, then a convolution over its input. With one time less it is legal."""
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 1, 1, 4)
    for i in range(40):
        net.op("add", "x x", f"a{i}")
    net.op("concat", " ".join(["x"] * count), "b", axis=1)
    net.op("slice", "b", "c", starts=(0,) * 4, steps=(1,) * 4, sizes=(1, 64, 1, 4))
    net.conv("c", "y", 4, b=np.zeros(4), w=np.ones((4, 1, 1, 4)))
    graph = nets.placed(net.graph("y"))
    places = {value.name: value.offset for value in graph.activations()}
    return _over(graph, **{**places, "c": places["y"] + 64})


GROUPS = (_references, _lists, _meaning, _float_grids, _states, _plans)
"""Functions that yield guards."""
