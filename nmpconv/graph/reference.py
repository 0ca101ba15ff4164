"""Runs an integer graph in numpy: the specification of every result, and the quantized prefix of the converter.

Samples can be fed many at a time: an array holds N declared tensors one after the other along axis 0; tensors without
dimensions are [N].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS, QArray, keeps_batch
from nmpconv.ops.op import quant_of

Arrays = dict[str, np.ndarray]
Step = Callable[[Graph, Node, Mapping[str, np.ndarray]], Arrays]


def walk(graph: Graph, env: Arrays) -> Iterator[Node]:
    """The nodes in order, with their inputs in env, where the caller puts their outputs.

    What no later node reads is dropped from env.
    """
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    for i, node in enumerate(graph.nodes):
        yield node
        for name in (*node.inputs, *node.outputs):
            if last.get(name, i) == i:
                env.pop(name, None)


def step(graph: Graph, node: Node, env: Mapping[str, np.ndarray]) -> Arrays:
    """The outputs of one node; env holds its activations by name, constants come from the graph."""
    active = [v for v in graph.ins(node) if not v.is_const]
    samples = env[active[0].name].size // active[0].size if active else 1
    if samples == 1 or keeps_batch(graph, node):
        outputs = [_times(out, samples) for out in graph.outs(node)]
        return _compute(graph, node, env, outputs)
    parts = [{v.name: np.split(env[v.name], samples)[i].reshape(v.shape) for v in active} for i in range(samples)]
    results = [_compute(graph, node, part, graph.outs(node)) for part in parts]
    return {name: np.concatenate([np.atleast_1d(r[name]) for r in results]) for name in node.outputs}


def run(graph: Graph, feeds: Mapping[str, np.ndarray], keep: Iterable[str] = (), compute: Step = step) -> Arrays:
    """The graph's outputs, and the activations named in keep, for integer inputs by name.

    feeds: arrays of the inputs' dtype, [N * d0, ...]. compute: of a node what `step` does.
    """
    wanted = {*graph.outputs, *keep}
    env = {name: np.asarray(feeds[name]) for name in graph.inputs}
    arrays = {name: array for name, array in env.items() if name in wanted}
    for node in walk(graph, env):
        env.update(compute(graph, node, env))
        arrays.update((name, env[name]) for name in node.outputs if name in wanted)
    return arrays


def steps(graph: Graph, feeds: Iterable[Mapping[str, np.ndarray]]) -> Iterator[Arrays]:
    """The outputs of one call after another, from the start of the states; feeds: of each, the inputs that are none."""
    known = {name: np.full(graph[name].shape, state.start, graph[name].dtype) for name, state in graph.states.items()}
    for inputs in feeds:
        outputs = run(graph, {**inputs, **known})
        yield outputs
        known = {name: outputs[state.output] for name, state in graph.states.items()}


def _compute(graph: Graph, node: Node, env: Mapping[str, np.ndarray], outputs: list[Value]) -> Arrays:
    inputs = [QArray(env[v.name] if v.data is None else v.data, quant_of(v)) for v in graph.ins(node)]
    return dict(zip(node.outputs, OPS[node.op].reference(node.params, inputs, outputs), strict=True))


def _times(value: Value, samples: int) -> Value:
    return value if samples == 1 else replace(value, shape=(value.shape[0] * samples, *value.shape[1:]))
