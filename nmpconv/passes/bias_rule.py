"""What the output-scale bias rule costs: the same weights with biases on the accumulator's scale s_x * s_w instead.

Only simulated, for the report: no .nmp file can hold such a bias. Both sides correct their biases layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nmpconv import fixed
from nmpconv.calib.evidence import Evidence
from nmpconv.ir import Graph, Node
from nmpconv.ops import WEIGHTED
from nmpconv.ops.accumulate import accumulate, accumulator_bound, convolve, exact_type, magnitude, weight_shifts
from nmpconv.ops.conv_transpose import spread_out
from nmpconv.passes.bias import on_accumulator_grid
from nmpconv.passes.quantize import integers
from nmpconv.passes.weighted import gather, matrix, multiply, samples
from nmpconv.reference import step


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
    values = env[node.inputs[0]]
    n, *rest = graph[out].shape
    result = np.empty((samples(graph, node.inputs[0], values) * n, *rest), y.dtype)
    for images, acc in _sums(node, values, w.data, pad):
        part = fixed.sat(fixed.rsh(acc.astype(np.int64) + bias, shift), y.lo, y.hi)
        result[images] = part.reshape(result[images].shape)
    return {out: result}


def _sums(node: Node, x: np.ndarray, w: np.ndarray, pad: np.ndarray | None) -> Iterator[tuple[slice, np.ndarray]]:
    """The op's exact sums of products, some images at a time; the last axis is the output channels."""
    bound = accumulator_bound(max(magnitude(x), 0 if pad is None else magnitude(pad)), w)
    if node.op == "conv2d":
        yield from convolve(x, w, node.params, pad, bound)
    elif node.op == "conv_transpose":
        dense = replace(node.params, stride_h=1, stride_w=1)
        yield from convolve(spread_out(x, node.params), w, dense, None, bound)
    else:
        yield slice(None), accumulate(x.reshape(-1, 1, w.shape[1]), w, exact_type(bound))
