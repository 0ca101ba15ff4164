"""2D convolution, depthwise and grouped included: x [N,H,W,C], w [O,KH,KW,C/groups], b [O], optional pad [C]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MAX, SHIFT_MIN
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.add import AddParams
from nmpconv.ops.common.accumulate import (
    K_MAX,
    accumulator_bound,
    check_products,
    convolve,
    magnitude,
    output_step,
    weight_shifts,
)
from nmpconv.ops.common.case import FILLS, WIDTHS, by, constant, fed, grid, single
from nmpconv.ops.common.overlap import Lines
from nmpconv.ops.common.rules import rank
from nmpconv.ops.common.traits import Border, Rule, computed, unfit
from nmpconv.ops.common.weighted import Weighted
from nmpconv.ops.common.window import bordered, is_padded, plane_out, readings
from nmpconv.ops.mul import MulParams
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

# Depthwise windows of so many rows: those of neighbours share what is read of a column, up to so many bytes of columns.
THREE_ROWS, COLUMN_BYTES = 3, 18


@dataclass(frozen=True)
class Conv2DParams:
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0
    groups: int = 1


class Conv2D(Weighted):
    name = "conv2d"
    Params = Conv2DParams
    restrictions = f"sums of at most {K_MAX} products"
    onnx = ("Conv", "BatchNormalization")
    border = 3
    constants = (2, 3)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """A BatchNormalization becomes a depthwise 1x1 convolution; statistics are constants in inference."""
        if node.op_type == "BatchNormalization":
            return _lower_batch_norm(node, to)
        w = to.array(node.input(1), "weight")
        groups = node.integer("group", 1)
        x = to.nhwc(node.input(0))
        _, height, width, channels = to[x].shape
        if w.ndim not in (3, 4):
            raise Unsupported(f"a convolution of {w.ndim - 2} dimensions", hint="1 or 2 dimensions")
        if groups < 1 or channels != w.shape[1] * groups or w.shape[0] % groups:
            raise Invalid(f"weights {list(w.shape)} in {groups} group(s) do not fit {channels} input channels")
        if w.ndim != len(to[node.input(0)].shape):
            raise Invalid(f"weights {list(w.shape)} for x {list(to[node.input(0)].shape)}", hint="as many dimensions")
        window = node.window((height, width), w.shape[2:])
        b = to.array(node.input(2), "bias") if node.input(2) else np.zeros(w.shape[0])
        if b.shape != w.shape[:1]:
            raise Invalid(f"a bias of shape {list(b.shape)}", hint=f"{list(w.shape[:1])}")
        ohwi = w.reshape(*w.shape[:2], *window.kernel).transpose(0, 2, 3, 1)
        inputs = (x, to.const(ohwi, node.input(1)), to.const(b, node.input(2)))
        params = Conv2DParams(**window.params("stride", "dilation", "pad"), groups=groups)
        to.nchw(to.emit("conv2d", inputs, params), node.outputs[0], like=node.input(0))

    def infer(self, params: Conv2DParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        o, kh, kw, i = inputs[1].shape
        check_products(kh * kw * i)
        oh, ow = plane_out(params, inputs[0].shape, (kh, kw))
        return [(inputs[0].shape[0], oh, ow, o)]

    def rules(self, params: Conv2DParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        yield rank(inputs[0], 4)
        yield rank(inputs[1], 4)
        yield f"{params.groups} groups", params.groups >= 1
        yield from super().rules(params, inputs, output)

    def misfit(self, params: Conv2DParams, inputs: Sequence[Value]) -> str:
        shapes, groups = [x.shape for x in inputs], params.groups
        fits = len(shapes) in (3, 4) and len(shapes[0]) == len(shapes[1]) == 4
        fits = fits and shapes[1][3] * groups == shapes[0][3] and shapes[1][0] % groups == 0
        fits = fits and shapes[2] == shapes[1][:1] and all(shape == shapes[0][3:] for shape in shapes[3:])
        return computed(inputs) if fits else unfit(self.name, inputs)

    def reference(self, params: Conv2DParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y_c = sat(rsh(sum x*w_c, s_c) + b_c), s_c = e_y - e_x - e_w[c]; padding taps see pad[c], by default 0."""
        x, w, b = inputs[:3]
        pad = inputs[3].q if len(inputs) > 3 else None
        quant = quant_of(outputs[0])
        x_max = max(magnitude(x.q), 0 if pad is None else magnitude(pad))
        bound = accumulator_bound(x_max, w.q)
        shifts = weight_shifts(x.quant, w.quant, quant, w.q.shape[0])
        y = np.empty((len(x.q), *outputs[0].shape[1:]), quant.dtype)
        for images, acc in convolve(x.q, w.q, params, pad, bound):
            y[images] = output_step(acc, bound, b.q, shifts, quant)
        return [y]

    def lines(self, params: Conv2DParams, inputs: Sequence[Value], output: Value) -> Lines | None:
        """Rows; pixels, where a pixel sees only one."""
        (_, height, width, channels), (_, kh, kw, _) = inputs[0].shape, inputs[1].shape
        x, y = channels * _width(inputs[0]), output.shape[3] * _width(output)
        if inputs[0].shape[0] != 1:
            return None
        if (kh, kw) == (1, 1) and replace(params, dilation_h=1, dilation_w=1, groups=1) == Conv2DParams():
            return Lines(x, y, height * width, height * width)
        extent = params.dilation_h * (kh - 1) + 1
        return Lines(x * width, y * output.shape[2], height, output.shape[1], params.stride_h, params.pad_top, extent)

    def by_channel(self, params: Conv2DParams, inputs: Sequence[Value], output: Value) -> bool:
        return is_depthwise(params.groups, inputs[0].shape, output.shape)

    def with_channels(self, params: Conv2DParams, channels: int) -> Conv2DParams:
        return replace(params, groups=channels)

    def padding(self, params: Conv2DParams, inputs: Sequence[Value]) -> np.ndarray | None:
        if not is_padded(params):
            return None
        return np.zeros(inputs[0].shape[-1], np.int64) if len(inputs) < 4 else inputs[3].data

    def take_border(
        self, params: Conv2DParams, inputs: Sequence[Value], border: Border, least: float
    ) -> tuple[Conv2DParams, np.ndarray | None] | None:
        """Padding has one value per channel."""
        own = self.padding(params, inputs)
        if own is not None and (own != border.value).any():
            return None
        if own is not None:
            pad = inputs[3].data if len(inputs) > 3 else None
        else:
            pad = np.full(inputs[0].shape[-1], border.value) if border.value != 0 else None
        return bordered(params, border), pad

    def is_matrix(self, params: Conv2DParams, weights: Value) -> bool:
        return params == Conv2DParams() and weights.shape[1:3] == (1, 1)

    def as_convolution(
        self, params: Conv2DParams, x: np.ndarray, weights: Sequence[int]
    ) -> tuple[np.ndarray, tuple[int, ...], Conv2DParams]:
        return x, tuple(weights), params

    def window(self, params: Conv2DParams, inputs: Sequence[Value]) -> tuple[int, int]:
        return inputs[1].shape[1], params.dilation_h

    def reads(self, params: Conv2DParams, inputs: Sequence[Value], output: Value) -> list[int]:
        x, (_, height, width, _) = inputs[0], inputs[1].shape
        rows, columns = readings(params, x.shape, (height, width))
        if is_depthwise(params.groups, x.shape, output.shape) and height == THREE_ROWS:
            columns = min(x.shape[2], (output.shape[2] - 1) * params.stride_w + width - params.pad_left)
            together = max((COLUMN_BYTES * _width(x) - width) // params.stride_w + 1, 1)
            columns += (output.shape[2] - 1) // together * max(width - params.stride_w, 0)
        return [x.shape[0] * rows * columns * x.shape[3], *(value.size for value in inputs[1:])]

    def macs(self, params: Conv2DParams, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return outputs[0].size * inputs[1].size // inputs[1].shape[0]

    def cases(self) -> Iterator[Case]:
        for name, x, w, params in _GEOMETRIES:
            for bits in WIDTHS:
                for pad in (False, True):
                    yield self._case(f"{name}/int{bits}{'/pad' if pad else ''}", x, w, params, (bits,) * 3, pad=pad)
        x, w = (1, 5, 6, 3), (4, 3, 3, 3)
        around = Conv2DParams(pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
        for widths in product(WIDTHS, repeat=3):
            for bias in (8, 16, 32):
                yield self._case(f"widths/{by(widths)}/bias{bias}", x, w, around, widths, bias=bias)
            for fill in FILLS[1:]:
                yield self._case(f"{fill}/{by(widths)}", x, w, around, widths, fill=fill, pad=True)
            for shifts in _SHIFTS:
                name = f"shift/{','.join(map(str, shifts))}/{by(widths)}"
                yield self._case(name, x, w, around, widths, shifts=shifts, bias=32)
        clamped = (("window", x, w, around), *(g for g in _GEOMETRIES if g[0] in ("1x1", "depthwise", "depthwise/5x5")))
        for name, x, w, params in clamped:
            for low, high in ((0, 48), (-100, None)):
                yield self._case(f"{name}/clamp/{low}", x, w, params, (8, 8, 8), clamp=(low, high))

    def _case(
        self,
        name: str,
        x_shape: tuple[int, ...],
        w_shape: tuple[int, ...],
        params: Conv2DParams,
        bits: tuple[int, ...],
        *,
        bias: int = 16,
        shifts: tuple[int, ...] = (),
        pad: bool = False,
        fill: str = "random",
        clamp: tuple[int | None, int | None] = (None, None),
    ) -> Case:
        """bits of x, w and y; without shifts, such ones per channel that results fill the range of y."""
        o = w_shape[0]
        typical = bits[0] + bits[1] - bits[2] - 2 + prod(w_shape[1:]).bit_length() // 2
        shifts = shifts or tuple(typical + c % 3 for c in range(o))
        e_x, e_y = -4, -3
        operands = [
            fed(name + "x", x_shape, bits[0], e_x, fill),
            constant(name + "w", w_shape, bits[1], *(e_y - e_x - s for s in shifts), fill=fill),
            constant(name + "b", (o,), bias, e_y, fill=fill),
        ]
        if pad:
            operands.append(constant(name + "pad", x_shape[3:], bits[0], e_x, fill=fill))
        return single(self, name, params, operands, grid(bits[2], e_y, lo=clamp[0], hi=clamp[1]))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p: Conv2DParams = node.params
        x, w, b = graph.ins(node)[:3]
        assert w.data is not None
        assert b.data is not None
        plane = to.transpose(x.name, (0, 3, 1, 2))
        bias = b.data.astype(np.float64)
        if len(node.inputs) == 4:
            # conv(x padded with p) = conv(x - p padded with 0) + conv(p): the latter is one number per output channel.
            pad = graph[node.inputs[3]].data
            assert pad is not None
            plane = to.node("Sub", (plane, to.const(pad.astype(np.float32).reshape(1, -1, 1, 1))))
            per_group = pad.astype(np.float64).reshape(p.groups, -1)
            taps = w.data.astype(np.float64).sum(axis=(1, 2)).reshape(p.groups, -1, per_group.shape[1])
            bias = bias + np.einsum("goi,gi->go", taps, per_group).ravel()
        y = to.node(
            "Conv",
            (plane, to.const(w.data.transpose(0, 3, 1, 2)), to.const(bias.astype(np.float32))),
            strides=[p.stride_h, p.stride_w],
            dilations=[p.dilation_h, p.dilation_w],
            pads=[p.pad_top, p.pad_left, p.pad_bottom, p.pad_right],
            group=p.groups,
        )
        to.transpose(y, (0, 2, 3, 1), node.outputs[0])


def is_depthwise(groups: int, x: Sequence[int], y: Sequence[int]) -> bool:
    """One input and one output channel a group; shapes of x and y, or any that end in their channels."""
    return groups == x[-1] == y[-1]


def _width(value: Value) -> int:
    return value.nbytes // value.size


def _lower_batch_norm(node: OnnxNode, to: GraphBuilder) -> None:
    """(x - mean) * scale / sqrt(var + eps) + bias, per channel."""
    if node.is_training:
        raise Unsupported("training mode", hint="an export in inference mode")
    if not node.integer("spatial", 1):
        raise Unsupported("statistics per pixel (spatial = 0)", hint="statistics per channel")
    roles = ("scale", "bias", "mean", "variance")
    scale, bias, mean, var = (to.array(node.input(i + 1), role).astype(np.float64) for i, role in enumerate(roles))
    for role, data in zip(roles, (scale, bias, mean, var), strict=True):
        if data.shape != to[node.input(0)].shape[1:2]:
            raise Invalid(f"a {role} of shape {list(data.shape)}", hint=f"{list(to[node.input(0)].shape[1:2])}")
    with np.errstate(invalid="ignore"):  # a negative variance gives NaN, which no constant may hold
        factor = scale / np.sqrt(var + node.number("epsilon", 1e-5))
    offset = bias - mean * factor
    if len(to[node.input(0)].shape) == 2:
        product = to.emit("mul", (to.value(node.input(0)), to.const(factor[None], node.input(1))), MulParams())
        to.emit("add", (product, to.const(offset[None], node.input(2))), AddParams(), node.outputs[0])
        return
    x, w = to.nhwc(node.input(0)), to.const(factor.reshape(-1, 1, 1, 1), node.input(1))
    y = to.emit("conv2d", (x, w, to.const(offset, node.input(2))), Conv2DParams(groups=factor.size))
    to.nchw(y, node.outputs[0], like=node.input(0))


# name, x [N,H,W,C], w [O,KH,KW,I], params
_GEOMETRIES = (
    ("1x1", (1, 5, 3, 7), (9, 1, 1, 7), Conv2DParams()),
    ("1x1/rest", (1, 3, 3, 6), (3, 1, 1, 6), Conv2DParams()),
    ("1x1/stride", (1, 5, 4, 3), (2, 1, 1, 3), Conv2DParams(2, 3)),
    ("1x1/stride/padding", (1, 2, 2, 4), (3, 1, 1, 4), Conv2DParams(2, 2, pad_bottom=1, pad_right=1)),
    ("1x1/padding", (1, 3, 3, 4), (5, 1, 1, 4), Conv2DParams(pad_top=1, pad_right=2)),
    ("3x3", (1, 6, 5, 2), (3, 3, 3, 2), Conv2DParams()),
    ("3x3/same", (1, 4, 7, 3), (40, 3, 3, 3), Conv2DParams(1, 1, 1, 1, 1, 1, 1, 1)),
    ("3x3/stride", (1, 8, 8, 3), (4, 3, 3, 3), Conv2DParams(2, 2, 1, 1, 0, 0, 1, 1)),
    ("2x5/uneven", (1, 7, 9, 2), (3, 2, 5, 2), Conv2DParams(3, 2, 1, 1, 1, 4, 0, 2)),
    ("dilation", (1, 9, 8, 3), (2, 3, 2, 3), Conv2DParams(1, 1, 2, 3, 2, 1, 2, 1)),
    ("dilation/beyond", (1, 2, 2, 1), (2, 3, 3, 1), Conv2DParams(1, 1, 2, 2, 2, 2, 2, 2)),
    ("dilation/behind", (1, 3, 2, 2), (2, 2, 2, 2), Conv2DParams(1, 1, 2, 2, pad_bottom=1, pad_right=1)),
    ("groups", (1, 5, 5, 6), (4, 3, 3, 3), Conv2DParams(1, 1, 1, 1, 1, 1, 1, 1, 2)),
    ("groups/1x1", (1, 3, 3, 8), (12, 1, 1, 2), Conv2DParams(groups=4)),
    ("depthwise", (1, 6, 5, 37), (37, 3, 3, 1), Conv2DParams(1, 1, 1, 1, 1, 1, 1, 1, 37)),
    ("depthwise/stride", (1, 9, 8, 16), (16, 5, 3, 1), Conv2DParams(2, 3, 1, 2, 2, 0, 2, 1, 16)),
    ("depthwise/two", (1, 7, 8, 5), (5, 3, 3, 1), Conv2DParams(2, 2, 1, 1, 1, 1, 1, 1, 5)),
    ("depthwise/two/odd", (1, 4, 7, 4), (4, 3, 3, 1), Conv2DParams(2, 2, 1, 1, 1, 1, 1, 1, 4)),
    ("depthwise/two/behind", (1, 5, 6, 3), (3, 3, 3, 1), Conv2DParams(2, 2, pad_bottom=1, pad_right=1, groups=3)),
    ("depthwise/5x5", (1, 5, 6, 6), (6, 5, 5, 1), Conv2DParams(1, 1, 1, 1, 2, 2, 2, 2, 6)),
    ("depthwise/1x1", (1, 2, 3, 70), (70, 1, 1, 1), Conv2DParams(groups=70)),
    ("depthwise/multiplier", (1, 4, 4, 3), (6, 3, 3, 1), Conv2DParams(1, 1, 1, 1, 1, 1, 1, 1, 3)),
    ("one-channel", (1, 6, 6, 1), (1, 3, 3, 1), Conv2DParams(1, 1, 1, 1, 1, 1, 1, 1, 1)),
    ("whole-plane", (1, 4, 4, 20), (33, 4, 4, 20), Conv2DParams()),
    ("batch", (3, 3, 3, 2), (2, 2, 2, 2), Conv2DParams()),
)
_SHIFTS = ((SHIFT_MIN,), (-1,), (0,), (1,), (31,), (32,), (SHIFT_MAX,), (-3, 5, 20, 40))
