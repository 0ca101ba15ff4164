"""The grids of a model that was quantized before, kept: its integers are those of the file (`--faithful`).

1. Where data moves from one of its grids to another, as in a Concat, a requantize rounds as the model does.
2. A tensor on a grid of int8, or of uint8 whose zero point an origin takes up (`offsets`), has 8 bits. Where ops around
   it leave no room for that origin, it has 16 bits of the same step, and saturates where the model does.
3. A step that is no power of two becomes the nearest; the next one where that does not hold what was seen.
4. Tensors that the model has no grid for have 16 bits.
5. Weights on a grid of 8 bits have 8 bits, as ever. Those that only 16 bits hold, as of uint8 with a zero point, have
   16, and so have those that are on no grid.
6. Where asked for, a layer whose biases are no integers on the output's grid has an output of 16 bits and finer steps,
   and a requantize rounds it to the model's grid: biases then lose next to nothing. They are half a finer step less:
   two roundings upwards are too many, and down and up is one. A sum of two tensors of 8 bits, or a mean of 2, 4, ...
   elements, has 16 bits where many of its results are ties, and a table of all of them rounds these to even.
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
from nmpconv.ops.average_pool import AveragePoolParams
from nmpconv.ops.common.even_tables import TOWARDS_16, ties_to_even
from nmpconv.ops.common.traits import Origins
from nmpconv.ops.lookup import FINEST
from nmpconv.ops.op import Op
from nmpconv.ops.requantize import requantize
from nmpconv.passes.quantize import given_tables, offsets
from nmpconv.passes.quantize.exponents import GIVEN
from nmpconv.passes.quantize.overrides import Choices, Row, Said
from nmpconv.passes.quantize.shared_grids import grid_groups
from nmpconv.passes.rewrite import MOVES

INT16_FINER = 8  # bits that 16 of them have below a grid of 8
FINER_MOST = 12  # bits below a step that sums of 16 bits have
SAME = 2.0**-20  # of a step: how much less is no difference
NEAR = 2.0**-12  # of a step: what float32 leaves of a multiple of it


class Kept(NamedTuple):
    """A float graph with the model's grids. stats, bits: of its activations. choices: grids by name."""

    graph: Graph
    stats: dict[str, TensorStats]
    bits: Mapping[str, int]
    choices: Choices


def run(graph: Graph, stats: Mapping[str, TensorStats], bits: Mapping[str, int], fine_sums: bool) -> Kept:
    """stats, bits: of the activations, as calibration saw them and as they would be chosen. fine_sums: case 6."""
    graph, forked = _forked(graph)
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
        graph, stats, bits, fine = _with_fine_sums(Kept(graph, dict(stats), bits, choices))
        choices = choices.over(fine)
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


def _with_fine_sums(model: Kept) -> Kept:
    """Case 6. Returns the choices for the finer sums alone."""
    graph, rows = model.graph, model.choices.tensors
    grids = _moved(graph)  # a Transpose may stand between a layer and its grid
    nodes: list[Node] = []
    results: dict[str, str] = {}
    tables: list[str] = []
    biases: list[Value] = []
    fine: dict[str, Row] = {}
    for node in graph.nodes:
        out, row = node.outputs[0], rows.get(node.outputs[0], {})
        name, known = f"{node.name}.sum", out in grids and "exponent" in row
        if known and node.op in WEIGHTED and not _are_whole(graph, node, row["exponent"].value):
            finer, rounds = _finer(grids[out], graph[out].origin, row["exponent"].value), requantize(name, name, out)
            x, weights, bias, *more = node.inputs
            biases.append(_less(graph[bias], math.ldexp(0.5, row["exponent"].value - finer), f"{name}.bias"))
            node = replace(node, inputs=(x, weights, biases[-1].name, *more))
        elif known and grids[out].is_power and (below := _bits_below(graph, node, rows)):
            finer, rounds = INT16_FINER, _rounds_to_even(graph, node, grids[out], below)
            tables.append(out)
        else:
            nodes.append(node)
            continue
        results[name] = out
        fine[name] = {
            "bits": Said(16, GIVEN, exact=False),
            "exponent": Said(row["exponent"].value - finer, GIVEN, exact=False),
        }
        nodes += [replace(node, outputs=(name,)), rounds]
    plain = [replace(graph[out], clamp=None) for out in tables]
    graph = replace(
        graph.with_values(*(replace(graph[out], name=name) for name, out in results.items()), *plain, *biases),
        nodes=tuple(nodes),
    )
    stats = {**model.stats, **{name: model.stats[out] for name, out in results.items()}}
    return Kept(graph, stats, {**model.bits, **dict.fromkeys(results, 16)}, Choices(fine))


def _less(bias: Value, amount: float, name: str) -> Value:
    assert bias.data is not None
    return replace(bias, name=name, data=bias.data - np.float32(amount))


def _finer(grid: Given, origin: float, exponent: int) -> int:
    """By how many bits 16 of them hold finer steps than a tensor's, from end to end of its grid in the model."""
    far = max(abs(grid.min - origin), abs(grid.max - origin))
    return min(max(15 - math.ceil(math.log2(far) - exponent - SAME), 0), FINER_MOST)


def _bits_below(graph: Graph, node: Node, rows: Mapping[str, Row]) -> int:
    """Bits that results of a sum or mean have below the steps of the output; 0 where a table has no room for them, or
    few of them are ties, as of a mean of other counts than 2, 4, ...: its rounding would only be done twice."""
    ports = [rows.get(name, {}) for name in (*node.outputs, *node.inputs)]
    if any("exponent" not in row or row["bits"].value != 8 for row in ports):
        return 0
    exponent, *operands = (row["exponent"].value for row in ports)
    below = exponent - min(operands)
    if isinstance(node.params, AveragePoolParams):
        count = node.params.kernel_h * node.params.kernel_w
        if count & (count - 1):
            return 0
        below += count.bit_length() - 1
    elif _kind(graph, node) not in (Origins.SUM, Origins.DIFFERENCE):
        return 0
    return below if 0 < below <= FINEST - INT16_FINER else 0


def _rounds_to_even(graph: Graph, node: Node, grid: Given, below: int) -> Node:
    """The table of a sum with so many bits below the grid; it has a sample at each of its results."""
    name, out = f"{node.name}.sum", node.outputs[0]
    low, high = graph[out].clamp or (-math.inf, math.inf)
    shift = graph[out].origin
    return ties_to_even(
        *(name, name, out, grid.scale, (max(low + shift, grid.min), min(high + shift, grid.max)), TOWARDS_16),
        origin_x=shift,
        origin_y=shift,
        coarsest=INT16_FINER + below,
    )


def _are_whole(graph: Graph, node: Node, exponent: int) -> bool:
    """Checks that the biases are integers on the output's grid."""
    bias = graph[node.inputs[2]].data
    assert bias is not None
    steps = np.ldexp(bias.astype(np.float64), -exponent)
    return bool(np.abs(steps - np.rint(steps)).max(initial=0.0) < NEAR)


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
    mantissas, exponents = np.frexp(weights)
    whole = np.ldexp(mantissas, 24).astype(np.int64)  # float32 has 24 bits
    low = np.where(whole == 0, 2**24, whole & -whole)
    least = np.where(weights == 0, 999, exponents - 24 + np.log2(low).astype(np.int64)).min(axis=1, keepdims=True)
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
