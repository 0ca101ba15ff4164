"""Weights, biases and op constants to integers, in graph order, each layer seeing its already quantized input.

For each convolution and fully connected:

1. Weight exponents by squared error, within the legal shifts (weights.py).
2. Where that is asked for, weights of 8 bits times the factor that the sums lack (bias.py); not in front of scores,
   whose errors count by slopes.
3. Nearest rounding; and, when asked, rounding with the second moments of the quantized input (gptq.py), kept for
   those output channels whose error after the activation falls. These weights make up for the rounding of the bias: of
   the one that case 5 asks for, where no activation follows.
4. What an input channel that is always the same adds goes into the bias, and its weights become 0.
5. The bias from the mean difference between the pre-activation that is wanted (residual_sums.py) and the integer sum,
   on the output's grid; then the best of b - 1, b, b + 1 by the error after the activation. Without rows: the float
   bias, less what rounding the weights did to the input's origin, rounded once. A layer of int16 without a bias keeps
   none where one would gain next to nothing (bias.py). Nor is one corrected behind what an ArgMax chooses: another
   place is another number, and the mean of such errors is none of any sample.
6. The narrowest of int8, int16, int32 that holds the biases.

The other ops make their own constants (Op.quantize). Every constant says how its exponent was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from nmpconv.base import fixed_point
from nmpconv.base.thread_pool import MOST, each
from nmpconv.calib.activation_cache import Evidence
from nmpconv.calib.sampled_rows import Rows, spread
from nmpconv.errors import InputError, UnsupportedModel
from nmpconv.graph.reference import Step, step, walk
from nmpconv.ir import INT_OF_BITS, Graph, Node, Observed, Quant, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.op import quant_of
from nmpconv.passes.quantize import intervals, score_slopes, table_readers
from nmpconv.passes.quantize import weight_exponents as grids
from nmpconv.passes.quantize.bias import missing_factor, on_output_grid
from nmpconv.passes.quantize.gptq import round_weights
from nmpconv.passes.quantize.intervals import Interval
from nmpconv.passes.quantize.matrix_form import (
    Matrix,
    gather,
    is_exact,
    matrix,
    multiply,
    out_positions,
    samples,
    second_moment,
)
from nmpconv.passes.quantize.overrides import NOTHING, Choices
from nmpconv.passes.quantize.residual_sums import sums_of, wanted_rows
from nmpconv.passes.quantize.score_slopes import Weights

MOMENT_ROWS = 8192  # rows that a second moment is made of
COLUMNS_MAX = 2304  # of a moment: 3x3 pixels of 256 channels, 42 MB; what is done with it takes their third power
CHUNK = 1024  # rows unfolded at a time: sums of so many products of int8 are exact in float32
MUCH = 10**7  # products that are worth a thread
DAMPING = 0.1


@dataclass(frozen=True)
class Rounding:
    """weight_bits: 8 or 16. bias_bits: 0 for the narrowest that holds the biases, or 8, 16, 32. faithful: grids
    and weights of a model that was quantized before stay, also those for inputs that are always the same. amplify: with
    corrected biases, weights of 8 bits make up for a factor; None: as False, where a search may ask for it."""

    weight_bits: int = 8
    per_tensor: bool = False
    gptq: bool = True
    bias_correction: bool = True
    bias_bits: int = 0
    faithful: bool = False
    amplify: bool | None = None

    @property
    def may_amplify(self) -> bool:
        """Checks that nothing says whether weights are amplified, and that it would change any."""
        return self.amplify is None and self.weight_bits == 8 and self.bias_correction

    def with_gptq(self, gptq: bool) -> Rounding:
        return replace(self, gptq=gptq)

    def of(self, node: Node, choices: Choices) -> Rounding:
        """Rounding of one node."""
        return Rounding(
            choices.op(node.name, "weight_bits", self.weight_bits),
            choices.op(node.name, "per_tensor", self.per_tensor),
            choices.op(node.name, "rounding", "gptq" if self.gptq else "nearest") == "gptq",
            self.bias_correction,
            choices.op(node.name, "bias_bits", self.bias_bits),
            self.faithful,
            self.amplify,
        )


def run(graph: Graph, how: Rounding, evidence: Evidence, choices: Choices = NOTHING, compute: Step = step) -> Graph:
    """An integer graph from a float graph whose activations have their quant. compute: of a node what `step` does."""
    values = {n: replace(v, dtype=v.quant.dtype) if v.quant else v for n, v in graph.values.items()}
    result, nodes = replace(graph, nodes=(), values=values), []  # the values grow with the nodes
    env = evidence.on_grids(result)
    known = {name: intervals.of_grid(result[name]) for name in graph.inputs}
    sums, slopes, activated = sums_of(graph), score_slopes.by_layer(graph), table_readers.activated(graph)
    chosen = _after_choices(graph)
    for node in walk(graph, env):
        if node.op in WEIGHTED:
            rounding = how.of(node, choices)
            if node.inputs[0] in chosen:
                rounding = replace(rounding, bias_correction=False)
            layer = _Layer(graph, node, rounding, known[node.inputs[0]], slopes.get(node.outputs[0]))
            rows = wanted_rows(graph, node, sums, env, evidence)
            own = evidence.rows.get(node.outputs[0]) if node.outputs[0] in sums else rows
            node, fresh = _weighted(layer, env.get(node.inputs[0]), rows, own, node.outputs[0] in activated)
        else:
            plain = node
            node, fresh = OPS[plain.op].quantize(plain, result)
            fresh = [replace(value, observed=_of_constant(value, plain, result)) for value in fresh]
        values.update((value.name, value) for value in fresh)
        nodes.append(node)
        known[node.outputs[0]] = intervals.of_node(result, node, known)
        if evidence.inputs:
            env.update(compute(result, node, env))
    used = {n for node in nodes for n in (*node.inputs, *node.outputs)} | set(graph.inputs)
    return replace(result, nodes=tuple(nodes), values={n: v for n, v in values.items() if n in used})


def _after_choices(graph: Graph) -> set[str]:
    """Tensors of nothing but what lies at places that depend on an index or on truth, up to the next layer; not the
    numbers that an index is of, as in TopK: another one of these is nearly as large."""
    makers = graph.producers()
    unsure, chosen = set[str](), set[str]()
    for node in graph.nodes:
        op = OPS[node.op]
        if op.counted or not unsure.isdisjoint(node.inputs):
            unsure.update(node.outputs)
        if op.places is not None and op.grid == "same":
            places = node.inputs[op.places]
            own = places in makers and makers[places].inputs[0] == node.inputs[0]
            if places in unsure and not own:
                chosen.update(node.outputs)
        computed = [name for name in node.inputs if not graph[name].is_const]
        if node.op not in WEIGHTED and computed and chosen.issuperset(computed):
            chosen.update(node.outputs)
    return chosen


def _of_constant(value: Value, node: Node, graph: Graph) -> Observed:
    """Origin of the exponent of an op's own constant."""
    quant = quant_of(value)
    around = [other.quant.exponents for other in (*graph.ins(node), *graph.outs(node)) if other.quant is not None]
    operand = any(other.is_const and other.shape == value.shape for other in graph.ins(node))
    return Observed(0.0, 0.0, "derived" if quant.exponents in around else "max" if operand else "fixed")


def _data(graph: Graph, name: str) -> np.ndarray:
    data = graph[name].data
    assert data is not None
    return data.astype(np.float64)


def _weighted(
    layer: _Layer, x: np.ndarray | None, rows: Rows | None, own: Rows | None, activated: bool
) -> tuple[Node, list[Value]]:
    """rows: what is wanted before the activation. own: what the float model has there, which differ in a sum."""
    how, q, bias = layer.how, None, None
    if x is not None and rows is not None:
        seen = layer.seen(x, rows)
        if how.bias_correction:
            if how.amplify and own is not None:
                alike = own.images is rows.images and own.positions is rows.positions
                layer.amplify(seen if alike else layer.seen(x, own), own.values)
            q = layer.nearest()
            makers: list[Callable[[], Any]] = [
                partial(layer.correct, q, seen, rows.values),
                lambda: layer.gptq(x, layer.bias if activated else layer.wanted_bias(seen, rows.values)),
            ]
            most = MOST if len(seen) * layer.weights.size > MUCH else 1
            results = each(lambda make: make(), makers if how.gptq else makers[:1], most)
            bias, error = results[0]
            if how.gptq:
                rounded = results[1]
                other, other_error = layer.correct(rounded, seen, rows.values)
                better = other_error < error
                q = np.where(better[:, None], rounded, q)
                bias = np.where(better, other, bias)
        elif how.gptq:
            q, bias = layer.gptq(x, layer.bias), fixed_point.round_half_up(layer.bias / layer.step_y)
    q = layer.nearest() if q is None else q
    return layer.result(q, layer.plain_bias(q) if bias is None else bias)


class _Layer:
    """One weighted node while it is quantized. Weights are [O, N] here, exponents [O]. seen: what its input can be.
    slopes: the weights of errors in front of scores."""

    def __init__(self, graph: Graph, node: Node, how: Rounding, seen: Interval, slopes: Weights | None) -> None:
        self.graph, self.node, self.how, self.slopes = graph, node, how, slopes
        self.x, self.y = quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]])
        self.shape: Matrix = matrix(graph, node)
        self.weights = _data(graph, node.inputs[1]).reshape(self.shape.weight_shape[0], -1)
        self.bias = _data(graph, node.inputs[2])
        self.step_x, self.step_y = 2.0**self.x.exponent, 2.0**self.y.exponent
        self.pad = None
        if len(node.inputs) == 4:
            # Padding stands for no result of the producer, so it may lie beyond what a fused activation leaves.
            low, high = fixed_point.INT_MIN[self.x.bits], fixed_point.INT_MAX[self.x.bits]
            self.pad = fixed_point.quantize(_data(graph, node.inputs[3]), self.x.exponent, low, high)
        if not how.faithful:
            self._leave_out(seen)
        base = self.y.exponent - self.x.exponent
        least = base - grids.SHIFT_USEFUL[self.x.bits, how.weight_bits]
        least, most = max(least, fixed_point.EXPONENT_MIN), min(base - fixed_point.SHIFT_MIN, fixed_point.EXPONENT_MAX)
        peak, end = float(np.abs(self.weights).max(initial=0.0)), math.ldexp(fixed_point.INT_MAX[how.weight_bits], most)
        if peak > end and most == fixed_point.EXPONENT_MAX:
            raise UnsupportedModel([(node.name, node.op, f"weights of {peak:g}", f"at most {end:g}")])
        self.exponents = grids.exponents(self.weights, how.weight_bits, how.per_tensor, min(least, most), most)
        self.shift = base - self.exponents

    def _leave_out(self, seen: Interval) -> None:
        """Case 4, of a layer that reads all channels; padding must be the same, too."""
        node, graph = self.node, self.graph
        self.read = np.ones(self.shape.k, bool)  # the inputs that are left
        if self.shape.groups > 1:
            return
        around = WEIGHTED[node.op].padding(node.params, graph.ins(node))
        same = seen.constant if around is None else seen.constant & (seen.lo == (0 if self.pad is None else self.pad))
        if same.any():
            taps = self.weights.reshape(len(self.weights), -1, len(same)).sum(axis=1)
            self.bias = self.bias + taps @ np.where(same, seen.lo * self.step_x, 0.0)
            self.read = np.tile(~same, self.shape.k // len(same))
            self.weights = self.weights * self.read

    def plain_bias(self, q: np.ndarray) -> np.ndarray:
        """Without rows; it holds the input's origin times the float weights, and the sums have that of the integers."""
        rounded = q * np.ldexp(1.0, self.exponents)[:, None]
        moved = self.graph[self.node.inputs[0]].origin * (rounded - self.weights).sum(axis=1)
        return fixed_point.round_half_up((self.bias + moved) / self.step_y)

    def seen(self, x: np.ndarray, rows: Rows) -> np.ndarray:
        """Returns what these rows see of the input [R, G, K]."""
        return gather(self.graph, self.node, x, self.pad, rows.images, rows.positions)

    def amplify(self, seen: np.ndarray, own: np.ndarray) -> None:
        """Case 2: other float weights, where their sums of the rows seen lack a factor. own: the float model's sums;
        what is wanted of a residual layer has noise of the other operand, which looks like a factor."""
        if self.how.weight_bits != 8 or self.slopes is not None:
            return
        weights = self.shape.split(self.weights).astype(np.float32) * np.float32(self.step_x)
        sums = np.einsum("rgk,gok->rgo", seen.astype(np.float32), weights, optimize=True)
        self.weights = self.weights * missing_factor(sums.reshape(own.shape).astype(np.float64), own)

    def nearest(self) -> np.ndarray:
        return grids.nearest(self.weights, self.exponents, self.how.weight_bits)

    def wanted_bias(self, seen: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """The bias [O] that gives float weights the mean of wanted [R, O], for rows seen [R, G, K]. An activation would
        remove a part of that mean.
        """
        mean = seen.sum(axis=0, dtype=np.int64) * (self.step_x / len(seen))
        products = np.einsum("gok,gk->go", self.shape.split(self.weights), mean)
        return np.asarray(wanted.mean(axis=0, dtype=np.float64) - products.reshape(-1))

    def gptq(self, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Columns of a wide layer are rounded in parts, each as if the others had no errors: the memory of a moment is
        that of its columns squared. bias: the one that is rounded first [O].
        """
        parts = -(-self.shape.k // COLUMNS_MAX)
        rounded = [self._gptq(x, bias, part) for part in np.array_split(np.arange(self.shape.k), parts)]
        return np.concatenate(rounded, axis=2).reshape(self.weights.shape)

    def _gptq(self, x: np.ndarray, bias: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """[G, O, columns]. The first of them make up for the rounding of the bias."""
        groups, outs = self.shape.groups, self.shape.outs
        bits = self.how.weight_bits
        return round_weights(
            self.shape.split(self.weights)[:, :, columns],
            bias.reshape(groups, outs) if columns[0] == 0 else np.zeros((groups, outs)),
            self._moment(x, columns),
            np.ldexp(1.0, self.exponents).reshape(groups, outs),
            self.step_y,
            fixed_point.INT_MIN[bits],
            fixed_point.INT_MAX[bits],
            DAMPING,
        )

    def _moment(self, x: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """[G, columns + 1, columns + 1], of 1 and the inputs in real units."""
        k = len(columns)
        moment = np.zeros((self.shape.groups, k + 1, k + 1))
        where = spread(samples(self.graph, self.node.inputs[0], x), out_positions(self.graph, self.node), MOMENT_ROWS)
        lock = Lock()

        def add(start: int) -> None:
            part = slice(start, start + CHUNK)
            rows = gather(self.graph, self.node, x, self.pad, where.images[part], where.positions[part])
            second_moment(rows[:, :, columns[0] : columns[-1] + 1], moment, lock)

        much = moment.size * len(where.images) > MUCH
        each(add, range(0, len(where.images), CHUNK), 2 if much and is_exact(x) else 1)
        scale = np.full(k + 1, self.step_x)
        scale[0] = 1.0
        scale[1:] *= self.read[columns]
        moment *= scale[:, None]
        moment *= scale[None, :]
        return moment

    def correct(self, q: np.ndarray, seen: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Case 5: biases [O] and the error after the activation [O], for rows seen [R, G, K], wanted [R, O]."""
        sums = multiply(seen, self.shape.split(q))
        clamp = self.graph[self.node.outputs[0]].clamp or (-np.inf, np.inf)
        weights = None if self.slopes is None else self.slopes(wanted)
        return on_output_grid(sums, self.shift, wanted, clamp, self.y, self.bias == 0, weights)

    def result(self, q: np.ndarray, bias: np.ndarray) -> tuple[Node, list[Value]]:
        node, how = self.node, self.how
        bits = self._bias_bits(bias)
        per_channel = None if how.per_tensor else 0
        exponents = tuple(int(e) for e in (self.exponents[:1] if how.per_tensor else self.exponents))
        lo, hi = fixed_point.INT_MIN, fixed_point.INT_MAX
        wb = how.weight_bits
        constants = [
            (q.reshape(self.shape.weight_shape), Quant(wb, exponents, lo[wb], hi[wb], per_channel), "mse"),
            (bias, Quant(bits, (self.y.exponent,), lo[bits], hi[bits]), "derived"),
        ]
        if self.pad is not None:
            constants.append(
                (self.pad, Quant(self.x.bits, (self.x.exponent,), lo[self.x.bits], hi[self.x.bits]), "derived")
            )
        values, names = [], [node.inputs[0]]
        # A constant that two nodes share is quantized for each of them, so every one has its consumer's name.
        for role, (data, quant, method) in zip(("weight", "bias", "pad"), constants, strict=False):
            name = f"{node.name}.{role}"
            observed = Observed(0.0, 0.0, method)
            values.append(
                Value(name, data.shape, quant.dtype, data.astype(quant.dtype), observed=observed, quant=quant)
            )
            names.append(name)
        return replace(node, inputs=tuple(names)), values

    def _bias_bits(self, bias: np.ndarray) -> int:
        bits = narrowest(bias, self.how.bias_bits)
        if bits is not None:
            return bits
        low, high = int(bias.min()), int(bias.max())
        if not self.how.bias_bits:
            steps = fixed_point.INT_MAX[32] * self.step_y
            why = f"biases from {low * self.step_y:g} to {high * self.step_y:g}"
            raise UnsupportedModel([(self.node.name, self.node.op, why, f"at most {steps:g}")])
        raise InputError(
            f"biases from {low} to {high} on the grid 2^{self.y.exponent} do not fit {INT_OF_BITS[self.how.bias_bits]}",
            where=f"node {self.node.name}",
            hint="leave --bias-bits out, or take more bits",
        )


def narrowest(bias: np.ndarray, asked: int) -> int | None:
    """The least bits that hold integers, of those asked for (0: 8, 16 or 32); None: none do."""
    low, high = int(bias.min(initial=0)), int(bias.max(initial=0))
    for bits in (asked,) if asked else (8, 16, 32):
        if fixed_point.INT_MIN[bits] <= low and high <= fixed_point.INT_MAX[bits]:
            return bits
    return None


def with_weights(graph: Graph, trained: Mapping[str, tuple[np.ndarray, np.ndarray]], bias_bits: int) -> Graph:
    """An integer graph with other integers for weights and biases, by node, on the grids that there are."""
    fresh = []
    for node in graph.nodes:
        if node.name in trained:
            weight, bias = (graph[name] for name in node.inputs[1:3])
            q, b = trained[node.name]
            bits = narrowest(b, bias_bits)
            assert bits is not None
            grid = replace(quant_of(bias), bits=bits, lo=fixed_point.INT_MIN[bits], hi=fixed_point.INT_MAX[bits])
            fresh.append(replace(weight, data=q.astype(weight.dtype)))
            fresh.append(replace(bias, data=b.astype(grid.dtype), dtype=grid.dtype, quant=grid))
    return graph.with_values(*fresh)
