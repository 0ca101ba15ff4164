"""Cross-layer equalization: a positive factor per channel moves between a tensor's producers and its consumers.

1. vector: each channel's factor balances the range of the activation against the next layers' weights, which share one
   grid over the input channels (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
   Correction", 2019, with the activations' observed range in place of the producer's weights). A depthwise consumer
   has a grid per channel, so there the factor simply fills the range.
   What an op takes up that reads sums of squares (`Op.absorbs`) gets one, too, whatever its bits: a logarithm sees a
   small channel as well as a large one. But a bin that had no tone yet saturates at the first one, so `by_layer` has
   one factor for all channels that a layer makes.
   `streams` fills the channels of a long residual stream more evenly (STREAM_ALPHA): each of its sums is rounded, and
   what that adds stays in the stream, while a reader's weights are rounded once (decision 041).
   A dead channel counts nowhere: neither its reach, nor the weights that make it or read it. It follows the others.
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

import numpy as np

from nmpconv.base.memo import Recent
from nmpconv.calib.exponent_search import Function, Range, Rounded, grid_sqnrs_db, span, top_exponent
from nmpconv.calib.observers import TINY, TensorStats, alive
from nmpconv.ir import Graph, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.weighted import groups_of
from nmpconv.passes.quantize import compressed, headroom, offsets, shared_ceiling, table_readers
from nmpconv.passes.quantize.channel_groups import Channels
from nmpconv.passes.quantize.matrix_form import pad_of
from nmpconv.passes.quantize.shared_grids import grid_groups, joins_grids

ALPHA = 0.5  # weight of the next layer's range against the activation's, in the exponent
STREAM_ALPHA = 0.25  # the same of a channel that SUMS sums or more add to, where streams are to be filled
SUMS = 5
LIMIT = 64.0  # largest ratio of a channel's factor to its tensor's median
LIMIT_TAKEN_UP = 1024.0  # the same of factors that an op takes up
LIMIT_16 = 4.0  # the same upwards at 16 bits, where a small channel needs few of them but saturates on other samples
STEPS = 16  # candidates of the fill factor in [1, 2)
EXACT_DB = 200.0  # stands for a tensor without error
FACTORS_KEPT = 4096  # of tensors that hang together: recipes and widths have many in common

_filled = Recent[float](FACTORS_KEPT)


class Balance:
    """Case 1: the factors of all channels, and what they are worth. stats and bits are by activation.

    Only classes with a member of the fewest bits get a factor, and those that an op takes up. kept: tensors that get
    none. by_layer: the latter alone, and one a layer. streams: whether long residual streams are filled more evenly.
    """

    def __init__(
        self,
        graph: Graph,
        stats: Mapping[str, TensorStats],
        bits: Mapping[str, int],
        exempt: Collection[str] = (),
        *,
        by_layer: bool = False,
        streams: bool = False,
    ) -> None:
        channels = self.channels = Channels(graph, kept=exempt)
        fewest = fewest_bits(graph, bits)
        self._reach = np.zeros(channels.total)
        demand = np.zeros(channels.total)
        dense = np.zeros(channels.total, dtype=bool)
        narrow = np.zeros(channels.total, dtype=bool)
        taken_up = np.zeros(channels.total, dtype=bool)
        for node in graph.nodes:
            if OPS[node.op].absorbs:
                taken_up[channels.ids[node.inputs[0]]] = True
        seen_alone = compressed.tensors(graph) if by_layer else ()
        reaching = {name: 8 if name in seen_alone else bits[name] for name in channels.ids if name in bits}
        reach = {
            name: _reach(stats[name], len(ids), reaching[name] if taken_up[ids].any() else fewest)
            for name, ids in channels.ids.items()
            if name in stats
        }
        layers: list[shared_ceiling.WeightedLayer] = []
        for name, seen in reach.items():
            np.maximum.at(self._reach, channels.ids[name], seen)
            narrow[channels.ids[name]] |= bits[name] == fewest
        living = {name: reach[name] > 0 if name in reach else ids >= 0 for name, ids in channels.ids.items()}
        for node in graph.nodes:
            if (pad := pad_of(graph, node)) is not None:
                np.maximum.at(self._reach, channels.ids[node.inputs[0]], np.abs(pad))
        for node in graph.nodes:
            if node.op not in WEIGHTED or (groups_of(node) > 1 and graph[node.inputs[1]].shape[-1] == 1):
                continue
            ids = channels.ids[node.inputs[0]]
            ends = living[node.inputs[0]], living[node.outputs[0]]
            layers.append(
                shared_ceiling.WeightedLayer(node.inputs[0], _demand(graph, node.inputs[1], groups_of(node), *ends))
            )
            np.maximum.at(demand, ids, layers[-1].demand)
            dense[ids] = True
        taken_up &= ~dense
        able = ~channels.frozen & (taken_up if by_layer else narrow | taken_up)
        free = able & (self._reach > 0)
        weighted = free & dense & (demand > 0)
        alone = free & ~dense
        chosen = weighted | alone
        factor = np.ones(channels.total)
        stream = weighted & (_sums(graph, channels) >= SUMS) & streams
        for part, alpha in ((weighted & ~stream, ALPHA), (stream, STREAM_ALPHA)):
            factor[part] = demand[part] ** alpha / self._reach[part] ** (1 - alpha)
        factor[alone] = 1 / self._reach[alone]
        for node in graph.nodes if by_layer else ():
            ids = channels.ids[node.outputs[0]]
            if node.op in WEIGHTED and (own := np.unique(ids[taken_up[ids] & alone[ids]])).size:
                factor[own] = 1 / self._reach[own].max()
        for ids in channels.ids.values():
            used = np.unique(ids[chosen[ids]])
            if used.size:
                middle = float(np.median(factor[used]))
                most = np.where(taken_up[used], LIMIT_TAKEN_UP, LIMIT if fewest == 8 else LIMIT_16)
                factor[used] = np.clip(factor[used], middle / np.maximum(most, LIMIT), middle * most)
                rest = ids[able[ids] & ~chosen[ids]]  # what is dead, and what nobody reads: within the others' range
                end = float((self._reach[used] * factor[used]).max())
                factor[rest] = np.minimum(middle, end / np.maximum(self._reach[rest], TINY))
        if fewest == 8:
            joined = {node.outputs[0] for node in graph.nodes if joins_grids(node)}
            tied = [
                group
                for group in grid_groups(graph)
                if joined.intersection(group) and all(bits.get(name) == 8 and name in reach for name in group)
            ]
            factor = shared_ceiling.lowered(tied, layers, shared_ceiling.Classes(channels.ids, reach, free), factor)
        self._free, self._factor = free, factor
        self._demand = np.where(dense, demand, factor)

    def factors(self) -> dict[str, np.ndarray]:
        """[C] of every tensor; dead channels and channels that nobody reads follow the rest."""
        frozen, factor = self.channels.frozen, self._factor
        return {name: np.where(frozen[ids], 1.0, factor[ids]) for name, ids in self.channels.ids.items()}

    def gain_db(self, name: str) -> float:
        """Reduction of this tensor's rounding errors that its readers would see, in dB."""
        ids = self.channels.ids[name]
        ids = ids[self._free[ids]]
        if not ids.size:
            return 0.0
        reach, demand, factor = self._reach[ids], self._demand[ids], self._factor[ids]
        before = reach.max() ** 2 * np.square(demand).sum()
        after = (reach * factor).max() ** 2 * np.square(demand / factor).sum()
        return float(10 * np.log10(before / after)) if after > 0 else 0.0


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
    """Case 2. One factor per connected set of tensors, chosen for the largest sum of SQNR of its 8-bit members.

    free: the tensors that will have an origin where that pays (`origins`). exempt: those whose factor is 1. saturated:
    see `Rounded`. Returns the graph and the factor of every tensor.
    """
    channels = Channels(graph, whole_tensors=True, kept=exempt)
    fewest = fewest_bits(graph, bits)
    functions, quiet = table_readers.after(graph), compressed.tensors(graph)
    members: dict[int, list[str]] = {}
    for name, ids in channels.ids.items():
        if not channels.frozen[ids[0]] and bits[name] == fewest and stats[name].peak > 0:
            members.setdefault(int(ids[0]), []).append(name)
    measured = [name for names in members.values() for name in names]
    expected = headroom.expected(graph, stats, bits, measured, functions)
    chosen: dict[int, float] = {}
    for root, names in members.items():
        clamps = [
            v.clamp[1] for v in (graph[n] for n in names) if v.clamp and math.isfinite(v.clamp[1]) and v.clamp[1] > 0
        ]
        reached = [clamp for clamp in clamps if max(stats[n].max for n in names) >= 0.98 * clamp]
        if reached and fewest == 8:
            step = reached[0] / (255.0 if free and all(n in free for n in names if graph[n].clamp) else 127.0)
            chosen[root] = 2.0 ** math.ceil(math.log2(step)) / step
            continue
        rows = [
            (
                Rounded(expected[n], saturated),
                span(stats[n], fewest, graph[n].clamp, room=n not in quiet),
                functions.get(n, ()),
                n in free and fewest == 8,
            )
            for n in names
        ]
        key = fewest, *((rounded.key, *rest) for rounded, *rest in rows)
        chosen[root] = _filled(key, partial(_best_factor, rows, fewest))
    factors = {name: chosen.get(int(ids[0]), 1.0) for name, ids in channels.ids.items()}
    return scale(graph, {name: np.full(len(ids), factors[name]) for name, ids in channels.ids.items()}), factors


def _reach(stats: TensorStats, channels: int, bits: int) -> np.ndarray:
    """Largest magnitude of each channel [C], at 16 bits that expected of unseen samples; of the whole tensor
    where channels were too many to observe. 0 of dead ones.
    """
    if bits == 16:
        reach = np.broadcast_to(stats.reach(), channels)
    elif stats.channel_min is None or stats.channel_max is None:
        reach = np.full(channels, stats.peak)
    else:
        reach = np.maximum(np.abs(stats.channel_min), np.abs(stats.channel_max))
    return np.where(alive(reach), reach, 0.0)


def _best_factor(rows: Sequence[tuple[Rounded, Range, Sequence[Function], bool]], bits: int) -> float:
    """The first of the factors that are best for all these tensors. rows: arguments of `_best_db`."""
    candidates = 2.0 ** (np.arange(STEPS) / STEPS)
    gains = sum(
        _best_db(rounded, limits, candidates, bits, functions, free) for rounded, limits, functions, free in rows
    )
    return float(candidates[int(np.argmax(gains))])


def _best_db(
    rounded: Rounded, limits: Range, factors: np.ndarray, bits: int, functions: Sequence[Function], free: bool
) -> np.ndarray:
    """Quality of the best grid of the tensor times each factor [F]: its SQNR, or at 16 bits, which clip nothing, how
    fine it is.

    free: it may have an origin.
    """
    if free:
        return offsets.filled_db(rounded, factors, functions)
    tops = np.array([top_exponent(limits, bits, functions, rounded.stats, f) - math.log2(f) for f in factors])
    if bits == 16:
        return -20 * math.log10(2) * tops
    steps = 2.0 ** (tops[:, None] - np.arange(3))
    each = grid_sqnrs_db(rounded, steps.reshape(-1), np.zeros(steps.size), bits, functions)
    return np.minimum(each.reshape(steps.shape).max(1), EXACT_DB)


def fewest_bits(graph: Graph, bits: Mapping[str, int]) -> int:
    """Bits of the tensors that are worth equalizing."""
    return min((b for name, b in bits.items() if name not in graph.pixels), default=16)


def has_long_streams(graph: Graph) -> bool:
    """Checks for channels with a factor of their own that SUMS sums or more add to."""
    channels = Channels(graph)
    return bool((_sums(graph, channels)[~channels.frozen] >= SUMS).any())


def _sums(graph: Graph, channels: Channels) -> np.ndarray:
    """Counts the sums of computed tensors in each class of channels, int [total]."""
    counts = np.zeros(channels.total, dtype=int)
    for node in graph.nodes:
        if node.op == "add" and not any(graph[name].is_const for name in node.inputs):
            counts[np.unique(channels.ids[node.outputs[0]])] += 1
    return counts


def _demand(graph: Graph, weight: str, groups: int, inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Share of the weights' ranges that each input channel claims [C]: its largest |w| relative to that output's
    largest.

    inputs, outputs: bool [C], [O]: the channels that are not dead.
    """
    data = graph[weight].data
    assert data is not None
    outs, per_group = data.shape[0], data.shape[-1]
    peak = np.abs(data).reshape(outs, -1, per_group).max(axis=1)
    read = inputs.reshape(groups, 1, per_group) & outputs.reshape(groups, outs // groups, 1)
    peak = np.where(read.reshape(outs, per_group), peak, 0.0)
    share = peak / np.maximum(peak.max(axis=1, keepdims=True), TINY)
    demand = share.reshape(groups, outs // groups, per_group).max(axis=1).reshape(-1)
    return np.where(alive(demand), demand, 0.0)


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
        if OPS[node.op].absorbs and not plain:
            node, constants = OPS[node.op].with_factors(node, graph, before, float(after[0]))
            values.update((value.name, value) for value in constants)
        if plain or node.op not in (*WEIGHTED, "lookup"):
            nodes.append(node)
            continue
        if node.op == "lookup":
            p = node.params
            p = replace(p, before=p.before / float(before[0]), after=p.after * float(after[0]))
            nodes.append(replace(node, params=p))
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
