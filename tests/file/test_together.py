"""Ops that are run together: the bytes of the reference, and only where nobody wants what lies between."""

from __future__ import annotations

import math
from collections.abc import Callable

import nets
import numpy as np
import pytest

from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph, Quant
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

ROWS, COLUMNS, CHANNELS = 25, 22, 48
SHAPE = (1, ROWS, COLUMNS, CHANNELS)
TOGETHER = [cpu for cpu in interpreter.cpus() if cpu != "portable"]  # kernels that compute rows

pytestmark = pytest.mark.skipif(not TOGETHER, reason="portable kernels run op by op")


class Chain(nets.Net):
    """Every op reads the result of the one before it, at first x."""

    def __init__(self, bits: int) -> None:
        super().__init__(5, nets.grid(bits, -4))
        self.bits = bits
        self.last = self.input("x", *SHAPE)

    def then(self, kind: str, *others: str, **params: int) -> Chain:
        self.last = self.op(kind, " ".join((self.last, *others)), f"y{len(self.nodes)}", **params)
        return self

    def constant(self, *shape: int, most: int, quant: Quant) -> str:
        return self.integers(f"k{len(self.values)}", *shape, most=most, quant=quant)

    def weigh(self, outs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> Chain:
        shape = (outs, kernel, kernel, self.values[self.last].shape[3] // groups)
        exponent = -self.bits - int(np.log2(math.prod(shape[1:])) / 2)
        by_channel = nets.grid(self.bits, *[exponent] * outs, axis=0)
        w = self.constant(*shape, most=2 ** (self.bits - 1), quant=by_channel)
        b = self.constant(outs, most=60, quant=nets.grid(8, -4))
        out = f"y{len(self.nodes)}"
        self.last = self.conv(self.last, out, outs, kernel, groups=groups, w=w, b=b, stride_h=stride, stride_w=stride)
        return self

    def at(self, name: str) -> Chain:
        """Goes on from an earlier result."""
        self.last = name
        return self

    def concat(self, *others: str) -> Chain:
        return self.then("concat", *others, axis=3)

    def table(self) -> Chain:
        if self.bits == 8:
            return self.then("lookup", self.constant(256, most=100, quant=nets.grid(8, -4)))
        return self.then("lookup", self.constant(513, most=2**22, quant=nets.grid(32, -12)))

    def done(self, *outputs: str) -> Graph:
        return self.graph(*outputs, self.last, sources=True)


def depthwise(b: Chain) -> Chain:
    return b.weigh(CHANNELS, 3, groups=CHANNELS)


# Graphs, and the ops [first, last) of the steps of a run by several threads.
Net = Callable[[int], tuple[Graph, list[tuple[int, int]]]]


def residual(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = depthwise(Chain(bits)).weigh(CHANNELS)
    skip = b.last
    return depthwise(b).weigh(64).weigh(CHANNELS).then("add", skip).table().done(), [(0, 2), (2, 7)]


def strided(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    return Chain(bits).weigh(64, 3, 2).weigh(96).then("requantize").done(), [(0, 3)]


def broadcast(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Chain(bits).weigh(64)
    factors = b.constant(64, most=2 ** (bits - 1), quant=nets.grid(bits, 1 - bits))
    return b.then("mul", factors).weigh(32).done(), [(0, 3)]


def wanted_twice(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = depthwise(Chain(bits))
    first = b.last
    return b.weigh(CHANNELS).then("add", first).done(), [(0, 1), (1, 3)]


def wanted_outside(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = depthwise(Chain(bits))
    first = b.last
    return b.weigh(CHANNELS).done(first), [(0, 1), (1, 2)]


def twice_itself(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Chain(bits).weigh(64, 3)
    return b.then("add", b.last).done(), [(0, 2)]


def other_rows(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    """Ops behind see other rows, or rows as something else."""
    b = Chain(bits).weigh(64).weigh(64, 3)
    return b.then("transpose", perm=(0, 2, 1, 3)).done(), [(0, 1), (1, 2), (2, 3)]


def late(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    """In the smallest plan the result lies where the input does."""
    return depthwise(Chain(bits)).weigh(16).done(), [(0, 2)]


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
            loaded = interpreter.load(to_bytes(graph, {}), cpu=cpu, threads=threads)
            if threads == 1:
                assert loaded.steps() == [(i, i + 1) for i in range(len(graph.nodes))]
            elif plan is nets.placed or net is late:
                assert loaded.steps() == steps
            for _ in range(5):  # by one thread, too
                for y, name in zip(loaded.run(x), graph.outputs, strict=True):
                    np.testing.assert_array_equal(y, wanted[name], err_msg=f"{cpu}, {threads} threads")


def fire(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Chain(bits).weigh(24)
    squeezed, wide = b.last, b.weigh(33).last
    return b.at(squeezed).weigh(40, 3).concat(wide).weigh(16).done(), [(0, 1), (1, 4), (4, 5)]


def grown(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    """One input of the concatenation is older, and copied."""
    b = Chain(bits)
    return b.weigh(24, 3).concat("x").done(), [(0, 2)]


def taken_twice(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Chain(bits).weigh(24)
    return b.concat(b.last).done(), [(0, 1), (1, 2)]


def taken_elsewhere(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = Chain(bits).weigh(24)
    first = b.last
    return b.concat("x").weigh(24).then("add", first).done(), [(0, 1), (1, 2), (2, 3), (3, 4)]


def of_depthwise(bits: int) -> tuple[Graph, list[tuple[int, int]]]:
    b = depthwise(Chain(bits))
    return b.concat("x").done(), [(0, 1), (1, 2)]


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
            loaded = interpreter.load(to_bytes(graph, {}), cpu=cpu, threads=threads)
            for _ in range(2):
                np.testing.assert_array_equal(loaded.run(x)[0], wanted, err_msg=f"{cpu}, {threads} threads")
            if plan is nets.placed and threads == 1:
                assert loaded.steps() == steps


def test_a_plan_gives_concatenations_their_place_early() -> None:
    """The arena does not grow where more is alive elsewhere."""
    b = Chain(8).weigh(128, 3).weigh(24)
    squeezed, wide = b.last, b.weigh(32).last
    graph = plan_memory.run(b.at(squeezed).weigh(32, 3).concat(wide).done())
    assert interpreter.load(to_bytes(graph, {}), cpu=TOGETHER[-1]).steps() == [(0, 1), (1, 2), (2, 5)]
    assert plan_memory.peak(graph) == plan_memory.lower_bound(graph)


def test_result_over_the_input() -> None:
    graph = plan_memory.run(late(8)[0])
    assert graph["x"].offset == graph[graph.outputs[0]].offset


def test_result_over_a_second_operand() -> None:
    """y3, of twice the channels, lies over y0, which the addition reads row by row: it waits for all of that."""
    chain = Chain(8).then("requantize").at("x").weigh(CHANNELS).then("add", "y0").weigh(2 * CHANNELS)
    graph, size = chain.done(), ROWS * COLUMNS * CHANNELS
    graph = nets.placed(graph, x=0, y0=size, y1=2 * size, y2=3 * size, y3=size)
    x = feed(8)
    wanted = run_reference(graph, {"x": x})["y3"]
    for cpu in TOGETHER:
        for threads in (2, 3, 7):
            loaded = interpreter.load(to_bytes(graph, {}), cpu=cpu, threads=threads)
            assert loaded.steps() == [(0, 1), (1, 3), (3, 4)]
            np.testing.assert_array_equal(loaded.run(x)[0], wanted, err_msg=f"{cpu}, {threads} threads")


def test_single_ops_can_be_read() -> None:
    """Op by op every tensor is written, also between those that a whole run takes together."""
    graph = nets.placed(residual(8)[0])
    net = interpreter.load(to_bytes(graph, {}), threads=2)
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
    net = interpreter.load(to_bytes(nets.placed(graph), {}), cpu=TOGETHER[-1], threads=2)
    rows = net.profile(2)
    assert [(row.first, row.first + row.count) for row in rows] == steps
    assert sum(row.macs for row in rows) == sum(op.macs for op in net.model.ops) > 0
    assert rows[-1].kind == "conv2d + conv2d + conv2d + add + lookup"
    assert rows[-1].name == graph.nodes[-1].name
