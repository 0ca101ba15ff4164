"""Powers of int16 tensors that are steep near 0, by an op that is exact there.

A table of samples at equal distances is a chord where a root rises from 0. With one channel a sum, lrn computes
y = x * (bias + alpha * x^2)^-beta in floating point of 31 bits: x^p with beta = (1 - p) / 2.

1. sqrt, and x^p with 0 < p < 1: lrn, saturated at 0.
2. The reciprocal: a constant divided by x, rounded once.

A factor of the table is in alpha, or in the constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.lookup import LookupParams
from nmpconv.ops.lrn import LrnParams
from nmpconv.passes.rewrite import Editor

ZERO = 1e-37  # a bias that keeps 0 * 0^-beta at 0
FACTORS = (1e-6, 1e6)  # of x^2: what float32 and the kernels' shifts take


def run(graph: Graph, bits: Mapping[str, int]) -> Graph:
    """bits: of activations, by name."""
    editor = Editor(graph)
    for node in graph.nodes:
        if node.op == "lookup" and bits[node.inputs[0]] == 16 and len(graph[node.inputs[0]].shape) > 0:
            _root(editor, node, node.params) or _reciprocal(editor, node, node.params)
    return editor.finish()


def _root(editor: Editor, node: Node, p: LookupParams) -> bool:  # case 1
    power = {"sqrt": 0.5, "power": p.alpha}.get(p.function, 0.0)
    if not 0 < power < 1 or p.before <= 0 or p.after <= 0:
        return False
    beta = (1 - power) / 2
    alpha = (p.after * p.before**power) ** (-1 / beta)
    if not FACTORS[0] <= alpha <= FACTORS[1]:
        return False
    params = LrnParams(1, alpha=alpha, beta=beta, bias=ZERO)
    editor.remove(node)
    editor.emit("lrn", node.inputs, params, at=node, name=node.name, out=node.outputs[0], clamp=(0.0, math.inf))
    return True


def _reciprocal(editor: Editor, node: Node, p: LookupParams) -> bool:  # case 2
    if p.function != "reciprocal":
        return False
    x = editor[node.inputs[0]]
    number = editor.const(f"{node.name}.dividend", np.full((1,) * len(x.shape), p.after / p.before))
    editor.remove(node)
    editor.emit("divide", (number, x.name), at=node, name=node.name, out=node.outputs[0])
    return True
