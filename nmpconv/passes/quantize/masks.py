"""Masks of attention whose depth follows the scores.

1. The importer hides a score by taking the smaller one of it and MASKED (`nmpconv.frontend.expand.masks`). Where the
   best score of a row is near MASKED, too, what is hidden would count. So a constant mask goes DEEP below the least
   score that is to be expected, as calibration saw it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph
from nmpconv.ops.softmax import MASKED, OPEN

DEEP = 20.0  # e^-20 is a 15,000th of a step of 16 bits


def run(graph: Graph, stats: Mapping[str, TensorStats]) -> tuple[Graph, dict[str, TensorStats]]:
    """The float graph with those masks, and the statistics with what they hide."""
    depths: dict[str, float] = {}
    made = dict(stats)
    for node in graph.nodes:
        for x, mask in (node.inputs, node.inputs[::-1]) if node.op == "minimum" else ():
            data = graph[mask].data
            if data is None or x not in stats or set(np.unique(data)) != {MASKED, OPEN}:
                continue
            least = min(stats[x].min, stats[x].min * stats[x].room)
            if least - DEEP < MASKED:
                depths[mask] = min(depths.get(mask, MASKED), float(np.floor(least - DEEP)))
                made[node.outputs[0]] = stats[node.outputs[0]].reaching(np.array([depths[mask]]))
    deeper = [replace(graph[name], data=_deeper(graph[name].data, depth)) for name, depth in depths.items()]
    return graph.with_values(*deeper), made


def _deeper(mask: np.ndarray | None, depth: float) -> np.ndarray:
    assert mask is not None
    return np.where(mask == MASKED, depth, mask).astype(np.float32)
