"""The exponent of every activation, from its calibrated statistics.

1. Raw pixels have exponent 0 (pixel - 128 is exact), and so have integers that the model takes or returns. So have
   inputs in steps of their own, which are whole numbers (`input_steps`). Outputs of some ops, as Softmax and Sigmoid,
   have a grid of their own, and so has what only moves their data, unless it brings constants that lie beyond. That
   grid is finer where twice of what was seen fits a finer one. Whole numbers that are computed from indices have room
   for all that they can be, and so have elements of a constant at computed places.
2. A group of tensors on one grid takes the exponent that is best for its members' merged statistics, with what is
   expected of samples that were not seen (`headroom`).
3. Everything else takes the best exponent for its own statistics. Where nothing but tables reads a tensor or a group,
   they are measured after the tables, each on what it reads (`tables`).

4. Scores have headroom (`score_headroom`).

An exponent or a method that was chosen by name goes before these.

A tensor beyond the coarsest grid is an error, unless a table reads it: that may be flat there.

What padding stands for (the fourth input of a convolution) counts as often as the convolution reads it.

A clamp becomes the saturation range of the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, INT_MIN
from nmpconv.calib.exponent_search import SATURATED, Range, Table, choose, smallest_exponent, span
from nmpconv.calib.histogram import Histogram
from nmpconv.calib.observers import OutOfRange, TensorStats
from nmpconv.calib.offset import less
from nmpconv.errors import InputError
from nmpconv.ir import Graph, Node, Observed, Quant, Value
from nmpconv.ops import OPS
from nmpconv.passes.bounds import whole
from nmpconv.passes.quantize import compressed, headroom, score_headroom, table_readers
from nmpconv.passes.quantize.balance import fewest_bits
from nmpconv.passes.quantize.matrix_form import pad_of
from nmpconv.passes.quantize.overrides import NOTHING, Choices, Said
from nmpconv.passes.quantize.shared_grids import grid_groups

GIVEN = "the model"  # place of choices that are a quantized model's own
BY_NAME = "recipe"  # the method of an exponent that was chosen by name, and is not what would have been chosen anyway
ROOM = 2.0  # for samples that were not seen, as 16 bits have
ROUNDING = 2.0**-10  # what float32 may make of a largest value


@dataclass(frozen=True)
class Method:
    """name: one of METHODS. percentile is of |x|, in percent."""

    name: str = "mse"
    percentile: float = 99.99

    @property
    def spoken(self) -> str:
        """Name of the method in files."""
        return "mse" if self.name in SATURATED else self.name

    @property
    def searches(self) -> bool:
        """Checks that it weighs what saturates against what is rounded."""
        return self.name == "mse" or self.name in SATURATED

    @property
    def saturated(self) -> float:
        """Weight of the square of an error of saturation."""
        return SATURATED.get(self.name, 1.0)


def run(
    graph: Graph,
    stats: Mapping[str, TensorStats],
    bits: Mapping[str, int],
    method: Method,
    choices: Choices = NOTHING,
) -> Graph:
    """Sets observed and quant of every activation."""
    fixed = _fixed(graph, bits)
    read = table_readers.alone(graph)
    padded = _padded(graph, stats)
    moved = {out for node in graph.nodes if table_readers.moves(node) for out in node.outputs}
    values: list[Value] = []
    numbers, chosen, ports = whole(graph), _chosen(graph), graph.plain_ports()
    groups, scores, quiet = grid_groups(graph), score_headroom.tensors(graph), compressed.tensors(graph)
    makers = {node.outputs[0]: node for node in graph.nodes}
    graph_outputs, narrow = set(graph.outputs), fewest_bits(graph, bits) == 8
    searched = [name for group in groups if _method(group, method, choices).searches for name in group]
    expected = {**stats, **headroom.expected(graph, stats, bits, searched, table_readers.after(graph))}
    for group in groups:
        width, origin = bits[group[0]], graph[group[0]].origin
        sources = {fixed.get(name) for name in group if name not in moved}
        known = sources.pop() if len(sources) == 1 else None
        whole_grid = any(name in graph.pixels or name in ports for name in group)
        known = 0 if whole_grid else known
        merged = TensorStats() if known is None else _merged({n: less(stats[n], origin) for n in group}, padded)
        if known is not None and (whole_grid or merged.peak <= math.ldexp(2.0 ** (width - 1), known) * (1 + ROUNDING)):
            exponent = known if whole_grid else max(_finer(known, merged, width), _least(makers, group))
            if width == 16 and not graph_outputs.isdisjoint(group):
                exponent = score_headroom.towards(known, exponent, merged, narrow=narrow)
            how = "fixed" if exponent == known else "max"
        else:
            by = _method(group, method, choices)
            stored = {name: less(expected[name], origin) for name in group}
            merged = _merged(stored, padded)
            # What only moves data has the same numbers, but other channels; padding and constants need no room.
            room = not quiet.issuperset(group)
            ends = [_span(graph[n], expected[n], width, room) for n in group if n not in moved or n in graph.inputs]
            ends.append((merged.min, merged.max) if merged.count else (0.0, 0.0))
            ends += [numbers[name] for name in group if name in numbers]
            ends += [chosen[name] for name in group if name in chosen]
            limits = (min(lo for lo, _ in ends), max(hi for _, hi in ends))
            after = [
                Table(function, stored[n], _span(graph[n], expected[n], width))
                for n in group
                for function in read.get(n, ())
            ]
            if not after:
                _check_reach(group, stats, width)
            exponent = choose(merged, width, by.name, percentile=by.percentile, tables=after, limits=limits)
            how = "max" if width == 16 else by.spoken  # 16 bits have headroom instead of a search
            if width == 16 and scores.issuperset(group) and merged.peak > 0:
                exponent = score_headroom.raised(exponent, merged, [table.function for table in after])
        if (rule := choices.of(group, "exponent")) is not None and rule.value != exponent:
            _check_given(group, rule, graph)
            exponent, how = rule.value, "fixed" if rule.place == GIVEN else BY_NAME
        for name in group:
            observed = Observed(float(stats[name].min), float(stats[name].max), how)
            quant = saturating(width, exponent, graph[name].clamp)
            values.append(replace(graph[name], observed=observed, quant=quant))
    return graph.with_values(*values)


def _finer(own: int, stats: TensorStats, bits: int) -> int:
    """The exponent of an op's own grid where its results leave room; its own one where they are all 0."""
    return min(own, smallest_exponent(0.0, ROOM * stats.peak, bits)) if stats.peak else own


def _least(makers: Mapping[str, Node], group: Sequence[str]) -> int:
    """The least exponent that the ops allow that make these tensors."""
    return max((OPS[makers[name].op].exponents[0] for name in group if name in makers), default=EXPONENT_MIN)


def _merged(group: Mapping[str, TensorStats], padded: Mapping[str, Sequence[TensorStats]]) -> TensorStats:
    return TensorStats.merged(*group.values(), *(part for name in group for part in padded.get(name, ())))


def _method(group: Sequence[str], method: Method, choices: Choices) -> Method:
    name, percentile = choices.of(group, "method"), choices.of(group, "percentile")
    return Method(name.value if name else method.name, percentile.value if percentile else method.percentile)


def _check_given(group: Sequence[str], rule: Said, graph: Graph) -> None:
    ports = graph.plain_ports()
    if whole_grid := [name for name in group if name in graph.pixels or name in ports]:
        kind = "raw pixels" if whole_grid[0] in graph.pixels else "the model's integers"
        raise InputError(f"the exponent of {whole_grid[0]!r} is {rule.value}; that of {kind} is 0", where=rule.place)


def check_given(ranged: Graph, choices: Choices) -> None:
    """InputError where a legal graph has another exponent than was chosen by name.

    One that is what would have been chosen anyway may be raised as ever.
    """
    for value in ranged.activations():
        rule = choices.of([value.name], "exponent")
        by_name = value.observed is not None and value.observed.method == BY_NAME
        if rule is not None and by_name and value.quant is not None and value.quant.exponent != rule.value:
            raise InputError(
                f"the exponent of {value.name!r} is {rule.value}; beside its neighbours' exponents "
                f"at least {value.quant.exponent} can run",
                where=rule.place,
            )


def _span(value: Value, stats: TensorStats, bits: int, room: bool = True) -> Range:
    """Range that the grid of this tensor is to hold. Room is left by the float model's own numbers, as stats has
    them."""
    clamp = value.clamp and (value.clamp[0] + value.origin, value.clamp[1] + value.origin)
    low, high = span(stats, bits, clamp, room=room)
    if not room:  # a bin that a factor put at the end of a grid stays there
        low, high = low * (1 - ROUNDING), high * (1 - ROUNDING)
    return low - value.origin, high - value.origin


def _check_reach(names: Sequence[str], stats: Mapping[str, TensorStats], bits: int) -> None:
    """OutOfRange where the coarsest grid would saturate what was seen."""
    most = math.ldexp(2.0 ** (bits - 1), EXPONENT_MAX)
    for name in names:
        if stats[name].peak > most * (1 + ROUNDING):
            raise OutOfRange(
                f"the tensor {name!r} reaches {stats[name].peak:.3g}; {bits} bits hold magnitudes up to {most:.3g}",
                hint="a Clip before it, or a smaller constant: -1e4 masks attention as well as -1e38 does; a row "
                "that is masked as a whole needs no mask",
            )


def provisional(graph: Graph, bits: Mapping[str, int]) -> Graph:
    """Widths without exponents, for planning memory before calibration; names not in bits get 8."""
    values = []
    for value in graph.activations():
        quant = saturating(bits.get(value.name, 8), 0, None)
        values.append(replace(value, quant=quant, dtype=quant.dtype))
    return graph.with_values(*values)


def saturating(bits: int, exponent: int, clamp: tuple[float, float] | None) -> Quant:
    """The grid with [lo, hi] narrowed to what the clamp is on it; infinities leave the type's range."""
    low, high = INT_MIN[bits], INT_MAX[bits]
    if clamp is None:
        return Quant(bits, (exponent,), low, high)
    lo = low if math.isinf(clamp[0]) else min(max(math.floor(math.ldexp(clamp[0], -exponent) + 0.5), low), high)
    hi = high if math.isinf(clamp[1]) else min(max(math.floor(math.ldexp(clamp[1], -exponent) + 0.5), low), high)
    return Quant(bits, (exponent,), lo, hi)


def _padded(graph: Graph, stats: Mapping[str, TensorStats]) -> dict[str, list[TensorStats]]:
    """Statistics of padding other than 0, by the activation on whose grid it lies."""
    by_name: dict[str, list[TensorStats]] = {}
    for node in graph.nodes:
        if (data := pad_of(graph, node)) is not None:
            by_name.setdefault(node.inputs[0], []).append(padding(graph, node, data, stats[node.inputs[0]]))
    return by_name


def padding(graph: Graph, node: Node, data: np.ndarray, stats: TensorStats) -> TensorStats:
    """Statistics of the numbers that a convolution sees around its input: data per channel, as often as it reads it
    beside the input."""
    x, p = graph[node.inputs[0]], node.params
    height, width = x.shape[1:3]
    border = (height + p.pad_top + p.pad_bottom) * (width + p.pad_left + p.pad_right) - height * width
    once = TensorStats.of(data)
    h, times = once.histogram, max(1, round(stats.histogram.total * border / x.size))
    return replace(once, histogram=Histogram(h.exponent, h.zeros * times, h.counts * times))


def _chosen(graph: Graph) -> dict[str, Range]:
    """Bounds of the elements of a constant at computed places."""
    bounds = {}
    for node in graph.nodes:
        data = graph[node.inputs[0]].data
        if table_readers.moves(node) and OPS[node.op].places is not None and data is not None:
            bounds[node.outputs[0]] = float(data.min()), float(data.max())
    return bounds


def _fixed(graph: Graph, bits: Mapping[str, int]) -> dict[str, int]:
    """Case 1: exponents that need no statistics."""
    whole_numbers = [name for name in graph.inputs if (shifts := graph[name].shifts) is not None and shifts.mantissas]
    fixed = dict.fromkeys([*graph.pixels, *whole_numbers], 0)
    for node in graph.nodes:
        own = OPS[node.op].own_exponent(node, bits[node.outputs[0]])
        if own is not None:
            fixed[node.outputs[0]] = own
    return fixed
