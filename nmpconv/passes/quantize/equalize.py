"""Cross-layer equalization: a positive factor per channel moves between a tensor's producers and its consumers.

1. vector, streams, by_layer: one a channel, those of `balance`.
2. fill: one factor for all tensors that hang together, in [1, 2), so that a power-of-two grid fits them as well as any
   other grid would. A Relu6 is scaled until the type's own saturation is the clip; it always stays a clip. What can
   have an origin is taken to have the best one.

The float function is unchanged; whoever calls this checks that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from nmpconv.base.memo import Recent
from nmpconv.calib.exponent_search import Function, Range, Rounded, grid_sqnrs_db, span, top_exponent
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.traits import hull
from nmpconv.ops.common.weighted import groups_of
from nmpconv.passes.quantize import compressed, headroom, offsets, table_readers, tensor_factors
from nmpconv.passes.quantize.balance import Balance, fewest_bits
from nmpconv.passes.quantize.equations import Row
from nmpconv.passes.quantize.shared_grids import by_source
from nmpconv.passes.rewrite import MOVES

STEPS = 16  # candidates of the fill factor in [1, 2)
EXACT_DB = 200.0  # stands for a tensor without error
FACTORS_KEPT = 4096  # of tensors that hang together: recipes and widths have many in common

_filled = Recent[float](FACTORS_KEPT)


def vector(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], exempt: Collection[str] = ()
) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph with the factors of case 1, and the factors [C]; those of the tensors ``exempt`` are 1."""
    factors = Balance(graph, stats, bits, exempt).factors()
    return scale(graph, factors), factors


def streams(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], exempt: Collection[str] = ()
) -> tuple[Graph, dict[str, np.ndarray]]:
    """`vector`, with long residual streams filled more evenly."""
    factors = Balance(graph, stats, bits, exempt, streams=True).factors()
    return scale(graph, factors), factors


def by_layer(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], exempt: Collection[str] = ()
) -> tuple[Graph, dict[str, np.ndarray]]:
    """`vector` of what an op takes up alone, with one factor a layer."""
    factors = Balance(graph, stats, bits, exempt, by_layer=True).factors()
    return scale(graph, factors), factors


def fill(
    graph: Graph,
    stats: Mapping[str, TensorStats],
    bits: Mapping[str, int],
    free: Collection[str] = (),
    exempt: Collection[str] = (),
    saturated: float = 1.0,
) -> tuple[Graph, dict[str, float]]:
    """Case 2. One factor per connected set of tensors, chosen for the largest sum of SQNR of its 8-bit members. What
    shares a grid with the tensor that its data comes from, such as slices of it, is on the grid best for all of them.

    free: the tensors that will have an origin where that pays (`offsets`). exempt: those whose factor is 1. saturated:
    see `Rounded`. Returns the graph and the factor of every tensor.
    """
    equations = tensor_factors.rows(graph, exempt)
    fewest = fewest_bits(graph, bits)
    functions, quiet = table_readers.after(graph), compressed.tensors(graph)
    members: dict[str, list[str]] = {}
    moved = {out for node in graph.nodes if node.op in MOVES for out in node.outputs}  # counts once
    rows = equations.rows.items()
    filled = [n for n, row in rows if row and bits[n] == fewest and stats[n].peak > 0 and n not in moved]
    grids = by_source(graph, filled)
    for name in grids:
        members.setdefault(equations.newest(equations.rows[name]), []).append(name)
    expected = headroom.expected(graph, stats, bits, filled, functions)

    def merged(name: str) -> TensorStats:
        return TensorStats.merged(*(expected[part] for part in grids[name]))

    def limits(name: str) -> Range:
        """Room is what the source needs; what a pad brings lies where it lies."""
        own = span(stats[name], fewest, graph[name].clamp, room=name not in quiet)
        return hull([own, *((stats[part].min, stats[part].max) for part in grids[name])])

    chosen: dict[str, float] = {}
    for number in sorted(members, key=equations.age):
        names = members[number]
        reached = [(n, clip) for n in names if (clip := _reached_clip(graph[n], stats[n]))]
        if reached and fewest == 8:
            row, clip = equations.rows[reached[0][0]], reached[0][1]
            most = 255.0 if free and all(n in free for n in names if graph[n].clamp) else 127.0
            step = clip * _factor(row, chosen) / most
            chosen[number] = (2.0 ** math.ceil(math.log2(step)) / step) ** (1 / row[number])
            continue
        tensors = [
            _Scaled(
                Rounded(merged(n), saturated),
                limits(n),
                functions.get(n, ()),
                n in free and fewest == 8,
                _factor(equations.rows[n], chosen),
                equations.rows[n][number],
                len(grids[n]),
            )
            for n in names
        ]
        key = fewest, *((rounded.key, *rest) for rounded, *rest in tensors)
        chosen[number] = _filled(key, partial(_best_factor, tensors, fewest))
    factors = {name: _factor(row, chosen) for name, row in equations.rows.items()}
    return scale(graph, {name: np.full(_width(graph[name]), factor) for name, factor in factors.items()}), factors


def _reached_clip(value: Value, stats: TensorStats) -> float:
    """Returns the finite upper clamp above 0 that its samples reach; 0 where there is none."""
    clip = value.clamp[1] if value.clamp else 0.0
    return clip if 0 < clip < math.inf and stats.max >= 0.98 * clip else 0.0


def _width(value: Value) -> int:
    return value.shape[-1] if value.shape else 1


def _factor(row: Row, chosen: Mapping[str, float]) -> float:
    """Factor of a tensor, of the free ones that are chosen; others are 1."""
    return math.prod(chosen.get(number, 1.0) ** share for number, share in row.items())


class _Scaled(NamedTuple):
    """A tensor that a free factor scales, to the power of share. factor: what it has besides. weight: tensors that it
    stands for."""

    rounded: Rounded
    limits: Range
    functions: Sequence[Function]
    free: bool
    factor: float
    share: float
    weight: int


def _best_factor(tensors: Sequence[_Scaled], bits: int) -> float:
    """The first of the factors that are best for all these tensors."""
    candidates = 2.0 ** (np.arange(STEPS) / STEPS)
    gains = sum(x.weight * _best_db(x, x.factor * candidates**x.share, bits) for x in tensors)
    return float(candidates[int(np.argmax(gains))])


def _best_db(x: _Scaled, factors: np.ndarray, bits: int) -> np.ndarray:
    """Quality of the best grid of the tensor times each factor [F]: its SQNR, or at 16 bits, which clip nothing, how
    fine it is.
    """
    if x.free:
        return offsets.filled_db(x.rounded, factors, x.functions)
    tops = np.array([top_exponent(x.limits, bits, x.functions, x.rounded.stats, f) - math.log2(f) for f in factors])
    if bits == 16:
        return -20 * math.log10(2) * tops
    steps = 2.0 ** (tops[:, None] - np.arange(3))
    each = grid_sqnrs_db(x.rounded, steps.reshape(-1), np.zeros(steps.size), bits, x.functions)
    return np.minimum(each.reshape(steps.shape).max(1), EXACT_DB)


def scale(graph: Graph, factors: Mapping[str, np.ndarray]) -> Graph:
    """The graph with every activation multiplied by its factor [C], its producers and consumers changed accordingly."""
    values: dict[str, Value] = dict(graph.values)
    nodes, identity = [], np.ones(1)
    for name, factor in factors.items():
        value = values[name]
        if value.clamp and not np.all(factor == 1):
            top, low = factor.max(), factor.min()
            values[name] = replace(value, clamp=(value.clamp[0] * top, value.clamp[1] * top))
            assert top == low or all(c == 0 or math.isinf(c) for c in value.clamp)
    for node in graph.nodes:
        before, after = factors.get(node.inputs[0], identity), factors[node.outputs[0]]
        plain = np.all(before == 1) and np.all(after == 1)
        if plain or node.op not in WEIGHTED:
            if not plain:
                node, constants = OPS[node.op].with_factors(node, graph, before, after)
                values.update((value.name, value) for value in constants)
            nodes.append(node)
            continue
        groups = groups_of(node)
        names = list(node.inputs)
        weight = graph[names[1]].data
        assert weight is not None
        outs, per_group = weight.shape[0], weight.shape[-1]
        split = weight.astype(np.float64).reshape(groups, outs // groups, -1, per_group)
        scaled = split / before.reshape(groups, 1, 1, per_group) * after.reshape(groups, outs // groups, 1, 1)
        data = [scaled.reshape(weight.shape), graph[names[2]].data * after]
        if len(names) == 4:
            data.append(graph[names[3]].data * before)
        # Constants may be shared, so each scaled one gets the name of its consumer.
        for i, array in enumerate(data, start=1):
            fresh = f"{node.name}.{('weight', 'bias', 'pad')[i - 1]}"
            values[fresh] = Value(fresh, array.shape, data=array.astype(np.float32))
            names[i] = fresh
        nodes.append(replace(node, inputs=tuple(names)))
    used = {n for node in nodes for n in (*node.inputs, *node.outputs)} | set(graph.inputs)
    alike = {name: float(factor[0]) for name, factor in factors.items() if factor.size and np.all(factor == factor[0])}
    grids = {name: replace(grid, scale=grid.scale * alike[name]) for name, grid in graph.given.items() if name in alike}
    return replace(graph, nodes=tuple(nodes), values={n: v for n, v in values.items() if n in used}, given=grids)
