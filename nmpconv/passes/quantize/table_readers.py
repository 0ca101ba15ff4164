"""Finds tensors that nothing but tables reads, and the functions of these: errors count after them."""

from __future__ import annotations

from dataclasses import replace

from nmpconv.calib.exponent_search import Function
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.quantize.shared_grids import grid_groups


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


def activated(graph: Graph) -> frozenset[str]:
    """Tensors with an activation: a clamp, or a table that reads them."""
    clamped = {value.name for value in graph.activations() if value.clamp is not None}
    return frozenset(clamped.union(*(node.inputs for node in graph.nodes if node.op == "lookup")))


def moves(node: Node) -> bool:
    """Checks that it computes nothing."""
    return OPS[node.op].grid == "same"
