"""Inputs with a grid for each channel, and constants on the grid of what they are joined with.

Temperature, pressure and humidity in one input share one grid, in steps of the pressure's. The same holds for features
and scalars that a Concat joins, and for coordinates that it takes from a constant. The numbers of a source, which is an
input or a constant of a Concat, are free: each channel is stored as (number - offset) * 2^bits, and layers take it up.

1. A source is followed through ops that move its elements, and through pools and resizes, to the layers that read it.
   Each of their channels has to be from one channel of the source: along one of its axes, or of the source as a whole.
   An op of another kind, a clamp or an output on the way, and it stays.
2. An input's channel whose range does not hold 0 well inside has its middle as the offset. What pads it is part of its
   range. One that never changes is left alone, and so are constants.
3. Factors of channels are demand^a / reach^(1-a), where demand is what a channel claims of its readers' weights, and
   reach its largest magnitude; a is one of BALANCES, and where other tensors are on the grid, all are moved by up to
   LEVELS bits against these. Rounded to powers of two, those with the least noise in the readers are taken.
4. That noise is the sum over a reader's rows of what the grids of x and of w add, in parts of the row's signal. It is
   estimated without grids by channel, too. The source stays as it is unless noise falls by WORTH_DB, and by more where
   channels are many. What is one-sided alone does not bring as much: a caller's code is to stay as plain as it is.

The map is told by `Value.shifts`, of inputs and of what moves their elements.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.calib.observers import TINY, TensorStats
from nmpconv.ir import Graph, Node, Quant, Shifts, Value
from nmpconv.ops import OPS, WEIGHTED, QArray
from nmpconv.ops.common.traits import Origins
from nmpconv.ops.common.weighted import groups_of
from nmpconv.passes.affine_maps import Affine, merge_into_reader
from nmpconv.passes.rewrite import Editor

Feeds = Sequence[Mapping[str, np.ndarray]]
Ends = tuple[np.ndarray, np.ndarray]
"""Least and largest value of each channel [C]."""

BALANCES = (0.0, 0.25, 0.5)
LEVELS = range(-3, 4)
WORTH_DB = 9.0  # halving the range of an input, as an offset of a one-sided one does, brings 6
FEW, DOUBLED_DB = 16, 3.0  # channels up to which that is enough, and what each doubling of them has to bring besides
SIMPLER_DB = 3.0  # what more channels of an input have to bring beside fewer
CHANNELS_MAX = 1024  # grids of an input
FINE = 8  # steps of an offset in half the range of its channel
ROUNDS = 3  # each source is looked at so often, as its level is right beside those of others
NARROWEST = 2.0**-20  # of the largest magnitude, what a channel's range counts as at least
FOREIGN = -1


@dataclass(frozen=True)
class Trail:
    """Tensors that a source's elements reach. count: its channels; axis: along which they are, None: one of the whole.
    places: the channel of the source in each element of a tensor, FOREIGN for others, int16, by name. readers: layers.
    """

    source: str
    count: int
    axis: int | None
    places: Mapping[str, np.ndarray]
    readers: tuple[Node, ...]


@dataclass(frozen=True)
class Grids:
    """A channel of the source is stored as (number - offset) * factor. gain_db: by which the noise of readers falls."""

    trail: Trail
    offset: np.ndarray
    factor: np.ndarray
    gain_db: float


def run(
    graph: Graph, stats: Mapping[str, TensorStats], feeds: Feeds, states: Collection[str] = (), offsets: bool = True
) -> tuple[Graph, list[str]]:
    """The graph with grids by channel, and the activations whose numbers are others then.

    stats: by activation. feeds: samples of the graph as it is. states: inputs that nobody feeds. offsets: whether
    inputs may have them.
    """
    ends = {name: seen.ends(np.ones(_width(graph[name]))) for name, seen in stats.items() if seen.count}
    changed: dict[str, None] = {}
    for source in [*_sources(graph, states)] * ROUNDS:
        trails = [trail for axis in _axes(graph[source]) if (trail := trail_of(graph, source, axis)) is not None]
        shift = offsets and not graph[source].is_const and graph[source].shifts is None
        known = [(trail, own_ends) for trail in trails if (own_ends := _ends(graph, trail, ends, feeds)) is not None]
        tried = [_grids(graph, trail, own, ends, shift) for trail, own in known]
        tried = [grids for grids in tried if grids.gain_db >= _worth(grids.trail.count)]
        if not tried:
            continue
        best = max(grids.gain_db for grids in tried)
        grids = next(candidate for candidate in tried if candidate.gain_db >= best - SIMPLER_DB)
        graph = stored_on(graph, grids)
        for name, places in grids.trail.places.items():
            if (channels := _by_channel(places)) is not None and name in ends:
                ends[name] = _moved(ends[name], channels, grids)
        changed |= dict.fromkeys(name for name in grids.trail.places if not graph[name].is_const)
    return graph, list(changed)


def free_inputs(graph: Graph, states: Collection[str]) -> list[str]:
    """Inputs whose grids are nobody's choice yet."""
    taken = {*graph.pixels, *graph.given, *graph.outputs, *states}
    return [name for name in graph.inputs if name not in taken and graph[name].shape]


def _sources(graph: Graph, states: Collection[str]) -> Iterator[str]:
    yield from free_inputs(graph, states)
    joined = (name for node in graph.nodes if node.op == "concat" for name in node.inputs)
    yield from (name for name in dict.fromkeys(joined) if graph[name].is_const)


def _axes(value: Value) -> list[int | None]:
    """The axes that grids may be along, those of few first."""
    if value.shifts is not None and value.shifts.axis is not None:
        return [None, value.shifts.axis]
    several = [i for i, size in enumerate(value.shape) if 1 < size <= CHANNELS_MAX]
    return [None, *sorted(several, key=lambda i: value.shape[i])]


def _worth(count: int) -> float:
    """Case 4: dB that grids for so many channels have to bring."""
    return WORTH_DB + DOUBLED_DB * math.log2(max(count / FEW, 1))


def _width(value: Value) -> int:
    return value.shape[-1] if value.shape else 1


def trail_of(graph: Graph, source: str, axis: int | None) -> Trail | None:
    """Case 1."""
    shape = graph[source].shape
    count = 1 if axis is None else shape[axis]
    along = [1 if i != axis else count for i in range(len(shape))]
    places = {source: np.broadcast_to(np.arange(count, dtype=np.int16).reshape(along), shape)}
    readers = []
    for node in graph.nodes:
        if places.keys().isdisjoint(node.inputs):
            continue
        if node.op in WEIGHTED:
            if not places.keys().isdisjoint(node.inputs[1:]) or _by_channel(places[node.inputs[0]]) is None:
                return None
            readers.append(node)
            continue
        out = graph[node.outputs[0]]
        if out.name in graph.outputs or out.clamp is not None:
            return None
        passed = _passed_on(graph, node, places)
        if passed is None or _along(passed) is None:
            return None
        places[out.name] = passed
    return Trail(source, count, axis, places, tuple(readers)) if readers else None


def _passed_on(graph: Graph, node: Node, places: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The channels of the source in the elements of a node's output; None where an element has several."""
    op, (out,) = OPS[node.op], graph.outs(node)
    if op.places is not None or op.origins(node.params, graph.ins(node), out) is not Origins.ALIKE:
        return None
    if op.grid != "same":  # means
        if not all(name in places for name in node.inputs):
            return None
        own, sources = _by_channel(places[node.inputs[0]]), op.factors(node.params, graph.ins(node), out)
        if own is None or sources is None:
            return None
        return np.broadcast_to(own[sources[0]] if out.shape else own[0], out.shape)
    quant = Quant(16, (0,), INT_MIN[16], INT_MAX[16])
    foreign = (np.full(value.shape, FOREIGN, np.int16) for value in graph.ins(node))
    moved = [places.get(name, other) for name, other in zip(node.inputs, foreign, strict=True)]
    output = replace(out, quant=quant, dtype=quant.dtype)
    first, last = (
        op.reference(node.params, [QArray(np.ascontiguousarray(sign * x), quant) for x in moved], [output])[0]
        for sign in (np.int16(1), np.int16(-1))
    )
    return first if np.array_equal(first, -last) else None


def _by_channel(places: np.ndarray) -> np.ndarray | None:
    """The channels of the source in each channel [C] of a tensor, where that is all there is to say."""
    rows = places.reshape(-1, places.shape[-1] if places.ndim else 1)
    return rows[0] if np.array_equal(rows, np.broadcast_to(rows[0], rows.shape)) else None


def _along(places: np.ndarray) -> tuple[int | None, np.ndarray] | None:
    """The axis along which they differ, and what they are along it; None where there are several such axes."""
    differ = [i for i in range(places.ndim) if np.any(places != places.take([0], axis=i))]
    if len(differ) > 1:
        return None
    if not differ:
        return None, places.reshape(-1)[:1]
    return differ[0], places[tuple(slice(None) if i == differ[0] else 0 for i in range(places.ndim))]


def _ends(graph: Graph, trail: Trail, ends: Mapping[str, Ends], feeds: Feeds) -> Ends | None:
    """The range of each channel of the source; None without samples."""
    value = graph[trail.source]
    if trail.axis == len(value.shape) - 1 and trail.source in ends:
        return ends[trail.source]
    others = tuple(i for i in range(len(value.shape)) if i != trail.axis)
    if value.data is not None:
        samples = [value.data]
    elif trail.axis is None and trail.source in ends:
        low, high = ends[trail.source]
        return low.min(keepdims=True), high.max(keepdims=True)
    else:
        samples = [value.stored(feed[trail.source].reshape(value.shape)) for feed in feeds]
    if not samples:
        return None
    low, high = (np.stack([f(x, axis=others).reshape(-1) for x in samples]) for f in (np.min, np.max))
    return low.min(axis=0).astype(np.float64), high.max(axis=0).astype(np.float64)


def _grids(graph: Graph, trail: Trail, own: Ends, ends: Mapping[str, Ends], shift: bool) -> Grids:
    """Cases 2 to 4. own: range of each channel of the source."""
    low, high = own[0].copy(), own[1].copy()
    for node in trail.readers:
        around = WEIGHTED[node.op].padding(node.params, graph.ins(node))
        shift &= around is None or WEIGHTED[node.op].border is not None
        if around is not None:
            places = reader_channels(trail, node)
            np.minimum.at(low, places[places >= 0], around[places >= 0])
            np.maximum.at(high, places[places >= 0], around[places >= 0])
    before = np.maximum(np.abs(low), np.abs(high))
    offset = middles(low, high) if shift else np.zeros(trail.count)
    reach = np.maximum(high - offset, offset - low)
    readers = [Reader.of(graph, node, trail, reach, ends) for node in trail.readers]
    demand = np.zeros(trail.count)
    for reader in readers:
        mine = reader.places >= 0
        np.maximum.at(demand, reader.places[mine], reader.demand[mine])
    able = (demand > 0) & (reach > 0)
    if not able.any():
        return Grids(trail, offset, np.ones(trail.count), 0.0)
    beside = max((_beside(trail.places[name], ends[name]) for name in trail.places if name in ends), default=0.0)
    tried = list[np.ndarray]()
    for balance in BALANCES:
        wanted = balance * np.log2(demand[able]) - (1 - balance) * np.log2(reach[able])
        for level in LEVELS if beside > 0 else [-np.max(wanted)]:
            bits = np.full(trail.count, np.median(wanted) + level)
            bits[able] = wanted + level
            tried.append(np.floor(bits + 0.5).astype(int))
    plain, *noise = (
        sum(reader.noise(r, bits, beside) for reader in readers)
        for r, bits in [(before, np.zeros(trail.count, int)), *((reach, bits) for bits in tried)]
    )
    best = int(np.argmin(np.round(noise, 12)))
    return Grids(trail, offset, np.exp2(tried[best]), 10 * math.log10(plain / noise[best]) if noise[best] > 0 else 0.0)


def middles(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Case 2: short numbers in float32 near the middles."""
    most = np.maximum(np.abs(low), np.abs(high))
    half = np.maximum((high - low) / 2, NARROWEST * most)
    step = 2.0 ** np.floor(np.log2(np.maximum(half, TINY) / FINE))
    middle = np.float32(np.round((low + high) / 2 / step) * step).astype(np.float64)
    return np.where((high > low) & (most >= 2 * (1 - 1 / FINE) * half), middle, 0.0)


class Reader(NamedTuple):
    """A layer: channels of the source in its own, their demand, and the reach of foreign ones [C]. sums, peaks [O,C]:
    root of the sum of squares of the weights of a row and channel, and the largest one. signal [O]: power of a row."""

    places: np.ndarray
    demand: np.ndarray
    foreign: np.ndarray
    sums: np.ndarray
    peaks: np.ndarray
    signal: np.ndarray

    @staticmethod
    def of(graph: Graph, node: Node, trail: Trail, reach: np.ndarray, ends: Mapping[str, Ends]) -> Reader:
        """reach: of each channel of the source."""
        places = reader_channels(trail, node)
        low, high = ends.get(node.inputs[0]) or (np.zeros(len(places)),) * 2
        foreign = np.maximum(np.abs(low), np.abs(high))
        every = np.where(places >= 0, reach[places], foreign)
        data, groups = graph[node.inputs[1]].data, groups_of(node)
        assert data is not None
        split = np.abs(data).astype(np.float64).reshape(groups, len(data) // groups, -1, data.shape[-1])
        sums, peaks = np.zeros((2, groups, split.shape[1], groups, data.shape[-1]))
        for group, w in enumerate(split):
            sums[group, :, group], peaks[group, :, group] = np.sqrt(np.square(w).sum(1)), w.max(1)
        sums, peaks = (x.reshape(len(data), -1) for x in (sums, peaks))
        demand = (peaks / np.maximum(peaks.max(axis=1, keepdims=True), TINY)).max(axis=0)
        return Reader(places, demand, foreign, sums, peaks, np.square(sums * every).sum(axis=1))

    def noise(self, reach: np.ndarray, bits: np.ndarray, beside: float) -> float:
        """Case 4. reach: of each channel of the source; beside: the largest one of others on its grid."""
        mine = self.places >= 0
        factor = np.where(mine, np.exp2(bits[self.places]), 1.0)
        levels = np.where(mine, reach[self.places], self.foreign) * factor
        ceiling = max(float((reach * np.exp2(bits)).max()), beside)
        of_x = ceiling**2 * np.square(self.sums / factor).sum(axis=1)
        of_w = np.square((self.peaks / factor).max(axis=1)) * np.square(levels).sum()
        heard = self.signal > 0
        return float(((of_x + of_w)[heard] / self.signal[heard]).sum())


def reader_channels(trail: Trail, node: Node) -> np.ndarray:
    by_channel = _by_channel(trail.places[node.inputs[0]])
    assert by_channel is not None
    return by_channel


def _beside(places: np.ndarray, ends: Ends) -> float:
    """The largest magnitude of what is not the source's in a tensor."""
    most, own = np.maximum(*map(np.abs, ends)), _by_channel(places)
    foreign = own < 0 if own is not None else np.full(len(most), bool((places < 0).any()))
    return float(most[foreign].max(initial=0.0))


def _moved(ends: Ends, own: np.ndarray, grids: Grids) -> Ends:
    """The range of each channel of a tensor; own: channels of the source in them."""
    offset, factor = np.where(own >= 0, grids.offset[own], 0.0), np.where(own >= 0, grids.factor[own], 1.0)
    return (ends[0] - offset) * factor, (ends[1] - offset) * factor


def stored_on(graph: Graph, grids: Grids) -> Graph:
    """The graph whose source is stored on these grids."""
    trail, offset, factor, editor = grids.trail, grids.offset, grids.factor, Editor(graph)
    for node in trail.readers:
        own = reader_channels(trail, node)
        scale = np.where(own >= 0, 1 / factor[own], 1.0)
        shift = np.where(own >= 0, offset[own], 0.0)
        merge_into_reader(editor, node, Affine(node.inputs[0], scale, shift, np.arange(len(own))))
    graph = editor.finish()
    for name, places in trail.places.items():
        value = graph[name]
        if value.data is not None:
            data = (value.data * factor[places]).astype(np.float32)
            graph = graph.with_values(replace(value, data=data))
            continue
        along = _along(places)
        assert along is not None
        axis, own = along
        graph = graph.with_values(replace(value, shifts=_joined(value.shifts, axis, own, grids)))
    return graph


def _joined(before: Shifts | None, axis: int | None, own: np.ndarray, grids: Grids) -> Shifts:
    """Shifts of a tensor that may have some from before. own: the channels of this source along the axis."""
    old = before or Shifts((0,))
    scale = np.exp2(np.array(old.bits, np.float64)) / np.array(old.mantissas or (1.0,))
    offset = np.array(old.offsets or (0.0,)) + np.where(own >= 0, grids.offset[own] / scale, 0.0)
    fraction, exponent = np.frexp(scale * np.where(own >= 0, grids.factor[own], 1.0))
    bits, mantissas = np.where(fraction == 0.5, exponent - 1, exponent), np.where(fraction == 0.5, 1.0, 1 / fraction)
    return Shifts(
        tuple(map(int, bits)),
        old.axis if axis is None else axis,
        tuple(map(float, np.float32(offset))) if offset.any() else (),
        tuple(map(float, np.float32(mantissas))) if (mantissas != 1).any() else (),
    )
