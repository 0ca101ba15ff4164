"""Small float graphs, made op by op, and the stages of quantization on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.evidence import Evidence, collect
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph, Node, Observed, Value
from nmpconv.metrics import sqnr_db
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.passes.quantize import rounding as quantize
from nmpconv.passes.quantize.exponents import saturating
from nmpconv.passes.quantize.rounding import Rounding

RELU = (0.0, math.inf)
RELU6 = (0.0, 6.0)

Clamp = tuple[float, float] | None
Feed = Mapping[str, np.ndarray]


class Net:
    """Grows a graph. Nodes are named after their outputs: 'n_' and the name."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: list[str] = []
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(name)
        self.values[name] = Value(name, shape)
        return name

    def const(self, name: str, data: Any) -> str:
        array = np.asarray(data, np.float32)
        self.values[name] = Value(name, array.shape, data=array)
        return name

    def op(self, kind: str, inputs: str, out: str, clamp: Clamp = None, **params: Any) -> str:
        made, names = OPS[kind].Params(**params), tuple(inputs.split())
        (shape,) = OPS[kind].infer(made, [self.values[name] for name in names])
        self.values[out] = Value(out, tuple(int(size) for size in shape), clamp=clamp)
        self.nodes.append(Node(kind, f"n_{out}", names, (out,), made))
        return out

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
        """Padded to the size of its input; random weights and biases unless they are given."""
        shape = (outs, kernel, kernel, self.values[x].shape[3] // groups)
        weights = self.rng.normal(0, 1 / math.sqrt(math.prod(shape[1:])), shape) if w is None else w
        names = f"{x} {self.const(out + '.w', np.reshape(weights, shape))} "
        names += self.const(out + ".b", self.rng.normal(0, 0.3, outs) if b is None else b)
        names += "" if pad is None else " " + self.const(out + ".p", pad)
        sides = dict.fromkeys(("pad_top", "pad_left", "pad_bottom", "pad_right"), kernel // 2)
        return self.op("conv2d", names, out, clamp, groups=groups, **(sides | params))

    def dense(self, x: str, out: str, outs: int, clamp: Clamp = None) -> str:
        k = self.values[x].shape[-1]
        w = self.const(out + ".w", self.rng.normal(0, 1 / math.sqrt(k), (outs, k)))
        return self.op(
            "fully_connected", f"{x} {w} {self.const(out + '.b', self.rng.normal(0, 0.3, outs))}", out, clamp
        )

    def graph(self, *outputs: str, pixels: Sequence[str] = ()) -> Graph:
        graph = Graph("net", tuple(self.inputs), outputs, tuple(self.nodes), self.values, pixels=frozenset(pixels))
        verify(graph, "FLOAT", "the test")
        return graph


def residual() -> Graph:
    """Relu, Relu6, depthwise, padding values, a residual, a Concat, both pools, fully connected; uneven channels."""
    net = Net(3)
    uneven = 2.0 ** net.rng.uniform(-3, 3, (8, 1, 1, 1))
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 8, 3, clamp=RELU, w=net.rng.normal(0, 1, (8, 3, 3, 3)) * uneven)
    net.conv("a", "d", 8, 3, groups=8, clamp=RELU6, pad=net.rng.uniform(0, 1, 8), w=net.rng.normal(0, 2, (8, 3, 3, 1)))
    net.conv("d", "p", 8)
    net.op("add", "a p", "s", RELU)
    net.op("max_pool", "s", "m", kernel_h=2, kernel_w=2, stride_h=2, stride_w=2)
    net.conv("m", "e", 4, 3, pad=net.rng.normal(0, 1, 8), clamp=RELU)
    net.conv("m", "f", 5, clamp=RELU6)
    net.op("concat", "e f", "c", axis=3)
    net.conv("c", "t", 6, 3, clamp=RELU)
    net.op("average_pool", "t", "g", kernel_h=4, kernel_w=4)
    net.op("reshape", "g", "v", shape=(1, 6))
    net.dense("v", "y", 5)
    return net.graph("y")


def feeds(graph: Graph, count: int = 6, seed: int = 1) -> list[dict[str, np.ndarray]]:
    """Normal numbers for every input, or pixels."""
    rng = np.random.default_rng(seed)

    def one(name: str) -> np.ndarray:
        shape = graph[name].shape
        x = rng.integers(-128, 128, shape) if name in graph.pixels else rng.normal(0, 1, shape)
        return x.astype(np.float32)

    return [{name: one(name) for name in graph.inputs} for _ in range(count)]


def names(graph: Graph) -> list[str]:
    return [value.name for value in graph.activations()]


def observed(graph: Graph, images: Sequence[Feed]) -> dict[str, TensorStats]:
    return observe(FloatEngine(graph, names(graph)), images, names(graph))


def in_bits(graph: Graph, bits: int, **others: int) -> dict[str, int]:
    """Bits of all activations, except of others."""
    return dict.fromkeys(names(graph), bits) | others


def closeness(before: Graph, after: Graph, images: Sequence[Feed]) -> float:
    """The least SQNR in dB over the outputs of two float graphs."""
    wanted = [FloatEngine(before, before.outputs).run(image) for image in images]
    found = [FloatEngine(after, after.outputs).run(image) for image in images]
    return min(
        sqnr_db(np.stack([w[name] for w in wanted]), np.stack([f[name] for f in found])) for name in before.outputs
    )


def on_grids(graph: Graph, **grids: tuple[int, int]) -> Graph:
    """A RANGED graph with these (bits, exponent) by activation name."""
    values = []
    for value in graph.activations():
        bits, exponent = grids[value.name]
        values.append(
            replace(value, quant=saturating(bits, exponent, value.clamp), observed=Observed(-1.0, 1.0, "fixed"))
        )
    ranged = graph.with_values(*values)
    verify(ranged, "RANGED", "the test")
    return ranged


def evidence(graph: Graph, images: Sequence[Feed]) -> Evidence:
    return collect(graph, images, WEIGHTED)


def integer(graph: Graph, how: Rounding, seen: Evidence | None = None) -> Graph:
    """The verified integer graph of a RANGED one."""
    result = quantize.run(graph, how, seen or Evidence())
    verify(result, "INT", "quantize")
    return result
