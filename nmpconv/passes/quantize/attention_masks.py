"""Masks of attention that are computed, cut off where they are deep enough.

1. Such a mask is a term of a sum that a Softmax reads, as s + (1 - m) * -1e4, or -100. It would take the range of that
   sum for itself. But whatever lies DEEP below the least sum that is not hidden can be cut off there. So can each term,
   by what the other ones are at most, and a constant.
2. A factor that hides need be no larger, and one that the importer made MASKED (`nmpconv.frontend.expand.masks`) goes
   as deep.
3. Where a mask hides nothing of any sample, its sums are cut off all the same, and have grids that go as deep. A
   shallow one, as (1 - m) * -100 or m * 100 - 100, is known by its numbers and by being 0 in all samples.

What is cut off is the Softmax's business alone: a tensor that others read, too, stays. So does what the last Softmax
reads, which is measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nmpconv.base.sqnr import head
from nmpconv.calib.activation_cache import Feeds
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.errors import InputError
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS
from nmpconv.ops.softmax import HIDES, MASKED
from nmpconv.passes.quantize.heads import heads

DEEP = 20.0  # e^-20 is a 15,000th of a step of 16 bits
EVEN = 2.0**-4  # a difference of hidden numbers that makes their shares differ
SHALLOW = -64.0  # what a tensor has besides zeros, to be a mask
STEPS = 2.0**16  # between 0 and the largest number of a grid, at most


def run(graph: Graph, stats: Mapping[str, TensorStats], images: Feeds = ()) -> tuple[Graph, dict[str, TensorStats]]:
    """The float graph with those masks, and the statistics with what they hide. images: what stats were made of."""
    sums = _Sums(graph, stats)
    least = sums.least()
    ends = sums.ends({name: shown - DEEP for name, shown in least.items()})
    if least and len(images):
        best = _best(graph, _cut(graph, sums.beyond(ends), sums.constants(ends)), least, images)
        ends = sums.ends({name: shown - DEEP for name, shown in best.items()})
    constants = sums.constants(ends)
    terms = [name for name in ends if name in stats]
    beyond = sums.beyond(ends)
    if not beyond and not constants:
        return graph, dict(stats)
    graph = _cut(graph, beyond, constants)
    if len(images):
        limits = {name: _limits(graph[name], end, stats[name].max) for name, end in beyond.items()}
        seen = observe(FloatEngine(graph, terms, threads=1), images, terms, limits=limits)
    else:
        seen = {name: stats[name].clipped(end, max(stats[name].max, end)) for name, end in beyond.items()}
    reached = {name: seen[name].reaching(np.array([ends[name]])) for name in beyond if sums.masked(name)}
    return graph, {**stats, **seen, **reached}


def _best(graph: Graph, cut: Graph, least: Mapping[str, float], images: Feeds) -> dict[str, float]:
    """The least of the best scores of rows, by name of what a Softmax reads. cut: where what is hidden is small. least:
    of what is not hidden; rows without a number as large are hidden as a whole, so that all of them counts. InputError
    where that makes shares of scores; a name is left out where shallow numbers do, which are no mask then."""
    axes = {node.inputs[0]: node.params.axis for node in graph.nodes if node.op == "softmax"}
    plain, engine = (FloatEngine(version, list(least)) for version in (graph, cut))
    scores, shifts = dict.fromkeys(least, math.inf), set[str]()
    for image in images:
        for name, x in engine.run(image).items():
            best = x.max(axis=axes[name])
            scores[name] = min(scores[name], float(best[best >= least[name]].min(initial=math.inf)))
            if (best < least[name]).any():
                rows = np.moveaxis(plain.run(image, [name])[name], axes[name], -1)[best < least[name]]
                if not (np.ptp(rows, axis=-1) > EVEN).any():
                    continue
                if rows.max() <= HIDES / 2:
                    raise InputError(
                        f"a mask hides all numbers of a row of {name!r}, and the Softmax goes by what is hidden",
                        hint="leave one number of each row open, or mask by -1e9, which leaves no difference",
                    )
                shifts.add(name)
    bests = {name: best if math.isfinite(best) else least[name] for name, best in scores.items()}
    return {name: best for name, best in bests.items() if name not in shifts}


def _cut(graph: Graph, beyond: Mapping[str, float], constants: list[Value]) -> Graph:
    """With these constants, and without what lies below the ends, where an op can saturate."""
    clamps = {out for node in graph.nodes if OPS[node.op].clamps for out in node.outputs}
    cut = [_from(graph[name], end) for name, end in beyond.items() if name in clamps]
    return graph.with_values(*cut, *constants)


def _from(value: Value, end: float) -> Value:
    low, high = value.clamp or (-math.inf, math.inf)
    return replace(value, clamp=(max(low, end), high))


def _limits(value: Value, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    channels = value.shape[-1] if value.shape else 1
    return np.full(channels, low), np.full(channels, max(low, high))


class _Shown(NamedTuple):
    """Least visible number of a tensor: the least number that no mask hides, and whether one hides others."""

    least: float
    masked: bool = False


class _Sums:
    """Terms of the sums that Softmaxes read."""

    def __init__(self, graph: Graph, stats: Mapping[str, TensorStats]) -> None:
        self._graph, self._stats = graph, stats
        self._shown = {value.name: self._alone(value) for value in graph.values.values()}
        for node in graph.nodes:
            parts = [self._shown[name] for name in node.inputs]
            if (node.op == "mul" and any(map(self._hides, node.inputs))) or self._is_unused(node):
                self._shown[node.outputs[0]] = _Shown(0.0, True)
            elif any(part.masked for part in parts) and (node.op == "add" or OPS[node.op].grid == "same"):
                least = [part.least for part in parts]
                self._shown[node.outputs[0]] = _Shown(sum(least) if node.op == "add" else min(least), True)

    def masked(self, name: str) -> bool:
        """Checks that a mask hides a part of this."""
        return self._shown[name].masked

    def least(self) -> dict[str, float]:
        """By name of what a Softmax reads and masks hide a part of: the least number that is not hidden."""
        read = {node.inputs[0] for node in self._graph.nodes if node.op == "softmax"} - measured(self._graph)
        return {name: self._shown[name].least for name in sorted(read) if self.masked(name)}

    def ends(self, known: Mapping[str, float]) -> dict[str, float]:
        """By name of an operand, constant or not: below which its numbers do not matter. known: for Softmaxes."""
        asked: dict[str, list[float]] = defaultdict(list)
        for name in self._graph.outputs:
            asked[name].append(-math.inf)
        for node in reversed(self._graph.nodes):
            end = min(asked[node.outputs[0]], default=-math.inf)
            for i, name in enumerate(node.inputs):
                asked[name].append(known.get(name, -math.inf) if node.op == "softmax" else self._asked(node, i, end))
        return {name: min(limits) for name, limits in asked.items() if math.isfinite(min(limits))}

    def beyond(self, ends: Mapping[str, float]) -> dict[str, float]:
        """Those of the ends that activations reach beyond, or would if a mask hid something."""
        seen = {name: end for name, end in ends.items() if name in self._stats}
        return {name: end for name, end in seen.items() if self._stats[name].min < end or self.masked(name)}

    def constants(self, ends: Mapping[str, float]) -> list[Value]:
        """Those that need not be as large as they are, or must be larger."""
        values = []
        for name, nodes in self._graph.consumers().items():
            data = self._graph[name].data
            if data is None:
                continue
            wanted = np.maximum(data, ends.get(name, -math.inf))
            if self._hides(name) and all(node.op == "mul" and ends.get(node.outputs[0], 0.0) < 0 for node in nodes):
                wanted = np.minimum.reduce([self._factor(node, name, data, ends[node.outputs[0]]) for node in nodes])
            if (wanted != data).any():
                values.append(replace(self._graph[name], data=wanted.astype(np.float32)))
        return values

    def _factor(self, node: Node, name: str, data: np.ndarray, end: float) -> np.ndarray:
        """A factor that hides, where results below the end do not matter."""
        if (data == MASKED).all():
            return np.minimum(data, np.floor(end))
        (other,) = (x for x in node.inputs if x != name)
        # Even the least number of the other operand's grid, times this, is below the end.
        return np.maximum(data, end * STEPS / max(self._stats[other].peak, 1 / STEPS))

    def _asked(self, node: Node, index: int, end: float) -> float:
        """Below which numbers of this operand do not matter, where that is so of the result below the end."""
        if node.op == "add":
            return end - self._most(node.inputs[1 - index])
        return end if OPS[node.op].grid == "same" and index != OPS[node.op].places else -math.inf

    def _most(self, name: str) -> float:
        data, stats = self._graph[name].data, self._stats.get(name)
        if data is not None or stats is None:
            return math.inf if data is None else float(data.max())
        return max(stats.max, stats.max * stats.room)

    def _alone(self, value: Value) -> _Shown:
        """Least visible number of a tensor whatever it is made of: a mask has all that it hides in one place, and a gap
        beside that, or else nothing but zeros."""
        if value.data is not None:
            shown = value.data[value.data > HIDES]
            return _Shown(float((shown if shown.size else value.data).min()), 0 < shown.size < value.data.size)
        stats = self._stats[value.name]
        low, high, _ = stats.histogram.bins()
        hidden, zeros = high <= HIDES, [0.0] if stats.histogram.zeros else []
        if zeros and low.size == 1 and low[0] <= SHALLOW:
            return _Shown(0.0, True)
        least = min([*low[~hidden], *zeros], default=-math.inf)
        if stats.min <= HIDES and np.count_nonzero(hidden) == 1 and least > HIDES / 2:
            return _Shown(float(least), True)
        return _Shown(stats.min)

    def _hides(self, name: str) -> bool:
        """Checks that all of a constant hides."""
        data = self._graph[name].data
        return data is not None and bool((data <= HIDES).all() or (data == MASKED).all())

    def _is_unused(self, node: Node) -> bool:
        """Checks for 0 in all samples, made with numbers as large as those of masks: one that no sample uses."""
        stats = self._stats[node.outputs[0]]
        if not stats.min == stats.max == 0:
            return False
        constants = (data for name in node.inputs if (data := self._graph[name].data) is not None)
        return any((abs(data) >= -SHALLOW).all() for data in constants)


def measured(graph: Graph) -> set[str]:
    """Names of outputs, of their heads, and of what the Softmaxes read that make outputs, moved or not."""
    makers = {name: (node.op, node.inputs[0]) for name, node in graph.producers().items()}
    moves = {name for name, op in OPS.items() if op.grid == "same"}
    return {*heads(graph), *(head(name, makers.get, moves=moves) for name in graph.outputs)}
