"""Cones: functions of one tensor, made of pointwise ops whose results nobody else needs."""

from __future__ import annotations

from typing import NamedTuple

from nmpconv.ir import Node
from nmpconv.ops.common.function import COMBINE, Operand, Step
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.rewrite import Editor

DEPTH = 16  # most nodes of a cone, so that the search stays linear in the graph; Gelu by tanh has nine


class Cone(NamedTuple):
    """Nodes from the last one upwards, and the tensor that they are a function of."""

    nodes: tuple[Node, ...]
    x: str


def cones(editor: Editor, last: Node, least: int = 2) -> list[Cone]:
    """All cones of at least so many nodes that end with ``last``, the smallest first."""
    if not pointwise(editor, last):
        return []
    nodes, subgraphs = [last], []
    while True:
        inside = {node.name for node in nodes}
        results = {node.outputs[0] for node in nodes}
        leaves = {n for node in nodes for n in node.inputs if n not in results and not editor[n].is_const}
        if len(leaves) == 1 and len(nodes) >= least:
            subgraphs.append(Cone(tuple(nodes), *leaves))
        above = [node for name in sorted(leaves) if (node := editor.producer(name)) is not None]
        ready = [
            node
            for node in above
            if pointwise(editor, node)
            and node.outputs[0] not in editor.outputs
            and not editor.keeps_grid(node.outputs[0])
            and all(user.name in inside for user in editor.users(node.outputs[0]))
        ]
        if not ready or len(nodes) == DEPTH:
            return subgraphs
        nodes.append(ready[0])


def pointwise(editor: Editor, node: Node) -> bool:
    """A function of its computed operands, element by element, in which constants are single numbers.

    A quotient that is rounded down is none, nor one from 0 to 1: `fuse_norm` writes it on the grid of its divisor.
    """
    if node.op not in (*COMBINE, "requantize", "lookup") or editor.regrids(node):
        return False
    if node.op == "divide" and (node.params.down or editor[node.outputs[0]].clamp == (0.0, 1.0)):
        return False
    shape = editor[node.outputs[0]].shape
    return all(editor[name].size == 1 if editor[name].is_const else editor[name].shape == shape for name in node.inputs)


def steps_of(editor: Editor, cone: Cone) -> tuple[Step, ...]:
    """Steps that the subgraph computes, as `LookupParams.composed`; none where it is x itself."""
    steps: list[Step] = []
    known: dict[str, Operand] = {cone.x: "x"}

    def operand(name: str) -> Operand:
        return float(editor.data(name).item()) if editor[name].is_const else known[name]

    def add(*step: Operand) -> Operand:
        steps.append(step)
        return len(steps) - 1

    waiting = list(cone.nodes)
    while waiting:
        node = next(n for n in waiting if all(editor[i].is_const or i in known for i in n.inputs))
        waiting.remove(node)
        y = operand(node.inputs[0])
        if node.op in COMBINE:
            y = add(node.op, y, operand(node.inputs[1]))
        elif node.op == "lookup":
            steps += node.params.steps(y, len(steps))
            y = len(steps) - 1
        clamp = editor[node.outputs[0]].clamp
        known[node.outputs[0]] = y if clamp is None else add("clip", y, *map(float, clamp))
    return tuple(steps)


def replace_cone(editor: Editor, cone: Cone, params: LookupParams) -> None:
    """One table in the place of the cone."""
    last = cone.nodes[0]
    out = editor[last.outputs[0]]
    for node in cone.nodes:
        editor.remove(node)
    editor.emit("lookup", (cone.x,), params, at=last, name=last.name, out=out.name)
