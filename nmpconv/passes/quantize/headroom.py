"""Statistics with one more sample than was seen, one that reaches farther: what int8 grids are chosen by.

A grid that ends where the samples end costs nothing on these samples, and saturates on others. By as much as the peaks
of channels vary from sample to sample, another one may go beyond what was seen.

1. The sample more has the values of a mean sample times 1 + VARIES * v, v being the root mean square over channels of
   deviation / mean of their peaks, each at most MOST. Beyond MANY samples it goes less far, in proportion.
2. Nothing goes beyond what is known of a tensor (`passes.bounds`).
3. Tensors that only tables read stay as they are: most tables are flat where their input goes far. So do grids of the
   ONNX model, tensors of 16 bits, which have room, and those whose peaks are not known.

Decision 030 has what it brings.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

import numpy as np

from nmpconv.calib.histogram import Histogram
from nmpconv.calib.observers import TensorStats, alive
from nmpconv.ir import Graph
from nmpconv.passes.bounds import known

VARIES = 0.5
MOST = 2.0
MANY = 100  # samples
LEAST = 0.01  # of r - 1, from which on it is worth the work


def expected(
    graph: Graph,
    stats: Mapping[str, TensorStats],
    bits: Mapping[str, int],
    names: Iterable[str],
    tabled: Container[str],
) -> dict[str, TensorStats]:
    """Statistics of these activations with headroom, in the float model's own numbers, as stats. tabled: those that
    only tables read."""
    statistics = {name: stats[name] for name in names}
    limits = known(graph, graph.given) if statistics else {}
    for name, seen in statistics.items():
        if name in limits and bits.get(name) == 8 and name not in tabled and name not in graph.given:
            origin = graph[name].origin
            statistics[name] = farther(seen, limits[name][0] + origin, limits[name][1] + origin)
    return statistics


def farther(stats: TensorStats, low: float, high: float) -> TensorStats:
    """Cases 1 and 2. low, high: what is known of all values."""
    r = 1 + VARIES * _variation(stats) * min(1.0, MANY / max(stats.samples, 1))
    if r < 1 + LEAST:
        return stats
    least, most = max(stats.min * r, min(low, stats.min)), min(stats.max * r, max(high, stats.max))
    h = stats.histogram
    many = Histogram(h.exponent, h.zeros * stats.samples, h.counts * stats.samples)
    more = h.scaled(r)
    if least > stats.min * r or most < stats.max * r:
        more = more.clipped(least, most)
    return replace(stats, min=least, max=most, histogram=many.merge(more))


def _variation(stats: TensorStats) -> float:
    """Variation of the peaks of channels from sample to sample; 0 where it is not known."""
    if stats.samples < 2 or stats.peak_mean is None or stats.peak_spread is None:
        return 0.0
    living = alive(stats.peak_mean)
    if not living.any():
        return 0.0
    deviation = np.sqrt(stats.peak_spread[living] / (stats.samples - 1))
    return float(np.sqrt(np.mean(np.minimum(deviation / stats.peak_mean[living], MOST) ** 2)))
