"""Local response normalization over neighbouring channels of x [N,H,W,C], integers only.

y = x * (bias + alpha / size * (sum of the squares of ``size`` channels around it))^-beta
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN, round_half_up, rsh, sat
from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.common.case import FILLS, WIDTHS, by, fed, grid, single
from nmpconv.ops.common.constant import with_constant
from nmpconv.ops.common.rules import vector, within
from nmpconv.ops.common.traits import Factors, Limit, Rule
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

SIZE_MAX = 4096  # legal channels of a sum
BASE_BITS = 61  # the sum and the bias are below 2^61 each
PIECES = 256  # of the power of a mantissa
POWERS = 62  # powers of two that a base lies between
SHIFT_MAX = 62


@dataclass(frozen=True)
class LrnParams:
    """shift, offset * 2^offset_shift: the sum of squares and the bias as integers; see `Lrn.quantize`."""

    size: int = 1
    shift: int = 0
    offset: int = 1
    offset_shift: int = 0
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


class Lrn(Op):
    name = "lrn"
    Params = LrnParams
    float_only = ("alpha", "beta", "bias")
    clamps = True
    constants = (1, 1)
    restrictions = f"alpha and beta > 0, bias >= 0, at most {SIZE_MAX} channels of a sum"
    onnx = ("LRN",)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        if len(to[node.input(0)].shape) != 4:
            raise Unsupported(f"its input has {len(to[node.input(0)].shape)} dimensions", hint="[N,C,H,W]")
        x = to.nhwc(node.input(0))
        alpha, beta, bias = node.number("alpha", 1e-4), node.number("beta", 0.75), node.number("bias", 1.0)
        if alpha <= 0 or beta <= 0 or bias < 0:
            raise Unsupported(f"alpha {alpha:g}, beta {beta:g}, bias {bias:g}", hint=self.restrictions)
        params = LrnParams(node.integer("size", 1), alpha=alpha, beta=beta, bias=bias)
        to.nchw(to.emit("lrn", (x,), params), node.outputs[0], like=node.input(0))

    def infer(self, params: LrnParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        if not 1 <= params.size <= SIZE_MAX:
            raise Unsupported(f"a sum of {params.size} channels", hint=f"1 to {SIZE_MAX}")
        return [inputs[0].shape]

    def rules(self, params: LrnParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        p, (x, table) = params, inputs
        yield "there are no channels", len(x.shape) >= 1
        yield f"a sum of {p.size} channels", 1 <= p.size <= SIZE_MAX
        most = BASE_BITS - 1 - sum_bits(p.size, quant_of(x).bits)
        yield f"squares shifted by {p.shift}, [{-SHIFT_MAX}, {most}] is allowed", -SHIFT_MAX <= p.shift <= most
        yield f"an offset of {p.offset} * 2^{p.offset_shift}", p.offset >= 1 and 0 <= p.offset_shift <= BASE_BITS - 31
        yield vector(table, PIECES + 1 + 2 * POWERS, 32, 0)
        assert table.data is not None
        parts = np.split(table.data, [PIECES + 1, PIECES + 1 + POWERS])
        for part, high in zip(parts, (1 << 30, INT_MAX[32], SHIFT_MAX), strict=True):
            yield within(part, 0, high)

    def work(self, params: LrnParams, inputs: Sequence[Value], output: Value) -> int:
        return inputs[0].size * (48 + params.size)

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        """The bias in the units of the squares stays below 2^120; an integer node has both in its parameters."""
        p = node.params
        if len(node.inputs) > 1:
            return
        least = math.ceil((math.log2(p.size / p.alpha * max(p.bias, 1.0)) - 120) / 2)
        yield Limit(quant_of(graph[node.inputs[0]]).exponent, least, math.inf, below=node.inputs[:1])

    def tensor_factors(self, params: LrnParams, inputs: Sequence[Value], output: Value) -> Factors:
        return Factors.ANY

    def with_factors(self, node: Node, graph: Graph, x: np.ndarray, y: np.ndarray) -> tuple[Node, list[Value]]:
        """Has both in alpha and the bias: y / x is a power of their factor."""
        p, before, after = node.params, float(x[0]), float(y[0])
        base = (before / after) ** (1 / p.beta)
        return replace(node, params=replace(p, alpha=p.alpha * base / before**2, bias=p.bias * base)), []

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """With u = alpha / size * 4^e_x, the base is u * 2^-shift * B, B = S * 2^shift + bias / u * 2^shift.

        The table has the power -beta of 1 to 2, then that of each power of two as 31 bits and a shift, which also hold
        u, the shift and the grids. A result is off by at most half a step of y and

            |y| * (beta * (beta + 1) * 2^-19 + beta * 2^-28 + 2^(beta - 28))

        for the pieces of the power (2^-18.6 for beta 0.75), the base, and the factors of 30 - beta bits.
        """
        p, x, y = node.params, quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]])
        unit = math.log2(p.alpha / p.size) + 2 * x.exponent  # log2(u)
        offset = math.log2(p.bias) - unit if p.bias else -math.inf  # log2(bias / u)
        shift = BASE_BITS - 1 - max(sum_bits(p.size, x.bits), math.ceil(offset) if p.bias else 0)
        exact = 2.0 ** (offset + shift)
        up = max(0, math.frexp(exact)[1] - 31)
        mantissa = min(max(1, round(math.ldexp(exact, -up))), INT_MAX[32])
        params = replace(p, shift=shift, offset=mantissa, offset_shift=up)
        samples = round_half_up((1 + np.arange(PIECES + 1) / PIECES) ** -p.beta * 2.0**30)
        # The base is 2^(unit - shift + t) times a mantissa; log2 of y / x in integers, without the mantissa's power:
        t = np.arange(POWERS, dtype=np.float64)
        factor = -p.beta * (unit - shift + t) + x.exponent - y.exponent
        whole = np.floor(factor)
        multipliers = np.minimum(round_half_up(2.0 ** (factor - whole + 30)), INT_MAX[32])
        shifts = 60 - 31 - whole
        multipliers = np.where(shifts < 0, INT_MAX[32], np.where(shifts > SHIFT_MAX, 0, multipliers))
        table = np.concatenate([samples, multipliers, np.clip(shifts, 0, SHIFT_MAX).astype(np.int64)])
        node, constants = with_constant(node, "table", table, Quant(32, (0,), INT_MIN[32], INT_MAX[32]))
        return replace(node, params=params), constants

    def restored(self, node: Node, graph: Graph) -> Node:
        p, x, y = node.params, quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]])
        table = graph[node.inputs[1]].data
        assert table is not None
        samples, multipliers, shifts = np.split(table.astype(np.float64), [PIECES + 1, PIECES + 1 + POWERS])
        beta = 30 - math.log2(samples[-1])
        t = int(np.flatnonzero((shifts > 0) & (shifts < SHIFT_MAX))[0])
        factor = math.log2(multipliers[t]) - 30 + 60 - 31 - shifts[t]
        unit = 2.0 ** (p.shift - t - (factor - x.exponent + y.exponent) / beta)
        bias = math.ldexp(p.offset, p.offset_shift - p.shift) * unit
        return replace(
            node,
            inputs=node.inputs[:1],
            params=replace(p, alpha=math.ldexp(unit, -2 * x.exponent) * p.size, beta=beta, bias=bias),
        )

    def reference(self, params: LrnParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """S: the sum of squares from (size-1)/2 channels before to size/2 after, rounded down;
        B = rsh(S, -shift) + offset * 2^offset_shift; B = v * 2^t with 2^30 <= v < 2^31, rounded down; of the table
        c [257], m [62], e [62]: i = (v >> 22) - 256, f = v & (2^22 - 1);
        a = rsh(rsh(c[i] * 2^22 + (c[i+1] - c[i]) * f, 22) * m[t+30], 31); y = sat(rsh(x * a, e[t+30])).
        """
        x, table = inputs
        quant = quant_of(outputs[0])
        samples, multipliers, shifts = np.split(table.q.astype(np.int64), [PIECES + 1, PIECES + 1 + POWERS])
        q = x.q.astype(np.int64)
        before = (params.size - 1) // 2
        total = np.cumsum(np.pad(q * q, [(0, 0)] * (q.ndim - 1) + [(before + 1, params.size // 2)]), axis=-1)
        sums = total[..., params.size :] - total[..., : -params.size]
        base = rsh(sums, -params.shift) + (params.offset << params.offset_shift)
        t = np.searchsorted(1 << np.arange(63, dtype=np.int64), base, side="right") - 31
        v = (base >> np.maximum(t, 0)) << np.maximum(-t, 0)
        i, f = (v >> 22) - PIECES, v & ((1 << 22) - 1)
        power = rsh((samples[i] << 22) + (samples[i + 1] - samples[i]) * f, 22)
        factor = rsh(power * multipliers[t + 30], 31)
        return [sat(rsh(q * factor, shifts[t + 30]), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        for (size, channels), bits, fill in product(
            ((5, 16), (3, 2), (4, 7), (1, 3), (9, 3)), product(WIDTHS, repeat=2), FILLS
        ):
            yield self._case(f"{size}of{channels}/{by(bits)}/{fill}", LrnParams(size), channels, bits, fill=fill)
        for width, e_x, bias in product(WIDTHS, (-30, -12, 0, 8), (0.0, 1.0)):
            params = LrnParams(5, alpha=1e-4, beta=0.75, bias=bias)
            yield self._case(f"grid/int{width}/{e_x}/{bias}", params, 9, (width, width), e_x=e_x)
        for alpha, beta in product((1e-5, 1.0), (0.5, 2.0)):
            params = LrnParams(7, alpha=alpha, beta=beta, bias=2.0)
            yield self._case(f"powers/{alpha}/{beta}", params, 20, (16, 16), e_x=-10)

    def _case(
        self, name: str, params: LrnParams, channels: int, bits: tuple[int, ...], *, e_x: int = -3, fill: str = "random"
    ) -> Case:
        """bits of x and y."""
        x, y = fed(name, (1, 3, 2, channels), bits[0], e_x, fill), grid(bits[1], e_x + bits[0] - bits[1])
        return single(self, name, params, [x], y, quantize=True)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        """Written out, as onnxruntime has no LRN of an even size; the channels are the width of a pool, where a sum is
        not of all of them.
        """
        p, x = node.params, node.inputs[0]
        pads = [0, (p.size - 1) // 2, 0, p.size // 2]
        squares = to.node("Mul", (x, x))
        if p.size == 1:
            mean = squares
        elif p.size >= 2 * graph[x].shape[-1] - 1:
            total = to.node("ReduceSum", (squares, to.const((-1,))))
            mean = to.node("Mul", (total, to.const(np.float32(1 / p.size))))
        else:
            mean = to.node("AveragePool", (squares,), kernel_shape=[1, p.size], pads=pads, count_include_pad=1)
        base = to.node("Add", (to.node("Mul", (mean, to.const(np.float32(p.alpha)))), to.const(np.float32(p.bias))))
        to.node("Mul", (x, to.node("Pow", (base, to.const(np.float32(-p.beta))))), node.outputs[0])


def sum_bits(size: int, bits: int) -> int:
    """A sum of this many squares is at most 2 to this power."""
    return (size - 1).bit_length() + 2 * (bits - 1)
