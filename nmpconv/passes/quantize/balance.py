"""Factors of channels that balance an activation's range against the next layers' weights.

These share one grid over the input channels (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction", 2019, with the activations' observed range in place of the producer's weights).

1. A layer that reads many channels with one grid: the factor is a power of what the weights demand and of the reach. A
   depthwise layer has a grid per channel, so there the factor simply fills the range.
2. `streams` fills the channels of a long residual stream more evenly (STREAM_ALPHA): each of its sums is rounded, and
   what that adds stays in the stream, while a reader's weights are rounded once (decision 041).
3. What an op takes up that reads sums of squares (`Op.absorbs`) gets a factor, too, whatever its bits: a logarithm sees
   a small channel as well as a large one. But a bin that had no tone yet saturates at the first one, so `by_layer` has
   one factor for all channels that a layer makes.
4. A dead channel counts nowhere: neither its reach, nor the weights that make it or read it. It follows the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from nmpconv.calib.observers import TINY, TensorStats, alive
from nmpconv.ir import Graph
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.weighted import groups_of
from nmpconv.passes.quantize import compressed, shared_ceiling
from nmpconv.passes.quantize.channel_groups import Channels
from nmpconv.passes.quantize.matrix_form import pad_of
from nmpconv.passes.quantize.shared_grids import grid_groups, joins_grids

ALPHA = 0.5  # weight of the next layer's range against the activation's, in the exponent
STREAM_ALPHA = 0.25  # the same of a channel that SUMS sums or more add to, where streams are to be filled
SUMS = 5
LIMIT = 64.0  # largest ratio of a channel's factor to its tensor's median
LIMIT_TAKEN_UP = 1024.0  # the same of factors that an op takes up
LIMIT_16 = 4.0  # the same upwards at 16 bits, where a small channel needs few of them but saturates on other samples


class Balance:
    """The factors of all channels, and what they are worth. stats and bits are by activation.

    Only classes of channels with a member of the fewest bits get a factor, and those of case 3. streams: case 2.
    by_layer: of case 3 alone, one a layer. exempt: tensors that get none.
    """

    def __init__(
        self,
        graph: Graph,
        stats: Mapping[str, TensorStats],
        bits: Mapping[str, int],
        exempt: Collection[str] = (),
        *,
        streams: bool = False,
        by_layer: bool = False,
    ) -> None:
        channels = self.channels = Channels(graph, kept=exempt)
        fewest = fewest_bits(graph, bits)
        read = [node.inputs[0] for node in graph.nodes if OPS[node.op].absorbs]
        taken_up = _mask(channels, read)
        as_8 = compressed.tensors(graph) if by_layer else ()
        reach = {
            name: _reach(stats[name], len(ids), (8 if name in as_8 else bits[name]) if taken_up[ids].any() else fewest)
            for name, ids in channels.ids.items()
            if name in stats
        }
        layers = list(_layers(graph, channels, reach))
        demand = _largest(channels, ((layer.x, layer.demand) for layer in layers))
        pads = ((node.inputs[0], np.abs(pad)) for node in graph.nodes if (pad := pad_of(graph, node)) is not None)
        self._reach = _largest(channels, (*reach.items(), *pads))
        dense = _mask(channels, (layer.x for layer in layers))
        taken_up &= ~dense
        narrow = _mask(channels, (name for name in reach if bits[name] == fewest))
        able = ~channels.frozen & (taken_up if by_layer else narrow | taken_up)
        self._free = able & (self._reach > 0)
        chosen = self._free & (~dense | (demand > 0))
        self._factor = np.ones(channels.total)
        long = (_sums(graph, channels) >= SUMS) & streams
        for part, alpha in ((~dense, 0.0), (dense & ~long, ALPHA), (dense & long, STREAM_ALPHA)):
            part &= chosen
            self._factor[part] = demand[part] ** alpha / self._reach[part] ** (1 - alpha)
        if by_layer:
            self._join_layers(graph, taken_up & self._free)
        most = np.where(taken_up, LIMIT_TAKEN_UP, LIMIT if fewest == 8 else LIMIT_16)
        self._limit(chosen, able, most)
        if fewest == 8:
            groups = [names for names in _joined(graph) if all(bits.get(name) == 8 and name in reach for name in names)]
            classes = shared_ceiling.Classes(channels.ids, reach, self._free)
            self._factor = shared_ceiling.lowered(groups, layers, classes, self._factor)
        self._demand = np.where(dense, demand, self._factor)

    def _join_layers(self, graph: Graph, taken_up: np.ndarray) -> None:
        """Gives all channels of a layer one factor, of those that are taken up."""
        for node in graph.nodes:
            ids = self.channels.ids[node.outputs[0]]
            if node.op in WEIGHTED and (own := np.unique(ids[taken_up[ids]])).size:
                self._factor[own] = 1 / self._reach[own].max()

    def _limit(self, chosen: np.ndarray, able: np.ndarray, most: np.ndarray) -> None:
        """Keeps the factors of a tensor together, at most ``most`` times their median. What is dead and what nobody
        reads gets one within the others' range."""
        factor = self._factor
        for ids in self.channels.ids.values():
            used = np.unique(ids[chosen[ids]])
            if used.size:
                middle = float(np.median(factor[used]))
                least = middle / np.maximum(most[used], LIMIT)
                factor[used] = np.clip(factor[used], least, middle * most[used])
                rest = ids[able[ids] & ~chosen[ids]]
                end = float((self._reach[used] * factor[used]).max())
                factor[rest] = np.minimum(middle, end / np.maximum(self._reach[rest], TINY))

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


def _mask(channels: Channels, names: Iterable[str]) -> np.ndarray:
    """Classes with a channel of these tensors, bool [total]."""
    mask = np.zeros(channels.total, dtype=bool)
    for name in names:
        mask[channels.ids[name]] = True
    return mask


def _largest(channels: Channels, rows: Iterable[tuple[str, np.ndarray]]) -> np.ndarray:
    """Largest number of each class [total], of tensors' numbers by channel [C]; 0 of those without."""
    largest = np.zeros(channels.total)
    for name, numbers in rows:
        np.maximum.at(largest, channels.ids[name], numbers)
    return largest


def _layers(
    graph: Graph, channels: Channels, reach: Mapping[str, np.ndarray]
) -> Iterator[shared_ceiling.WeightedLayer]:
    """Layers whose weights have a grid over several input channels."""
    living = {name: reach[name] > 0 if name in reach else ids >= 0 for name, ids in channels.ids.items()}
    for node in graph.nodes:
        if node.op in WEIGHTED and not (groups_of(node) > 1 and graph[node.inputs[1]].shape[-1] == 1):
            ends = living[node.inputs[0]], living[node.outputs[0]]
            demand = _demand(graph, node.inputs[1], groups_of(node), *ends)
            yield shared_ceiling.WeightedLayer(node.inputs[0], demand)


def _joined(graph: Graph) -> list[list[str]]:
    """Groups of tensors on one grid, of which some lie side by side, as those of a Concat."""
    joined = {node.outputs[0] for node in graph.nodes if joins_grids(node)}
    return [group for group in grid_groups(graph) if joined.intersection(group)]


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
