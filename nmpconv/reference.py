"""Runs an integer graph in numpy: the specification of every result, and the quantized prefix of the converter.

Samples can be fed many at a time: an array holds N declared tensors one after the other along axis 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS, QArray
from nmpconv.ops.op import quant_of

Arrays = dict[str, np.ndarray]


def run(graph: Graph, feeds: Mapping[str, np.ndarray], keep: Iterable[str] = ()) -> Arrays:
    """The graph's outputs, and the activations named in keep, for integer inputs by name.

    feeds: arrays of the inputs' dtype, [N * d0, ...]. An activation is dropped after its last use.
    """
    wanted = {*graph.outputs, *keep}
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    env: Arrays = {name: np.asarray(feeds[name]) for name in graph.inputs}
    for i, node in enumerate(graph.nodes):
        env.update(step(graph, node, env))
        for name in (*node.inputs, *node.outputs):
            if last.get(name, i) <= i and name not in wanted:
                env.pop(name, None)
    return {name: array for name, array in env.items() if name in wanted}


def step(graph: Graph, node: Node, env: Mapping[str, np.ndarray]) -> Arrays:
    """The outputs of one node; env holds its activations by name, constants come from the graph."""
    active = [v for v in graph.ins(node) if not v.is_const]
    samples = env[active[0].name].size // active[0].size if active else 1
    if samples == 1 or _keeps_batch(graph, node, active):
        outputs = [_times(out, samples) for out in graph.outs(node)]
        return _compute(graph, node, env, outputs)
    parts = [{v.name: np.split(env[v.name], samples)[i] for v in active} for i in range(samples)]
    results = [_compute(graph, node, part, graph.outs(node)) for part in parts]
    return {name: np.concatenate([r[name] for r in results]) for name in node.outputs}


def _compute(graph: Graph, node: Node, env: Mapping[str, np.ndarray], outputs: list[Value]) -> Arrays:
    inputs = [QArray(env[v.name] if v.data is None else v.data, quant_of(v)) for v in graph.ins(node)]
    return dict(zip(node.outputs, OPS[node.op].reference(node.params, inputs, outputs), strict=True))


def _times(value: Value, samples: int) -> Value:
    return value if samples == 1 else replace(value, shape=(value.shape[0] * samples, *value.shape[1:]))


def _keeps_batch(graph: Graph, node: Node, active: list[Value]) -> bool:
    """Whether the node leaves axis 0 alone, so that all samples can go through it at once."""
    shapes = [v.shape for v in (*active, *graph.outs(node))]
    axis = getattr(node.params, "axis", 1)
    moves = (
        axis in (0, -len(shapes[0]))
        or 0 in getattr(node.params, "axes", ())
        or getattr(node.params, "perm", (0,))[0] != 0
    )
    moves = moves or (node.op == "batch_matmul" and len(shapes[0]) == 2)  # axis 0 counts rows
    steps = getattr(node.params, "steps", (1,))[0] != 1
    ranks = {len(v.shape) for v in active}
    repeats = node.op == "concat" and len(active) < len(node.inputs)  # a constant, once for every sample
    return len(ranks) == 1 and all(s and s[0] == 1 for s in shapes) and not (moves or steps or repeats)
