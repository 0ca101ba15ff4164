"""The integers that each channel of each activation of an integer graph can take, whatever the inputs are.

Interval arithmetic. Channels are the last axis.

1. The ops' own references at the corners where the extremes are (`Op.corners`). Elementwise ops are alike along the
   other axes, but for those of constants: one place of these tells all.
2. Sums of products have each factor at the bound that its weight's sign asks for; padding is one of the factors.
3. Anything else, and more numbers than MOST: the output's clip range.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from nmpconv.base.fixed_point import rsh, sat
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.accumulate import weight_shifts
from nmpconv.ops.common.weighted import groups_of
from nmpconv.ops.op import QArray, quant_of

MOST = 1 << 22  # numbers of a tensor that a reference is run on


class Interval(NamedTuple):
    """Bounds by channel, both included: int64 [C]."""

    lo: np.ndarray
    hi: np.ndarray

    @property
    def constant(self) -> np.ndarray:
        """Channels that can take only one value: bool [C]."""
        return np.asarray(self.lo == self.hi)


def run(graph: Graph) -> dict[str, Interval]:
    """The interval of every activation."""
    intervals = {name: of_grid(graph[name]) for name in graph.inputs}
    for node in graph.nodes:
        intervals[node.outputs[0]] = of_node(graph, node, intervals)
    return intervals


def of_node(graph: Graph, node: Node, intervals: Mapping[str, Interval]) -> Interval:
    """The interval of the node's output from those of its computed inputs."""
    out = graph[node.outputs[0]]
    if node.op in WEIGHTED:
        return _weighted(graph, node, intervals[node.inputs[0]])
    corners, alike = OPS[node.op].corners(len(node.inputs)), _alike(graph, node)
    if not corners or max(prod(_places(value.shape, alike)) for value in (*graph.ins(node), out)) > MOST:
        return of_grid(out)
    results = [_reference(graph, node, intervals, corner, alike) for corner in corners]
    return Interval(np.min([r.min(axis=0) for r in results], axis=0), np.max([r.max(axis=0) for r in results], axis=0))


def of_grid(value: Value) -> Interval:
    """All that the tensor's clip range allows."""
    channels, quant = value.shape[-1] if value.shape else 1, quant_of(value)
    return Interval(*(np.broadcast_to(np.int64(bound), channels) for bound in (quant.lo, quant.hi)))


def _reference(
    graph: Graph, node: Node, intervals: Mapping[str, Interval], corner: Sequence[int], alike: Collection[int]
) -> np.ndarray:
    """Runs the op on each input's bound number 0 (lo) or 1 (hi): int64 [elements / C, C]. alike: see `_alike`."""
    inputs, out = [], graph[node.outputs[0]]
    for value, side in zip(graph.ins(node), corner, strict=True):
        quant = quant_of(value)
        q = value.data
        if q is None:
            bound = intervals[value.name][side]
            q = np.broadcast_to(bound if value.shape else bound[0], _places(value.shape, alike))
        inputs.append(QArray(np.array(q, quant.dtype, order="C"), quant))
    (y,) = OPS[node.op].reference(node.params, inputs, [replace(out, shape=_places(out.shape, alike))])
    return y.astype(np.int64).reshape(-1, y.shape[-1] if y.ndim else 1)


def _alike(graph: Graph, node: Node) -> frozenset[int]:
    """Axes of an elementwise op, -2 and below, along which no constant differs."""
    if not OPS[node.op].elementwise:
        return frozenset()
    constants = [value.shape for value in graph.ins(node) if value.is_const]
    axes = range(-len(graph[node.outputs[0]].shape), -1)
    return frozenset(axis for axis in axes if all(-axis > len(shape) or shape[axis] == 1 for shape in constants))


def _places(shape: Sequence[int], alike: Collection[int]) -> tuple[int, ...]:
    """The shape with one place along these axes."""
    return tuple(1 if i - len(shape) in alike else size for i, size in enumerate(shape))


def _weighted(graph: Graph, node: Node, x: Interval) -> Interval:
    """Some factors are padding, so its value belongs to the input's interval."""
    x_value, w, b = graph.ins(node)[:3]
    y = graph[node.outputs[0]]
    assert w.data is not None
    assert b.data is not None
    lo, hi = x
    pad = WEIGHTED[node.op].padding(node.params, graph.ins(node))
    if pad is not None:
        lo, hi = np.minimum(lo, pad), np.maximum(hi, pad)
    groups = groups_of(node)
    weights = w.data.astype(np.int64).reshape(groups, w.shape[0] // groups, -1, w.shape[-1])
    rises, falls = np.maximum(weights, 0).sum(axis=2), np.minimum(weights, 0).sum(axis=2)  # [G, O/G, I]
    low, high = lo.reshape(groups, 1, -1), hi.reshape(groups, 1, -1)
    quant = quant_of(y)
    shifts = weight_shifts(quant_of(x_value), quant_of(w), quant, w.shape[0])
    least, most = (rises * low + falls * high).sum(axis=2), (rises * high + falls * low).sum(axis=2)
    sums = np.array([least.reshape(-1), most.reshape(-1)])
    return Interval(*sat(rsh(sums, shifts) + b.data, quant.lo, quant.hi))
