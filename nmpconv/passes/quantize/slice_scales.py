"""Parts that an output joins, each multiplied by a power of two: each then has its own grid for the float model.

All tensors of a Concat share one grid, that of the largest. A detector's output has boxes in pixels beside scores below
1: on the grid of boxes up to 640 pixels, in steps of 1/32, scores would be a few integers.

1. An output is followed back, through Transposes and Reshapes that keep the axis, to a Concat; what is between is read
   by nothing else. A part that is such a Concat along the same axis gives its own parts.
2. Each part is multiplied by the largest power of two with which it still fits the grid of the largest part. It fits
   with all that it can be, where that is known: scores that calibration did not see reach 1.
3. The table or layer that makes a part takes up the factor, where only moves lie between and nothing else reads them.
   Elsewhere a Mul is put there, if that gains MARGIN bits.
4. What the factors are is told by `Value.shifts`. States, and what had a grid in the ONNX model, are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import numpy as np

from nmpconv.calib.exponent_search import span, top_exponent
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node, Shifts, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.mul import MulParams
from nmpconv.passes.bounds import is_finite, known
from nmpconv.passes.quantize.equalize import scale
from nmpconv.passes.rewrite import MOVES

MARGIN = 4  # bits; an op more for less would not pay


@dataclass(frozen=True)
class _Joined:
    """Parts, (Concat, input), that an output joins. wholes: the output, and what lies between it and the parts: the
    axis along which each is joined, and of which parts."""

    parts: tuple[tuple[Node, str], ...]
    wholes: Mapping[str, tuple[int, slice]]


def run(
    graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], alone: Collection[str] = ()
) -> tuple[Graph, dict[str, TensorStats], dict[str, int]]:
    """The float graph with the factors, its statistics and widths. alone: outputs that are left as they are."""
    stats, bits = dict(stats), dict(bits)
    uses = _Uses(graph)
    for output in graph.outputs:
        joined = None if output in alone else _joined(graph, uses, output)
        if joined is not None:
            graph, statistics = _shifted(graph, uses, stats, bits[output], joined)
            uses = _Uses(graph)
            stats |= statistics
            bits = {**dict.fromkeys(statistics, bits[output]), **bits}
    return graph, stats, bits


class _Uses:
    """The node that makes each tensor, and how often tensors are read."""

    def __init__(self, graph: Graph) -> None:
        self.makers = graph.producers()
        self.outputs = Counter(graph.outputs)
        self.reads = Counter(name for node in graph.nodes for name in node.inputs)

    def has_one_reader(self, name: str) -> bool:
        """Checks that one op reads it, and nobody else."""
        return self.reads[name] == 1 and not self.outputs[name]


def _joined(graph: Graph, uses: _Uses, output: str) -> _Joined | None:
    """Case 1."""
    makers = uses.makers
    path, name = list[Node](), output
    while name in makers and makers[name].op in MOVES and (name == output or uses.has_one_reader(name)):
        path.append(makers[name])
        name = makers[name].inputs[0]
    node = makers.get(name)
    alone = not uses.reads[output] and uses.outputs[output] == 1 and (name == output or uses.has_one_reader(name))
    if node is None or node.op != "concat" or not alone:
        return None
    wholes: dict[str, tuple[int, slice]] = {}
    parts = tuple(_parts(uses, node, wholes))
    for step in reversed(path):
        axis = _kept_axis(step, graph, wholes[step.inputs[0]][0])
        if axis is None:
            return None
        wholes[step.outputs[0]] = axis, slice(0, len(parts))
    known = graph.given.keys() & {*wholes, *(name for _, name in parts)}
    return None if known or wholes[output][0] == 0 else _Joined(parts, wholes)


def _kept_axis(node: Node, graph: Graph, axis: int) -> int | None:
    """Index of an axis after a Transpose or Reshape."""
    if node.op == "transpose":
        return list(node.params.perm).index(axis)
    before, after = (graph[name].shape for name in (node.inputs[0], node.outputs[0]))
    same = [i for i, dim in enumerate(after) if dim == before[axis] and prod(after[:i]) == prod(before[:axis])]
    return same[0] if same else None


def _parts(uses: _Uses, node: Node, wholes: dict[str, tuple[int, slice]], start: int = 0) -> Iterator[tuple[Node, str]]:
    """(Concat, input), start of them before; wholes gets what this Concat and those among its inputs make."""
    stop = start
    for name in node.inputs:
        maker = uses.makers.get(name)
        inner = maker is not None and maker.op == "concat" and maker.params.axis == node.params.axis
        parts = (
            _parts(uses, maker, wholes, stop) if maker and inner and uses.has_one_reader(name) else iter([(node, name)])
        )
        for part in parts:
            yield part
            stop += 1
    wholes[node.outputs[0]] = node.params.axis, slice(start, stop)


def _shifted(
    graph: Graph, uses: _Uses, stats: Mapping[str, TensorStats], bits: int, joined: _Joined
) -> tuple[Graph, dict[str, TensorStats]]:
    """Cases 2 to 4, and the statistics that changed."""
    names = [name for _, name in joined.parts]
    if any(graph[name].is_const for name in names) or len(set(names)) < len(names):
        return graph, {}
    gains = _gains({name: stats[name] for name in names}, graph, bits)
    regions = {name: _region(graph, uses, name) for name in gains}
    gains = {name: gain for name, gain in gains.items() if regions[name] or gain >= MARGIN}
    if not gains:
        return graph, {}
    folded = {member: gain for name, gain in gains.items() for member in regions[name]}
    channels = {value.name: value.shape[-1] if value.shape else 1 for value in graph.activations()}
    graph = scale(graph, {name: np.full(count, 2.0 ** folded.get(name, 0)) for name, count in channels.items()})
    graph = graph.with_values(*(replace(graph[name], shifts=Shifts((gain,))) for name, gain in folded.items()))
    statistics = {name: stats[name].scaled(2.0**gain) for name, gain in folded.items()}
    scaled, each = list[TensorStats](), list[tuple[int, ...]]()
    for concat, name in joined.parts:
        gain = gains.get(name, 0)
        seen = stats[name].scaled(2.0**gain)
        if gain and name not in folded:
            graph, product = _multiplied(graph, concat.name, name, gain)
            statistics[product] = seen
        scaled.append(seen)
        each.append((gain,) * graph[name].shape[concat.params.axis])
    shifts = {name: Shifts(tuple(chain(*each[of])), axis) for name, (axis, of) in joined.wholes.items()}
    graph = graph.with_values(*(replace(graph[name], shifts=own) for name, own in shifts.items()))
    for name, (axis, of) in joined.wholes.items():
        last = axis == len(graph[name].shape) - 1
        statistics[name] = _whole(scaled[of], stats[name], shifts[name].factors(axis + 1).ravel() if last else None)
    return graph, statistics


def _whole(parts: Sequence[TensorStats], own: TensorStats, factors: np.ndarray | None) -> TensorStats:
    """Statistics of a tensor that joins parts and had statistics of its own before; factors: by channel [C], None: not
    known."""
    merged = TensorStats()
    for part in parts:
        merged.merge(part)

    def times(seen: np.ndarray | None, power: int = 1) -> np.ndarray | None:
        if seen is None or factors is None or seen.shape != factors.shape:
            return None
        return np.asarray(seen * factors**power, seen.dtype)

    return replace(
        merged,
        samples=own.samples,
        channel_min=times(own.channel_min),
        channel_max=times(own.channel_max),
        channel_mean=times(own.channel_mean),
        peak_mean=times(own.peak_mean),
        peak_spread=times(own.peak_spread, 2),
    )


def _gains(stats: Mapping[str, TensorStats], graph: Graph, bits: int) -> dict[str, int]:
    """Case 2: how many bits finer than that of the largest part the grids of the others could be."""
    ends = {name: span(seen, bits, graph[name].clamp) for name, seen in stats.items()}
    tops = {name: top_exponent(limits, bits) for name, limits in ends.items() if any(limits)}
    top, bounds = max(tops.values(), default=0), known(graph, {})
    tops |= {name: top_exponent(bounds[name], bits) for name in tops if is_finite(bounds[name])}
    return {name: top - own for name, own in tops.items() if own < top}


def _region(graph: Graph, uses: _Uses, name: str) -> list[str]:
    """Case 3: the tensors from the part back to what takes up its factor; none where nothing does."""
    region = [name]
    while uses.has_one_reader(region[-1]):
        node = uses.makers.get(region[-1])
        if node is not None and node.op in (*WEIGHTED, "lookup"):
            return region
        if node is None or OPS[node.op].grid != "same" or len(node.inputs) != 1:
            break
        region.append(node.inputs[0])
    return []


def _multiplied(graph: Graph, concat: str, name: str, gain: int) -> tuple[Graph, str]:
    """Case 3: the graph with a Mul before the Concat, and the name of the product."""
    product, nodes = f"{concat}.{name}", list[Node]()
    factor = f"{product}.factor"
    for node in graph.nodes:
        if node.name == concat:
            nodes.append(Node("mul", product, (name, factor), (product,), MulParams()))
            node = replace(node, inputs=tuple(product if operand == name else operand for operand in node.inputs))
        nodes.append(node)
    shape = graph[name].shape
    constant = Value(factor, (1,) * len(shape), data=np.full((1,) * len(shape), 2.0**gain, np.float32))
    graph = replace(graph, nodes=tuple(nodes))
    return graph.with_values(constant, Value(product, shape, shifts=Shifts((gain,)))), product
