"""Resolution of the tables of int16 tensors.

1. A table has up to 2^FINEST pieces, each a straight line. Where a function bends within one of them, as a Sigmoid of
   1000 * x, or jumps, it gets as many pieces as it takes, up to one for each integer: the fewest that leave ENOUGH_DB,
   or add no more than SHARE to the noise that the grids of the two tensors leave. That is measured on the values that
   calibration counted. 2^16 pieces take 256 KiB of the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops.lookup import EXACT, FINEST, TABLE_BITS, LookupParams, lines
from nmpconv.ops.op import quant_of

ENOUGH_DB = 60.0
SHARE = 0.25


def run(graph: Graph, stats: Mapping[str, TensorStats]) -> Graph:
    """The ranged graph with `LookupParams.finest` where it is to be other than FINEST."""
    nodes = []
    for node in graph.nodes:
        if isinstance(node.params, LookupParams) and quant_of(graph[node.inputs[0]]).bits == 16:
            finest = _finest(node, graph, stats[node.inputs[0]])
            node = node if finest == FINEST else replace(node, params=replace(node.params, finest=finest))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _finest(node: Node, graph: Graph, seen: TensorStats) -> int:
    x, y = quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]])
    step = math.ldexp(1.0, x.exponent)
    low, high = math.ldexp(y.lo, y.exponent), math.ldexp(y.hi, y.exponent)
    most = math.ldexp(INT_MAX[32], y.exponent - TABLE_BITS)  # of a sample
    samples = np.clip(node.params(np.arange(INT_MIN[16], INT_MAX[16] + 2) * step), -most, most)
    exact = np.clip(samples, low, high)
    values, weight = seen.histogram.points(step, (1 - INT_MIN[16]) * step)
    values = np.clip(values, seen.min, seen.max) - graph[node.inputs[0]].origin
    places = np.clip(np.floor(values / step + 0.5), INT_MIN[16], INT_MAX[16]).astype(np.int64) - INT_MIN[16]
    times = np.bincount(places, weights=weight, minlength=len(exact))

    def added(finest: int) -> float:
        return float(times @ (np.clip(lines(samples, finest), low, high) - exact) ** 2)

    allowed = 10 ** (-ENOUGH_DB / 10) * float(times @ (exact + graph[node.outputs[0]].origin) ** 2)
    if added(FINEST) <= allowed:
        return FINEST
    by_input = float(weight @ (np.clip(node.params(values), low, high) - exact[places]) ** 2)
    by_output = float(weight.sum()) * math.ldexp(1.0, 2 * y.exponent) / 12
    allowed = max(allowed, SHARE * (by_input + by_output))
    return next((bits for bits in range(FINEST, EXACT) if added(bits) <= allowed), EXACT)
