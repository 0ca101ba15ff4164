"""A convolution whose result shares bytes with its input: where the rule says so it is taken, and computes the same."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace

import nets
import numpy as np
import pytest

from nmpconv import _nmp
from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.verify import _intact
from nmpconv.ir import ARENA_ALIGN as ALIGN
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS
from nmpconv.ops.common.overlap import BANDS_MAX, Lines
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

SAME = {f"pad_{side}": 1 for side in ("top", "left", "bottom", "right")}


def sees(lines: Lines, line: int) -> range:
    start = line * lines.stride - lines.before
    return range(max(start, 0), min(start + lines.extent, lines.inputs))


def survives(lines: Lines, at: int, order: list[range]) -> bool:
    """Checks that bands in this order read only what was there at the beginning."""
    memory = {}
    for line in range(lines.inputs):
        memory.update(dict.fromkeys(range(line * lines.x, (line + 1) * lines.x), "x"))
    for band in order:
        written = set(range(at + band.start * lines.y, at + band.stop * lines.y))
        for line in (i for out in band for i in sees(lines, out)):
            needed = range(line * lines.x, (line + 1) * lines.x)
            if any(memory[byte] != "x" or byte in written for byte in needed):
                return False
        memory.update(dict.fromkeys(written, "y"))
    return True


def some_lines(seed: int) -> Lines:
    dice = random.Random(seed)
    extent = dice.choice([1, 1, 2, 3, 3, 5])
    stride, before = dice.choice([1, 1, 2, 3]), dice.randrange(extent)
    inputs = dice.randrange(extent, 14)
    outputs = (inputs + before + dice.randrange(extent) - extent) // stride + 1
    return Lines(dice.choice([1, 2, 3, 5, 8]), dice.choice([1, 2, 3, 5, 8]), inputs, outputs, stride, before, extent)


@pytest.mark.parametrize("seed", range(60))
def test_legal_is_what_survives_line_by_line(seed: int) -> None:
    """Smaller bands never hurt: a plan is legal when line after line, down or up, it computes the same. Where windows
    leave lines out, the rule does not make use of them.
    """
    lines = some_lines(seed)
    down = [range(i, i + 1) for i in range(lines.outputs)]
    for at in range(-lines.y * lines.outputs - 2, lines.x * lines.inputs + 3):
        either = survives(lines, at, down) or survives(lines, at, down[::-1])
        legal = lines.bands(at) is not None
        assert legal == either if lines.stride <= lines.extent else legal <= either, at


@pytest.mark.parametrize("seed", range(20))
def test_nearest_is_the_least_distance(seed: int) -> None:
    small = some_lines(seed)
    lines = replace(small, x=small.x * 16, y=small.y * 16)
    for bands in (2, 3, 8, BANDS_MAX):
        before, after = lines.nearest(bands)
        for at, nearer in ((-before, ALIGN - before), (after, after - ALIGN)):
            assert lines.bands(at) <= bands
            counts = [lines._count(nearer, up=up) for up in (at > nearer,)]
            assert all(count is None or count > bands for count in counts)


def conv(x: tuple[int, ...], w: tuple[int, ...], widths: tuple[int, int, int], **params: int) -> Graph:
    bx, bw, by = widths
    net = nets.Net(sum(x) + sum(w), nets.grid(by, -4))
    net.input("x", *x, quant=nets.grid(bx, -4))
    net.integers("w", *w, most=100, quant=nets.grid(bw, -8))
    net.integers("b", w[0], most=30)
    net.op("conv2d", "x w b", "y", **params)
    return net.graph("y")


DEPTHWISE = {"groups": 16, **SAME}
CONVS = {
    "3x3": conv((1, 12, 6, 4), (8, 3, 3, 4), (8, 8, 8), **SAME),
    "3x3 to int16": conv((1, 9, 5, 4), (4, 3, 3, 4), (8, 8, 16), **SAME),
    "3x3 from int16": conv((1, 9, 5, 4), (4, 3, 3, 4), (16, 16, 8), **SAME),
    "3x3 stride": conv((1, 13, 7, 3), (8, 3, 3, 3), (8, 8, 8), stride_h=2, stride_w=2, pad_bottom=1, pad_right=1),
    "5x3 dilated": conv((1, 16, 6, 4), (4, 5, 3, 4), (8, 8, 8), dilation_h=2, pad_top=4, pad_bottom=4, pad_left=1),
    "1x1": conv((1, 7, 9, 16), (16, 1, 1, 16), (8, 8, 8)),
    "1x1 wider": conv((1, 6, 6, 8), (24, 1, 1, 8), (8, 8, 8)),
    "1x1 narrower": conv((1, 6, 6, 40), (8, 1, 1, 40), (8, 8, 8)),
    "1x1 stride": conv((1, 10, 6, 16), (16, 1, 1, 16), (8, 8, 8), stride_h=2, stride_w=2),
    "depthwise": conv((1, 10, 5, 16), (16, 3, 3, 1), (8, 8, 8), **DEPTHWISE),
    "depthwise int16": conv((1, 10, 5, 16), (16, 3, 3, 1), (16, 16, 16), **DEPTHWISE),
    "groups": conv((1, 8, 6, 8), (8, 3, 3, 2), (8, 8, 8), groups=4, **SAME),
    "batch": conv((2, 4, 4, 8), (8, 1, 1, 8), (8, 8, 8)),
    "more bands than there may be": conv((1, 9, 9, 16), (16, 1, 1, 16), (8, 8, 8)),
    "1x3": conv((1, 7, 5, 8), (8, 1, 3, 8), (8, 8, 8), pad_left=1, pad_right=1),
    "window in the padding below": conv((1, 4, 4, 8), (8, 1, 1, 8), (8, 8, 8), pad_bottom=2),
    "window in the padding": conv((1, 4, 4, 8), (8, 1, 1, 8), (8, 8, 8), pad_top=2),
}


def at_place(graph: Graph, at: int) -> Graph:
    """y begins so many bytes after x."""
    places = {"x": max(-at, 0), "y": max(at, 0)}
    return graph.with_values(*(replace(graph[name], offset=offset) for name, offset in places.items()))


def allowed(graph: Graph, at: int) -> bool:
    node, x, y = graph.nodes[0], graph["x"], graph["y"]
    lines = OPS["conv2d"].lines(node.params, graph.ins(node), y)
    apart = at >= x.nbytes or -at >= y.nbytes
    return apart or (lines is not None and lines.bands(at) is not None)


def files() -> Iterator[bytes]:
    """Each convolution at each place where the result shares bytes with the input, taken or refused."""
    for graph in CONVS.values():
        for at in range(-graph["y"].nbytes // ALIGN * ALIGN + ALIGN, graph["x"].nbytes, ALIGN):
            yield to_bytes(at_place(graph, at), {})


def feed(x: Value) -> np.ndarray:
    return np.random.default_rng(3).integers(-128, 128, x.shape).astype(x.dtype)


@pytest.mark.parametrize("name", CONVS)
def test_every_place(name: str) -> None:
    """Taken where the rule allows it, with the reference's bytes at every level; refused everywhere else."""
    graph = CONVS[name]
    x = feed(graph["x"])
    wanted = run_reference(graph, {"x": x})["y"]
    taken = 0
    for at in range(-graph["y"].nbytes // ALIGN * ALIGN - ALIGN, graph["x"].nbytes + 2 * ALIGN, ALIGN):
        placed = at_place(graph, at)
        data, may = to_bytes(placed, {}), allowed(graph, at)
        assert (not list(_intact(placed))) == may
        for i, cpu in enumerate(interpreter.cpus()):
            if may:
                net = interpreter.load(data, cpu=cpu, threads=1 + i % 3)
                np.testing.assert_array_equal(net.run(x)[0], wanted, err_msg=f"{at} {cpu}")
                taken += 1
            else:
                with pytest.raises(interpreter.ModelError, match="output overlaps input"):
                    interpreter.load(data, cpu=cpu)
    overlapping = taken > 4 * len(interpreter.cpus())
    assert overlapping == (name != "batch" and not name.startswith("window in the padding"))


def test_an_input_that_is_read_later_is_kept() -> None:
    """y over x is no matter of the convolution alone."""
    graph = CONVS["1x1"]
    values = {**graph.values, "z": replace(graph["y"], name="z", offset=4096)}
    nodes = (*graph.nodes, Node("add", "n_z", ("x", "y"), ("z",), OPS["add"].Params()))
    both = at_place(replace(graph, nodes=nodes, values=values, outputs=("z",)), -64)
    with pytest.raises(interpreter.ModelError, match="overwritten before its last use"):
        interpreter.load(to_bytes(both, {}))
    planned = plan_memory.run(both, 0)
    x = feed(graph["x"])
    np.testing.assert_array_equal(interpreter.load(to_bytes(planned, {})).run(x)[0], run_reference(both, {"x": x})["z"])


def test_a_random_plan_never_crashes() -> None:
    """Offsets of a hostile file: anything, also beyond the arena."""
    dice = random.Random(1)
    for graph in CONVS.values():
        root = flatbuffer.unpack(to_bytes(at_place(graph, -4096), {}))
        for _ in range(20):
            for tensor in root["tensors"]:
                if tensor["data"] is None:
                    tensor["offset"] = dice.choice([0, 16, 4095, 4096, 2**31, 2**32 - 16, dice.randrange(2**32)])
            data = np.frombuffer(flatbuffer.pack(root), np.uint8)
            memory = np.zeros(len(data) + 64, np.uint8)
            model = memory[-memory.ctypes.data % 64 :][: len(data)]
            model[:] = data
            with contextlib.suppress(_nmp.Fault):
                _nmp.inspect(model)
