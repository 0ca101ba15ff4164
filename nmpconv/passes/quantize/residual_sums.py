"""Target pre-activations of a layer: those of the float model, or the rest of a residual sum.

The rest applies to a layer that only a sum of a long residual stream reads, or a sum that is rounded once with it. It
is the float model's sum, minus the other operand as quantized, minus the average error of rounding the sum half up. So
the biases of a block cancel the errors of earlier blocks, and long streams do not drift.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nmpconv.base import fixed_point
from nmpconv.calib.activation_cache import Evidence, residual_sums
from nmpconv.calib.sampled_rows import Rows
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.op import quant_of
from nmpconv.passes import residual_operands


def sums_of(graph: Graph) -> dict[str, Node]:
    """Sums whose layers make up for their other operand, by the layer's result; graph: with grids."""
    short, long = residual_sums(graph, 0), residual_sums(graph)
    return long | {name: short[name] for name in residual_operands.found(graph) if name in short}


def wanted_rows(
    graph: Graph,
    node: Node,
    sums: Mapping[str, Node],
    env: Mapping[str, np.ndarray],
    evidence: Evidence,
) -> Rows | None:
    """Rows of what a weighted node is to have before its activation; None where nothing is known.

    sums: `sums_of` the graph. env: integers [N, ...] of what was computed so far, by name.
    """
    out = graph[node.outputs[0]]
    add = sums.get(out.name)
    if add is not None:
        total, (other,) = graph[add.outputs[0]], [graph[name] for name in add.inputs if name != out.name]
        if other.name in env and total.name in evidence.rows:
            return _less(evidence.rows[total.name], other, env[other.name], _drift((out, other), total))
    return evidence.rows.get(out.name)


def _less(rows: Rows, other: Value, integers: np.ndarray, drift: float) -> Rows:
    channels = other.shape[-1]
    at = integers.reshape(-1, other.size // channels, channels)[rows.images, rows.positions]
    wanted = rows.values - fixed_point.dequantize(at, quant_of(other).exponent) - drift
    return rows._replace(values=wanted.astype(np.float32))


def _drift(operands: Sequence[Value], total: Value) -> float:
    """Half a step of the finer operand: what is below a step of the sum is as often each multiple of that step."""
    finest = min(quant_of(value).exponent for value in operands)
    return math.ldexp(0.5, finest) if quant_of(total).exponent > finest else 0.0
