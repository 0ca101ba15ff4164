"""Tables of the grids of a quantized model (`given_grids`): they round ties to even, as it does."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from nmpconv.ir import Given, Graph, Node, Value
from nmpconv.ops.common.even_tables import even_params, product_params, ties_to_even
from nmpconv.ops.lookup import LookupParams


def rounded(graph: Graph, known: Mapping[str, Given], narrow: Collection[str]) -> Graph:
    """The graph with such tables. narrow: the tensors of 8 bits."""
    graph = _with_products(graph, known, narrow)
    nodes, values = [], []
    for node in graph.nodes:
        x, y = node.inputs[0], node.outputs[0]
        if x in narrow and {x, y} <= {*known} and known[y].is_power:
            low, high = graph[y].clamp or (-math.inf, math.inf)
            ends = max(low, known[y].min), min(high, known[y].max)
            if graph.regrids(node) and _has_ties(known[x], known[y]):
                node = ties_to_even(node.name, x, y, known[y].scale, ends)
                values.append(replace(graph[y], clamp=None))
            elif isinstance(node.params, LookupParams):
                node = replace(node, params=even_params(node.params, known[y].scale))
        nodes.append(node)
    return replace(graph.with_values(*values), nodes=tuple(nodes))


def _with_products(graph: Graph, known: Mapping[str, Given], narrow: Collection[str]) -> Graph:
    """x times a table of x is a table."""
    makers, users = graph.producers(), graph.consumers()
    tables: dict[str, Node] = {}
    plain: list[Value] = []
    gone: dict[str, str] = {}
    for node in graph.nodes:
        above = [makers[name] for name in node.inputs if name in makers]
        table = next((t for t in above if t.op == "lookup" and {*node.inputs} == {t.inputs[0], t.outputs[0]}), None)
        if node.op != "mul" or table is None:
            continue
        x, between = table.inputs[0], table.outputs[0]
        if between in graph.outputs or len(users[between]) != 1:
            continue
        if x in narrow and between in known and known[between].is_power:
            grid, y = known[between], graph[node.outputs[0]]
            params = product_params(table.params, grid.scale, (grid.min, grid.max), y.clamp)
            tables[node.name] = replace(table, name=node.name, outputs=node.outputs, params=params)
            plain.append(replace(y, clamp=None))
            gone[table.name] = between
    nodes = tuple(tables.get(node.name, node) for node in graph.nodes if node.name not in gone)
    graph = graph.with_values(*plain)
    left = {name: value for name, value in graph.values.items() if name not in gone.values()}
    return replace(graph, nodes=nodes, values=left)


def _has_ties(x: Given, y: Given) -> bool:
    return x.is_power and y.is_power and y.scale > x.scale
