"""All ops, in the order of the schema's union Params."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from nmpconv.ir import Graph, Node
from nmpconv.ops._all import ALL
from nmpconv.ops.common.weighted import Weighted
from nmpconv.ops.op import Case, Op, QArray

T = TypeVar("T")

OPS: dict[str, Op] = {op.name: op for op in ALL}

WEIGHTED: dict[str, Weighted] = {op.name: op for op in ALL if isinstance(op, Weighted)}


def layer_inputs(op: str, inputs: Sequence[T]) -> Sequence[T]:
    """Selects, of something about each input, that of x, weights, bias and perhaps padding; () of an op without
    weights."""
    first = OPS[op].layer
    return () if first is None else inputs[first:]


def keeps_batch(graph: Graph, node: Node) -> bool:
    """Checks that axis 0 of all its activations has size 1 and is a batch to the op: samples can go through it at
    once."""
    active = [value for value in (*graph.ins(node), *graph.outs(node)) if not value.is_const]
    single = all(value.shape[:1] == (1,) for value in active)
    return single and OPS[node.op].keeps_batch(node.params, graph.ins(node), graph[node.outputs[0]])


def scales_along(graph: Graph, node: Node) -> bool:
    """Checks for an op whose result is as many times larger as what it reads, biases and clamps apart: layers, moves,
    sums and multiples."""
    op = OPS[node.op]
    multiple = node.op == "mul" and any(value.is_const for value in graph.ins(node))
    return node.op in WEIGHTED or op.grid == "same" or op.homogeneous or multiple


def waves(graph: Graph) -> set[str]:
    """Names of inputs that are no images, and of what layers, moves, sums, multiples and quotients make of such alone.
    What saturates is none."""
    names = {name for name in graph.inputs if name not in graph.pixels and name not in graph.preprocess}
    for node in graph.nodes:
        computed = [value.name for value in graph.ins(node) if not value.is_const]
        passes_on = node.op == "divide" or scales_along(graph, node)
        if passes_on and names.issuperset(computed) and not any(value.clamp for value in graph.outs(node)):
            names.update(node.outputs)
    return names


__all__ = [
    "OPS",
    "WEIGHTED",
    "Case",
    "Op",
    "QArray",
    "Weighted",
    "keeps_batch",
    "layer_inputs",
    "scales_along",
    "waves",
]
