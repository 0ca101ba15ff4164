"""Makes every op legal for the runtime: exponents are raised and requantizes inserted, never left to an error there.

1. Shifts and exponent differences outside the format's limits: the exponent that is too small is raised.
2. An op that must have a grid of its own (a Softmax) on that of something larger, with which it shares a Concat: it
   gets its own, and a requantize after it.
3. An input of a same-grid op that is on another grid: a requantize before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nmpconv.base.fixed_point import EXPONENT_MAX, SHIFT_MAX, SHIFT_MIN
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS
from nmpconv.ops.op import quant_of
from nmpconv.ops.requantize import requantize
from nmpconv.passes.quantize.exponents import saturating
from nmpconv.passes.quantize.shared_grids import grid_groups


def run(graph: Graph) -> Graph:
    return _one_grid(_own_grid(raised(graph)))


def raised(graph: Graph) -> Graph:
    """Case 1, repeated until nothing moves; exponents only grow, so this ends."""
    group_of = {name: group for group in grid_groups(graph) for name in group}
    moved = True
    while moved:
        moved = False
        for node in graph.nodes:
            for name, least in _least(graph, node):
                if _exponent(graph, name) < least <= EXPONENT_MAX:
                    graph = graph.with_values(*(with_exponent(graph[n], least) for n in group_of[name]))
                    moved = True
    return graph


def _least(graph: Graph, node: Node) -> Iterator[tuple[str, int]]:
    """(activation, smallest exponent that this node allows it)."""
    for limit in OPS[node.op].limits(node, graph):
        short, over = limit.least - limit.value, limit.value - limit.most
        for names, gap in ((limit.below, short), (limit.above, over)):
            if gap > 0:
                yield from ((name, _exponent(graph, name) + int(gap)) for name in names)


def _exponent(values: Graph | Mapping[str, Value], name: str) -> int:
    return quant_of(values[name]).exponent


def with_exponent(value: Value, exponent: int) -> Value:
    return replace(value, quant=saturating(quant_of(value).bits, exponent, value.clamp))


def _own_grid(graph: Graph) -> Graph:
    """Case 2."""
    nodes: list[Node] = []
    values = {**graph.values}
    graph = replace(graph, values=values)
    for node in graph.nodes:
        out = graph[node.outputs[0]]
        low, high = OPS[node.op].exponents
        if low <= _exponent(graph, out.name) <= high:
            nodes.append(node)
            continue
        bits = quant_of(out).bits
        own = OPS[node.op].own_exponent(node, bits)
        assert own is not None
        fresh = f"{node.name}.output"
        values[fresh] = replace(out, name=fresh, quant=saturating(bits, own, None))
        nodes.append(replace(node, outputs=(fresh,)))
        nodes += requantized(values, fresh, fresh, out.name)
    return replace(graph, nodes=tuple(nodes))


def _one_grid(graph: Graph) -> Graph:
    """Case 3."""
    nodes: list[Node] = []
    values = {**graph.values}
    graph = replace(graph, values=values)
    for node in graph.nodes:
        if OPS[node.op].grid == "same":
            names = list(node.inputs)
            for i, name in OPS[node.op].moved([*enumerate(names)]):
                goal = graph[node.outputs[0]].quant
                value = graph[name]
                if value.is_const or goal is None or _same(value.quant, goal):
                    continue
                fresh = f"{node.name}.input{i}"
                plain = saturating(goal.bits, goal.exponent, None)
                values[fresh] = replace(value, name=fresh, quant=plain, clamp=None)
                nodes += requantized(values, fresh, name, fresh)
                names[i] = fresh
            node = replace(node, inputs=tuple(names))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def requantized(values: dict[str, Value], label: str, x: str, y: str) -> list[Node]:
    """Requantizes that make y of x, as many as the limits of one shift ask for; both have their grids.

    values: of the graph; gets what is between the two. label: the name of the last one.
    """
    nodes: list[Node] = []
    goal = _exponent(values, y)
    while (step := goal - _exponent(values, x)) > SHIFT_MAX or step < SHIFT_MIN:
        name, source = f"{label}.{len(nodes)}", values[x]
        quant = saturating(16, quant_of(source).exponent + min(max(step, SHIFT_MIN), SHIFT_MAX), None)
        values[name] = replace(source, name=name, quant=quant, clamp=None)
        nodes.append(requantize(name, x, name))
        x = name
    return [*nodes, requantize(label, x, y)]


def _same(a: Quant | None, b: Quant) -> bool:
    return a is not None and a.exponents == b.exponents and a.bits == b.bits
