"""Zero points at no run-time cost: a one-sided tensor is stored minus a constant, its origin, and so fills its type.

After a Relu, int8 with 0 at 0 has 127 levels. Stored minus c = z * 2^e it has 255. Constants that are there anyway take
up c: the bias of the layer that makes the tensor, biases and padding of the layers that read it, and tables on both
sides. Kernels know nothing of it, and the float function stays the same.

1. What an op does with origins is one linear equation or more (`Op.origins`); graph inputs and outputs have 0. What is
   left free is one number for each set of tensors that the equations tie together. Zeros that a pool counts around such
   a tensor become a Pad (`counted_padding`).
2. A layer without activation whose only reader is a sum keeps origin 0. If both operands are such layers and the sum is
   one-sided, the smaller operand has the sum's origin. If the sum must have 0, the layer subtracts the origin of the
   stream: the last layer of a long stream pays for that, not the whole stream. Where one-sided sums follow each other,
   as in a stream that grows from block to block, each tensor of the stream may depart from the stream's origin, and the
   convolutions in between make up for the difference (decision 048).
3. Each free number is searched together with the exponents, for the largest sum of the expected SQNR of the int8
   tensors it moves, measured after the tables where only tables follow. An origin is used only if it gains at least
   LEAST_DB per tensor. Of a long chain of residual sums, TELLING tensors at equal distances stand for all; the layer
   that pays for the chain is measured besides, and may have the largest number that costs it no further bit.

Origins that were chosen by name are more such equations, with a constant.

A graph that keeps a model's grids has the origins that these have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.base.memo import Recent
from nmpconv.calib.exponent_search import Function, Rounded, best_sqnrs_db, grid_sqnrs_db, smallest_exponent
from nmpconv.calib.observers import TensorStats
from nmpconv.errors import InputError
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.traits import Origins
from nmpconv.passes.quantize import counted_padding, headroom, table_readers
from nmpconv.passes.quantize.equations import ONE, Equations, Row, total
from nmpconv.passes.quantize.exponents import padding
from nmpconv.passes.quantize.growing_streams import growing, one_sided, zero_operands
from nmpconv.passes.quantize.overrides import NOTHING, Choices, Said, contradiction

LEAST_DB = 0.5
ALIKE_DB = 0.03  # of a tensor: what its samples leave open
STEPS_DOWN = 3  # exponents below the one that clips nothing
PLACES = 9  # of the range that a clipping grid covers, from the least to the largest values: at most so many
CANDIDATES = 48  # of a free number, as long as each tensor has both ends of that range
TELLING = 8
STEPS_UP = 4  # exponents above the one that clips nothing, which a layer that pays may come to
NARROW = 2.0**-16  # of the largest magnitude: a narrower range counts as this wide
EXACT_DB = 200.0  # stands for a tensor without error
NUMBERS_KEPT = 4096  # free numbers: recipes and widths have many in common

_free_numbers = Recent[float](NUMBERS_KEPT)
NEAR = 1e-9  # of the numbers in an equation: what their rounding may leave of 0


def run(
    graph: Graph,
    stats: Mapping[str, TensorStats],
    bits: Mapping[str, int],
    choices: Choices = NOTHING,
    saturated: float = 1.0,
    able: Mapping[str, Row] | None = None,
    *,
    departing: bool = False,
) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
    """The graph with origins, and statistics and widths with those of its padding that counts.

    stats (of the graph as it is) and bits are by activation. saturated: see `Rounded`. able: what `free` returns, where
    that is known. departing: see `free`.
    """
    if able is None or any("origin" in row for row in choices.tensors.values()):
        able = _rows(graph, stats, choices, departing)
    return with_origins(graph, stats, bits, _chosen(graph, stats, bits, able, saturated))


def with_origins(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], origins: Mapping[str, float]
) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
    """`store`, with statistics and widths of what it adds."""
    stored = store(graph, origins)
    around = {node.outputs[0]: node.inputs[0] for node in stored.nodes if node.outputs[0] not in graph.values}
    return (
        stored,
        {**stats, **{name: stats[x].reaching(np.zeros(1)) for name, x in around.items()}},
        {**bits, **{name: bits[x] for name, x in around.items()}},
    )


def free(graph: Graph, stats: Mapping[str, TensorStats], *, departing: bool = False) -> dict[str, Row]:
    """Cases 1 and 2: the activations that can have an origin. departing: those of a growing stream, each its own."""
    return _rows(graph, stats, NOTHING, departing)


def own(rows: Mapping[str, Row]) -> tuple[str, ...]:
    """Those of the activations that can have an origin whatever the others of their stream have."""
    return tuple(name for name, row in rows.items() if _departure(name) in row or not all(map(_is_departure, row)))


def pay(graph: Graph, stats: Mapping[str, TensorStats]) -> bool:
    """Checks that most of the tensors that are rounded are one-sided and can have an origin, which gains a bit each."""
    moved = {out for node in graph.nodes if OPS[node.op].grid == "same" for out in node.outputs}
    rounded = [value.name for value in graph.activations() if value.name not in moved]
    able = free(graph, stats)
    return 2 * sum(name in able and one_sided(stats[name]) for name in rounded) >= len(rounded)


def wished(graph: Graph, wishes: Mapping[str, float]) -> dict[str, float]:
    """The origins of all activations, those that are 0 left out, where these are wished for by name: the first ones
    first, and others 0. Of what ops tie together, not all wishes can be granted."""
    equations = _Equations(graph, None)
    equations.choose({name: Said(origin, "", exact=False) for name, origin in wishes.items()})
    equations.choose({name: Said(0.0, "", exact=False) for name in equations.rows})
    return {name: row[ONE] for name, row in equations.rows.items() if row.get(ONE, 0.0)}


def _rows(graph: Graph, stats: Mapping[str, TensorStats], choices: Choices, departing: bool) -> dict[str, Row]:
    equations = _Equations(graph, stats, departing)
    if graph.faithful:
        equations.rows = {name: {} for name in equations.rows}
    equations.choose({name: row["origin"] for name, row in choices.tensors.items() if "origin" in row})
    return {name: row for name, row in equations.rows.items() if row}


class _Equations(Equations):
    """Equations of origins."""

    def __init__(self, graph: Graph, stats: Mapping[str, TensorStats] | None, departing: bool = False) -> None:
        """stats: None leaves case 2 out."""
        super().__init__(graph.inputs)
        for node in graph.nodes:
            self._visit(node, graph)
        for name in graph.outputs:
            self.zero(self.rows[name])
        if stats is not None:
            self._fix(graph, stats, departing)

    def _fix(self, graph: Graph, stats: Mapping[str, TensorStats], departing: bool) -> None:
        """Case 2. A number that is left free is the whole row of its tensor, so all of them are 0 at once."""
        streams = growing(graph, stats) if departing else {}
        self.drop([name for name in zero_operands(graph, stats) if name in self.rows[name] and name not in streams])
        self._depart({name: ends for name, ends in streams.items() if name in self.rows[name]})

    def _depart(self, streams: Mapping[str, tuple[str, str]]) -> None:
        """Makes the departures of sums the free numbers in place of those of their layers, the last ones first. The
        first tensor of a stream has one, too, where nothing else has its origin."""
        able = set(streams)
        for other in dict.fromkeys(other for other, _ in streams.values()):
            if [name for name in self._having.get(other, ()) if set(self.rows[name]) == {other}] == [other]:
                self._replace(other, {other: 1.0} | self.free(_departure(other)))
                able.add(_departure(other))
        for layer, (other, result) in reversed(list(streams.items())):
            before = {number: share for number, share in self.rows[other].items() if number in able}
            self._replace(layer, total(self.free(_departure(result)), before, -1.0))

    def _replace(self, number: str, row: Row) -> None:
        """Writes a free number as a sum of others."""
        for name in list(self._having[number]):
            rest = dict(self.rows[name])
            self.set(name, total(rest, row, rest.pop(number)))

    def _visit(self, node: Node, graph: Graph) -> None:
        """Case 1."""
        op, out = OPS[node.op], graph[node.outputs[0]]
        names = [name for name in node.inputs if not graph[name].is_const]
        kind = op.origins(node.params, graph.ins(node), out)
        row: Row = {}
        if kind in (Origins.NONE, Origins.RESULT):
            for name in names:
                self.zero(self.rows[name])
        if kind is Origins.PRODUCT:
            for name in names[1:]:
                self.zero(self.rows[name])
        if kind in (Origins.ANY, Origins.RESULT, Origins.PRODUCT) and op.own_exponent(node, 8) is None:
            row = self.free(out.name)
        elif kind is Origins.ALIKE:
            for name in names[1:]:
                self.zero(total(self.rows[names[0]], self.rows[name], -1.0))
            row = self.rows[names[0]]
        elif kind in (Origins.SUM, Origins.DIFFERENCE):
            row = total(self.rows[node.inputs[0]], self.rows[node.inputs[1]], 1.0 if kind is Origins.SUM else -1.0)
        for name in node.outputs:
            self.set(name, row)

    def choose(self, rules: Mapping[str, Said]) -> None:
        """Origins by name. InputError for what cannot be; what a pattern says gives way."""
        able = {name: set(self.rows[name]) for name in rules if name in self.rows}
        done: list[str] = []
        for name in sorted(able, key=lambda name: not rules[name].exact):
            rule, row = rules[name], self.rows[name]
            if row.keys() - {ONE}:
                self.zero(total(row, {ONE: rule.value}, -1.0))
                done.append(name)
            elif rule.exact and abs(row.get(ONE, 0.0) - rule.value) > NEAR * max(1.0, abs(rule.value)):
                tied = next((other for other in done if able[other] & able[name]), None)
                if tied is not None:
                    raise contradiction("origin", rules[tied], rule, f"; {tied!r} and {name!r} are tied to each other")
                why = "an op beside it, or its being an input or an output, leaves no room for one"
                raise InputError(f"{name!r} cannot have the origin {rule.value}: {why}", where=rule.place)


def _departure(name: str) -> str:
    """The free number by which a tensor departs from its stream's origin."""
    return f"~{name}"


def _is_departure(number: str) -> bool:
    return number.startswith("~")


def _chosen(
    graph: Graph,
    stats: Mapping[str, TensorStats],
    bits: Mapping[str, int],
    rows: Mapping[str, Row],
    saturated: float,
) -> dict[str, float]:
    """Case 3: the origins of all activations, those that are 0 left out."""
    wide = {number for pair in wide_products(graph, bits) for name in pair for number in rows.get(name, ())}
    functions, users = table_readers.after(graph), graph.consumers()
    tied: dict[str, list[str]] = {}
    for name, row in rows.items():
        if bits[name] == 8 and stats[name].peak > 0:
            for number in (free for free in row if free != ONE and free not in wide):
                tied.setdefault(number, []).append(name)
    telling = {number: _telling(names, rows, number) for number, names in tied.items()}
    measured = dict.fromkeys(name for weights in telling.values() for name in weights)
    expected = headroom.expected(graph, stats, bits, measured, functions)
    seen = {name: Rounded(_with_padding(graph, expected[name], users[name]), saturated) for name in measured}
    origins = {name: row.get(ONE, 0.0) for name, row in rows.items()}
    moving: dict[str, list[str]] = {}
    for name, row in rows.items():
        for number in row:
            moving.setdefault(number, []).append(name)
    for number, weights in telling.items():
        tensors = [_Moved(seen[n], origins[n], rows[n][number], functions.get(n, ()), w) for n, w in weights.items()]
        key = tuple((rounded.key, *rest) for rounded, *rest in tensors)
        if more := _free_numbers(key, partial(_best, tensors)):
            for name in moving[number]:
                origins[name] += more * rows[name][number]
    return {name: origin for name, origin in origins.items() if origin}


class _Moved(NamedTuple):
    """A tensor that a free number moves. origin: without it. share: of the number. functions: of the tables that read
    the tensor. weight: tensors that it stands for."""

    rounded: Rounded
    origin: float
    share: float
    functions: Sequence[Function]
    weight: float


def _telling(names: Sequence[str], rows: Mapping[str, Row], number: str) -> dict[str, float]:
    """A few of the tensors, TELLING of each share of the number, and how many each of them stands for."""
    alike: dict[float, list[str]] = {}
    for name in names:
        alike.setdefault(rows[name][number], []).append(name)
    few = [(group, group[:: math.ceil(len(group) / TELLING)]) for group in alike.values()]
    return {name: len(group) / len(chosen) for group, chosen in few for name in chosen}


def _best(tensors: Sequence[_Moved]) -> float:
    """The best addition to a free number; 0 where none gains enough."""
    # The first of those that are about as good is taken: of each tensor, the first grid that clips nothing.
    places = max(2, min(PLACES, CANDIDATES // (len(tensors) * (STEPS_DOWN + 1))))
    candidates = ((c - x.origin) / x.share for x in tensors for c in _candidates(x.rounded.stats, places))
    fitting = ((c - x.origin) / x.share for x in tensors if x.share < 0.0 for c in _fitting(x.rounded.stats))
    tried = list(dict.fromkeys((*candidates, *fitting)))
    numbers = np.array([0.0, *tried])
    totals = sum(x.weight * _best_db(x.rounded, x.origin + numbers * x.share, x.functions) for x in tensors)
    without, *gains = np.asarray(totals).tolist()
    alike = ALIKE_DB * math.hypot(*(x.weight for x in tensors))
    best = next(i for i, gain in enumerate(gains) if gain >= max(gains) - alike)
    return tried[best] if gains[best] >= without + LEAST_DB * sum(x.weight for x in tensors) else 0.0


def wide_products(graph: Graph, bits: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The first operand and the result of products that have no offset, since one of them is wide."""
    for node in graph.nodes:
        pair = node.inputs[0], node.outputs[0]
        kind = OPS[node.op].origins(node.params, graph.ins(node), graph[pair[1]])
        if kind is Origins.PRODUCT and any(bits[name] != 8 for name in pair):
            yield pair


def _with_padding(graph: Graph, stats: TensorStats, users: Sequence[Node]) -> TensorStats:
    """With what stands around it for those that read it."""
    result = copy(stats)  # merging replaces what it has
    for node in users:
        around = WEIGHTED[node.op].padding(node.params, graph.ins(node)) if node.op in WEIGHTED else None
        if around is not None:
            result.merge(padding(graph, node, around, stats))
    return result


def _candidates(stats: TensorStats, places: int) -> Iterator[float]:
    for step, first, last in _ends(stats, 1.0, range(STEPS_DOWN + 1)):
        for z in np.linspace(first, last, places if last > first else 1).round():
            yield float(z) * step


def _fitting(stats: TensorStats) -> Iterator[float]:
    """Origins that steps of more than the tensor needs leave room for."""
    for step, *zero_points in _outer(stats, 1.0, range(-1, -STEPS_UP - 1, -1)):
        yield from (z * step for z in zero_points)


def _ends(stats: TensorStats, factor: float, downs: Iterable[int]) -> Iterator[tuple[float, int, int]]:
    """`_outer`, but where the step leaves room the two zero points are alike: the room lies beyond the longer side of a
    one-sided tensor, or half beyond either end.
    """
    for step, first, last in _outer(stats, factor, downs):
        if last < first:
            middle = (first + last) // 2
            only = middle if not one_sided(stats) else first if stats.max > -stats.min else last
            yield step, only, only
        else:
            yield step, first, last


def _outer(stats: TensorStats, factor: float, downs: Iterable[int]) -> Iterator[tuple[float, int, int]]:
    """(step, first, last) of each step: with the zero point first, the least integer stands for the lower end of the
    range; with the zero point last, the largest one for the upper end. The tensor is multiplied by the factor.

    downs: how many powers of two a step is below the least one that holds the range.
    """
    low, high = stats.min * factor, stats.max * factor
    width = max(high - low, NARROW * max(-low, high), 1e-30)
    top = math.ceil(math.log2(width / 256))
    for down in downs:
        step = 2.0 ** (top - down)
        yield step, math.floor(low / step + 0.5) - INT_MIN[8], math.ceil(high / step - 0.5) - INT_MAX[8]


def _best_db(rounded: Rounded, origins: np.ndarray, functions: Sequence[Function]) -> np.ndarray:
    """SQNR of the best int8 grid with each of these origins."""
    ends = rounded.stats.min, rounded.stats.max
    tops = [smallest_exponent(ends[0] - origin, ends[1] - origin, 8) for origin in origins.tolist()]
    exponents = [[top - down for down in range(STEPS_DOWN + 1)] for top in tops]
    if functions:
        best = best_sqnrs_db(rounded, exponents, 8, functions, origins)
    else:
        steps = np.ldexp(1.0, exponents)
        each = grid_sqnrs_db(rounded, steps.reshape(-1), np.repeat(origins, steps.shape[1]), 8)
        best = each.reshape(steps.shape).max(1)
    return np.minimum(best, EXACT_DB)


def filled_db(rounded: Rounded, factors: np.ndarray, functions: Sequence[Function]) -> np.ndarray:
    """SQNR of an int8 grid at one of the ends of the range, of the tensor times each of these factors [F]."""
    rows = []
    for factor in factors.tolist():
        grids = _ends(rounded.stats, factor, range(STEPS_DOWN))
        rows.append([(step / factor, z * (step / factor)) for step, *ends in grids for z in ends])
    steps, origins = np.array(rows).reshape(-1, 2).T
    each = grid_sqnrs_db(rounded, steps, origins, 8, functions)
    return np.minimum(each.reshape(len(rows), -1).max(1), EXACT_DB)


def store(graph: Graph, origins: Mapping[str, float]) -> Graph:
    """The graph in which these activations are less their origins, with other constants where that takes them up."""
    if not origins:
        return graph
    graph, around = counted_padding.split(graph, {name for name, origin in origins.items() if origin})
    origins = {**origins, **{name: origins[x] for name, x in around.items()}}
    values: dict[str, Value] = dict(graph.values)
    for name, origin in origins.items():
        value = values[name]
        clamp = value.clamp and (value.clamp[0] - origin, value.clamp[1] - origin)
        values[name] = replace(value, clamp=clamp, origin=origin)
    nodes = []
    for node in graph.nodes:
        operand = next((name for name in node.inputs if not graph[name].is_const), "")
        fresh: list[Value] = []
        if operand in origins or node.outputs[0] in origins:
            x, y = origins.get(operand, 0.0), origins.get(node.outputs[0], 0.0)
            node, fresh = OPS[node.op].with_origins(node, graph, x, y)
        values.update({value.name: value for value in fresh})
        nodes.append(node)
    used = {n for node in nodes for n in (*node.inputs, *node.outputs)} | set(graph.inputs)
    return replace(graph, nodes=tuple(nodes), values={n: v for n, v in values.items() if n in used})
