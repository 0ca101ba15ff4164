"""Tables of int16 tensors that are composed of several steps, as ops again, where a table is too coarse.

1. A table has at most 2^FINEST pieces of equal width, each a straight line. A root, a logarithm or a quotient may
   bend within one of them, also of x + c, of x * x or of what else comes before. The steps one by one have a grid each;
   powers computes the steep ones exactly. Which of the two is better is measured on the values that calibration
   counted: a table is taken apart where it leaves MARGIN_DB less than the grids of the steps do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nmpconv.calib.exponent_search import span, top_exponent
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops.common.function import COMBINE, Operand, Step, evaluate, is_steep
from nmpconv.ops.lookup import FINEST, LookupParams
from nmpconv.passes.rewrite import Editor

MARGIN_DB = 6.0
BITS = 16
CLIPS = 2.0**8  # times the largest result, which samples of a table saturate at


def run(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int]
) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
    """The float graph with those ops, and the statistics and widths with those of their results."""
    editor = Editor(graph)
    statistics: dict[str, TensorStats] = {}
    for node in graph.nodes:
        x, y = node.inputs[0], node.outputs[0]
        if node.op != "lookup" or bits[x] != BITS or bits[y] != BITS or not graph[x].shape:
            continue
        steps = node.params.steps()
        if len(steps) > 1 and any(map(is_steep, steps)):
            seen = [_stats(stats[x], steps[: i + 1]) for i in range(len(steps))]
            exponent = top_exponent(span(stats[x], BITS, graph[x].clamp), BITS)
            if _gain(stats[x], exponent, steps, seen) > MARGIN_DB:
                names = _take_apart(editor, node, steps)
                statistics |= dict(zip(names, seen[:-1], strict=True))
    return editor.finish(), {**stats, **statistics}, {**bits, **dict.fromkeys(statistics, BITS)}


def _stats(x: TensorStats, steps: Sequence[Step]) -> TensorStats:
    """Statistics of the last step's results, over what x may reach on other samples."""
    low, high = min(x.min, x.min * x.room), max(x.max, x.max * x.room)
    return x.mapped(lambda values: evaluate(steps, np.clip(values, x.min, x.max))[-1]).reaching(
        evaluate(steps, np.linspace(low, high, 1 << FINEST))[-1]
    )


def _gain(stats: TensorStats, exponent: int, steps: Sequence[Step], seen: Sequence[TensorStats]) -> float:
    """By how many dB the steps are closer to the function than its table is."""
    step = math.ldexp(1.0, exponent)
    x, weight = stats.histogram.points(step)
    x = np.clip(x, stats.min, stats.max)
    exact = evaluate(steps, x)[-1]
    on_grid = np.round(x / step) * step
    piece = step * 2.0 ** (BITS - FINEST)
    first = np.floor(on_grid / piece) * piece
    most = CLIPS * seen[-1].peak
    ends = (np.clip(evaluate(steps, end)[-1], -most, most) for end in (first, first + piece))
    left, right = ends
    table = left + (right - left) * (on_grid - first) / piece
    rounded = evaluate(_rounded(steps, seen), on_grid)[-1]
    noise = [float(weight @ (y - exact) ** 2) for y in (table, rounded)]
    return 10 * math.log10(noise[0] / noise[1]) if all(noise) else math.inf if noise[0] else 0.0


def _rounded(steps: Sequence[Step], seen: Sequence[TensorStats]) -> list[Step]:
    """The steps with three more behind each, which round its results to their grid."""
    rounded: list[Step] = []
    for (name, *operands), stats in zip(steps, seen, strict=True):
        step = math.ldexp(1.0, top_exponent(span(stats, BITS), BITS))
        here = len(rounded)
        rounded.append((name, *(4 * o + 3 if isinstance(o, int) else o for o in operands)))
        rounded += [("mul", here, 1 / step), ("round", here + 1), ("mul", here + 2, step)]
    return rounded


def _take_apart(editor: Editor, node: Node, steps: Sequence[Step]) -> list[str]:
    """An op for each step; returns the names of all results but the last."""
    editor.remove(node)
    (x,), results = node.inputs, list[str]()
    rank = len(editor[x].shape)

    def tensor(operand: Operand) -> str:
        if isinstance(operand, float):
            return editor.const(f"{node.name}.number", np.full((1,) * rank, operand))
        return x if isinstance(operand, str) else results[operand]

    for i, (name, first, *rest) in enumerate(steps):
        own, out = (node.name, node.outputs[0]) if i == len(steps) - 1 else ("", "")
        if name in COMBINE:
            results.append(editor.emit(name, (tensor(first), tensor(rest[0])), at=node, name=own, out=out))
        elif name == "clip":
            results.append(
                editor.emit("requantize", (tensor(first),), at=node, clamp=(rest[0], rest[1]), name=own, out=out)
            )
        else:
            results.append(
                editor.emit("lookup", (tensor(first),), LookupParams(name, *rest), at=node, name=own, out=out)
            )
    return results[:-1]
