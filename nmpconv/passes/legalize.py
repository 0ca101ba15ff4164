"""Makes every op legal for the runtime: exponents are raised and requantizes inserted, never left to an error there.

1. Shifts and exponent differences outside the format's limits: the exponent that is too small is raised.
2. An op that must have a grid of its own (a Softmax) on that of something larger, with which it shares a Concat: it
   gets its own, and a requantize after it.
3. An input of a same-grid op that is on another grid: a requantize before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nmpconv.fixed import EXPONENT_MAX, INT_MAX, SHIFT_MAX, SHIFT_MIN, SPREAD_MAX
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.aligned import Aligned
from nmpconv.ops.compare import Compare
from nmpconv.ops.resize import RISE_MAX, RISE_MIN
from nmpconv.passes.exponents import saturating
from nmpconv.passes.grids import grid_groups

# Ops with one input: how far the output's exponent may lie below the input's, and how far above it.
_RISES = {
    "average_pool": (SPREAD_MAX, SPREAD_MAX),
    "requantize": (-SHIFT_MIN, SHIFT_MAX),
    "resize": (-RISE_MIN, RISE_MAX),
}


def run(graph: Graph) -> Graph:
    return _one_grid(_own_grid(_raise(graph)))


def _raise(graph: Graph) -> Graph:
    """Case 1, repeated until nothing moves; exponents only grow, so this ends."""
    group_of = {name: group for group in grid_groups(graph) for name in group}
    moved = True
    while moved:
        moved = False
        for node in graph.nodes:
            for name, least in _least(graph, node):
                if _exponent(graph, name) < least <= EXPONENT_MAX:
                    graph = graph.with_values(*(_with_exponent(graph[n], least) for n in group_of[name]))
                    moved = True
    return graph


def _least(graph: Graph, node: Node) -> Iterator[tuple[str, int]]:
    """(activation, smallest exponent that this node allows it)."""
    out = node.outputs[0]
    ins = [name for name in node.inputs if not graph[name].is_const]
    if isinstance(OPS[node.op], Aligned | Compare) and len(ins) == 2:
        high = max(_exponent(graph, n) for n in ins)
        for name in ins:
            yield name, high - SPREAD_MAX
    if isinstance(OPS[node.op], Aligned) and len(ins) == 2:
        yield out, min(_exponent(graph, n) for n in ins) + SHIFT_MIN
        for name in ins:
            yield name, _exponent(graph, out) - SHIFT_MAX
    elif node.op in ("mul", "batch_matmul") and len(ins) == 2:
        total = sum(_exponent(graph, n) for n in ins)
        yield out, total + SHIFT_MIN
        yield ins[0], _exponent(graph, ins[0]) + max(0, _exponent(graph, out) - total - SHIFT_MAX)
    elif node.op == "divide" and len(ins) == 2:
        quotient = _exponent(graph, ins[0]) - _exponent(graph, ins[1])
        yield out, quotient - SPREAD_MAX
        yield ins[0], _exponent(graph, ins[0]) + max(0, _exponent(graph, out) - quotient - SPREAD_MAX)
    elif node.op in WEIGHTED:
        data = graph[node.inputs[1]].data
        peak = float(np.abs(data).max()) if data is not None and data.size else 0.0
        if peak > 0:
            yield out, _exponent(graph, ins[0]) + math.ceil(math.log2(peak / INT_MAX[8])) + SHIFT_MIN
    elif node.op == "normalize":
        # eps in the units of the variance is to be below the largest variance of the type.
        bits = graph[ins[0]].quant.bits  # type: ignore[union-attr]
        yield ins[0], math.ceil(math.log2(node.params.eps) / 2) + 1 - bits
    elif node.op == "lrn":
        p = node.params  # the bias in the units of the squares is to stay below 2^120
        yield ins[0], math.ceil((math.log2(p.size / p.alpha * max(p.bias, 1.0)) - 120) / 2)
    elif node.op in _RISES:
        up, down = _RISES[node.op]
        yield out, _exponent(graph, ins[0]) - up
        yield ins[0], _exponent(graph, out) - down


def _exponent(graph: Graph, name: str) -> int:
    quant = graph[name].quant
    assert quant is not None
    return quant.exponent


def _with_exponent(value: Value, exponent: int) -> Value:
    assert value.quant is not None
    return replace(value, quant=saturating(value.quant.bits, exponent, value.clamp))


def _own_grid(graph: Graph) -> Graph:
    """Case 2."""
    nodes: list[Node] = []
    for node in graph.nodes:
        out = graph[node.outputs[0]]
        low, high = OPS[node.op].exponents
        if low <= _exponent(graph, out.name) <= high:
            nodes.append(node)
            continue
        assert out.quant is not None
        own = OPS[node.op].own_exponent(node, out.quant.bits)
        assert own is not None
        fresh = f"{node.name}.output"
        graph = graph.with_values(replace(out, name=fresh, quant=saturating(out.quant.bits, own, None)))
        nodes.append(replace(node, outputs=(fresh,)))
        nodes.append(Node("requantize", fresh, (fresh,), (out.name,), OPS["requantize"].Params()))
    return replace(graph, nodes=tuple(nodes))


def _one_grid(graph: Graph) -> Graph:
    """Case 3."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if OPS[node.op].grid == "same":
            names = list(node.inputs)
            for i, name in enumerate(names):
                goal = graph[node.outputs[0]].quant
                value = graph[name]
                if value.is_const or goal is None or _same(value.quant, goal):
                    continue
                fresh = f"{node.name}.input{i}"
                plain = saturating(goal.bits, goal.exponent, None)
                graph = graph.with_values(replace(value, name=fresh, quant=plain, clamp=None))
                nodes.append(Node("requantize", fresh, (name,), (fresh,), OPS["requantize"].Params()))
                names[i] = fresh
            node = replace(node, inputs=tuple(names))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _same(a: Quant | None, b: Quant) -> bool:
    return a is not None and a.exponents == b.exponents and a.bits == b.bits
