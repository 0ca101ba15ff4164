"""Inputs whose numbers had 8 bits before, in their own steps, which layers take up. They need no more bits.

Features of an int8 model's front end, pixels as k / 255 or readings of a sensor in its own units lie on a lattice of
at most 256 points, whose step is no power of two. Rounded to one they lose much, and in the lattice's steps nothing.

1. A source is an input as in `input_grids`, whose elements alone reach the layers that read it: as a whole, or with a
   lattice for each channel where channels have grids of their own already.
2. The step is the greatest common divisor of the differences between its values. Numbers that hardly ever repeat show
   none. A lattice that does not fit [-128, 127] steps around 0 gets its middle point as the offset. Powers of two stay,
   and whole numbers, as callers may have them as integers.
3. The source stays as it is unless the noise of its readers falls by WORTH_DB: what comes of rounding the samples, and
   of rounding weights.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import reduce

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.calib.observers import TINY, TensorStats
from nmpconv.ir import Graph, Node, Shifts, Value
from nmpconv.ops import WEIGHTED
from nmpconv.passes.quantize import input_grids
from nmpconv.passes.quantize.input_grids import Feeds, Grids, Trail

WORTH_DB = 3.0
POINTS, REPEATS = 256, 4  # of a lattice at most; how often its values have to repeat on average
ERROR = 2.0**-18  # of the largest magnitude, what float32 may make of a difference
NEAR = 2.0**-6  # of a step, how far a value may be from the lattice
SAMPLES_MIN = 8
SEEN, VALUES = 1 << 22, 1 << 18  # values that are looked at, and that noise is measured on
UPPER = 0.25  # of a step, by which a middle between two points becomes the upper one
FINER = 4  # exponents that are looked at, from the one on that saturates nothing
EXPONENT_END = 62  # of the float model's steps, within what files hold
OF_WEIGHTS = 2.16 / 12 / 128**2  # mean square of an error of rounding to powers of two, in parts of the largest square


def run(
    graph: Graph,
    stats: Mapping[str, TensorStats],
    feeds: Feeds,
    taken: Collection[str] = (),
    offsets: bool = True,
) -> tuple[Graph, list[str]]:
    """The graph with such steps, and the activations whose numbers are others then, which need no more than 8 bits.

    stats: by activation, of all samples. feeds: samples as they were given. taken: inputs that stay as they are.
    offsets: whether inputs may have them.
    """
    changed = list[str]()
    for source in input_grids.free_inputs(graph, taken):
        shifts = graph[source].shifts
        trail = input_grids.trail_of(graph, source, None if shifts is None else shifts.axis)
        if len(feeds) >= SAMPLES_MIN and trail is not None and not _is_joined(trail):
            grids = _grids(graph, trail, feeds, offsets)
            if grids is not None and grids.gain_db >= WORTH_DB and _holds(graph[source], stats[source], grids):
                graph = input_grids.stored_on(graph, grids)
                changed += trail.places
    return graph, changed


def _holds(value: Value, stats: TensorStats, grids: Grids) -> bool:
    """Checks that 8 bits hold all that was seen, not the looked at samples alone, and files the exponents."""
    exponents = np.log2(grids.factor) + (0 if value.shifts is None else np.array(value.shifts.bits))
    if np.abs(exponents).max() > EXPONENT_END:
        return False
    axis = grids.trail.axis
    if axis is not None and axis != len(value.shape) - 1:
        return True  # what is known of channels is of the last axis
    low, high = stats.ends(np.ones(grids.trail.count))
    ends = [(end - grids.offset) * grids.factor for end in (low, high)]
    return bool(np.rint(ends[0]).min() >= INT_MIN[8] and np.rint(ends[1]).max() <= INT_MAX[8])


def _is_joined(trail: Trail) -> bool:
    """Checks that other numbers are on the source's grid."""
    return any((places < 0).any() for places in trail.places.values())


def _grids(graph: Graph, trail: Trail, feeds: Feeds, offsets: bool) -> Grids | None:
    """Cases 2 and 3; None where some channel shows no lattice that fits."""
    value, pads = graph[trail.source], [np.zeros(0)] * trail.count
    for node in trail.readers:
        places, op = input_grids.reader_channels(trail, node), WEIGHTED[node.op]
        if (around := op.padding(node.params, graph.ins(node))) is not None:
            offsets &= op.border is not None
            pads = [np.append(pad, around[places == c]) for c, pad in enumerate(pads)]
    places = np.linspace(0, len(feeds) - 1, max(SAMPLES_MIN, min(len(feeds), SEEN // value.size)))
    raw = [feeds[round(i)][trail.source].reshape(value.shape) for i in places]
    if all(np.array_equal(x, np.rint(x)) for x in raw):
        return None
    every = np.stack([value.stored(x) for x in raw]).astype(np.float64)
    x = every[np.newaxis] if trail.axis is None else np.moveaxis(every, trail.axis + 1, 0)
    x = x.reshape(trail.count, len(every), -1)
    lattices = [lattice_of(channel.ravel(), pad, offsets) for channel, pad in zip(x, pads, strict=True)]
    fitting = [lattice for lattice in lattices if lattice is not None]
    if len(fitting) < trail.count:
        return None
    factor, offset = _in_float32(value.shifts, *np.array(fitting).T)
    if (np.frexp(factor)[0] == 0.5).all():
        return None
    readers = [_Heard(graph, node, trail, x.var(axis=1).mean(axis=1)) for node in trail.readers]
    plain = sum(reader.noise(_rounding(x), np.ones(trail.count)) for reader in readers)
    exact = sum(reader.noise(np.zeros(trail.count), factor) for reader in readers)
    return Grids(trail, offset, factor, 10 * math.log10(plain / exact) if exact > 0 else 0.0)


def lattice_of(values: np.ndarray, pads: np.ndarray, offsets: bool) -> tuple[float, float] | None:
    """Factor and offset that make whole numbers of 8 bits of the values; None where there are none. pads: numbers that
    are to fit the range, too."""
    if (step := _step(values)) is None:
        return None
    first = float(values.min())
    ends = np.array([f(np.append(values, pads)) for f in (np.min, np.max)])
    for offset in (0.0, first + step * round((ends.mean() - first) / step + UPPER)) if offsets else (0.0,):
        low, high = np.rint((ends - offset) / step)
        phase = (first - offset) / step
        if abs(phase - round(phase)) < NEAR and low >= INT_MIN[8] and high <= INT_MAX[8]:
            room = min(INT_MIN[8] / min(low, -1.0), INT_MAX[8] / max(high, 1.0))
            return 2.0 ** math.floor(math.log2(room)) / step, offset
    return None


def _step(values: np.ndarray) -> float | None:
    points = np.unique(values)
    error = ERROR * float(np.abs(points).max())
    points = points[np.append(True, np.diff(points) > error)]
    if len(points) > POINTS or len(values) < REPEATS * len(points):
        return None
    if len(points) == 1:
        return abs(float(points[0])) or 1.0
    step = float(reduce(lambda a, b: _divisor(a, b, error), np.diff(points)))
    if points[-1] - points[0] > (POINTS - 0.5) * step:
        return None
    places = np.rint((points - points[0]) / step)
    step = float(np.dot(points - points[0], places) / np.dot(places, places))
    return step if np.abs(points - points[0] - step * places).max() < NEAR * step else None


def _divisor(a: float, b: float, error: float) -> float:
    """Greatest common divisor of numbers that are true but for an error."""
    while b > error:
        a, b = b, abs(a - b * round(a / b))
    return a


def _in_float32(before: Shifts | None, factor: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest factors and offsets that files hold together with those from before, which are powers of two."""
    scale, already = (1.0, 0.0) if before is None else (np.exp2(before.bits), np.array(before.offsets or (0.0,)))
    total = np.float32(already + offset / scale).astype(np.float64)
    return 1 / np.float32(1 / factor).astype(np.float64), (total - already) * scale


def _rounding(x: np.ndarray) -> np.ndarray:
    """Mean square of what rounding to the best power of two does to each channel [C]. x: [C, n, elements]."""
    thin = x[:, :, :: min(x.size // VALUES | 1, x.shape[2])]
    top = math.ceil(math.log2(max(float(np.abs(x).max()), TINY) / INT_MAX[8]))
    steps = [2.0**exponent for exponent in range(top, top - FINER, -1)]
    errors = [thin - np.clip(np.floor(thin / step + 0.5), INT_MIN[8], INT_MAX[8]) * step for step in steps]
    return min((np.square(error).mean(axis=(1, 2)) for error in errors), key=np.sum)


class _Heard:
    """Noise of a reader in parts of its signal, which is what varies from sample to sample. power: of that, by channel
    of the source."""

    def __init__(self, graph: Graph, node: Node, trail: Trail, power: np.ndarray) -> None:
        self._reader = input_grids.Reader.of(graph, node, trail, np.sqrt(power), {})
        self._power, w = power, graph[node.inputs[1]]
        self._taps = w.size // w.shape[0] // w.shape[-1]

    def noise(self, of_source: np.ndarray, factor: np.ndarray) -> float:
        """of_source: mean square of errors by channel of the source. factor: of the channels as they are stored."""
        reader, own = self._reader, self._reader.places
        of_x = (np.square(reader.sums) * of_source[own]).sum(axis=1)
        peaks = np.square(reader.peaks / factor[own]).max(axis=1)
        of_w = OF_WEIGHTS * peaks * self._taps * (self._power * factor**2)[own].sum()
        heard = reader.signal > 0
        return float(((of_x + of_w)[heard] / reader.signal[heard]).sum())
