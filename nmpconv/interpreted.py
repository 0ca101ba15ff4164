"""The interpreter in place of the numpy reference while a model is converted: the same integers, sooner.

Each node is a net of its own, so a graph that is still being quantized can be run as far as it is. To make a net takes
about a millisecond: what is less work is left to the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from nmpconv.file.writer import to_bytes
from nmpconv.graph import reference
from nmpconv.graph.reference import Arrays
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.memory import plan_memory
from nmpconv.run import runtime

LEAST = 5 * 10**6  # multiply-accumulates and results that are worth a net


def run(graph: Graph, feeds: Mapping[str, np.ndarray], keep: Iterable[str] = ()) -> Arrays:
    """As `graph.reference.run`."""
    return reference.run(graph, feeds, keep, step)


def step(graph: Graph, node: Node, env: Mapping[str, np.ndarray]) -> Arrays:
    """As `graph.reference.step`."""
    active = list(dict.fromkeys(name for name in node.inputs if not graph[name].is_const))
    samples = env[active[0]].size // graph[active[0]].size if active else 0
    outputs = graph.outs(node)
    work = OPS[node.op].macs(node.params, graph.ins(node), outputs) + sum(value.size for value in outputs)
    if samples * work < LEAST:
        return reference.step(graph, node, env)
    net = runtime.load(to_bytes(plan_memory.run(_alone(graph, node, active)), {}), threads=1)
    feeds = [env[name].reshape(samples, *graph[name].shape) for name in active]
    made = [np.empty((samples, *value.shape), value.dtype) for value in outputs]
    for i in range(samples):
        for array, result in zip(made, net.run(*(feed[i] for feed in feeds)), strict=True):
            array[i] = result
    return {
        value.name: array.reshape(samples * value.shape[0], *value.shape[1:]) if value.shape else array
        for value, array in zip(outputs, made, strict=True)
    }


def _alone(graph: Graph, node: Node, active: list[str]) -> Graph:
    """The graph of this node."""
    names = dict.fromkeys((*node.inputs, *node.outputs))
    values = {name: replace(graph[name], offset=None) for name in names}
    return Graph("", tuple(active), node.outputs, (node,), values)
