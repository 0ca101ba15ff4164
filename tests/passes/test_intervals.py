"""Intervals of the integers of an activation: no input leaves them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.passes.quantize import intervals

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

    def conv(self, out: str, x: str, channels: int, *, dead: Sequence[int]) -> str:
        """3x3 with a Relu. dead: outputs that are always 0."""
        w = self.rng.integers(-9, 10, (channels, 3, 3, self.values[x].shape[-1]))
        b = self.rng.integers(-20, 60, channels)
        w[list(dead)], b[list(dead)] = 0, -5
        around = Conv2DParams(pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
        return self.add("conv2d", out, x, self.const(f"{out}.w", w), self.const(f"{out}.b", b), params=around, lo=0)

    def depthwise(self, out: str, x: str) -> str:
        channels = self.values[x].shape[-1]
        b = self.rng.integers(-20, 60, channels)
        w = self.rng.integers(-60, 60, (channels, 3, 3, 1))
        around = Conv2DParams(pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, groups=channels)
        return self.add("conv2d", out, x, self.const(f"{out}.w", w), self.const(f"{out}.b", b), params=around, lo=0)

    def graph(self, *outputs: str) -> Graph:
        return Graph("net", ("x",), outputs, tuple(self.nodes), self.values)


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


def test_a_tensor_without_dimensions() -> None:
    values = {name: Value(name, (), "int8", quant=Quant(8, (E,), -128, 127)) for name in "xy"}
    values["x"] = Value("x", (), "int8", quant=Quant(8, (E,), -7, 9))
    for op in ("requantize", "add"):
        inputs = ("x",) if op == "requantize" else ("x", "x")
        graph = Graph("net", ("x",), ("y",), (Node(op, "n", inputs, ("y",), OPS[op].Params()),), values)
        y = intervals.run(graph)["y"]
        times = len(inputs)
        assert (y.lo.tolist(), y.hi.tolist()) == ([-7 * times], [9 * times])
