"""Intervals of the integers of an activation: no input leaves them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from nets import Net, grid

from nmpconv.graph.reference import run as run_reference
from nmpconv.passes.quantize import intervals

E = -4  # of all activations; weights have -4, too, so that the shift is 4


def conv(net: Net, out: str, x: str, *, most: int, groups: int = 1, dead: Sequence[int] = ()) -> None:
    """3x3 with a Relu, as many channels as before. dead: outputs that are always 0."""
    channels = net.values[x].shape[3]
    w = net.rng.integers(-most, most + 1, (channels, 3, 3, channels // groups))
    b = net.rng.integers(-20, 60, channels)
    w[list(dead)], b[list(dead)] = 0, -5
    net.conv(x, out, channels, 3, groups=groups, w=w, b=b, quant=grid(8, E, lo=0))


@pytest.mark.parametrize("seed", range(12))
def test_intervals_hold(seed: int) -> None:
    """Every value of every op lies in its interval, and constants are what they are said to be."""
    net = Net(seed, grid(8, E))
    net.input("x", 1, 6, 6, 8)
    conv(net, "a", "x", most=9, dead=[seed % 8])
    conv(net, "d", "a", most=60, groups=8)
    net.op("sub", "a d", "s")
    net.op("mul", "s a", "m")
    net.op("concat", "m s", "c", axis=3)
    net.op("add", "c c", "y")
    graph = net.graph("y")
    found = intervals.run(graph)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        x = rng.choice([-128, -1, 0, 127], graph["x"].shape).astype(np.int8)
        seen = run_reference(graph, {"x": x}, keep=list(found))
        for name, interval in found.items():
            q = seen[name].reshape(-1, graph[name].shape[-1])
            assert (q.min(axis=0) >= interval.lo).all()
            assert (q.max(axis=0) <= interval.hi).all()
    assert found["a"].constant[seed % 8]


def test_a_tensor_without_dimensions() -> None:
    for op, times in (("requantize", 1), ("add", 2)):
        net = Net(grid=grid(8, E))
        net.input("x", quant=grid(8, E, lo=-7, hi=9))
        net.op(op, " ".join(["x"] * times), "y")
        y = intervals.run(net.graph("y"))["y"]
        assert (y.lo.tolist(), y.hi.tolist()) == ([-7 * times], [9 * times])


def test_memory_does_not_grow_with_places() -> None:
    """A table, a sum with itself and one with a constant of two rows, over a million places, take less than 100 kB."""
    net = Net(grid=grid(8, E))
    net.input("x", 2, 1 << 19, 3, quant=grid(8, E, lo=-7, hi=9))
    net.const("k", np.array([[[1, 2, 3]], [[4, 5, 6]]]), grid(16, E))
    net.op("requantize", "x", "r")
    net.op("add", "r r", "s")
    net.op("add", "s k", "y")
    graph = net.graph("y")
    tracemalloc.start()
    y = intervals.run(graph)["y"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert (y.lo.tolist(), y.hi.tolist()) == ([-13, -12, -11], [22, 23, 24])


def test_memory_does_not_grow_with_channels() -> None:
    net = Net(grid=grid(8, E))
    net.input("x", 1, 1 << 19, quant=grid(8, E, lo=-7, hi=9))
    tracemalloc.start()
    x = intervals.run(net.graph("x"))["x"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert (x.lo.shape, x.lo.min(), x.hi.max()) == ((1 << 19,), -7, 9)


def test_memory_does_not_grow_with_pixels_of_a_pool() -> None:
    net = Net(grid=grid(8, E))
    net.input("x", 1, 4, 1 << 20, 2, quant=grid(8, E, lo=-7, hi=9))
    net.op("average_pool", "x", "y", kernel_h=2, kernel_w=2, stride_h=2, stride_w=2)
    tracemalloc.start()
    y = intervals.run(net.graph("y"))["y"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert (y.lo.tolist(), y.hi.tolist()) == ([-128, -128], [127, 127])
