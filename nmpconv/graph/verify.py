"""Rules of each stage, as tables. After every pass the rules of its stage are checked.

FLOAT    a well-formed graph of float32 values without grids.
RANGED   every activation has its observed range and its grid; values are still float32.
INT      integers only: every value has a grid, constants lie on theirs, and shifts are what the runtime can do.
PLANNED  as INT, and every activation has a place in the arena that nothing else claims while it is needed.

A rule is a function from a graph to what breaks it: (node or value, what is wrong). A broken rule is a bug of the pass.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator

from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, INT_MIN, RANK_MAX
from nmpconv.errors import VerifyError
from nmpconv.ir import ARENA_ALIGN, FLOAT, Graph, Node, Quant, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.traits import Limit, Origins
from nmpconv.ops.op import quant_of

Broken = Iterator[tuple[str, str]]
Rule = Callable[[Graph], Broken]


def verify(graph: Graph, stage: str, pass_name: str) -> None:
    """stage: FLOAT, RANGED, INT or PLANNED. Raises VerifyError with pass, rule and node or value of the first break."""
    for name, rule in RULES[stage].items():
        for about, wrong in rule(graph):
            raise VerifyError(f"after {pass_name} ({stage}), rule '{name}': {wrong}", where=about)


# -- every stage ------------------------------------------------------------------------------------------------------


def _unique_names(graph: Graph) -> Broken:
    nodes: set[str] = set()
    values = set(graph.inputs)
    for node in graph.nodes:
        if node.name in nodes:
            yield node.name, "two nodes have this name"
        nodes.add(node.name)
        for out in node.outputs:
            if out in values:
                yield node.name, f"its output '{out}' is an input of the graph or of another node's making"
            values.add(out)
    for key, value in graph.values.items():
        if key != value.name:
            yield key, f"the value is called '{value.name}'"


def _known_values(graph: Graph) -> Broken:
    for name in (*graph.inputs, *graph.outputs):
        if name not in graph.values:
            yield name, "an input or output of the graph that is not among its values"
    for node in graph.nodes:
        for name in (*node.inputs, *node.outputs):
            if name not in graph.values:
                yield node.name, f"its value '{name}' does not exist"
    for name in (*graph.pixels, *graph.preprocess):
        if name not in graph.inputs:
            yield name, "has preprocessing but is not an input of the graph"


def _states(graph: Graph) -> Broken:
    for name, state in graph.states.items():
        if name not in graph.inputs or state.output not in graph.outputs:
            yield name, f"it is to take over '{state.output}'; a state is an input that takes over an output"
        elif name in graph.pixels:
            yield name, "a state that is fed with pixels"
        elif _kind(graph[name]) != _kind(graph[state.output]):
            yield name, f"it is {_kind(graph[name])}, what it takes over is {_kind(graph[state.output])}"


def _kind(value: Value) -> tuple[object, ...]:
    """Properties that a state and its output have in common, in every stage."""
    quant = value.quant
    return (value.shape, value.dtype, value.origin, *(() if quant is None else quant.grid))


def _produced_before_use(graph: Graph) -> Broken:
    known = set(graph.inputs) | {name for name, value in graph.values.items() if value.is_const}
    for node in graph.nodes:
        for name in node.inputs:
            if name not in known:
                yield node.name, f"it reads '{name}' before that is computed"
        known.update(node.outputs)
    for name in graph.outputs:
        if name not in known or graph[name].is_const:
            yield name, "an output of the graph that no node computes"


def _constants_have_no_producer(graph: Graph) -> Broken:
    for value in graph.activations():
        if value.is_const:
            yield value.name, "a constant that is also computed or fed"


def _params(graph: Graph) -> Broken:
    for node in graph.nodes:
        if node.op not in OPS:
            yield node.name, f"there is no op '{node.op}'"
        elif type(node.params) is not OPS[node.op].Params:
            yield node.name, f"{node.op} has params of type {type(node.params).__name__}"


def _operands(graph: Graph) -> Broken:
    for node in graph.nodes:
        if wrong := OPS[node.op].misfit(node.params, graph.ins(node)):
            yield node.name, wrong


def _shapes(graph: Graph) -> Broken:
    for name, value in graph.values.items():
        if len(value.shape) > RANK_MAX or min(value.shape, default=1) < 1:
            yield name, f"shape {value.shape}: at most {RANK_MAX} axes, all of at least 1"
    for node in graph.nodes:
        inferred = OPS[node.op].infer(node.params, graph.ins(node))
        shapes = [value.shape for value in graph.outs(node)]
        if inferred != shapes:
            yield node.name, f"its outputs have shapes {shapes}, {node.op} makes {inferred}"


def _data(graph: Graph) -> Broken:
    for name, value in graph.values.items():
        if value.data is not None and (value.data.dtype != value.dtype or value.data.shape != value.shape):
            yield name, f"{value.dtype}{list(value.shape)} with data {value.data.dtype.name}{list(value.data.shape)}"


def _clamps(graph: Graph) -> Broken:
    saturating = {out for node in graph.nodes if OPS[node.op].clamps for out in node.outputs}
    for name, value in graph.values.items():
        if value.clamp is None:
            continue
        if name not in saturating:
            yield name, "it has a clamp, but what makes it cannot saturate"
        if not value.clamp[0] <= value.clamp[1]:
            yield name, f"clamp {value.clamp} is empty"


def _origins(graph: Graph) -> Broken:
    moved = {name for name, value in graph.values.items() if value.origin}
    for node in graph.nodes:
        if moved.isdisjoint(node.inputs) and moved.isdisjoint(node.outputs):
            continue
        kind = OPS[node.op].origins(node.params, graph.ins(node), graph[node.outputs[0]])
        origins = [value.origin for value in graph.ins(node) if not value.is_const]
        near = 1e-9 * max(map(abs, origins), default=0.0)  # sums may cancel
        for y in (value.origin for value in graph.outs(node)):
            wanted = {
                Origins.NONE: [0.0] * len(origins) + [0.0],
                Origins.ALIKE: [*origins[:1] * len(origins), *origins[:1]],
                Origins.SUM: [*origins, sum(origins)],
                Origins.DIFFERENCE: [*origins, origins[0] - sum(origins[1:])],
                Origins.RESULT: [0.0] * len(origins) + [y],
                Origins.PRODUCT: [*origins[:1], *[0.0] * len(origins[1:]), y],
                Origins.ANY: [*origins, y],
            }[kind]
            if not all(
                math.isclose(a, b, rel_tol=1e-6, abs_tol=near) for a, b in zip([*origins, y], wanted, strict=True)
            ):
                yield node.name, f"origins {origins} of its operands and {y} of its result: {kind.value}"


# -- FLOAT and RANGED -------------------------------------------------------------------------------------------------


def _all_float(graph: Graph) -> Broken:
    for name, value in graph.values.items():
        if value.dtype != FLOAT:
            yield name, f"it is {value.dtype} before quantization"


def _no_grids(graph: Graph) -> Broken:
    for name, value in graph.values.items():
        if value.quant is not None or value.offset is not None:
            yield name, "it has a grid or an offset before calibration"


def _observed(graph: Graph) -> Broken:
    for value in graph.activations():
        if value.observed is None:
            yield value.name, "it has no observed range"


def _activation_grids(graph: Graph) -> Broken:
    for value in graph.activations():
        quant = value.quant
        if quant is None:
            yield value.name, "it has no grid"
        elif quant.bits not in (8, 16) or len(quant.exponents) != 1:
            yield (
                value.name,
                f"{quant.bits} bits, {len(quant.exponents)} exponents; activations have 8 or 16 bits and one",
            )
        else:
            yield from _grid(value, quant)


def _grid(value: Value, quant: Quant) -> Broken:
    if not all(EXPONENT_MIN <= e <= EXPONENT_MAX for e in quant.exponents):
        yield value.name, f"exponents {quant.exponents} are not all in [{EXPONENT_MIN}, {EXPONENT_MAX}]"
    if not INT_MIN[quant.bits] <= quant.lo <= quant.hi <= INT_MAX[quant.bits]:
        yield value.name, f"[{quant.lo}, {quant.hi}] is no range of {quant.dtype}"
    if quant.axis is not None and not 0 <= quant.axis < len(value.shape):
        yield value.name, f"exponents along axis {quant.axis} of {len(value.shape)}"
    elif len(quant.exponents) != (1 if quant.axis is None else value.shape[quant.axis]):
        yield value.name, f"{len(quant.exponents)} exponents along axis {quant.axis} of {value.shape}"


# -- INT --------------------------------------------------------------------------------------------------------------


def _all_integer(graph: Graph) -> Broken:
    for name, value in graph.values.items():
        if value.quant is None:
            yield name, "it has no grid"
        elif value.dtype != value.quant.dtype:
            yield name, f"it is {value.dtype} with {value.quant.bits} bits"
        else:
            yield from _grid(value, value.quant)


def _data_in_range(graph: Graph) -> Broken:
    for name, value in graph.values.items():
        if value.data is not None and value.size:
            quant, lo, hi = quant_of(value), int(value.data.min()), int(value.data.max())
            if lo < quant.lo or hi > quant.hi:
                yield name, f"its data is in [{lo}, {hi}], its grid in [{quant.lo}, {quant.hi}]"


def _bias_on_output_grid(graph: Graph) -> Broken:
    for node in _weighted(graph):
        bias, out = quant_of(graph[node.inputs[2]]), quant_of(graph[node.outputs[0]])
        if bias.exponents != out.exponents:
            yield node.name, f"bias exponents {bias.exponents}, output's {out.exponents}"


def _padding_on_input_grid(graph: Graph) -> Broken:
    for node in graph.nodes:
        at = OPS[node.op].border
        if at is not None and len(node.inputs) > at:
            x, pad = quant_of(graph[node.inputs[0]]), quant_of(graph[node.inputs[at]])
            if x.grid != pad.grid:
                yield node.name, f"padding is on {_short(pad)}, the input on {_short(x)}"


def _one_grid(graph: Graph) -> Broken:
    for node in graph.nodes:
        if OPS[node.op].grid == "same":
            out = quant_of(graph[node.outputs[0]])
            for value in OPS[node.op].moved(graph.ins(node)):
                quant = quant_of(value)
                if quant.grid != out.grid:
                    yield node.name, f"'{value.name}' is on {_short(quant)}, the output on {_short(out)}"


def _weight_widths(graph: Graph) -> Broken:
    for node in _weighted(graph):
        weights = quant_of(graph[node.inputs[1]])
        if weights.bits not in (8, 16) or weights.axis not in (None, 0):
            yield node.name, f"weights of {weights.bits} bits along axis {weights.axis}; 8 or 16, along outputs"


def _shifts(graph: Graph) -> Broken:
    for node in graph.nodes:
        low, high = OPS[node.op].exponents
        limits = (Limit(quant_of(graph[node.outputs[0]]).exponent, low, high), *OPS[node.op].limits(node, graph))
        for limit in limits:
            if not limit.least <= limit.value <= limit.most:
                yield (
                    node.name,
                    f"shift or exponent difference {limit.value} is not in [{limit.least}, {limit.most}]",
                )


def _weighted(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.nodes if node.op in WEIGHTED)


def _short(quant: Quant) -> str:
    return f"int{quant.bits} * 2^{','.join(map(str, quant.exponents))}"


# -- PLANNED ----------------------------------------------------------------------------------------------------------


def _places(graph: Graph) -> Broken:
    for value in graph.activations():
        if value.offset is None or value.offset < 0 or value.offset % ARENA_ALIGN:
            yield value.name, f"offset {value.offset}; it is a multiple of {ARENA_ALIGN}"


def _memories(graph: Graph) -> Broken:
    """A tensor lies in one memory, and an op's scratch in what is free of the fast one."""
    for value in graph.activations():
        if (value.offset or 0) < graph.fast_bytes < (value.offset or 0) + value.nbytes:
            yield value.name, f"it lies on the end of the fast memory, at {graph.fast_bytes}"
    lives = graph.lifetimes() if graph.rooms else {}
    for i, node in enumerate(graph.nodes):
        start, room = graph.rooms.get(node.name, (0, 0))
        if start % ARENA_ALIGN or start + room > graph.fast_bytes:
            yield node.name, f"its scratch from {start} to {start + room} is not in the fast memory, or not aligned"
        for name, (first, last) in lives.items() if room else ():
            value = graph[name]
            if first <= i <= last and start < (value.offset or 0) + value.nbytes and (value.offset or 0) < start + room:
                yield node.name, f"its scratch lies over '{name}'"


def _intact(graph: Graph) -> Broken:
    """Runs the graph on the arena's extents: what is read has been written and not been overwritten since."""
    intact = _Extents()
    for name in graph.inputs:
        for other in intact.write(graph[name]):
            yield name, f"it overlaps the input '{other}'"
    for node in graph.nodes:
        inputs = [value for value in graph.ins(node) if not value.is_const]
        out = graph[node.outputs[0]]
        for value in inputs:
            if value.name not in intact:
                yield node.name, f"its input '{value.name}' is overwritten before"
            if _overlap(value, out) and not _may_overlap(graph, node, value):
                yield node.name, f"its output overlaps its input '{value.name}'"
        intact.write(out)
    for name in graph.outputs:
        if name not in intact:
            yield name, "the output is overwritten before the end"


def _states_apart(graph: Graph) -> Broken:
    """After the last op a state takes over its output, and the outputs are still there."""
    for name, state in graph.states.items():
        for out in graph.outputs:
            same = out == state.output and graph[out].offset == graph[name].offset
            if _overlap(graph[name], graph[out]) and not same:
                yield name, f"the state overlaps the output '{out}'"


class _Extents:
    """Tensors that hold what was written. They lie apart, so that their starts are in the order of their ends."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._values: list[tuple[int, str]] = []  # end, name
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def write(self, value: Value) -> list[str]:
        """The names of what it overwrites, wholly or in part."""
        assert value.offset is not None
        start, end = value.offset, value.offset + value.nbytes
        first = bisect_left(self._starts, start)
        if first > 0 and self._values[first - 1][0] > start:
            first -= 1
        last = bisect_left(self._starts, end)
        gone = [name for _, name in self._values[first:last]]
        self._starts[first:last] = [start]
        self._values[first:last] = [(end, value.name)]
        self._names.difference_update(gone)
        self._names.add(value.name)
        return gone


def _overlap(a: Value, b: Value) -> bool:
    assert a.offset is not None
    assert b.offset is not None
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def _may_overlap(graph: Graph, node: Node, x: Value) -> bool:
    """Exactly on the output of an op that works in place, where its lines go in order, or in each role where the output
    has this input anyway.
    """
    op, y = OPS[node.op], graph[node.outputs[0]]
    assert x.offset is not None
    assert y.offset is not None
    if op.in_place and x.name == node.inputs[0]:
        return (x.offset, x.nbytes, x.size) == (y.offset, y.nbytes, y.size)
    lines = op.lines(node.params, graph.ins(node), y) if x.name == node.inputs[0] else None
    if lines is not None:
        return lines.bands(y.offset - x.offset) is not None
    places = op.placed_inputs(node.params, graph.ins(node), y)
    mine = [place for place, name in zip(places, node.inputs, strict=True) if name == x.name]
    return all(place is not None and x.offset == y.offset + place * (x.nbytes // x.size) for place in mine)


# -- the tables -------------------------------------------------------------------------------------------------------

_STRUCTURE: dict[str, Rule] = {
    "names are unique": _unique_names,
    "values exist": _known_values,
    "produced before use": _produced_before_use,
    "constants are not computed": _constants_have_no_producer,
    "params are the op's": _params,
    "states go with outputs": _states,
    "operands fit": _operands,
    "shapes are inferred": _shapes,
    "data is of the type": _data,
    "clamps saturate": _clamps,
    "origins go together": _origins,
}
_INT: dict[str, Rule] = {
    **_STRUCTURE,
    "activations are observed": _observed,
    "everything is integer": _all_integer,
    "activations have one grid": _activation_grids,
    "data is in range": _data_in_range,
    "weights are 8 or 16 bits": _weight_widths,
    "bias is on the output's grid": _bias_on_output_grid,
    "padding is on the input's grid": _padding_on_input_grid,
    "data movement keeps the grid": _one_grid,
    "shifts are legal": _shifts,
}
RULES: dict[str, dict[str, Rule]] = {
    "FLOAT": {**_STRUCTURE, "values are float": _all_float, "no grids yet": _no_grids},
    "RANGED": {
        **_STRUCTURE,
        "values are float": _all_float,
        "activations are observed": _observed,
        "activations have one grid": _activation_grids,
    },
    "INT": _INT,
    "PLANNED": {
        **_INT,
        "offsets are aligned": _places,
        "nothing is overwritten": _intact,
        "states lie apart": _states_apart,
        "there are two memories at most": _memories,
    },
}
