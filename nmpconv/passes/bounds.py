"""What is known of a value's range without data; an end that is not known is infinite.

1. Raw pixels, constants, and tensors whose grid the model gives.
2. A clamp.
3. What an op makes of its inputs: data movement keeps ranges, pools and pointwise functions map them, sums,
   differences, products, minima and maxima combine them. A Softmax lies in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nmpconv.ir import Given, Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.function import FUNCTIONS

Bounds = tuple[float, float]
ANY = (-math.inf, math.inf)
PIXELS = (-128.0, 127.0)
FAR = 1e6  # stands for infinity where a function is evaluated; what it makes of it is infinite from HUGE on
HUGE = 1e3
NEAR = np.linspace(-16.0, 16.0, 4097)


def known(graph: Graph, given: Mapping[str, Given]) -> dict[str, Bounds]:
    """Of all values. given: grids that are relied on."""
    found = {
        value.name: ANY if value.data is None or not value.size else (float(value.data.min()), float(value.data.max()))
        for value in graph.values.values()
    }
    found |= {name: (grid.min, grid.max) for name, grid in given.items() if name in found}
    found |= dict.fromkeys(graph.pixels, PIXELS)
    for node in graph.nodes:
        out = graph[node.outputs[0]]
        if found[out.name] == ANY:
            low, high = out.clamp or ANY
            made = _of(node, [found[name] for name in node.inputs])
            found[out.name] = (min(max(made[0], low), high), min(max(made[1], low), high))
    return found


def is_finite(bounds: Bounds) -> bool:
    return math.isfinite(bounds[0]) and math.isfinite(bounds[1])


def _of(node: Node, inputs: Sequence[Bounds]) -> Bounds:  # case 3
    if node.op == "softmax":
        return 0.0, 1.0
    if OPS[node.op].grid == "same" or node.op in ("average_pool", "requantize"):
        low, high = min(low for low, _ in inputs), max(high for _, high in inputs)
        padded = getattr(node.params, "count_include_pad", False)
        return (min(low, 0.0), max(high, 0.0)) if padded else (low, high)
    if node.op == "lookup":
        low, high = (min(max(end, -FAR), FAR) for end in inputs[0])
        points = np.concatenate([np.linspace(low, high, NEAR.size), np.clip(NEAR, low, high)])
        y = FUNCTIONS[node.params.function](points, node.params.alpha, node.params.beta)
        return _far(float(y.min()), inputs[0]), _far(float(y.max()), inputs[0])
    if node.op == "mul" and node.inputs[0] == node.inputs[1]:
        low, high = inputs[0]
        return (0.0 if low <= 0 <= high else min(low * low, high * high)), max(low * low, high * high)
    if node.op in _COMBINE:
        ends = tuple(_COMBINE[node.op](a, b) for a in inputs[0] for b in inputs[1])
        return ANY if any(math.isnan(end) for end in ends) else (min(ends), max(ends))
    return ANY


def _far(end: float, source: Bounds) -> float:
    """An end that a function reaches; beyond HUGE, of an input without end, it is infinite."""
    return end if is_finite(source) or abs(end) < HUGE else math.copysign(math.inf, end)


_COMBINE: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "minimum": min,
    "maximum": max,
}
