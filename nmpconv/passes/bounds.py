"""Bounds of values that are known without data; an end that is not known is infinite.

1. Raw pixels, constants, and tensors whose grid the model gives.
2. A clamp.
3. What an op makes of its inputs' (`Op.reach`).
4. A blend x + g * (y - x) with g from 0 to 1 lies between x and y: so does the state of a GRU, from step to step.
5. A choice g * x + (1 - g) * y with g from 0 to 1 lies between x and y, as what Where makes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain, product

from nmpconv.ir import Given, Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.common.traits import ANY, Bounds, hull, within_clamp

PIXELS = (-128.0, 127.0)


def known(graph: Graph, grids: Mapping[str, Given]) -> dict[str, Bounds]:
    """Bounds of all values. grids: those that are relied on."""
    bounds = {
        value.name: ANY if value.data is None or not value.size else (float(value.data.min()), float(value.data.max()))
        for value in graph.values.values()
    }
    bounds |= {name: (grid.min, grid.max) for name, grid in grids.items() if name in bounds}
    bounds |= dict.fromkeys(graph.pixels, PIXELS)
    makers = graph.producers()
    for node in graph.nodes:
        out = graph[node.outputs[0]]
        if bounds[out.name] == ANY:
            reach = OPS[node.op].reach(node, graph.ins(node), [bounds[name] for name in node.inputs])
            if between := _blended(graph, node, makers, bounds) or _chosen(graph, node, makers, bounds):
                reach = within_clamp(reach, between)
            bounds[out.name] = within_clamp(reach, out.clamp)
    return bounds


def _blended(graph: Graph, node: Node, makers: Mapping[str, Node], bounds: Mapping[str, Bounds]) -> Bounds | None:
    """Case 4: bounds of x and y, where this node makes x + g * (y - x), or x - g * (x - y); None otherwise."""
    orders = {"add": (node.inputs, node.inputs[::-1]), "sub": (node.inputs,)}.get(node.op, ())
    for x, part in orders:
        product = makers.get(part)
        if product is None or product.op != "mul":
            continue
        for gate, difference in (product.inputs, product.inputs[::-1]):
            subtraction, names = makers.get(difference), [x, part, difference, *node.outputs]
            if not 0 <= bounds[gate][0] <= bounds[gate][1] <= 1 or any(graph[name].origin for name in names):
                continue
            if not all(low <= 0 <= high for low, high in (graph[name].clamp or ANY for name in (part, difference))):
                continue
            if node.op == "sub" and difference == x:
                return hull([bounds[x], (0.0, 0.0)])
            if subtraction is not None and subtraction.op == "sub":
                y, other = subtraction.inputs if node.op == "add" else subtraction.inputs[::-1]
                if other == x and not graph[y].origin:
                    return hull([bounds[x], bounds[y]])
    return None


def _chosen(graph: Graph, node: Node, makers: Mapping[str, Node], bounds: Mapping[str, Bounds]) -> Bounds | None:
    """Case 5: bounds of x and y, where this node makes g * x + (1 - g) * y, with g in any shape; None otherwise."""
    parts = [makers.get(name) for name in node.inputs] if node.op == "add" else []
    terms = [part.inputs for part in parts if part is not None and part.op == "mul" and not _clamped(graph, part)]
    if len(terms) < 2 or any(graph[name].origin for name in (*terms[0], *terms[1], *node.inputs, *node.outputs)):
        return None
    orders = (product(*((names, names[::-1]) for names in pair)) for pair in (terms, terms[::-1]))
    for (g, x), (rest, y) in chain(*orders):
        opposite = makers.get(_unshaped(rest, makers))
        if opposite is None or opposite.op != "sub" or _clamped(graph, opposite) or not _aligned(graph, g, rest):
            continue
        ones, gate = opposite.inputs
        plain = not graph[gate].origin and not graph[opposite.outputs[0]].origin and graph[rest].clamp is None
        same = bounds[ones] == (1, 1) and _unshaped(gate, makers) == _unshaped(g, makers)
        if same and plain and 0 <= bounds[g][0] <= bounds[g][1] <= 1:
            return hull([bounds[x], bounds[y]])
    return None


def _clamped(graph: Graph, node: Node) -> bool:
    return graph[node.outputs[0]].clamp is not None


def _aligned(graph: Graph, *names: str) -> bool:
    """Checks that elements of one place are of one place: shapes are alike but for ones in front."""
    shapes = [graph[name].shape for name in names]
    rank = max(map(len, shapes))
    return len({(1,) * (rank - len(shape)) + shape for shape in shapes}) == 1


def _unshaped(name: str, makers: Mapping[str, Node]) -> str:
    """The tensor that reshapes make this one of."""
    while (maker := makers.get(name)) is not None and maker.op == "reshape":
        (name,) = maker.inputs
    return name


def whole(graph: Graph) -> dict[str, Bounds]:
    """Bounds of indices, truth and the whole numbers that are computed from these and whole constants."""
    if not any(OPS[node.op].counted for node in graph.nodes):  # which whole numbers begin with
        return {}
    bounds = known(graph, {})
    names: set[str] = set()
    for node in graph.nodes:
        (out,) = node.outputs
        if is_finite(bounds[out]) and OPS[node.op].is_whole(node, graph.ins(node), graph[out], names):
            names.add(out)
    return {name: bounds[name] for name in names}


def is_finite(bounds: Bounds) -> bool:
    return math.isfinite(bounds[0]) and math.isfinite(bounds[1])
