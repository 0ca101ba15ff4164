"""What the output-scale bias rule costs: the same weights with biases on the accumulator's scale s_x * s_w instead.

Only simulated, for the report: no .nmp file can hold such a bias. Both sides correct their biases layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nmpconv import fixed
from nmpconv.calib.evidence import Evidence
from nmpconv.ir import Graph, Node, Quant
from nmpconv.ops.accumulate import weight_shifts
from nmpconv.passes.bias import on_accumulator_grid
from nmpconv.passes.quantize import integers
from nmpconv.passes.weighted import WEIGHTED, gather, matrix, multiply
from nmpconv.reference import step

WIDE = Quant(32, (0,), fixed.INT_MIN[32], fixed.INT_MAX[32])


def outputs(graph: Graph, evidence: Evidence, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Integers of these tensors, [N, ...], on the evidence's images, with every bias on its accumulator's scale."""
    env = {name: integers(x, graph[name]) for name, x in evidence.inputs.items()}
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    kept: dict[str, np.ndarray] = {}
    for i, node in enumerate(graph.nodes):
        made = _weighted(graph, node, env, evidence) if node.op in WEIGHTED else step(graph, node, env)
        env.update(made)
        kept.update({n: made[n] for n in made if n in names})
        for name in [n for n in env if last.get(n, -1) <= i]:
            del env[name]
    return kept


def _weighted(graph: Graph, node: Node, env: dict[str, np.ndarray], evidence: Evidence) -> dict[str, np.ndarray]:
    out = node.outputs[0]
    x, w, y = graph[node.inputs[0]].quant, graph[node.inputs[1]], graph[out].quant
    assert x is not None and w.quant is not None and w.data is not None and y is not None
    rows = evidence.rows[out]
    pad = graph[node.inputs[3]].data if len(node.inputs) == 4 else None
    split = matrix(graph, node).split(w.data.astype(np.float64))
    shift = weight_shifts(x, w.quant, y, w.shape[0])
    sums = multiply(gather(graph, node, env[node.inputs[0]], pad, rows.images, rows.positions), split)
    target = np.ldexp(rows.values.astype(np.float64), -y.exponent)
    low, high = graph[out].clamp or (-np.inf, np.inf)
    goal = np.ldexp(np.clip(rows.values.astype(np.float64), low, high), -y.exponent)
    bias, _ = on_accumulator_grid(sums.astype(np.int64), shift, target, goal, y)
    # The op itself gives the sums when everything is on one grid and its own bias is zero.
    zero = graph[node.inputs[2]]
    assert zero.data is not None
    plain = graph.with_values(
        replace(graph[node.inputs[0]], quant=replace(x, exponents=(0,))),
        replace(w, quant=replace(w.quant, exponents=(0,), axis=None)),
        replace(zero, data=np.zeros_like(zero.data), quant=replace(zero.quant or WIDE, exponents=(0,))),
        replace(graph[out], quant=WIDE, dtype="int32"),
    )
    acc = step(plain, node, env)[out].astype(np.int64)
    return {out: fixed.sat(fixed.rsh(acc + bias, shift), y.lo, y.hi).astype(y.dtype)}
