"""Bands of rows: the same integers from less memory, or the least that would do."""

from __future__ import annotations

import re

import numpy as np
import pytest
from nets import Net, grid

from nmpconv.errors import Unsupported
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph
from nmpconv.passes.memory import bands, plan_memory
from nmpconv.runtime import interpreter

E = -4


def start(height: int, seed: int) -> Net:
    net = Net(seed, grid(8, E))
    net.input("x", 1, height, 9, 4)
    return net


def conv(
    net: Net, x: str, channels: int, kernel: int, *, pad_value: bool = False, groups: int = 1, **params: int
) -> str:
    out, depth = f"t{len(net.nodes)}", net.values[x].shape[3]
    by_channel = grid(8, *[E] * channels, axis=0)
    shape = (channels, kernel, kernel, depth // groups)
    w = net.integers(f"{out}.w", *shape, most=3 if groups == 1 else 40, quant=by_channel)
    b = net.integers(f"{out}.b", channels, most=60)
    pad = net.rng.integers(-100, 101, depth) if pad_value else None
    return net.conv(x, out, channels, kernel, groups=groups, w=w, b=b, pad=pad, **params)


def plain(net: Net) -> str:
    return conv(net, conv(net, conv(net, "x", 24, 3), 24, 3), 4, 3, stride_h=2, stride_w=2)


def residual(net: Net) -> str:
    a = conv(net, "x", 16, 3, pad_value=True)
    b = conv(net, conv(net, a, 16, 3, groups=16), 16, 1)
    s = net.op("add", f"{a} {b}", "s")
    return conv(net, s, 4, 3, stride_h=2, stride_w=2, pad_top=0, pad_left=0)


def pools(net: Net) -> str:
    around = dict.fromkeys(("pad_top", "pad_left", "pad_bottom", "pad_right"), 1)
    a = conv(net, "x", 32, 3, dilation_h=2, pad_top=2, pad_bottom=2, pad_left=0, pad_right=0)
    b = net.op("max_pool", a, "b", kernel_h=3, kernel_w=3, stride_h=2, stride_w=2, **around)
    c = conv(net, b, 16, 1)
    return net.op("average_pool", c, "y", kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, **around)


def peak(graph: Graph, room: int | None = None) -> int:
    planned = plan_memory.run(graph, room)
    verify(planned, "PLANNED", "bands")
    return plan_memory.peak(planned)


def least(graph: Graph) -> int:
    """The smallest room, as the refusal of a smaller one names it."""
    with pytest.raises(Unsupported, match="in bands of rows, and 10 are") as refused:
        bands.run(graph, 10)
    return int(re.findall(r"--max-ram (\d+)", refused.value.hint)[0])


def outputs(graph: Graph, x: np.ndarray) -> list[np.ndarray]:
    found = run_reference(graph, {"x": x})
    return [found[name] for name in graph.outputs]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("build", [plain, residual, pools])
def test_the_same_integers_from_less_memory(build: object, seed: int) -> None:
    assert callable(build)
    net = start(12 + 3 * seed, seed)
    graph = net.graph(build(net))
    room = max(least(graph), peak(graph) // 2)
    banded = bands.run(graph, room)
    assert peak(banded, room) <= room
    x = net.rng.integers(-128, 128, graph["x"].shape).astype(np.int8)
    (wanted,) = outputs(graph, x)
    np.testing.assert_array_equal(outputs(banded, x)[0], wanted)
    np.testing.assert_array_equal(interpreter.load(to_bytes(plan_memory.run(banded, room), {})).run(x)[0], wanted)


@pytest.mark.parametrize("build", [plain, residual, pools])
def test_every_stretch_and_height(build: object) -> None:
    assert callable(build)
    net = start(9, 7)
    graph = net.graph(build(net))
    x = net.rng.integers(-128, 128, graph["x"].shape).astype(np.int8)
    (wanted,) = outputs(graph, x)
    candidates = list(bands._candidates(graph))
    assert len(candidates) > 8
    for candidate in candidates:
        verify(candidate, "INT", "bands")
        np.testing.assert_array_equal(outputs(candidate, x)[0], wanted)


def test_the_smallest_that_would_do_is_named() -> None:
    net = start(12, 0)
    graph = net.graph(plain(net))
    smallest = least(graph)
    assert peak(bands.run(graph, smallest), smallest) == smallest
    with pytest.raises(Unsupported):
        bands.run(graph, smallest - 1)


def test_a_tensor_that_is_also_an_output_stays_whole() -> None:
    net = start(12, 0)
    a = conv(net, "x", 8, 3)
    b = conv(net, conv(net, a, 8, 3), 4, 3)
    graph = net.graph(a, b)
    x = net.rng.integers(-128, 128, graph["x"].shape).astype(np.int8)
    for candidate in bands._candidates(graph):
        for got, wanted in zip(outputs(candidate, x), outputs(graph, x), strict=True):
            np.testing.assert_array_equal(got, wanted)
