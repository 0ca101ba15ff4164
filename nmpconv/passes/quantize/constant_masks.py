"""Constant masks of attention whose depth follows the scores.

1. Shifted windows of Swin add -100 to the scores that they hide. Such a number takes the range of the sum for itself,
   and a bias by position that it was added to loses its bits. So the sum of scores and a constant becomes the minimum
   of a mask, and of the scores + what the constant adds besides. What lies below the widest gap of the constant's
   numbers is hidden, where calibration saw all of it DEEP below the best score of its row that is not. Softmaxes alone
   read such a sum, moved or not, and each of their rows has a number above the gap. `--faithful` keeps the sum.
2. The importer hides a score by taking the smaller one of it and MASKED (`nmpconv.frontend.expand.masks`), and so does
   case 1. Where the best score of a row is near MASKED, too, what is hidden would count; where all are far above, the
   grid would be wider than it must. So a mask goes DEEP below the least of the rows' best scores, as calibration saw
   them; without images below the least score, where that is near MASKED.

What the last Softmax reads is measured, and stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nmpconv.calib.activation_cache import Feeds
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.ir import Graph, Node
from nmpconv.ops.softmax import MASKED, OPEN
from nmpconv.passes.quantize.attention_masks import DEEP, measured
from nmpconv.passes.rewrite import MOVES, Editor

Statistics = dict[str, TensorStats]


def run(graph: Graph, stats: Mapping[str, TensorStats], images: Feeds = ()) -> tuple[Graph, Statistics]:
    """The float graph with those masks, and the statistics with what they hide. images: what stats were made of."""
    return _deepened(*_minima(graph, dict(stats), images), images)


class _Read(NamedTuple):
    """Read of a masked tensor by a Softmax. path: its names, from the masked tensor through moves to what the Softmax
    reads. hidden: elements of the latter."""

    path: tuple[str, ...]
    hidden: np.ndarray
    axis: int


class _Mask(NamedTuple):
    """A node with a constant mask. x: the operand that it masks. hidden: elements of the constant. reads: none where
    others than Softmaxes read the result, where what one of them reads is measured, or where a row is hidden."""

    node: Node
    x: str
    constant: str
    hidden: np.ndarray
    reads: Sequence[_Read]

    @property
    def names(self) -> list[str]:
        """Names of the result, moved or not."""
        return list(dict.fromkeys([*self.node.outputs, *(name for read in self.reads for name in read.path)]))


def _masks(graph: Graph, stats: Statistics, op: str) -> Iterator[_Mask]:
    """Sums and minima with a constant that may be a mask."""
    last = {*graph.outputs, *measured(graph)}
    for node in graph.nodes:
        for x, constant in (node.inputs, node.inputs[::-1]) if node.op == op else ():
            data, result = graph[constant].data, graph[node.outputs[0]]
            if data is None or x not in stats:
                continue
            hidden = _below_gap(data) if op == "add" else (data == MASKED) & (set(np.unique(data)) == {MASKED, OPEN})
            reads = _reads(graph, node.outputs, np.broadcast_to(hidden, result.shape)) if hidden.any() else []
            alone = not last.intersection(name for read in reads for name in read.path) and result.clamp is None
            if not alone or any(read.hidden.all(read.axis).any() for read in reads):
                reads = []
            if hidden.any():
                yield _Mask(node, x, constant, hidden, reads)


def _below_gap(data: np.ndarray) -> np.ndarray:
    """Checks which numbers lie below the widest gap; none where that is less than DEEP."""
    numbers = np.unique(data)
    gaps = np.diff(numbers)
    wide = gaps.size and gaps.max() >= DEEP
    return np.asarray(data <= numbers[np.argmax(gaps)]) if wide else np.zeros(data.shape, bool)


def _reads(graph: Graph, path: tuple[str, ...], hidden: np.ndarray) -> list[_Read]:
    """Reads by Softmaxes; none where others read it, too."""
    reads: list[_Read] = []
    for node in graph.readers(path[-1]):
        if node.op == "softmax":
            more = [_Read(path, hidden, node.params.axis)]
        elif node.op in MOVES:
            moved = hidden.reshape(node.params.shape) if node.op == "reshape" else hidden.transpose(node.params.perm)
            more = _reads(graph, (*path, *node.outputs), moved)
        else:
            more = []
        if not more:
            return []
        reads += more
    return reads


def _rows(graph: Graph, masks: Sequence[_Mask], images: Feeds) -> Iterator[tuple[_Mask, np.ndarray, np.ndarray]]:
    """Best open and best hidden score of each row, image by image."""
    if not masks or not len(images):
        return
    engine = FloatEngine(graph, sorted({read.path[-1] for mask in masks for read in mask.reads}))
    for image in images:
        scores = engine.run(image)
        for mask in masks:
            for read in mask.reads:
                x = scores[read.path[-1]]
                yield mask, *(np.where(read.hidden == kind, x, -np.inf).max(read.axis) for kind in (False, True))


def _minima(graph: Graph, stats: Statistics, images: Feeds) -> tuple[Graph, Statistics]:
    """Case 1."""
    masks = {} if graph.faithful else {mask.node.name: mask for mask in _masks(graph, stats, "add") if mask.reads}
    apart = {name: math.inf if len(images) else _least_apart(graph, stats, mask) for name, mask in masks.items()}
    for mask, best, hidden in _rows(graph, list(masks.values()), images):
        apart[mask.node.name] = min(apart[mask.node.name], float((best - hidden).min()))
    editor, changed = Editor(graph), Statistics()
    for name, mask in masks.items():
        if apart[name] >= DEEP:
            changed |= _written(editor, mask, stats)
    return _observed(editor.finish(), stats, changed, images)


def _least_apart(graph: Graph, stats: Statistics, mask: _Mask) -> float:
    """Returns the least distance of a hidden score below another one."""
    data, x = graph[mask.constant].data, stats[mask.x]
    assert data is not None
    return float(data[~mask.hidden].min() - data[mask.hidden].max()) - (x.max - x.min) * x.room


def _written(editor: Editor, mask: _Mask, stats: Statistics) -> Statistics:
    """Makes a sum a minimum. Returns estimates of the statistics that change."""
    (out,), x, scores = mask.node.outputs, stats[mask.x], mask.x
    rest = np.where(mask.hidden, 0, editor.data(mask.constant))
    low, high = x.min + float(rest.min()), x.max + float(rest.max())
    changed = dict.fromkeys(mask.names, x.clipped(min(low, MASKED), high))
    editor.remove(mask.node)
    if rest.any():
        scores = editor.emit("add", (scores, editor.const(out, rest)), at=mask.node)
        changed[scores] = x.clipped(low, high)
    limit = editor.const(out, np.where(mask.hidden, MASKED, OPEN))
    editor.emit("minimum", (scores, limit), at=mask.node, name=mask.node.name, out=out)
    return changed


def _deepened(graph: Graph, stats: Statistics, images: Feeds) -> tuple[Graph, Statistics]:
    """Case 2."""
    masks, depths, best = list(_masks(graph, stats, "minimum")), dict[str, float](), dict[str, float]()
    for mask in masks:
        least = _lower(stats[mask.x].min, stats[mask.x]) - DEEP
        depths[mask.constant] = min(depths.get(mask.constant, MASKED), least)
    for mask, scores, _ in _rows(_with_depths(graph, depths), [mask for mask in masks if mask.reads], images):
        score = _lower(float(scores.min()), stats[mask.x])
        best[mask.constant] = min(best.get(mask.constant, math.inf), score)
    partly = {mask.constant for mask in masks if not mask.reads}
    depths |= {constant: score - DEEP for constant, score in best.items() if constant not in partly}
    depths = {constant: float(math.floor(depth)) for constant, depth in depths.items()}
    changed = {
        name: stats[name].reaching(np.array([depths[mask.constant]]))
        for mask in masks
        for name in mask.names
        if depths[mask.constant] != MASKED
    }
    return _observed(_with_depths(graph, depths), stats, changed, images)


def _lower(score: float, stats: TensorStats) -> float:
    """Returns the least best score to be expected of other samples: 0 at most, for a mask above it might not hide."""
    return min(score, score * stats.room, score / stats.room, 0.0)


def _with_depths(graph: Graph, depths: Mapping[str, float]) -> Graph:
    """With these constants for what they hide."""
    values = [graph[name] for name, depth in depths.items() if depth != MASKED]
    masks = [(value, np.asarray(value.data)) for value in values]
    return graph.with_values(
        *(replace(v, data=np.where(data == MASKED, np.float32(depths[v.name]), data)) for v, data in masks)
    )


def _observed(graph: Graph, stats: Statistics, changed: Statistics, images: Feeds) -> tuple[Graph, Statistics]:
    """With statistics of the images, or else these estimates."""
    names = list(changed)
    seen = observe(FloatEngine(graph, names, threads=1), images, names) if names and len(images) else changed
    return graph, {**stats, **seen}
