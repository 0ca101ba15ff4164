"""Positive factors of whole tensors: the logarithm of each is a sum of free numbers.

1. `Op.tensor_factors` says how the factors of an op's operands and of its result hang together. What a layer, a table
   or a normalization makes is free, and so is what reaches a softmax. A product has the factors of both operands.
2. Inputs, outputs and their `heads` have none, nor tensors that were chosen by name.
"""

from __future__ import annotations

from collections.abc import Collection

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.common.traits import Factors
from nmpconv.passes.quantize.equations import Equations, Row, total
from nmpconv.passes.quantize.heads import heads


def rows(graph: Graph, exempt: Collection[str] = ()) -> Equations:
    """Rows of the logarithms of all activations. exempt: those that have none."""
    equations = Equations(graph.inputs)
    for node in graph.nodes:
        _visit(node, graph, equations)
    for name in (*graph.outputs, *heads(graph), *exempt):
        equations.zero(equations.rows[name])
    return equations


def _visit(node: Node, graph: Graph, equations: Equations) -> None:
    op, out, known = OPS[node.op], node.outputs[0], equations.rows
    kind = op.tensor_factors(node.params, graph.ins(node), graph[out])
    alike = [name for name in op.moved(node.inputs) if not graph[name].is_const] if kind is Factors.ALIKE else []
    taking = {Factors.NONE: 0, Factors.ALIKE: len(alike), Factors.OPERAND: 1, Factors.ANY: 1}.get(kind, 2)
    having = alike if kind is Factors.ALIKE else node.inputs[:taking]
    for name in node.inputs:
        if name not in having and not graph[name].is_const:
            equations.zero(known[name])
    row: Row = {}
    if kind is Factors.ANY:
        row = equations.free(out)
    elif kind is Factors.ALIKE and alike:
        for name in alike[1:]:
            equations.zero(total(known[alike[0]], known[name], -1.0))
        row = known[alike[0]]
    elif kind in (Factors.PRODUCT, Factors.QUOTIENT):
        first, second = (known.get(name, {}) for name in node.inputs[:2])
        row = total(first, second, 1.0 if kind is Factors.PRODUCT else -1.0)
    for name in node.outputs:
        equations.set(name, dict(row))
