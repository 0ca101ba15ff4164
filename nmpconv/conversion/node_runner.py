"""Runs single nodes in the C interpreter during conversion: bit-identical to the numpy reference, faster.

Each node is a net of its own, so a graph that is still being quantized can be run as far as it is. To make a net takes
about a millisecond: what is less work is left to the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nmpconv.base.thread_pool import each
from nmpconv.file.reader import dequantize
from nmpconv.file.writer import to_bytes
from nmpconv.graph import reference
from nmpconv.graph.reference import Arrays
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS
from nmpconv.ops.op import quant_of
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

LEAST = 5 * 10**6  # multiply-accumulates that are worth a net
RESULT = 20  # multiply-accumulates that cost numpy as much as one output element
MUCH, PARTS = 2 * 10**8, 2  # what is worth a net for each of so many parts of the samples


def file_of(graph: Graph, names: Sequence[str]) -> bytes:
    """The file of a graph with these activations as its outputs."""
    return to_bytes(plan_memory.run(Graph("", graph.inputs, tuple(names), graph.nodes, graph.values)), {})


def tensors(
    graph: Graph, samples: Sequence[Mapping[str, np.ndarray]], names: Sequence[str], file: bytes | None = None
) -> list[list[np.ndarray]]:
    """Real values of these activations in the graph for each sample: integer arrays of the graph's inputs by name.

    file: `file_of` these, where it is there already.
    """
    fetched, data = [graph[name] for name in names], file or file_of(graph, names)
    feeds = [np.empty((len(samples), *graph[name].shape), graph[name].dtype) for name in graph.inputs]
    for i, sample in enumerate(samples):
        for feed, name in zip(feeds, graph.inputs, strict=True):
            feed[i] = sample[name]
    arrays = [np.empty((len(samples), *value.shape), value.dtype) for value in fetched]

    _run(data, feeds, arrays, len(samples), sum(_work(graph, node) for node in graph.nodes))
    reals = [[_real(value, x) for x in array] for value, array in zip(fetched, arrays, strict=True)]
    return [list(row) for row in zip(*reals, strict=True)]


class Outcome:
    """Integers of the heads on the samples that a graph is fitted to. `step` is `node_runner.step`, which they come
    from: the graph need not run on these samples again."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._arrays = names, dict[str, np.ndarray]()

    def step(self, graph: Graph, node: Node, env: Mapping[str, np.ndarray]) -> Arrays:
        arrays = step(graph, node, env)
        self._arrays.update({name: array for name, array in arrays.items() if name in self._names})
        return arrays

    def taken(self, graph: Graph) -> dict[str, np.ndarray]:
        """Real values, [N, ...], which are handed over once; none where they are not known."""
        arrays, self._arrays = self._arrays, {}
        known = all(name in arrays for name in self._names)
        return {name: _real(graph[name], arrays[name]) for name in self._names} if known else {}


def _real(value: Value, integers: np.ndarray) -> np.ndarray:
    """In the graph's own numbers."""
    return value.stored(dequantize(integers, quant_of(value).exponent, value.shifts))


def step(graph: Graph, node: Node, env: Mapping[str, np.ndarray]) -> Arrays:
    """As `graph.reference.step`."""
    active = list(dict.fromkeys(name for name in node.inputs if not graph[name].is_const))
    samples = env[active[0]].size // graph[active[0]].size if active else 0
    outputs = graph.outs(node)
    work = _work(graph, node)
    if samples * work < LEAST:
        return reference.step(graph, node, env)
    data = to_bytes(plan_memory.run(_alone(graph, node, active)), {})
    feeds = [np.ascontiguousarray(env[name]).reshape(samples, *graph[name].shape) for name in active]
    arrays = [np.empty((samples, *value.shape), value.dtype) for value in outputs]

    _run(data, feeds, arrays, samples, work)
    return {
        value.name: array.reshape(samples * value.shape[0], *value.shape[1:]) if value.shape else array
        for value, array in zip(outputs, arrays, strict=True)
    }


def _run(data: bytes, feeds: Sequence[np.ndarray], outputs: Sequence[np.ndarray], samples: int, work: int) -> None:
    """Runs a file on samples, [n, ...] of each input, and fills the outputs. work: of a sample."""
    count = PARTS if samples * work > MUCH else 1

    def run_part(i: int) -> None:
        interpreter.run_samples(data, feeds, outputs, range(i * samples // count, (i + 1) * samples // count))

    each(run_part, range(count))


def _work(graph: Graph, node: Node) -> int:
    """In multiply-accumulates."""
    outputs = graph.outs(node)
    return OPS[node.op].macs(node.params, graph.ins(node), outputs) + RESULT * sum(value.size for value in outputs)


def _alone(graph: Graph, node: Node, active: list[str]) -> Graph:
    """The graph of this node."""
    names = dict.fromkeys((*node.inputs, *node.outputs))
    values = {name: replace(graph[name], offset=None) for name in names}
    return Graph("", tuple(active), node.outputs, (node,), values)
