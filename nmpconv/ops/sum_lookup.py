"""A function of sums of products w * x, or of weighted squares w * x^2, read from the wide sum instead of a tensor.

A logarithm or a root of band energies sees nine powers of ten, which no tensor of 16 bits holds. Its table has pieces
of equal relative width, as many in each octave of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, INT_MIN, quantize, rsh, sat
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.common.accumulate import K_MAX, check_products
from nmpconv.ops.common.case import FILLS, WIDTHS, Operand, by, fed, grid, single
from nmpconv.ops.common.constant import exponent_for
from nmpconv.ops.common.rules import rank, vector
from nmpconv.ops.common.traits import Bounds, Factors, Limit, Origins, Rule, computed, unfit
from nmpconv.ops.lookup import FAR, HUGE, PIECE_MAX, TABLE_BITS, Lookup, LookupParams
from nmpconv.ops.op import Case, Op, QArray, quant_of, with_constants

if TYPE_CHECKING:
    from nmpconv.ops.builders import OnnxBuilder

SUM_BITS = 62  # |S| is at most 2 to this power
PLACE_BITS = 16  # of a place within a piece
PIECES_MAX = 8  # log2 of the pieces of an octave
WORK_OF_SUM = 32  # steps of a table's piece
PRECISE = 8  # bits that the largest weight of an input has at least
SAMPLES = 8  # of a piece, where its line is compared with the function
FRACTIONS = np.arange(1, SAMPLES) / SAMPLES


@dataclass(frozen=True)
class SumLookupParams(LookupParams):
    """The function of the sum, see `LookupParams`.

    squared: the elements of x are squared. low, pieces: see `SumLookup.reference`. groups: the channels of a group lie
    that many apart, and as many groups of outputs read one each.
    """

    squared: bool = False
    low: int = 0
    pieces: int = 0
    groups: int = 1


class SumLookup(Op):
    name = "sum_lookup"
    source = "pass wide_sums: a logarithm, root or power of a sum of squares, or of one"
    Params = SumLookupParams
    float_only = Lookup.float_only
    constants = (2, 2)
    absorbs = True
    restrictions = f"sums of at most {K_MAX} products, none of them negative"

    def infer(self, params: SumLookupParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        o, k = inputs[1].shape
        check_products(k)
        return [(*inputs[0].shape[:-1], o)]

    def misfit(self, params: SumLookupParams, inputs: Sequence[Value]) -> str:
        x, w = inputs[:2]
        fits = len(x.shape) > 0 and len(w.shape) == 2 and w.shape[1] * params.groups == x.shape[-1]
        return computed(inputs) if fits and w.shape[0] % params.groups == 0 else unfit(self.name, inputs)

    def rules(self, params: SumLookupParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        p, (x, w, table), y = params, inputs, quant_of(output)
        octaves = (table.size - 2) >> p.pieces if 0 <= p.pieces <= PIECES_MAX else 0
        yield f"{p.groups} groups", p.groups >= 1
        yield f"2^{p.pieces} pieces of an octave", 0 <= p.pieces <= PIECES_MAX
        yield f"a table from 2^{p.low} on", 0 <= p.low < SUM_BITS
        yield f"a table of {table.size}", octaves > 0 and (octaves << p.pieces) + 2 == table.size
        yield f"{octaves} octaves from 2^{p.low} on", p.low + octaves <= SUM_BITS
        yield vector(table, table.size, 32, y.exponent - TABLE_BITS)
        yield rank(w, 2)
        yield "the weights are no constant with one exponent", w.is_const and len(quant_of(w).exponents) == 1
        assert w.data is not None
        most = 1 << (SUM_BITS - largest_bits(p, quant_of(x).bits))
        total = int(np.abs(w.data.astype(np.int64)).sum(axis=1).max())
        yield f"weights that add up to {total}", quant_of(w).bits < 32 or total <= most

    def work(self, params: SumLookupParams, inputs: Sequence[Value], output: Value) -> int:
        return output.size * (inputs[1].shape[1] + WORK_OF_SUM)

    def macs(self, params: SumLookupParams, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return outputs[0].size * inputs[1].shape[1]

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        """The table has a grid below that of the output."""
        y = quant_of(graph[node.outputs[0]]).exponent
        yield Limit(y, EXPONENT_MIN + TABLE_BITS, math.inf, below=node.outputs)

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        """Those of the function of numbers that are not negative."""
        y = node.params(np.concatenate([[0.0], np.geomspace(1e-30, FAR, 4096)]))
        ends = float(y.min()), float(y.max())
        low, high = (end if abs(end) < HUGE else math.copysign(math.inf, end) for end in ends)
        return low, high

    def origins(self, params: SumLookupParams, inputs: Sequence[Value], output: Value) -> Origins:
        return Origins.RESULT

    def with_origins(self, node: Node, graph: Graph, x: float, y: float) -> tuple[Node, list[Value]]:
        """The table takes it up."""
        return replace(node, params=replace(node.params, origin_y=node.params.origin_y + y)), []

    def tensor_factors(self, params: SumLookupParams, inputs: Sequence[Value], output: Value) -> Factors:
        return Factors.ANY

    def with_factors(self, node: Node, graph: Graph, x: np.ndarray, y: np.ndarray) -> tuple[Node, list[Value]]:
        p, weights = node.params, graph[node.inputs[1]].data
        assert weights is not None
        x = np.repeat(x.reshape(-1, p.groups).T, len(weights) // p.groups, axis=0)
        node, constants = with_constants(node, graph, {1: ("weight", weights / (x * x if p.squared else x))})
        return replace(node, params=replace(p, after=p.after * float(y[0]))), constants

    def squares(self, node: Node, inputs: Sequence[bool]) -> bool:
        return True

    def squares_input(self, params: SumLookupParams) -> bool:
        return params.squared

    def keeps_batch(self, params: SumLookupParams, inputs: Sequence[Value], output: Value) -> bool:
        return len(inputs[0].shape) > 1

    def part(
        self, params: SumLookupParams, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[SumLookupParams, list[int | None]] | None:
        """Rows of the input, or rows of the weights."""
        of_table = [None] * (len(inputs) - 2)
        if axis < len(output.shape) - 1:
            return params, [axis, None, *of_table]
        return (params, [None, 0, *of_table]) if params.groups == 1 else None

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """Weights of 16 bits, or of 32 where the largest weight of an input would have fewer than PRECISE bits.

        The table begins at the largest power of two below which a line is the function to PIECE_MAX steps of y, and has
        the fewest pieces of which that is true. A result is off by half a step, PIECE_MAX steps, 2^-9 of a step for the
        samples' rounding, and by what the weights' rounding makes of the sum.
        """
        x, y, p = quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]]), node.params
        data = graph[node.inputs[1]].data
        assert data is not None
        q, weights = weights_on_grid(data.astype(np.float64), p.groups, largest_bits(p, x.bits))
        unit = weights.exponent + (2 if p.squared else 1) * x.exponent
        most = int(np.maximum(q, 0).sum(axis=1).max()) << largest_bits(p, x.bits)
        top = min(max(most.bit_length(), 1), SUM_BITS)

        def exact(sums: np.ndarray) -> np.ndarray:
            """On the grid of the table, in steps of y."""
            most = math.ldexp(INT_MAX[32], -TABLE_BITS)
            return np.clip(np.ldexp(p(np.ldexp(sums, unit)), -y.exponent), -most, most)

        def off(low: np.ndarray, high: np.ndarray) -> float:
            """Largest error of lines between these sums, in steps of y."""
            ends = exact(low)[:, None], exact(high)[:, None]
            between = low[:, None] + (high - low)[:, None] * FRACTIONS
            line = ends[0] + (ends[1] - ends[0]) * FRACTIONS
            return float(np.abs(np.clip(line, y.lo, y.hi) - np.clip(exact(between), y.lo, y.hi)).max())

        low = 0
        while low + 1 < top and off(np.zeros(1), np.array([2.0 ** (low + 1)])) <= PIECE_MAX:
            low += 1
        for pieces in range(PIECES_MAX + 1):
            starts = (2.0 ** np.arange(low, top)[:, None] * (1 + np.arange(2**pieces) / 2**pieces)).ravel()
            ends = np.append(starts[1:], 2.0**top)
            if off(starts, ends) <= PIECE_MAX:
                break
        samples = exact(np.concatenate([[0.0], starts, ends[-1:]]))
        table = quantize(samples, -TABLE_BITS, INT_MIN[32], INT_MAX[32])
        of_table = Quant(32, (y.exponent - TABLE_BITS,), INT_MIN[32], INT_MAX[32])
        constants = [
            Value(f"{node.outputs[0]}.{role}", array.shape, quant.dtype, array.astype(quant.dtype), quant=quant)
            for role, array, quant in (("weight", q, weights), ("table", table, of_table))
        ]
        names = (node.inputs[0], *(value.name for value in constants))
        return replace(node, inputs=names, params=replace(p, low=low, pieces=pieces)), constants

    def reference(
        self, params: SumLookupParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """S = sum over k of w[o,k] * x[k*G + g] or its square, g = floor(o / (O/G)) of G groups;
        B = min(max(S, 0), 2^(low+octaves) - 1); t of octaves * 2^pieces + 2 entries.
        B < 2^low: i = 0, f = floor(B * 2^(16-low)). 2^n <= B < 2^(n+1): h = floor(B * 2^(pieces+16-n)) - 2^(pieces+16),
        i = 1 + (n-low) * 2^pieces + (h >> 16), f = h & 65535. y = sat(rsh(t[i] * 2^16 + (t[i+1] - t[i]) * f, 24)).
        """
        x, w, table = inputs
        p, quant, t = params, quant_of(outputs[0]), table.q.astype(np.int64)
        factors = x.q.astype(np.int64)
        factors = factors * factors if p.squared else factors
        by_group = np.moveaxis(factors.reshape(*factors.shape[:-1], -1, p.groups), -1, 0)  # [G, ..., K]
        weights = w.q.astype(np.int64).reshape(p.groups, -1, w.q.shape[1])
        sums = np.stack([a @ b.T for a, b in zip(by_group, weights, strict=True)], axis=-2)
        sums = sums.reshape(*factors.shape[:-1], len(w.q))
        octaves = (len(t) - 2) >> p.pieces
        b = np.clip(sums, 0, (1 << (p.low + octaves)) - 1)
        n = np.searchsorted(1 << np.arange(p.low + 1, SUM_BITS + 1, dtype=np.int64), b, side="right") + p.low
        first = _shifted(b, PLACE_BITS - p.low)
        place = (
            _shifted(b, p.pieces + PLACE_BITS - n) + ((n - p.low - 1) << (p.pieces + PLACE_BITS)) + (1 << PLACE_BITS)
        )
        place = np.where(b >> p.low == 0, first, place)
        i, f = place >> PLACE_BITS, place & ((1 << PLACE_BITS) - 1)
        between = (t[i] << PLACE_BITS) + (t[i + 1] - t[i]) * f
        return [sat(rsh(between, PLACE_BITS + TABLE_BITS), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        for function, squared, bits, fill in product(("log", "sqrt"), (True, False), product(WIDTHS, repeat=2), FILLS):
            yield self._case(
                f"{function}/{squared}/{by(bits)}/{fill}", (1, 5, 9), 4, bits, function, squared, fill=fill
            )
        for x, o in (((7,), 3), ((1, 1), 1), ((2, 3, 4, 2), 1), ((3, 300), 33)):
            yield self._case(f"shape/{by(x)}/{o}", x, o, (16, 16), "log", True)
        for e_x, function in product((-25, -9, 5), ("log", "sqrt", "sigmoid")):
            yield self._case(f"grid/{e_x}/{function}", (4, 30), 5, (16, 16), function, True, e_x=e_x)
        for groups, channels, o in ((6, 12, 6), (4, 4, 8), (3, 15, 3)):
            yield self._case(
                f"groups/{groups}/{channels}/{o}", (2, 3, channels), o, (16, 16), "log", True, groups=groups
            )
        for width in WIDTHS:
            yield self._case(f"far apart/int{width}", (9, 40), 6, (width, 16), "log", True, spread=2.0)
        yield self._case("far apart/sums", (9, 40), 6, (16, 16), "log", False, spread=2.0)

    def _case(
        self,
        name: str,
        x: tuple[int, ...],
        o: int,
        bits: tuple[int, ...],
        function: str,
        squared: bool,
        *,
        fill: str = "random",
        e_x: int = -6,
        spread: float = 0.3,
        groups: int = 1,
    ) -> Case:
        """bits of x and y. spread: of the weights' logarithms."""
        noise = np.random.default_rng(len(name))
        k = x[-1] // groups
        weights = np.exp(noise.normal(0.0, 1.0, (o, k)) + noise.normal(0.0, 3 * spread, k))
        weights *= noise.random(weights.shape) < 0.6
        operands = [fed(name, x, bits[0], e_x, fill), Operand(weights, grid(32, 0), const=True)]
        params = SumLookupParams(composed=(("add", "x", 1e-3), (function, 0)), squared=squared, groups=groups)
        return single(self, name, params, operands, grid(bits[1], 5 - bits[1]), quantize=True)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        x, p, weights = node.inputs[0], node.params, graph[node.inputs[1]].data
        assert weights is not None
        outputs, k = weights.shape
        matrix = np.zeros((k, p.groups, outputs), np.float32)
        of_output = np.arange(outputs)
        matrix[:, of_output * p.groups // outputs, of_output] = weights.T
        x = to.node("Mul", (x, x)) if p.squared else x
        total = to.node("MatMul", (x, to.const(matrix.reshape(-1, outputs))))
        Lookup().export(replace(node, inputs=(total,)), graph, to)


def largest_bits(params: SumLookupParams, bits: int) -> int:
    """log2 of the largest factor beside a weight, for x of so many bits."""
    return (bits - 1) * (2 if params.squared else 1)


def weights_on_grid(data: np.ndarray, groups: int, bits: int) -> tuple[np.ndarray, Quant]:
    """Returns the weights, rounded, and their grid. data: [O, K]. bits: of the largest factor beside a weight."""
    peaks = np.abs(data).reshape(groups, -1, data.shape[1]).max(axis=1)
    least = float(peaks[peaks > 0].min(initial=math.inf))
    width = 16 if math.frexp(least)[1] - exponent_for(data, 16) >= PRECISE else 32
    exponent = exponent_for(data, width)
    if width == 32:
        total = float(np.abs(data).sum(axis=1).max())
        exponent = max(exponent, math.frexp(total)[1] + 1 - (SUM_BITS - bits))
    exponent = min(max(exponent, EXPONENT_MIN), EXPONENT_MAX)
    quant = Quant(width, (exponent,), INT_MIN[width], INT_MAX[width])
    return quantize(data, exponent, quant.lo, quant.hi), quant


def _shifted(b: np.ndarray, left: np.ndarray | int) -> np.ndarray:
    left = np.asarray(left)
    return np.asarray((b >> np.maximum(-left, 0)) << np.maximum(left, 0))
