"""Ops that are run together: the bytes of the reference, and only where nobody wants what lies between."""

from __future__ import annotations

from collections.abc import Callable

import nets
import numpy as np
import pytest

from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph, Node, Value
from nmpconv.passes.memory import plan_memory
from nmpconv.run import runtime

SIDE, CHANNELS = 25, 48
SHAPE = (1, SIDE, SIDE, CHANNELS)
SAME = {"pad_top": 1, "pad_left": 1, "pad_bottom": 1, "pad_right": 1}
TOGETHER = [cpu for cpu in runtime.cpus() if cpu != "portable"]  # kernels that compute rows

pytestmark = pytest.mark.skipif(not TOGETHER, reason="portable kernels run op by op")


class Builder:
    """A graph, op by op; every op reads the result of the one before it, at first x."""

    def __init__(self, bits: int) -> None:
        self.bits, self.rng = bits, np.random.default_rng(5)
        self.grid = nets.grid(bits, -4)
        self.values: list[Value] = []
        self.nodes: list[Node] = []
        self.last = self.new("x", SHAPE)

    def new(self, name: str, shape: tuple[int, ...]) -> str:
        self.values.append(nets.active(name, shape, self.grid))
        return name

    def shape(self) -> tuple[int, ...]:
        return next(value.shape for value in self.values if value.name == self.last)

    def constant(self, shape: tuple[int, ...], grid: object, most: int) -> str:
        name = f"k{len(self.values)}"
        self.values.append(nets.constant(name, self.rng.integers(-most, most, shape), grid))
        return name

    def op(self, kind: str, *others: str, shape: tuple[int, ...] | None = None, **params: int) -> Builder:
        inputs = " ".join((self.last, *others))
        y = self.new(f"y{len(self.nodes)}", shape or self.shape())
        self.nodes.append(nets.node(kind, inputs, y, **params))
        self.last = y
        return self

    def conv(self, out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> Builder:
        _, height, width, channels = self.shape()
        k = kernel * kernel * channels // groups
        exponent = -self.bits - int(np.log2(k) / 2)
        w = self.constant(
            (out, kernel, kernel, channels // groups),
            nets.grid(self.bits, *[exponent] * out, axis=0),
            2 ** (self.bits - 1),
        )
        b = self.constant((out,), nets.grid(8, -4), 60)
        pads = SAME if kernel == 3 else {}
        shape = (1, (height - 1) // stride + 1, (width - 1) // stride + 1, out)
        return self.op("conv2d", w, b, shape=shape, groups=groups, stride_h=stride, stride_w=stride, **pads)

    def at(self, name: str) -> Builder:
        """Goes on from an earlier result."""
        self.last = name
        return self

    def concat(self, *others: str) -> Builder:
        shapes = {value.name: value.shape for value in self.values}
        channels = sum(shapes[name][3] for name in (self.last, *others))
        return self.op("concat", *others, shape=(*self.shape()[:3], channels), axis=3)

    def table(self) -> Builder:
        if self.bits == 8:
            return self.op("lookup", self.constant((256,), nets.grid(8, -4), 100))
        return self.op("lookup", self.constant((513,), nets.grid(32, -12), 2**22))

    def graph(self, *outputs: str) -> Graph:
        ports = (*outputs, self.last)
        values = {value.name: value for value in self.values}
        sources = {name: values[name].shape for name in ("x", *ports)}
        return Graph("chain", ("x",), ports, tuple(self.nodes), values, source_shapes=sources)


def depthwise(b: Builder) -> Builder:
    return b.conv(CHANNELS, 3, groups=CHANNELS)


# Graphs, and the ops [first, last) of the steps of a run by several threads.
Net = Callable[[int], tuple[Graph, list[tuple[int, int]]]]


def residual(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = depthwise(Builder(bits)).conv(CHANNELS)
    skip = b.last
    return depthwise(b).conv(64).conv(CHANNELS).op("add", skip).table().graph(), [(0, 2), (2, 7)]


def strided(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    return Builder(bits).conv(64, 3, 2).conv(96).op("requantize").graph(), [(0, 3)]


def broadcast(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Builder(bits).conv(64)
    return b.op("mul", b.constant((64,), nets.grid(bits, -bits + 1), 2 ** (bits - 1))).conv(32).graph(), [(0, 3)]


def wanted_twice(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = depthwise(Builder(bits))
    first = b.last
    return b.conv(CHANNELS).op("add", first).graph(), [(0, 1), (1, 3)]


def wanted_outside(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = depthwise(Builder(bits))
    first = b.last
    return b.conv(CHANNELS).graph(first), [(0, 1), (1, 2)]


def twice_itself(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Builder(bits).conv(64, 3)
    return b.op("add", b.last).graph(), [(0, 2)]


def other_rows(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    """What follows sees other rows, or rows as something else."""
    b = Builder(bits).conv(64).conv(64, 3)
    return b.op("transpose", perm=(0, 2, 1, 3)).graph(), [(0, 1), (1, 2), (2, 3)]


def late(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    """In the smallest plan the result lies where the input does."""
    return depthwise(Builder(bits)).conv(16).graph(), [(0, 2)]


NETS = [residual, strided, broadcast, wanted_twice, wanted_outside, twice_itself, other_rows, late]


def feed(bits: int) -> np.ndarray:
    most = 2 ** (bits - 1)
    return np.random.default_rng(1).integers(-most, most, SHAPE).astype(f"int{bits}")


@pytest.mark.parametrize("plan", [nets.placed, plan_memory.run], ids=["apart", "smallest"])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
def test_same_bytes(net: Net, bits: int, plan: Callable[[Graph], Graph]) -> None:
    graph, steps = net(bits)
    graph = plan(graph)
    x = feed(bits)
    wanted = run_reference(graph, {"x": x})
    for cpu in TOGETHER:
        for threads in (1, 2, 3, 7):
            loaded = runtime.load(to_bytes(graph, {}), cpu=cpu, threads=threads)
            for _ in range(2):
                for y, name in zip(loaded.run(x), graph.outputs, strict=True):
                    np.testing.assert_array_equal(y, wanted[name], err_msg=f"{cpu}, {threads} threads")
            if threads == 1:
                assert loaded.steps() == [(i, i + 1) for i in range(len(graph.nodes))]
            elif plan is nets.placed or net is late:
                assert loaded.steps() == steps


def fire(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Builder(bits).conv(24)
    squeezed, wide = b.last, b.conv(33).last
    return b.at(squeezed).conv(40, 3).concat(wide).conv(16).graph(), [(0, 1), (1, 4), (4, 5)]


def grown(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    """One input of the concatenation is older, and copied."""
    b = Builder(bits)
    return b.conv(24, 3).concat("x").graph(), [(0, 2)]


def taken_twice(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Builder(bits).conv(24)
    return b.concat(b.last).graph(), [(0, 1), (1, 2)]


def taken_elsewhere(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Builder(bits).conv(24)
    first = b.last
    return b.concat("x").conv(24).op("add", first).graph(), [(0, 1), (1, 2), (2, 3), (3, 4)]


def of_depthwise(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = depthwise(Builder(bits))
    return b.concat("x").graph(), [(0, 1), (1, 2)]


CONCATS = [fire, grown, taken_twice, taken_elsewhere, of_depthwise]


@pytest.mark.parametrize("plan", [nets.placed, plan_memory.run], ids=["apart", "smallest"])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("net", CONCATS, ids=lambda net: net.__name__)
def test_concatenations(net: Net, bits: int, plan: Callable[[Graph], Graph]) -> None:
    graph, steps = net(bits)
    graph = plan(graph)
    x = feed(bits)
    (wanted,) = run_reference(graph, {"x": x}).values()
    for cpu in TOGETHER:
        for threads in (1, 2, 3):
            loaded = runtime.load(to_bytes(graph, {}), cpu=cpu, threads=threads)
            for _ in range(2):
                np.testing.assert_array_equal(loaded.run(x)[0], wanted, err_msg=f"{cpu}, {threads} threads")
            if plan is nets.placed and threads == 1:
                assert loaded.steps() == steps


def test_a_plan_gives_concatenations_their_place_early() -> None:
    """Where the arena does not grow: elsewhere more is alive."""
    b = Builder(8).conv(128, 3).conv(24)
    squeezed, wide = b.last, b.conv(32).last
    graph = plan_memory.run(b.at(squeezed).conv(32, 3).concat(wide).graph())
    assert runtime.load(to_bytes(graph, {}), cpu=TOGETHER[-1]).steps() == [(0, 1), (1, 2), (2, 5)]
    assert plan_memory.peak(graph) == plan_memory.lower_bound(graph)


def test_result_over_the_input() -> None:
    graph = plan_memory.run(late(8)[0])
    assert graph["x"].offset == graph[graph.outputs[0]].offset


def test_single_ops_can_be_read() -> None:
    """Op by op every tensor is written, also between those that a whole run takes together."""
    graph = nets.placed(residual(8)[0])
    net = runtime.load(to_bytes(graph, {}), threads=2)
    x = feed(8)
    names = [value.name for value in graph.activations()]
    wanted = run_reference(graph, {"x": x}, keep=names)
    numbers = {t.name: i for i, t in enumerate(net.model.tensors)}
    net.set_input(0, x)
    for i, node in enumerate(graph.nodes):
        net.run_ops(i, i + 1)
        np.testing.assert_array_equal(net.tensor(numbers[node.outputs[0]]), wanted[node.outputs[0]])


def test_profile_adds_up() -> None:
    graph, steps = residual(8)
    net = runtime.load(to_bytes(nets.placed(graph), {}), cpu=TOGETHER[-1], threads=2)
    rows = net.profile(2)
    assert [(row.first, row.first + row.count) for row in rows] == steps
    assert sum(row.macs for row in rows) == sum(op.macs for op in net.model.ops) > 0
    assert rows[-1].kind == "conv2d + conv2d + conv2d + add + lookup"
    assert rows[-1].name == graph.nodes[-1].name
