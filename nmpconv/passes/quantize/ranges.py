"""Statistics of a model that brings the ranges of its tensors with it.

1. A tensor with a given grid has that grid's range; what calibration saw of it is clipped.
2. Without calibration, values are taken to be spread evenly over the range.
3. Other tensors keep what calibration saw; without calibration their range follows from what is known, or is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nmpconv.calib.observers import TensorStats
from nmpconv.errors import UsageError
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.ops.common.traits import Bounds
from nmpconv.passes.bounds import is_finite, known
from nmpconv.passes.quantize.shared_grids import grid_groups

EVEN = 4096  # values that stand for an even spread
BEYOND = 1.01  # a grid that ends at a constant may round it to one step more than it has
FAR = 2.0**69  # within the coarsest grid of 8 bits


def run(graph: Graph, measured: Mapping[str, TensorStats]) -> dict[str, TensorStats]:
    """measured: statistics of all activations, or of none. UsageError names what has no range."""
    if measured:
        grids = {name: grid for name, grid in graph.given.items() if name in measured}
        return {**measured, **{name: measured[name].clipped(grid.min, grid.max) for name, grid in grids.items()}}
    limits = known(graph, graph.given)
    for group in grid_groups(graph):
        # A tensor without a range whose data moves to one with a range has the latter's.
        ranges = [limits[name] for name in group if is_finite(limits[name])]
        for name in group:
            if not is_finite(limits[name]) and ranges:
                limits[name] = (min(low for low, _ in ranges), max(high for _, high in ranges))
    names = [value.name for value in graph.activations()]
    missing = [name for name in names if not is_finite(limits[name])]
    if missing:
        others = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise UsageError(
            f"nothing to calibrate with, and the model itself gives no range for {missing[0]!r}{others}",
            hint="give --data SOURCE or --load-profile FILE",
        )
    return {name: _even(limits[name]) for name in names}


def assumed(graph: Graph) -> dict[str, TensorStats]:
    """Statistics of all activations before anything is known of the data: values spread evenly from -1 to 1, or a
    little further than the constants go that their node reads, so that biases fit the grids. Results that have a grid
    whatever the data, as comparisons, are within 1. Saturation leaves what it leaves of that."""
    reach = {value.name: 1.0 for value in graph.activations()}
    for node in graph.nodes:
        peaks = [float(np.abs(v.data).max(initial=0.0)) for v in graph.ins(node) if v.data is not None]
        free = [name for name in node.outputs if OPS[node.op].own_exponent(node, 8) is None]
        reach |= {name: min(max(1.0, BEYOND * max(peaks)), FAR) for name in free if peaks}
    clamps = {name: graph[name].clamp or (-math.inf, math.inf) for name in reach}
    ends = {name: np.clip((-peak, peak), *clamps[name]) for name, peak in reach.items()}
    return {name: _even((float(low), float(high))) for name, (low, high) in ends.items()}


def _even(bounds: Bounds) -> TensorStats:  # case 2
    stats = TensorStats.of(np.linspace(*bounds, EVEN, dtype=np.float32)[:, np.newaxis])
    return replace(stats, channel_min=None, channel_max=None, channel_mean=None)
