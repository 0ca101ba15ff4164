"""Bands of rows: the same integers from less memory, or the least that would do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nmpconv.errors import Unsupported
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph, Node, Observed, Quant, Value
from nmpconv.ops import OPS
from nmpconv.passes.memory import bands, plan_memory
from nmpconv.run import runtime

E = -4
SEEN = Observed(-8, 8)


class Net:
    """An int8 net over x [1, height, 9, 4] that grows at its end."""

    def __init__(self, height: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Node] = []
        self.values = {"x": Value("x", (1, height, 9, 4), "int8", observed=SEEN, quant=Quant(8, (E,), -128, 127))}

    def const(self, name: str, shape: tuple[int, ...], most: int) -> str:
        data = self.rng.integers(-most, most + 1, shape).astype(np.int8)
        quant = Quant(8, (E,) * shape[0], -128, 127, 0) if len(shape) == 4 else Quant(8, (E,), -128, 127)
        self.values[name] = Value(name, shape, "int8", data=data, quant=quant)
        return name

    def add(self, op: str, *inputs: str, **params: int) -> str:
        out = f"t{len(self.nodes)}"
        made = OPS[op].Params(**params)
        (shape,) = OPS[op].infer(made, [self.values[name] for name in inputs])
        self.values[out] = Value(out, shape, "int8", observed=SEEN, quant=Quant(8, (E,), -128, 127))
        self.nodes.append(Node(op, f"{op}_{out}", inputs, (out,), made))
        return out

    def conv(
        self, x: str, channels: int, kernel: int, *, pad_value: bool = False, groups: int = 1, **params: int
    ) -> str:
        name = f"c{len(self.nodes)}"
        depth = self.values[x].shape[3]
        w = self.const(f"{name}.w", (channels, kernel, kernel, depth // groups), 3 if groups == 1 else 40)
        inputs = [x, w, self.const(f"{name}.b", (channels,), 60)]
        if pad_value:
            inputs.append(self.const(f"{name}.p", (depth,), 100))
        return self.add("conv2d", *inputs, groups=groups, **params)

    def graph(self, *outputs: str) -> Graph:
        return Graph("net", ("x",), outputs, tuple(self.nodes), self.values)


SAME = {f"pad_{side}": 1 for side in ("top", "left", "bottom", "right")}


def plain(net: Net) -> str:
    return net.conv(net.conv(net.conv("x", 24, 3, **SAME), 24, 3, **SAME), 4, 3, stride_h=2, stride_w=2, **SAME)


def residual(net: Net) -> str:
    a = net.conv("x", 16, 3, pad_value=True, **SAME)
    b = net.conv(net.conv(a, 16, 3, groups=16, **SAME), 16, 1)
    s = net.add("add", a, b)
    return net.conv(s, 4, 3, stride_h=2, stride_w=2, pad_top=0, pad_left=0, pad_bottom=1, pad_right=1)


def pools(net: Net) -> str:
    a = net.conv("x", 32, 3, dilation_h=2, pad_top=2, pad_bottom=2)
    b = net.add("max_pool", a, kernel_h=3, kernel_w=3, stride_h=2, stride_w=2, **SAME)
    c = net.conv(b, 16, 1)
    return net.add("average_pool", c, kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, **SAME)


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
    net = Net(12 + 3 * seed, seed)
    graph = net.graph(build(net))
    room = max(least(graph), peak(graph) // 2)
    banded = bands.run(graph, room)
    assert peak(banded, room) <= room
    x = net.rng.integers(-128, 128, graph["x"].shape).astype(np.int8)
    (wanted,) = outputs(graph, x)
    np.testing.assert_array_equal(outputs(banded, x)[0], wanted)
    np.testing.assert_array_equal(runtime.load(to_bytes(plan_memory.run(banded, room), {})).run(x)[0], wanted)


@pytest.mark.parametrize("build", [plain, residual, pools])
def test_every_stretch_and_height(build: object) -> None:
    assert callable(build)
    net = Net(9, 7)
    graph = net.graph(build(net))
    x = net.rng.integers(-128, 128, graph["x"].shape).astype(np.int8)
    (wanted,) = outputs(graph, x)
    candidates = list(bands._candidates(graph))
    assert len(candidates) > 8
    for candidate in candidates:
        verify(candidate, "INT", "bands")
        np.testing.assert_array_equal(outputs(candidate, x)[0], wanted)


def test_the_smallest_that_would_do_is_named() -> None:
    net = Net(12, 0)
    graph = net.graph(plain(net))
    smallest = least(graph)
    assert peak(bands.run(graph, smallest), smallest) == smallest
    with pytest.raises(Unsupported):
        bands.run(graph, smallest - 1)


def test_a_tensor_that_is_also_an_output_stays_whole() -> None:
    net = Net(12, 0)
    a = net.conv("x", 8, 3, **SAME)
    b = net.conv(net.conv(a, 8, 3, **SAME), 4, 3, **SAME)
    graph = net.graph(a, b)
    x = net.rng.integers(-128, 128, graph["x"].shape).astype(np.int8)
    for candidate in bands._candidates(graph):
        for got, wanted in zip(outputs(candidate, x), outputs(graph, x), strict=True):
            np.testing.assert_array_equal(got, wanted)
