"""A convolution and the other operand of a residual sum, rounded once: r [N,OH,OW,O], then what a conv2d reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.accumulate import K_MAX, accumulator_bound, convolve, magnitude, output_step, weight_shifts
from nmpconv.ops.common.case import FILLS, constant, fed, grid, single
from nmpconv.ops.common.rules import vector
from nmpconv.ops.common.traits import Limit, Origins, Rule, unfit, weighted_limits
from nmpconv.ops.conv2d import Conv2D, Conv2DParams, is_depthwise
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import OnnxBuilder

CONV = Conv2D()
SHIFT_MAX = 30  # of the sums; none is shifted to the left


@dataclass(frozen=True)
class ConvAddParams(Conv2DParams):
    pass


class ConvAdd(Op):
    name = "conv_add"
    source = "pass residual_operands: conv2d and the add behind it"
    Params = ConvAddParams
    clamps = True
    narrow = True
    layer = 1
    operands = 2
    constants = (2, 3)
    restrictions = f"sums of at most {K_MAX} products"

    def infer(self, params: ConvAddParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return CONV.infer(params, inputs[1:])

    def misfit(self, params: ConvAddParams, inputs: Sequence[Value]) -> str:
        r, *others = inputs
        if r.shape != CONV.infer(params, others)[0]:
            return unfit(self.name, inputs)
        return CONV.misfit(params, others)

    def rules(self, params: ConvAddParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        r, *others = inputs
        x, w = others[:2]
        yield from CONV.rules(params, others, output)
        for pad in others[3:]:
            yield vector(pad, x.shape[-1], quant_of(x).bits, quant_of(x).exponent)
        widths = {quant_of(value).bits for value in (r, x, w, output)}
        yield f"a sum of int{' and int'.join(map(str, sorted(widths)))}, not int8 alone", widths == {8}
        yield "the other operand is on another grid than the sum", quant_of(r).exponents == quant_of(output).exponents
        yield "a convolution of one channel a group", not is_depthwise(params.groups, x.shape, output.shape)

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        yield from weighted_limits(replace(node, inputs=node.inputs[1:]), graph)
        r, x, w = (quant_of(value) for value in graph.ins(node)[:3])
        for exponent in (min(w.exponents), max(w.exponents)):
            yield Limit(r.exponent - x.exponent - exponent, 0, SHIFT_MAX)

    def work(self, params: Any, inputs: Sequence[Value], output: Value) -> int:
        return CONV.work(params, inputs[1:], output)

    def reads(self, params: Any, inputs: Sequence[Value], output: Value) -> list[int]:
        return [inputs[0].size, *CONV.reads(params, inputs[1:], output)]

    def repeated_weights(self, params: Any, inputs: Sequence[Value], output: Value) -> Value | None:
        return CONV.repeated_weights(params, inputs[1:], output)

    def macs(self, params: Any, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return CONV.macs(params, inputs[1:], outputs)

    def placed_inputs(self, params: Any, inputs: Sequence[Value], output: Value) -> list[int | None]:
        """The output may lie on r."""
        return [0, *[None] * (len(inputs) - 1)]

    def origins(self, params: Any, inputs: Sequence[Value], output: Value) -> Origins:
        return Origins.ANY

    def reference(self, params: ConvAddParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y_c = sat(rsh(sum x*w_c + r * 2^s_c, s_c) + b_c), s_c = e_y - e_x - e_w[c]."""
        r, x, w, b = inputs[:4]
        pad = inputs[4].q if len(inputs) > 4 else None
        quant, channels = quant_of(outputs[0]), w.q.shape[0]
        shifts = weight_shifts(x.quant, w.quant, quant, channels)
        x_max = max(magnitude(x.q), 0 if pad is None else magnitude(pad))
        bound = accumulator_bound(x_max, w.q) + math.ldexp(magnitude(r.q), int(shifts.max()))
        y = np.empty((len(x.q), *outputs[0].shape[1:]), quant.dtype)
        for images, acc in convolve(x.q, w.q, params, pad, bound):
            acc += r.q[images].astype(acc.dtype) * (np.int64(1) << shifts).astype(acc.dtype)
            y[images] = output_step(acc, bound, b.q, shifts, quant)
        return [y]

    def cases(self) -> Iterator[Case]:
        """Every kind of window, range and bias; blocks of kernels; shifts of one channel and of all."""
        for name, x, w, params in (*_GEOMETRIES, *_BLOCKS):
            for pad, fill in product((False, True), FILLS):
                yield self._case(f"{name}/{fill}{'/pad' * pad}", x, w, params, pad=pad, fill=fill)
            for bias, low in product((8, 32), (0, -60)):
                clamp = (low, None if low == 0 else 100)
                yield self._case(f"{name}/bias{bias}/{low}", x, w, params, bias=bias, clamp=clamp)
        _, x, w, params = _GEOMETRIES[0]
        for shifts in ((0,), (1,), (15,), (SHIFT_MAX,), (SHIFT_MAX, 0, 5, 9)):
            yield self._case(f"shift/{','.join(map(str, shifts))}", x, w, params, shifts=shifts)

    def _case(
        self,
        name: str,
        x_shape: tuple[int, ...],
        w_shape: tuple[int, ...],
        params: ConvAddParams,
        *,
        shifts: tuple[int, ...] = (),
        bias: int = 16,
        pad: bool = False,
        fill: str = "random",
        clamp: tuple[int | None, int | None] = (None, None),
    ) -> Case:
        """shifts: of the sums, one or one a channel."""
        channels, e_x, e_y = w_shape[0], -4, -3
        typical = 6 + math.prod(w_shape[1:]).bit_length() // 2
        shifts = shifts or tuple(typical + c % 3 for c in range(channels))
        weights = [e_y - e_x - shift for shift in shifts]
        x = fed(name + "x", x_shape, 8, e_x, fill)
        w, b = constant(name + "w", w_shape, 8, *weights, fill=fill), constant(name + "b", (channels,), bias, e_y)
        padding = [constant(name + "p", x_shape[3:], 8, e_x)] if pad else []
        y = single(CONV, name, params, [x, w, b, *padding], grid(8, e_y)).graph["y"].shape
        r = fed(name + "r", y, 8, e_y, fill)
        return single(self, name, params, [r, x, w, b, *padding], grid(8, e_y, lo=clamp[0], hi=clamp[1]))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        r, *others = node.inputs
        products = f"{node.outputs[0]}.products"
        CONV.export(replace(node, inputs=tuple(others), outputs=(products,)), graph, to)
        to.node("Add", (products, r), node.outputs[0])


# name, x [N,H,W,C], w [O,KH,KW,I], params
_SAME = {f"pad_{side}": 1 for side in ("top", "left", "bottom", "right")}
_GEOMETRIES = (
    ("3x3", (1, 5, 6, 3), (4, 3, 3, 3), ConvAddParams(**_SAME)),
    ("3x3/stride", (1, 9, 8, 3), (37, 3, 3, 3), ConvAddParams(2, 2, 1, 1, 0, 0, 1, 1)),
    ("1x1", (1, 5, 3, 7), (9, 1, 1, 7), ConvAddParams()),
    ("1x1/padding", (1, 3, 3, 4), (5, 1, 1, 4), ConvAddParams(pad_top=1, pad_right=2)),
    ("groups", (1, 5, 5, 6), (4, 3, 3, 3), ConvAddParams(**_SAME, groups=2)),
    ("multiplier", (1, 5, 5, 2), (4, 3, 3, 1), ConvAddParams(**_SAME, groups=2)),
    ("dilation", (1, 9, 8, 3), (2, 3, 2, 3), ConvAddParams(1, 1, 2, 3, 2, 1, 2, 1)),
    ("batch", (3, 3, 3, 2), (2, 2, 2, 2), ConvAddParams()),
)
# Shapes for the blocks of kernels.
_BLOCKS = (
    ("16x16", (1, 5, 7, 16), (16, 3, 3, 16), ConvAddParams(**_SAME)),
    ("16x18", (1, 5, 5, 16), (18, 3, 3, 16), ConvAddParams(**_SAME)),
    ("64x70", (1, 3, 5, 64), (70, 1, 1, 64), ConvAddParams()),
    ("pixel", (1, 1, 1, 20), (7, 1, 1, 20), ConvAddParams()),
    ("two pixels", (1, 1, 2, 10), (8, 1, 1, 10), ConvAddParams()),
)
