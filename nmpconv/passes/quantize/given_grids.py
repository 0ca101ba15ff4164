"""The grids of a model that was quantized before, kept: its integers are those of the file (`--faithful`).

1. Where data moves from one of its grids to another, as in a Concat, a requantize rounds as the model does.
2. A tensor on a grid of int8, or of uint8 whose zero point an origin takes up (`offsets`), has 8 bits. Where ops around
   it leave no room for that origin, it has 16 bits of the same step, and saturates where the model does.
3. A step that is no power of two becomes the nearest; the next one where that does not hold what was seen.
4. Tensors that the model has no grid for have 16 bits.
5. Weights on a grid of 8 bits have 8 bits, as ever. Those that only 16 bits hold, as of uint8 with a zero point, have
   16, and so have those that are on no grid.
6. Where asked for, layers, sums and means have 16 bits and finer steps before they are rounded (`finer_sums`).
7. Of 8 bits that go to a grid with steps that are 2, 4, ... times as long, many are ties. The model rounds them to
   even: a table of all integers does so, too, and is next to nothing off the identity in float.
8. A table of 8 bits rounds ties to even, too: those that float32 has, as of a HardSigmoid. A product of a table and of
   what it reads, as a SiLU is, is a table that rounds twice, as the model does.
9. A float tensor that goes to several grids is computed on each of them; where its op only moves data, or cannot
   saturate as the grid does, it has 16 bits, and is rounded to each. An input has one grid, and goes to others from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Given, Graph, Node, Preprocess, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.traits import Origins
from nmpconv.ops.op import Op
from nmpconv.ops.requantize import requantize
from nmpconv.passes.quantize import finer_sums, given_tables, offsets, scaled_means
from nmpconv.passes.quantize.exponents import GIVEN
from nmpconv.passes.quantize.finer_sums import NEAR, SAME, lowest_bits
from nmpconv.passes.quantize.overrides import Choices, Row, Said
from nmpconv.passes.quantize.shared_grids import grid_groups
from nmpconv.passes.rewrite import MOVES


class Kept(NamedTuple):
    """A float graph with the model's grids. stats, bits: of its activations. choices: grids by name."""

    graph: Graph
    stats: dict[str, TensorStats]
    bits: Mapping[str, int]
    choices: Choices


def run(graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], fine_sums: bool) -> Kept:
    """stats, bits: of the activations, as calibration saw them and as they would be chosen. fine_sums: case 6."""
    graph, forked = _forked(scaled_means.as_convolutions(graph, _moved(graph)) if fine_sums else graph)
    plain, copies = _requantized(graph)
    copies |= forked
    stats = {**stats, **{name: stats[x] for name, x in copies.items()}}
    bits = {**bits, **{name: bits[x] for name, x in copies.items()}}
    known = _known(plain)
    wishes = {name: _origin(grid, _exponent(grid, stats[name])) for name, grid in known.items()}
    narrow, wide = set(known), set[str]()
    without = set[str]()  # beside products, which take up no origins where there are 16 bits
    while True:  # a table, unlike a requantize, takes up two origins; one of 16 bits would not be exact
        graph = given_tables.rounded(plain, known, narrow)
        asked = {name: wishes[name] for name in _sums_first(graph) if name in wishes and name not in without}
        origins = offsets.wished(graph, dict.fromkeys(without, 0.0) | asked)
        wide = {name for name, grid in known.items() if not _fits(grid, wishes[name], origins.get(name, 0.0))}
        rows = _tensors(graph, known, stats, wide)
        beside = offsets.wide_products(graph, {name: row["bits"].value for name, row in rows.items()})
        more = {name for pair in beside for name in pair if name in origins} - without
        if narrow.isdisjoint(wide) and not more:
            break
        narrow -= wide
        without |= more
    choices = Choices(rows, _weights(graph))
    clamped = [name for name in wide if name in known and not known[name].dtype.endswith("16")]
    graph, stats, bits = offsets.with_origins(_saturating(graph, known, clamped), stats, bits, origins)
    if fine_sums:
        finer = finer_sums.refine(graph, stats, bits, rows, _moved(graph))
        graph, stats, bits, choices = finer.graph, finer.stats, finer.bits, choices.over(Choices(finer.rows))
    return Kept(graph, dict(stats), bits, choices)


def of_sources(graph: Graph) -> Graph:
    """The graph as it was imported, with the grids also at tensors that only a move of data stands between and one of
    them: passes leave out moves, with the names that have the grids."""
    return replace(graph, given={**_moved(graph), **graph.given})


def of_rounded(graph: Graph) -> Graph:
    """The graph without the grids of tensors that are also read before a requantize rounds them to these."""
    users, grids = graph.consumers(), graph.given
    apart = {
        node.inputs[0]
        for node in graph.nodes
        if node.op == "requantize" and node.outputs[0] in grids and grids[node.outputs[0]] == grids.get(node.inputs[0])
    }
    floats = {name for name in apart if name in graph.outputs or any(user.op != "requantize" for user in users[name])}
    return replace(graph, given={name: grid for name, grid in grids.items() if name not in floats})


def holds_pixels(grid: Given, how: Preprocess) -> bool:
    """Checks that what preprocessing makes of each pixel is on the grid."""
    channels = max(len(how.mean), len(how.std))
    steps = how.to_model(np.arange(256.0)[:, np.newaxis].repeat(channels, 1)) / grid.scale + grid.zero_point
    ends = np.iinfo(grid.dtype)
    whole = np.abs(steps - np.rint(steps)).max() < NEAR
    return bool(whole and ends.min <= np.rint(steps.min()) and np.rint(steps.max()) <= ends.max)


def _requantized(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Case 1. Returns the tensors that are new, and what they are made of."""
    grids = _moved(graph)
    nodes: list[Node] = []
    copies: dict[str, str] = {}
    for node in graph.nodes:
        out, names = node.outputs[0], list(node.inputs)
        if OPS[node.op].grid == "same" and out in grids:
            for i, name in OPS[node.op].moved([*enumerate(names)]):
                if graph[name].is_const or grids.get(name, grids[out]) == grids[out]:
                    continue
                names[i] = f"{node.name}.input{i}"
                copies[names[i]] = name
                grids[names[i]] = grids[out]
                nodes.append(requantize(names[i], name, names[i]))
        elif OPS[node.op].grid == "same" and (read := [x for x in OPS[node.op].moved(node.inputs) if x in grids]):
            grids.update(dict.fromkeys(node.outputs, grids[read[0]]))
        nodes.append(replace(node, inputs=tuple(names)))
    fresh = [replace(graph[name], name=copy, clamp=None, observed=None) for copy, name in copies.items()]
    copied = {copy: grids[copy] for copy in copies}
    return replace(graph.with_values(*fresh), nodes=tuple(nodes), given={**graph.given, **copied}), copies


def _forked(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Case 9. Returns the tensors that are new, and whose numbers they have."""
    producers = graph.producers()
    forks = {node.outputs[0] for node in graph.nodes if node.inputs[0] in producers and graph.forks(node)}
    names: dict[str, str] = {}
    nodes, fresh = [], []
    for node in graph.nodes:
        x, y = node.inputs[0], node.outputs[0]
        if y in forks and _can_repeat(OPS[producers[x].op], graph[y]):
            node = replace(producers[x], name=node.name, outputs=node.outputs)
            fresh.append(replace(graph[y], clamp=_narrower(graph[x].clamp, graph[y].clamp)))
        elif y in forks:
            names[x] = f"{x}.float"
            node = replace(node, inputs=(names[x],))
        nodes.append(node)
    for x, name in names.items():
        at = nodes.index(producers[x])
        outputs = tuple(name if output == x else output for output in producers[x].outputs)
        nodes[at : at + 1] = [replace(producers[x], outputs=outputs), requantize(name, name, x)]
        fresh += [replace(graph[x], name=name), replace(graph[x], clamp=None)]
    return replace(graph.with_values(*fresh), nodes=tuple(nodes)), {name: x for x, name in names.items()}


def _can_repeat(op: Op, y: Value) -> bool:
    """Checks that the op can have this result, on a grid of its own."""
    return op.grid == "free" and (op.clamps or y.clamp is None)


def _narrower(first: tuple[float, float] | None, second: tuple[float, float] | None) -> tuple[float, float] | None:
    if first is None or second is None:
        return first or second
    return max(first[0], second[0]), min(first[1], second[1])


def _moved(graph: Graph) -> dict[str, Given]:
    """The grids of activations, and of those that only a move of data stands between and one of them."""
    grids, users = _known(graph), graph.consumers()
    for node in reversed(graph.nodes):
        if OPS[node.op].grid == "same" and not OPS[node.op].joins and node.outputs[0] in grids:
            for name in OPS[node.op].moved(node.inputs):
                if len(users[name]) == 1:
                    grids.setdefault(name, grids[node.outputs[0]])
    return grids


def _known(graph: Graph) -> dict[str, Given]:
    """The grids of activations; not those of raw pixels and of integers that the model takes or returns."""
    ports = graph.plain_ports()
    names = {value.name for value in graph.activations()}
    return {
        name: grid
        for name, grid in graph.given.items()
        if name in names and name not in ports and name not in graph.pixels
    }


def _exponent(grid: Given, stats: TensorStats) -> int:
    """Case 3."""
    exact = math.log2(grid.scale)
    nearest = math.floor(exact + 0.5)
    if nearest >= exact - SAME:
        return nearest
    shrunk = 2.0**nearest / grid.scale
    return nearest if grid.min * shrunk <= stats.min and stats.max <= grid.max * shrunk else nearest + 1


def _origin(grid: Given, exponent: int) -> float:
    """The real number that the middle of the type stands for; 0 where 8 bits hold all that is left of the type."""
    if grid.min >= INT_MIN[8] * grid.scale and grid.max <= INT_MAX[8] * grid.scale:
        return 0.0
    middle = (int(np.iinfo(grid.dtype).min) + int(np.iinfo(grid.dtype).max) + 1) // 2
    return math.ldexp(float(middle - grid.zero_point), exponent)


def _sums_first(graph: Graph) -> list[str]:
    """All activations. What a sum needs is for its operands to give: those of the sum itself are read by more."""
    kinds = {node.outputs[0]: _kind(graph, node) for node in graph.nodes}
    names = [value.name for value in graph.activations()]
    return sorted(names, key=lambda name: kinds.get(name) not in (Origins.SUM, Origins.DIFFERENCE))


def _kind(graph: Graph, node: Node) -> Origins:
    return OPS[node.op].origins(node.params, graph.ins(node), graph[node.outputs[0]])


def _fits(grid: Given, wish: float, origin: float) -> bool:
    """Checks that 8 bits hold the grid: it has no more, and its zero point is taken up."""
    return np.iinfo(grid.dtype).bits == 8 and wish == origin


def _tensors(
    graph: Graph, known: Mapping[str, Given], stats: Mapping[str, TensorStats], wide: set[str]
) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for group in grid_groups(graph):
        on_grids = [name for name in group if name in known]
        row = {"bits": Said(8 if on_grids and wide.isdisjoint(group) else 16, GIVEN, exact=False)}
        if on_grids:
            exponent = max(_exponent(known[name], stats[name]) for name in on_grids)
            row["exponent"] = Said(exponent, GIVEN, exact=False)
        rows.update(dict.fromkeys(group, row))
    return rows


def _weights(graph: Graph) -> dict[str, Row]:
    """Case 5."""
    by_node: dict[str, Row] = {}
    for node in graph.nodes:
        data = graph[node.inputs[1]].data if node.op in WEIGHTED else None
        if data is None:
            continue
        rows = data.astype(np.float64).reshape(len(data), -1)
        if not _are_integers(rows, 8) and (_are_integers(rows, 16) or not _are_on_a_grid(rows)):
            by_node[node.name] = {"weight_bits": Said(16, GIVEN, exact=False)}
    return by_node


def _are_on_a_grid(weights: np.ndarray) -> bool:
    """Checks weights [O, N] for a step in each row, of any size, of which they are at most 255 times."""
    left = np.abs(weights).max(axis=1, keepdims=True) > 0
    scaled = weights / np.where(left, np.abs(weights).max(axis=1, keepdims=True), 1.0)
    done = ~left[:, 0]
    for most in range(1, 256):
        steps = scaled * most
        done |= np.abs(steps - np.rint(steps)).max(axis=1, initial=0.0) < NEAR
    return bool(done.all())


def _are_integers(weights: np.ndarray, bits: int) -> bool:
    """Checks weights [O, N] for a power of two in each row that makes them integers of so many bits."""
    least = lowest_bits(weights).min(axis=1, keepdims=True)
    steps = np.ldexp(weights, -least)
    return bool((steps.min(initial=0) >= INT_MIN[bits]) and (steps.max(initial=0) <= INT_MAX[bits]))


def _saturating(graph: Graph, known: Mapping[str, Given], names: list[str]) -> Graph:
    """The graph in which these tensors saturate where their grids end, if what makes them, before they are moved, can;
    inputs are fed so."""
    makers, users = graph.producers(), graph.consumers()
    values = []
    for name in names:
        source = name
        while source in makers and makers[source].op in MOVES and len(users[makers[source].inputs[0]]) == 1:
            source = makers[source].inputs[0]
        if source in makers and OPS[makers[source].op].clamps:
            clamp = _narrower(graph[source].clamp, (known[name].min, known[name].max))
            values.append(replace(graph[source], clamp=clamp))
    return graph.with_values(*values)
