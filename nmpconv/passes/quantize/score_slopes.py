"""Weights of the errors of layers in front of the Sigmoid or Softmax that ends a net: how far they move a score.

Nearly all cells of a detector are background, far below 0, where a score does not move. A mean over all of them moves
the rare cells that matter. So an error counts by the square of the slope of what follows.

1. A table with a Sigmoid in it, which alone reads the layer, directly or moved. Slopes are those of the table.
2. A Softmax along the layer's channels, or along equal parts of them, of a tensor with several positions: p * (1 - p).
3. In both cases nothing with multiply-accumulates follows, as it does behind gates and attention. A Softmax of one
   position is a classifier's, whose logits are what is compared.

Where few rows lie on a slope, their mean is no bias: PRIOR rows of the plain mean are added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.quantize import table_readers

PRIOR = 4.0
STEEPEST = 0.25  # of a Sigmoid, and of a Softmax
STEP = 2.0**-6  # between the points that a slope is taken of

Weights = Callable[[np.ndarray], np.ndarray]
"""Takes float32 rows [R, O] of a layer's sums; gives the weights of their errors, float64 [R, O], all above 0."""


def by_layer(graph: Graph) -> Mapping[str, Weights]:
    """The weights of the errors of layers in front of scores, by the layer's output."""
    last = _last(graph)
    tables = table_readers.after(graph)
    weights: dict[str, Weights] = {}
    for node in graph.nodes:
        out = node.outputs[0]
        if node.op not in WEIGHTED or out not in last:
            continue
        functions = [f for f in tables.get(out, ()) if isinstance(f, LookupParams) and _is_sigmoid(f)]
        if functions and len(functions) == len(tables[out]):
            weights[out] = partial(_of_tables, functions)
        elif (softmax := _softmax(graph, out)) is not None:
            size = graph[softmax.inputs[0]].shape[-1]
            weights[out] = partial(_of_softmax, size, softmax.params.before)
    return weights


def _last(graph: Graph) -> set[str]:
    """Case 3: tensors behind which nothing multiplies and accumulates."""
    users = graph.consumers()
    last: set[str] = set()
    for node in reversed(graph.nodes):
        for out in node.outputs:
            behind = users[out]
            sums = any(OPS[user.op].macs(user.params, graph.ins(user), graph.outs(user)) for user in behind)
            if not sums and last.issuperset(name for user in behind for name in user.outputs):
                last.add(out)
    return last


def _is_sigmoid(table: LookupParams) -> bool:
    return any(name == "sigmoid" for name, *_ in table.steps())


def _softmax(graph: Graph, name: str) -> Node | None:
    """The Softmax that takes channels of a layer together; None where case 2 does not hold."""
    channels = graph[name].shape[-1]
    while True:
        readers = graph.readers(name)
        if len(readers) != 1 or name in graph.outputs:
            return None
        (node,) = readers
        shape = graph[name].shape
        if node.op == "softmax":
            size = shape[-1]
            along = node.params.axis in (-1, len(shape) - 1)
            return node if along and channels % size == 0 and graph[name].size > size else None
        if not _keeps_channels(graph, node):
            return None
        name = node.outputs[0]


def _keeps_channels(graph: Graph, node: Node) -> bool:
    """Checks that it leaves the order of the elements, or joins whole rows."""
    if node.op == "reshape":
        return True
    (out,) = graph.outs(node)
    return node.op == "concat" and all(value.shape[-1] == out.shape[-1] for value in graph.ins(node))


def _of_tables(tables: list[LookupParams], rows: np.ndarray) -> np.ndarray:
    x = rows.astype(np.float64)
    slopes = np.zeros_like(x)
    for table in tables:
        slopes += np.square((table(x + STEP) - table(x - STEP)) / (2 * STEP * STEEPEST))
    return _with_prior(slopes)


def _of_softmax(size: int, before: float, rows: np.ndarray) -> np.ndarray:
    x = before * rows.astype(np.float64).reshape(len(rows), -1, size)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return _with_prior(np.square(p * (1 - p) / STEEPEST).reshape(rows.shape))


def _with_prior(weights: np.ndarray) -> np.ndarray:
    return weights + PRIOR / len(weights)
