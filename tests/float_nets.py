"""A float graph, statistics, and the stages of quantization, for tests of passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from nets import Net

from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.activation_cache import Evidence, collect
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph, Observed
from nmpconv.ops import WEIGHTED
from nmpconv.passes.quantize import rounding as quantize
from nmpconv.passes.quantize.exponents import saturating
from nmpconv.passes.quantize.rounding import Rounding

RELU = (0.0, math.inf)
RELU6 = (0.0, 6.0)

Feed = Mapping[str, np.ndarray]


def ends(*outputs: str) -> Graph:
    """a -> r (reshape); a -> p (softmax) -> q (reshape); r -> l (fc) -> s (softmax) -> t, u (reshapes);
    l -> i (arg_max) -> j (reshape)."""
    net = Net()
    net.input("x", 1, 2, 2, 3)
    net.conv("x", "a", 4)
    net.op("reshape", "a", "r", shape=(1, 16))
    net.op("softmax", "a", "p", axis=3)
    net.op("reshape", "p", "q", shape=(1, 16))
    net.dense("r", "l", 6)
    net.op("reshape", "l", "k", shape=(1, 2, 3))
    net.op("softmax", "k", "s", axis=2)
    net.op("reshape", "s", "t", shape=(1, 6))
    net.op("reshape", "t", "u", shape=(1, 1, 6))
    net.op("arg_max", "l", "i", axis=1)
    net.op("reshape", "i", "j", shape=(1,))
    return net.graph(*outputs)


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

    def feed(name: str) -> np.ndarray:
        shape = graph[name].shape
        x = rng.integers(-128, 128, shape) if name in graph.pixels else rng.normal(0, 1, shape)
        return x.astype(np.float32)

    return [{name: feed(name) for name in graph.inputs} for _ in range(count)]


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
    got = [FloatEngine(after, after.outputs).run(image) for image in images]
    return min(
        sqnr_db(np.stack([w[name] for w in wanted]), np.stack([f[name] for f in got])) for name in before.outputs
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
