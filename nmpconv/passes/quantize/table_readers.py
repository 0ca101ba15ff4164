"""Finds tensors that nothing but tables reads, and the functions of these: errors count after them.

A gate is a table of a sum: sigmoid(W x + U h). Where the table is flat, it does not matter how large W x is: beyond
where the largest U h that was seen leads out of what is flat, W x counts as much as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from nmpconv.calib.exponent_search import Function
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.common.traits import ANY, Bounds, hull
from nmpconv.passes.quantize.shared_grids import grid_groups

PLACES = np.linspace(-64.0, 64.0, 8193)  # where a function is looked at: a flat end is a quarter of them at least


def after(graph: Graph) -> dict[str, tuple[Function, ...]]:
    """The functions of the tables that read a tensor, or what its data is moved to; of no others.

    Their results are the float model's own numbers.
    """
    by_name = {name: dict.fromkeys(functions) for name, functions in alone(graph).items()}
    for node in reversed(graph.nodes):
        for name in OPS[node.op].moved(node.inputs) if moves(node) else ():
            if name in by_name:
                by_name[name] |= by_name.get(node.outputs[0], {})
    return {name: tuple(functions) for name, functions in by_name.items() if functions}


def alone(graph: Graph) -> dict[str, list[Function]]:
    """Functions that read each tensor of the groups that nothing but tables reads: the functions of those that read
    itself."""
    consumers, outputs = graph.consumers(), frozenset(graph.outputs)
    by_name: dict[str, list[Function]] = {}
    for group in grid_groups(graph):
        users = {
            name: [user for user in consumers[name] if not moves(user) or name not in OPS[user.op].moved(user.inputs)]
            for name in group
        }
        every = [user for readers in users.values() for user in readers]
        if every and all(user.op == "lookup" for user in every) and outputs.isdisjoint(group):
            by_name |= {
                name: [replace(user.params, origin_y=0.0) if user.params.origin_y else user.params for user in readers]
                for name, readers in users.items()
            }
    return by_name


def counting(graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int]) -> dict[str, TensorStats]:
    """Statistics of the float graph's activations, in which those that only tables and sums in front of tables read
    have no range that the tables do not tell apart. bits: of the activations."""
    consumers, outputs = graph.consumers(), frozenset(graph.outputs)
    ends: dict[str, Bounds] = {}
    terms: set[str] = set()

    def read(user: Node, name: str) -> Bounds:
        out = user.outputs[0]
        if user.op == "lookup":
            return _curved(user.params, 2.0 ** -bits[out])
        if moves(user) and name in OPS[user.op].moved(user.inputs):
            return ends.get(out, ANY)
        if user.op != "add" or user.inputs[0] == user.inputs[1]:
            return ANY
        terms.add(name)
        (other,) = (operand for operand in user.inputs if operand != name)
        data, (low, high) = graph[other].data, ends.get(out, ANY)
        least, most = (stats[other].min, stats[other].max) if data is None else (float(data.min()), float(data.max()))
        return low - most, high - least

    for node in reversed(graph.nodes):
        for name in node.outputs:
            if name not in outputs and consumers[name] and not graph[name].origin:
                ends[name] = hull([read(user, name) for user in consumers[name]])
    groups = [group for group in grid_groups(graph) if not terms.isdisjoint(group)] if terms else []
    return {**stats, **{name: _within(stats[name], *ends.get(name, ANY)) for group in groups for name in group}}


def _within(stats: TensorStats, low: float, high: float) -> TensorStats:
    """With no range beyond these ends, where both lie within it or one does."""
    if not stats.count or low >= stats.max or high <= stats.min or (low <= stats.min and high >= stats.max):
        return stats
    return stats.clipped(max(low, stats.min), min(high, stats.max))


@lru_cache(maxsize=256)
def _curved(function: Function, error: float) -> Bounds:
    """Ends of where a function that rises or falls between two flat ends is not flat: beyond, it is within an error, as
    a part of what it spans. ANY of other functions, such as those with a pole."""
    y = function(PLACES)
    steps = np.diff(y)
    if not ((steps >= 0).all() or (steps <= 0).all()):
        return ANY
    away = [np.flatnonzero(np.abs(values - values[0]) > error * np.ptp(y)) for values in (y, y[::-1])]
    if not all(places.size and places[0] > len(PLACES) // 4 for places in away):
        return ANY
    return float(PLACES[away[0][0] - 1]), float(PLACES[::-1][away[1][0] - 1])


def activated(graph: Graph) -> frozenset[str]:
    """Tensors with an activation: a clamp, or a table that reads them."""
    clamped = {value.name for value in graph.activations() if value.clamp is not None}
    return frozenset(clamped.union(*(node.inputs for node in graph.nodes if node.op == "lookup")))


def moves(node: Node) -> bool:
    """Checks that it computes nothing."""
    return OPS[node.op].grid == "same"
