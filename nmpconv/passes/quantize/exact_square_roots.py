"""Functions of int16 tensors that are steep near 0, by ops that are exact there.

A table of samples at equal distances is a straight line where a root rises from 0. With one channel a sum, lrn computes
y = x * (bias + alpha * x^2)^-beta in floating point of 31 bits: x^p with beta = (1 - p) / 2.

1. sqrt, and x^p with 0 < p < 1: lrn, saturated at 0.
2. The reciprocal: a constant divided by x, rounded once.
3. The logarithm, and x^p with p < 0, if some elements are STEEP times smaller than the largest: lrn computes
   z = x^(1/ROOT), and a table reads z. As functions of z, log x = ROOT * log z and x^p = z^(ROOT * p) are nowhere
   steep: z of the smallest number in int16 is a quarter of z of the largest.

A factor of the table is in alpha, or in the constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nmpconv.calib.exponent_search import span
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops.divide import DivideParams
from nmpconv.ops.lookup import LookupParams
from nmpconv.ops.lrn import LrnParams
from nmpconv.passes.rewrite import Clamp, Editor

ZERO = 1e-37  # a bias that keeps 0 * 0^-beta at 0
ROOT = 8
STEEP = 16.0
FACTORS = (1e-6, 1e6)  # of x^2: what float32 and the kernels' shifts take


def run(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int]
) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
    """The float graph with those ops, and the statistics and widths with those of roots."""
    editor = Editor(graph)
    roots: dict[str, str] = {}  # and what they are of
    for node in graph.nodes:
        x = node.inputs[0]
        if node.op != "lookup" or bits[x] != 16 or not graph[x].shape:
            continue
        if not (_root(editor, node, node.params) or _reciprocal(editor, node, node.params)):
            _of_root(editor, node, node.params, stats[x], roots)
    return (
        editor.finish(),
        {**stats, **{root: stats[x].mapped(_rooted) for root, x in roots.items()}},
        {**bits, **dict.fromkeys(roots, 16)},
    )


def _root(editor: Editor, node: Node, p: LookupParams) -> bool:  # case 1
    power = {"sqrt": 0.5, "power": p.alpha}.get(p.function, 0.0)
    if not 0 < power < 1 or p.before <= 0 or p.after <= 0:
        return False
    beta = (1 - power) / 2
    alpha = (p.after * p.before**power) ** (-1 / beta)
    if not FACTORS[0] <= alpha <= FACTORS[1]:
        return False
    _replace(editor, node, "lrn", node.inputs, LrnParams(1, alpha=alpha, beta=beta, bias=ZERO), (0.0, math.inf))
    return True


def _reciprocal(editor: Editor, node: Node, p: LookupParams) -> bool:  # case 2
    if p.function != "reciprocal":
        return False
    x = editor[node.inputs[0]]
    number = editor.const(f"{node.name}.dividend", np.full((1,) * len(x.shape), p.after / p.before))
    _replace(editor, node, "divide", (number, x.name), DivideParams())
    return True


def _of_root(editor: Editor, node: Node, p: LookupParams, seen: TensorStats, roots: dict[str, str]) -> None:  # case 3
    low = max(seen.min, seen.peak / 2**16)
    if p.before <= 0 or p.origin_x or seen.min < 0 or seen.peak < STEEP * low:
        return
    if p.function == "log":
        params = replace(p, before=p.before ** (1 / ROOT), after=p.after * ROOT)
    elif p.function == "power" and p.alpha < 0:
        params = replace(p, before=p.before ** (1 / ROOT), alpha=p.alpha * ROOT)
    else:
        return
    (x,) = node.inputs
    most = float(_rooted(np.asarray(span(seen, 16, editor[x].clamp)[1])))
    lrn = LrnParams(1, alpha=1.0, beta=(1 - 1 / ROOT) / 2, bias=ZERO)
    root = editor.emit("lrn", (x,), lrn, at=node, clamp=(0.0, most))
    _replace(editor, node, "lookup", (root,), params)
    roots[root] = x


def _replace(
    editor: Editor, node: Node, op: str, inputs: Sequence[str], params: Any, clamp: Clamp | None = None
) -> None:
    editor.remove(node)
    editor.emit(op, inputs, params, at=node, name=node.name, out=node.outputs[0], clamp=clamp)


def _rooted(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0.0) ** (1 / ROOT))
