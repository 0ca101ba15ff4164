"""What the passes need to know of the float model on some images: statistics, and rows of pre-activations."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.rows import Places, Rows, spread
from nmpconv.ir import Graph, Node
from nmpconv.ops.requantize import requantize

ROWS = 4096  # rows kept of a tensor
ROW_BYTES = 96 << 20  # of all tensors together

Feeds = Sequence[Mapping[str, np.ndarray]]
"""One item an image: float input by name, batch 1. Any sequence, so nothing needs to be in memory at once."""


@dataclass(frozen=True)
class Evidence:
    """Float inputs [N, ...] by name, and rows of the pre-activations of the nodes asked for, by output name.

    Empty for a conversion without images.
    """

    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    rows: Mapping[str, Rows] = field(default_factory=dict)

    def first(self, count: int) -> Evidence:
        """What is known of the first images."""
        inputs = {name: x[:count] for name, x in self.inputs.items()}
        return Evidence(inputs, {name: Rows(*(part[r.images < count] for part in r)) for name, r in self.rows.items()})


def collect(graph: Graph, feeds: Feeds, ops: Collection[str]) -> Evidence:
    """Runs the float graph on every image and keeps rows of the outputs of these ops, before their clamp."""
    nodes = [node for node in graph.nodes if node.op in ops]
    plain, before = _split_clamps(graph, nodes)
    engine = FloatEngine(plain, list(before.values())) if before else None
    widths = {name: (graph[name].shape or (1,))[-1] for name in before}
    channels = sum(widths.values())
    limit = max(64, min(ROWS, ROW_BYTES // (4 * max(channels, 1))))
    places = {name: spread(len(feeds), math.prod(graph[name].shape[:-1]), limit) for name in before}
    kept: dict[str, list[np.ndarray]] = {name: [] for name in before}
    for i, feed in enumerate(feeds):
        result = engine.run(feed) if engine else {}
        for name, pre in before.items():
            flat = result[pre].reshape(-1, widths[name])
            kept[name].append(flat[places[name].positions[places[name].images == i]])
    inputs = {n: np.concatenate([np.atleast_1d(f[n]) for f in feeds]) for n in graph.inputs} if len(feeds) else {}
    return Evidence(inputs, {name: _rows(places[name], kept[name]) for name in before if kept[name]})


def outputs(graph: Graph, feeds: Feeds, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Values of these tensors for all images, [N, ...]."""
    engine = FloatEngine(graph, list(dict.fromkeys(names)))
    results = [engine.run(feed) for feed in feeds]
    return {name: np.concatenate([np.atleast_1d(r[name]) for r in results]) for name in names}


def _rows(places: Places, parts: list[np.ndarray]) -> Rows:
    return Rows(places.images, places.positions, np.concatenate(parts))


def _split_clamps(graph: Graph, nodes: Sequence[Node]) -> tuple[Graph, dict[str, str]]:
    """A graph where the outputs of these nodes can be read before their clamp, and the names to read."""
    names = {node.outputs[0] for node in nodes if graph[node.outputs[0]].clamp}
    values, result = dict(graph.values), []
    for node in graph.nodes:
        out = node.outputs[0]
        if out not in names:
            result.append(node)
            continue
        pre = f"{out}.pre"
        values[pre] = replace(graph[out], name=pre, clamp=None)
        result.append(replace(node, outputs=(pre,)))
        result.append(requantize(pre, pre, out))
    before = {
        node.outputs[0]: f"{node.outputs[0]}.pre" if node.outputs[0] in names else node.outputs[0] for node in nodes
    }
    return replace(graph, nodes=tuple(result), values=values), before
