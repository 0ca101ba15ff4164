"""Channels that no result depends on: proven, left out, and every output bit stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.passes import drop_channels, intervals
from nmpconv.reference import run as run_reference

E = -4  # of all activations; weights have -4, too, so that the shift is 4


class Net:
    """An int8 net over x [1, 6, 6, 8] that grows at its end."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.values = {"x": Value("x", (1, 6, 6, 8), "int8", quant=Quant(8, (E,), -128, 127))}
        self.nodes: list[Node] = []

    def const(self, name: str, data: np.ndarray) -> str:
        quant = Quant(8, (E,) * len(data), -128, 127, 0) if data.ndim > 1 else Quant(8, (E,), -128, 127)
        self.values[name] = Value(name, data.shape, "int8", data=data.astype(np.int8), quant=quant)
        return name

    def add(self, op: str, out: str, *inputs: str, params: object = None, lo: int = -128) -> str:
        params = params or OPS[op].Params()
        (shape,) = OPS[op].infer(params, [self.values[n] for n in inputs])
        self.values[out] = Value(out, shape, "int8", quant=Quant(8, (E,), lo, 127))
        self.nodes.append(Node(op, f"{op}_{out}", inputs, (out,), params))
        return out

    def conv(self, out: str, x: str, channels: int, *, dead: Sequence[int] = (), blind: Sequence[int] = ()) -> str:
        """3x3 with a Relu. dead: outputs that are always 0; blind: inputs whose weights are 0."""
        w = self.rng.integers(-9, 10, (channels, 3, 3, self.values[x].shape[-1]))
        b = self.rng.integers(-20, 60, channels)
        w[list(dead)], b[list(dead)] = 0, -5
        w[..., list(blind)] = 0
        around = Conv2DParams(pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
        return self.add("conv2d", out, x, self.const(f"{out}.w", w), self.const(f"{out}.b", b), params=around, lo=0)

    def depthwise(self, out: str, x: str, *, bias: Mapping[int, int] | None = None) -> str:
        channels = self.values[x].shape[-1]
        b = self.rng.integers(-20, 60, channels)
        for c, value in (bias or {}).items():
            b[c] = value
        w = self.rng.integers(-60, 60, (channels, 3, 3, 1))
        around = Conv2DParams(pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, groups=channels)
        return self.add("conv2d", out, x, self.const(f"{out}.w", w), self.const(f"{out}.b", b), params=around, lo=0)

    def graph(self, *outputs: str) -> Graph:
        return Graph("net", ("x",), outputs, tuple(self.nodes), self.values)


def assert_same(graph: Graph, slim: Graph) -> None:
    rng = np.random.default_rng(1)
    shape = graph["x"].shape
    pictures = (
        rng.integers(-128, 128, shape),
        np.full(shape, -128),
        np.full(shape, 127),
        rng.choice([-128, 127], shape),
    )
    for x in pictures:
        feeds = {"x": x.astype(np.int8)}
        wanted, got = run_reference(graph, feeds), run_reference(slim, feeds)
        for name in graph.outputs:
            np.testing.assert_array_equal(wanted[name], got[name])


def channels(graph: Graph, *names: str) -> list[int]:
    return [graph[name].shape[-1] for name in names]


def test_a_channel_that_is_always_zero() -> None:
    net = Net()
    net.conv("b", net.conv("a", "x", 16, dead=(1, 4, 5, 8, 9)), 8)
    graph = net.graph("b")
    slim = drop_channels.run(graph)
    assert channels(slim, "x", "a", "b") == [8, 12, 8]  # 11 are needed: a multiple of 4
    assert slim["a.w"].shape == (12, 3, 3, 8)
    assert slim["b.w"].shape == (8, 3, 3, 12)
    assert_same(graph, slim)


def test_a_channel_that_nobody_weighs() -> None:
    net = Net()
    net.conv("b", net.conv("a", "x", 12, dead=()), 8, blind=range(2, 9))
    graph = net.graph("b")
    slim = drop_channels.run(graph)
    assert channels(slim, "a") == [8]
    assert_same(graph, slim)


def test_the_kept_channels_keep_their_exponents() -> None:
    net = Net()
    net.conv("b", net.conv("a", "x", 8, dead=(0, 1, 2, 3)), 8)
    w = net.values["a.w"]
    assert w.quant is not None
    net.values["a.w"] = replace(w, quant=replace(w.quant, exponents=(-9, -9, -9, -9, -4, -5, -6, -3)))
    graph = net.graph("b")
    slim = drop_channels.run(graph)
    assert slim["a.w"].quant is not None
    assert slim["a.w"].quant.exponents == (-4, -5, -6, -3)
    assert_same(graph, slim)


def test_through_ops_that_work_by_channel() -> None:
    """A depthwise bias of its own makes zeros another constant; the next layer must still not see it."""
    net = Net()
    a = net.conv("a", "x", 12, dead=(0, 1, 2, 3, 4, 5))
    d = net.depthwise("d", a, bias={0: -3, 1: -1, 2: 7, 3: 9, 4: -1, 5: 0})
    net.conv("b", d, 8, blind=(3,))
    graph = net.graph("b")
    assert intervals.run(graph)["d"].lo[2] > 0
    slim = drop_channels.run(graph)
    assert channels(slim, "a", "d") == [8, 8]  # 0, 1, 3, 4, 5 could go, 2 is read
    assert slim.nodes[1].params.groups == 8
    assert_same(graph, slim)


def test_a_skip_joins_its_operands() -> None:
    """What only one operand has as zeros stays."""
    net = Net()
    a = net.conv("a", "x", 16, dead=range(8))
    b = net.conv("b", "x", 16, dead=range(4, 16))
    net.conv("c", net.add("add", "s", a, b), 4)
    graph = net.graph("c")
    slim = drop_channels.run(graph)
    assert channels(slim, "a", "b", "s") == [12, 12, 12]
    assert_same(graph, slim)


def test_repeats() -> None:
    """A channel of a that only a dead channel of b reads goes with it."""
    net = Net()
    a = net.conv("a", "x", 8)
    b = net.conv("b", a, 8, blind=range(4))
    w = net.values["b.w"].data
    assert w is not None
    w[:4, ..., :4] = 5
    net.conv("c", b, 8, blind=range(4))
    graph = net.graph("c")
    slim = drop_channels.run(graph)
    assert channels(slim, "a", "b") == [4, 4]
    assert_same(graph, slim)


@pytest.mark.parametrize("outputs", [("a",), ("a", "b")])
def test_inputs_and_outputs_stay_whole(outputs: tuple[str, ...]) -> None:
    net = Net()
    net.conv("b", net.conv("a", "x", 12, dead=range(8), blind=range(8)), 8, blind=range(8))
    graph = net.graph(*outputs)
    assert channels(drop_channels.run(graph), "x", "a") == [8, 12]


def test_padding_that_is_not_zero_is_read() -> None:
    net = Net()
    net.conv("b", net.conv("a", "x", 8, dead=range(4)), 8)
    node = net.nodes[-1]
    net.nodes[-1] = replace(node, inputs=(*node.inputs, net.const("pad", np.array([3, 0, 0, 0, 1, 1, 1, 1]))))
    graph = net.graph("b")
    slim = drop_channels.run(graph)
    assert slim is graph  # 5 channels are read
    net.const("pad", np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    graph = net.graph("b")
    slim = drop_channels.run(graph)
    assert channels(slim, "a", "pad") == [4, 4]
    assert_same(graph, slim)


def test_shared_weights_are_cloned() -> None:
    net = Net()
    a, b = net.conv("a", "x", 8, dead=range(4)), net.conv("b", "x", 8)
    net.nodes[1] = replace(net.nodes[1], inputs=("x", "a.w", "a.b"))
    net.conv("c", a, 8)
    graph = net.graph("c", b)
    slim = drop_channels.run(graph)
    assert channels(slim, "a", "b") == [4, 8]
    assert_same(graph, slim)


@pytest.mark.parametrize("seed", range(12))
def test_intervals_hold(seed: int) -> None:
    """Every value of every op lies in its interval, and constants are what they are said to be."""
    net = Net(seed)
    a = net.conv("a", "x", 8, dead=(seed % 8,))
    d = net.depthwise("d", a)
    s = net.add("sub", "s", a, d)
    m = net.add("mul", "m", s, a)
    c = net.add("concat", "c", m, s, params=OPS["concat"].Params(axis=3))
    net.add("add", "y", c, c)
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
