"""Tensors by what is gained when each alone is float."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmpconv.base.progress import Progress
from nmpconv.base.sqnr import gain, mean_db, sqnr_db
from nmpconv.bisection.reconversion import Rebuilt
from nmpconv.calib.activation_cache import Feeds
from nmpconv.calib.fake_quantization import Switched, constant_switch
from nmpconv.calib.noise_budget import rounded
from nmpconv.evaluation.task_metrics import Label, Measure
from nmpconv.ir import Graph
from nmpconv.ops import WEIGHTED, layer_inputs
from nmpconv.ops.op import quant_of
from nmpconv.passes.quantize.heads import heads
from nmpconv.passes.quantize.shared_grids import grid_groups

TENSOR, WEIGHTS = "tensors", "ops"  # the tables of a recipe in which a row is named


@dataclass(frozen=True)
class Row:
    """A grid of activations by its first tensor that the model knows, or the weights and biases of a node.

    node: that makes it; "" for an input. grid: the tensors that are rounded on the grid, known or not. exponents: least
    and most. moved: by how much its exponent is more than would be chosen. edited: its weights, or the ends of its
    grid, are no conversion's. db: that the SQNR gains when it alone is float; metric: what that gains, where one was
    asked for.
    """

    table: str
    name: str
    node: str
    kind: str
    bits: int
    exponents: tuple[int, int]
    moved: int
    edited: bool
    db: float
    metric: float | None
    grid: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankedBy:
    """A metric: begun anew, and what its result comes to. labels: of the images."""

    begin: Callable[[], Measure]
    value: Callable[[Measure], float]
    labels: Sequence[Label]


@dataclass(frozen=True)
class Ranking:
    """rows: the most gained first. db, metric: with the roundings of the file, all simulated."""

    rows: tuple[Row, ...]
    db: float
    metric: float | None


def rank(rebuilt: Rebuilt, images: Feeds, goal: RankedBy | None, progress: Progress) -> Ranking:
    """One pass of the images with all roundings, and one without each."""
    graph = rebuilt.floats
    members = rounded(graph, grid_groups(graph))
    groups = {group[0]: (group, members[group[0]]) for group in grid_groups(graph) if group[0] in members}
    fetch = list(dict.fromkeys([*heads(graph), *(graph.outputs if goal else ())]))
    net = Switched(graph, members, fetch, images, centred=False, rounded=rebuilt.integers)
    floats, every = net.run(()), set(net.switches)

    def score(on: set[str]) -> tuple[float, float | None]:
        got = net.run(on)
        wanted = dict(zip(fetch, zip(floats, got, strict=True), strict=True))
        db = mean_db(sqnr_db(*wanted[name]) for name in heads(graph))
        return db, None if goal is None else _measured(graph, goal, wanted)

    base_db, base = score(every)
    best = None if goal is None else _measured(graph, goal, {n: (x, x) for n, x in zip(fetch, floats, strict=True)})
    # A metric may be an error: better is what is nearer to the float model's.
    sign = -1 if base is not None and best is not None and best < base else 1
    facts = _facts(rebuilt, groups)
    rows = []
    for i, switch in enumerate(net.switches):
        db, value = score(every - {switch})
        better = None if value is None or base is None else sign * gain(value, base)
        rows.append(Row(**facts[switch], db=round(gain(db, base_db), 3), metric=better))
        progress("rank", i + 1, len(net.switches))
    rows.sort(key=lambda row: (-(row.metric or 0.0), -row.db, row.table, row.name))
    return Ranking(tuple(rows), base_db, base)


def _facts(rebuilt: Rebuilt, groups: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> dict[str, dict[str, Any]]:
    """Returns the facts of a switch besides its gains. groups: the tensors on a grid, and those rounded on it."""
    graph, makers = rebuilt.floats, rebuilt.floats.producers()
    known, moved = {value.name for value in rebuilt.fitter.graph.activations()}, rebuilt.moved
    facts: dict[str, dict[str, Any]] = {}
    for first, (group, members) in groups.items():
        name = next((name for name in group if name in known), first)
        quant, node = quant_of(graph[name]), makers.get(name)
        kind, of = (node.op, node.name) if node else ("input", "")
        more = next((moved[member] for member in group if member in moved), 0)
        edited = not more and rebuilt.cut(name)
        row = {"name": name, "node": of, "kind": kind, "bits": quant.bits, "exponents": (quant.exponent,) * 2}
        facts[first] = {"table": TENSOR, **row, "moved": more, "edited": edited, "grid": tuple(members)}
    layers = {op.name: layer_inputs(op.kind, op.inputs) for op in rebuilt.file.ops}
    stored = {name: rebuilt.file.tensors[layer[1]] for name, layer in layers.items() if layer}
    for node in graph.nodes:
        if node.op in WEIGHTED:
            tensor = stored.get(node.name)
            bits = rebuilt.fitter.weight_bits if tensor is None else 8 * np.dtype(tensor.dtype).itemsize
            ends = (0, 0) if tensor is None else (min(tensor.exponents), max(tensor.exponents))
            row = {"name": node.name, "node": node.name, "kind": node.op, "bits": bits, "exponents": ends, "moved": 0}
            edited = node.name in rebuilt.edited
            facts[constant_switch(node.outputs[0])] = {"table": WEIGHTS, **row, "edited": edited}
    return facts


def _measured(graph: Graph, goal: RankedBy, pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> float:
    """Measures the outputs of all images, float and not."""
    measure = goal.begin()
    shapes = [graph.source_shapes[name] for name in graph.outputs]
    for i, label in enumerate(goal.labels):
        floats, got = (
            [
                pairs[name][side].reshape(len(goal.labels), *shape)[i]
                for name, shape in zip(graph.outputs, shapes, strict=True)
            ]
            for side in (0, 1)
        )
        measure.add(got, label, floats)
    return goal.value(measure)
