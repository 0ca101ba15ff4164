"""Headroom of scores: outputs that are squares, means of squares or their roots, as errors of reconstruction are, and
outputs with a grid of their own, as of a Sigmoid, that calibration fills but in part.

An anomaly is what was not seen: its score lies far above those of the calibration, and is to come out above them. So
does a detector's in whose samples nothing was.

1. Tensors of 16 bits that hold squares on the way to an output, the output itself, and what is squared get a coarser
   grid, as long as LEAST_DB are left of each, and by at most MOST bits. A logarithm is no such way: it rises slowly.
2. An output of 16 bits that has a grid of its own gets that one, or the next finer one that leaves LEAST_DB; beside
   tensors of 8 bits, which leave less themselves, NARROW_DB.
"""

from __future__ import annotations

from collections.abc import Sequence

from nmpconv.calib.exponent_search import Function, expected_sqnr_db
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.quantize.widths import holding_squares

LEAST_DB, NARROW_DB = 56.0, 42.0
MOST = 6
BITS = 16


def tensors(graph: Graph) -> set[str]:
    """Names of the tensors of scores, whatever their widths."""
    squares, consumers = holding_squares(graph), graph.consumers()
    scores = {name for name in graph.outputs if name in squares}
    for node in reversed(graph.nodes):
        (out,) = node.outputs
        rises = OPS[node.op].grid == "same" or out in squares
        if out not in scores or node.op in WEIGHTED or not rises or is_logarithm(node):
            scores -= {out} if is_logarithm(node) else set()
            continue
        inputs = [name for name in node.inputs if not graph[name].is_const]
        scores.update(name for name in inputs if all(user.outputs[0] in scores for user in consumers[name]))
    return scores


def raised(exponent: int, stats: TensorStats, functions: Sequence[Function]) -> int:
    """The exponent with headroom. stats: of the tensors on the grid; functions: the tables that read it, if only these
    do."""
    for more in range(MOST, 0, -1):
        if expected_sqnr_db(stats, exponent + more, BITS, functions) >= LEAST_DB:
            return exponent + more
    return exponent


def towards(own: int, exponent: int, stats: TensorStats, *, narrow: bool) -> int:
    """Case 2. own: exponent of the grid of its own; exponent: of the finest one that holds what was seen. narrow: there
    are tensors of 8 bits."""
    least = NARROW_DB if narrow else LEAST_DB
    return next((e for e in range(own, exponent, -1) if expected_sqnr_db(stats, e, BITS) >= least), exponent)


def is_logarithm(node: Node) -> bool:
    """Checks that the node is a table with a logarithm in it."""
    return isinstance(node.params, LookupParams) and any(name == "log" for name, *_ in node.params.steps())
