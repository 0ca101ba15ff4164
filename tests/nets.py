"""Graphs for tests, made op by op; where the graph itself matters, tests have it as text (nmpconv.graph.text)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.file.writer import to_bytes
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph, Node, Observed, Preprocess, Quant, Shifts, State, Value
from nmpconv.ops import OPS
from nmpconv.passes.memory import plan_memory

ALIGN = 16

Clamp = tuple[float, float] | None


def grid(bits: int, *exponents: int, axis: int | None = None, lo: int | None = None, hi: int | None = None) -> Quant:
    """A Quant; without lo and hi the whole range of the type."""
    low, high = INT_MIN[bits] if lo is None else lo, INT_MAX[bits] if hi is None else hi
    return Quant(bits, exponents, low, high, axis)


class Net:
    """Grows a graph; nodes are named after their outputs: 'n_' and the name.

    grid: what tensors get that are given none; without it they are floats.
    """

    def __init__(self, seed: int = 0, grid: Quant | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.grid = grid
        self.inputs: list[str] = []
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}

    def _value(self, name: str, shape: Sequence[int], quant: Quant | None, **more: Any) -> str:
        quant = quant or self.grid
        if quant is not None:
            more |= {"dtype": quant.dtype, "quant": quant}
            if "data" not in more:
                low, high = (end * 2.0**quant.exponent for end in (quant.lo, quant.hi))
                more["observed"] = Observed(low, high, "fixed")
        self.values[name] = Value(name, tuple(int(size) for size in shape), **more)
        return name

    def input(self, name: str, *shape: int, quant: Quant | None = None) -> str:
        self.inputs.append(name)
        return self._value(name, shape, quant)

    def const(self, name: str, data: Any, quant: Quant | None = None) -> str:
        grid = quant or self.grid
        array = np.asarray(data, np.float32 if grid is None else grid.dtype)
        return self._value(name, array.shape, quant, data=array)

    def integers(self, name: str, *shape: int, most: int, quant: Quant | None = None) -> str:
        """A constant of random integers of at most this magnitude that its type holds."""
        width = quant or self.grid
        assert width is not None
        low, high = max(-most, INT_MIN[width.bits]), min(most, INT_MAX[width.bits])
        return self.const(name, self.rng.integers(low, high + 1, shape), quant)

    def op(
        self, kind: str, inputs: str, out: str, clamp: Clamp = None, *, quant: Quant | None = None, **params: Any
    ) -> str:
        parameters, names = OPS[kind].Params(**params), tuple(inputs.split())
        (shape,) = OPS[kind].infer(parameters, [self.values[name] for name in names])
        self.nodes.append(Node(kind, f"n_{out}", names, (out,), parameters))
        return self._value(out, shape, quant, clamp=clamp)

    def conv(
        self,
        x: str,
        out: str,
        outs: int,
        kernel: int = 1,
        *,
        groups: int = 1,
        clamp: Clamp = None,
        pad: Any = None,
        w: Any = None,
        b: Any = None,
        **params: Any,
    ) -> str:
        """Padded to the size of its input. Weights and biases are names of constants, data, or random ones."""
        shape = (outs, kernel, kernel, self.values[x].shape[3] // groups)
        if w is None:
            w = self.rng.normal(0, 1 / math.sqrt(math.prod(shape[1:])), shape)
        if b is None:
            b = self.rng.normal(0, 0.3, outs)
        by_channel = self.grid and replace(self.grid, exponents=self.grid.exponents * outs, axis=0)
        names = [x, w if isinstance(w, str) else self.const(out + ".w", np.reshape(w, shape), by_channel)]
        names.append(b if isinstance(b, str) else self.const(out + ".b", b))
        names += [] if pad is None else [self.const(out + ".p", pad)]
        sides = dict.fromkeys(("pad_top", "pad_left", "pad_bottom", "pad_right"), kernel // 2)
        return self.op("conv2d", " ".join(names), out, clamp, groups=groups, **(sides | params))

    def dense(self, x: str, out: str, outs: int, clamp: Clamp = None) -> str:
        k = self.values[x].shape[-1]
        w = self.const(out + ".w", self.rng.normal(0, 1 / math.sqrt(k), (outs, k)))
        return self.op(
            "fully_connected", f"{x} {w} {self.const(out + '.b', self.rng.normal(0, 0.3, outs))}", out, clamp
        )

    def graph(self, *outputs: str, pixels: Sequence[str] = (), sources: bool = False) -> Graph:
        """sources: in the ONNX model, inputs and outputs have the same shapes."""
        graph = Graph("net", tuple(self.inputs), outputs, tuple(self.nodes), self.values, pixels=frozenset(pixels))
        if sources:
            graph = replace(graph, source_shapes={name: self.values[name].shape for name in (*self.inputs, *outputs)})
        verify(graph, "FLOAT" if self.grid is None else "INT", "the test")
        return graph


def placed(graph: Graph, **offsets: int) -> Graph:
    """The graph with every activation at a place of its own, or all at the given ones."""
    offset, values = 0, []
    for value in graph.activations():
        values.append(replace(value, offset=offsets[value.name] if offsets else offset))
        offset += -(-value.nbytes // ALIGN) * ALIGN
    return graph.with_values(*values)


def weather() -> Graph:
    """One layer; each channel of its input has a grid of its own in the float model."""
    net = Net(2, grid(8, -4))
    net.input("x", 1, 3)
    net.integers("w", 2, 3, most=100, quant=grid(8, -7))
    net.integers("b", 2, most=30)
    net.op("fully_connected", "x w b", "y")
    graph = net.graph("y")
    graph = graph.with_values(replace(graph["x"], shifts=Shifts((0, -3, -7), 1, (21.5, 0.0, 101120.0))))
    return placed(graph)


def small_net() -> Graph:
    """conv2d, add in place, max_pool, reshape in place, fully_connected; an image in, three labels out."""
    q = grid(8, -4)
    net = Net(1, q)
    net.input("x", 1, 4, 4, 2, quant=grid(8, 0))
    net.integers("w", 2, 3, 3, 2, most=60, quant=grid(8, -11, -10, axis=0))
    net.integers("b", 2, most=30)
    net.conv("x", "c", 2, 3, w="w", b="b", quant=replace(q, lo=0, hi=96), pad_bottom=1)
    net.integers("k", 1, 1, 1, 2, most=100, quant=grid(16, -6))
    net.op("add", "c k", "a")
    net.op("max_pool", "a", "m", kernel_h=2, kernel_w=2, stride_h=2, stride_w=2)
    net.op("reshape", "m", "f", shape=(1, 8))
    net.integers("v", 3, 8, most=128, quant=grid(8, -7))
    net.integers("d", 3, most=3000, quant=grid(16, -9))
    net.op("fully_connected", "f v d", "y", quant=grid(16, -9))
    graph = placed(net.graph("y", pixels=["x"]), x=0, c=32, a=32, m=64, f=64, y=0)
    return replace(
        graph.with_values(
            *(replace(graph[name], observed=None) for name in "amfy"),
            replace(graph["c"], observed=Observed(-0.5, 6.25, "mse")),
        ),
        name="small",
        preprocess={"x": Preprocess(mean=(0.5, 0.25), std=(2.0, 4.0), channel_order="bgr", crop=0.875)},
        labels=("cat", "dog", "emu"),
        source_shapes={"x": (1, 2, 4, 4), "y": (1, 3)},
    )


def running_sum(size: int = 40) -> bytes:
    """A file that adds what comes in, x, to its state, s."""
    net = Net(grid=grid(8, 0))
    for name in ("x", "s"):
        net.input(name, 1, size, quant=grid(8, 0))
    net.op("add", "x s", "y")
    return to_bytes(plan_memory.run(replace(net.graph("y"), states={"s": State("y", 3)})), {})
