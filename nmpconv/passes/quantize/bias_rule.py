"""Cost of biases on the scale of the output: the same weights with biases on the accumulator's scale s_x * s_w instead.

Only simulated, for the report: no .nmp file can hold such a bias. Both sides correct their biases layer by layer; or
neither does (`own_biases`), where a quantized model's integers are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpconv.base import fixed_point
from nmpconv.base.thread_pool import each
from nmpconv.calib.activation_cache import Evidence
from nmpconv.calib.sampled_rows import Rows
from nmpconv.graph.reference import Step, step, walk
from nmpconv.ir import Graph, Node, Quant
from nmpconv.ops import WEIGHTED
from nmpconv.ops.common.accumulate import accumulator_bound, convolve, exact_type, magnitude, weight_shifts
from nmpconv.passes.quantize.bias import on_accumulator_grid
from nmpconv.passes.quantize.matrix_form import gather, matrix, multiply, pad_of, samples
from nmpconv.passes.quantize.residual_sums import sums_of, wanted_rows

PARTS = 2  # of the images, at the same time


def outputs(graph: Graph, evidence: Evidence, names: Sequence[str], compute: Step = step) -> dict[str, np.ndarray]:
    """Integers of these tensors, [N, ...], on the evidence's images, with every bias on its accumulator's scale."""
    env = evidence.on_grids(graph)
    results: dict[str, np.ndarray] = {}
    sums = sums_of(graph)
    for node in walk(graph, env):
        if node.op in WEIGHTED:
            rows = wanted_rows(graph, node, sums, env, evidence)
            assert rows is not None
            arrays = _weighted(graph, node, env, rows)
        else:
            arrays = compute(graph, node, env)
        env.update(arrays)
        results.update({n: arrays[n] for n in arrays if n in names})
    return results


def own_biases(
    graph: Graph, floats: Graph, evidence: Evidence, names: Sequence[str], compute: Step
) -> dict[str, np.ndarray]:
    """Integers of these tensors, [N, ...], with the float graph's biases, rounded to the accumulators' scales.

    floats: the graph that was quantized; its nodes have the same names.
    """
    biases = {node.name: floats[node.inputs[2]].data for node in floats.nodes if node.op in WEIGHTED}
    env = evidence.on_grids(graph)
    results: dict[str, np.ndarray] = {}
    for node in walk(graph, env):
        if node.op in WEIGHTED:
            x, w, y = (graph[name].quant for name in (*node.inputs[:2], node.outputs[0]))
            real = biases[node.name]
            assert x is not None and w is not None and y is not None and real is not None
            shift = weight_shifts(x, w, y, graph[node.inputs[1]].shape[0])
            bias = fixed_point.round_half_up(np.ldexp(real.astype(np.float64), shift - y.exponent))
            arrays = _run(graph, node, env, bias, shift)
        else:
            arrays = compute(graph, node, env)
        env.update(arrays)
        results.update({n: arrays[n] for n in arrays if n in names})
    return results


def _weighted(graph: Graph, node: Node, env: dict[str, np.ndarray], rows: Rows) -> dict[str, np.ndarray]:
    out = node.outputs[0]
    x, w, y = graph[node.inputs[0]].quant, graph[node.inputs[1]], graph[out].quant
    assert x is not None and w.quant is not None and w.data is not None and y is not None
    pad = pad_of(graph, node)
    split = matrix(graph, node).split(w.data)
    shift = weight_shifts(x, w.quant, y, w.shape[0])
    sums = multiply(gather(graph, node, env[node.inputs[0]], pad, rows.images, rows.positions), split)
    clamp = graph[out].clamp or (-np.inf, np.inf)
    bias, _ = on_accumulator_grid(sums, shift, rows.values, clamp, y)
    return _run(graph, node, env, bias, shift)


def _run(
    graph: Graph, node: Node, env: dict[str, np.ndarray], bias: np.ndarray, shift: np.ndarray
) -> dict[str, np.ndarray]:
    """bias, shift: of each channel [O]."""
    out, pad = node.outputs[0], pad_of(graph, node)
    w, y = graph[node.inputs[1]], graph[out].quant
    assert w.data is not None and y is not None
    values = env[node.inputs[0]]
    bound = accumulator_bound(max(magnitude(values), 0 if pad is None else magnitude(pad)), w.data)
    images, taps, params = WEIGHTED[node.op].as_convolution(node.params, values, w.shape)
    taken = w.data.reshape(taps)

    def outputs_of(part: np.ndarray) -> list[np.ndarray]:
        return [_output(acc, bound, bias, shift, y) for _, acc in convolve(part, taken, params, pad, bound)]

    parts = [output for pieces in each(outputs_of, np.array_split(images, PARTS)) for output in pieces]
    n, *rest = graph[out].shape
    shape = (samples(graph, node.inputs[0], values) * n, *rest)
    return {out: np.concatenate(parts).reshape(shape)}


def _output(acc: np.ndarray, bound: float, bias: np.ndarray, shift: np.ndarray, y: Quant) -> np.ndarray:
    """sat(rsh(acc + b, s)) in y's type; acc: as in `output_step`, may be overwritten.

    With floats it is floor((acc + b) * 2^-s + (1/2 if s > 0 else 0)), exact where
    (bound + |b|) * 2^max(-s, 0) + 2^max(s, 0) / 2 fits the significand.
    """
    most = np.ldexp(bound + np.abs(bias.astype(np.float64)), np.maximum(-shift, 0))
    kind = exact_type(float(np.max(most + np.ldexp(0.5, np.maximum(shift, 0)))))
    if kind is np.int64:
        return fixed_point.sat(fixed_point.rsh(acc.astype(np.int64) + bias, shift), y.lo, y.hi).astype(y.dtype)
    sums: np.ndarray = acc.astype(kind, copy=False)
    sums += bias.astype(kind)
    sums *= np.ldexp(1.0, -shift).astype(kind)
    sums += np.where(shift > 0, 0.5, 0.0).astype(kind)
    np.floor(sums, out=sums)
    np.clip(sums, y.lo, y.hi, out=sums)
    return sums.astype(y.dtype)
