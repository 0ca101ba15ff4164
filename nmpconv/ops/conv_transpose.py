"""Transposed 2D convolution: x [N,H,W,C], w [O,KH,KW,C/groups], b [O].

It is a convolution of x with zeros between its pixels; w is turned by 180 degrees against the ONNX
operator, so that it is what that convolution multiplies with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
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
from nmpconv.ops.common.rules import rank
from nmpconv.ops.common.traits import Origins, Rule, computed, unfit
from nmpconv.ops.common.weighted import Weighted
from nmpconv.ops.common.window import is_padded, plane_out
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class ConvTransposeParams(Conv2DParams):
    """stride - 1 zeros lie between two pixels; pads are zeros around all of that."""


class ConvTranspose(Weighted):
    name = "conv_transpose"
    Params = ConvTransposeParams
    restrictions = f"sums of at most {K_MAX} products"
    spreads = True
    onnx = ("ConvTranspose",)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """ONNX pads cut off the result; here they are what is left of the zeros around the input."""
        w = to.array(node.input(1), "weight")
        groups = node.integer("group", 1)
        x = to.nhwc(node.input(0))
        _, height, width, channels = to[x].shape
        if w.ndim not in (3, 4):
            raise Unsupported(f"a convolution of {w.ndim - 2} dimensions", hint="1 or 2 dimensions")
        if groups < 1 or channels != w.shape[0] or channels % groups:
            raise Invalid(f"weights {list(w.shape)} in {groups} group(s) do not fit {channels} input channels")
        if w.ndim != len(to[node.input(0)].shape):
            raise Invalid(f"weights {list(w.shape)} for x {list(to[node.input(0)].shape)}", hint="as many dimensions")
        node.kernel_shape(w.shape[2:])
        kernel = (1, w.shape[2]) if w.ndim == 3 else w.shape[2:]
        params = _geometry(node, (height, width), kernel, w.ndim - 2, groups)
        outs = w.shape[1]
        split = w.reshape(groups, channels // groups, outs, *kernel)[..., ::-1, ::-1]
        ohwi = split.transpose(0, 2, 3, 4, 1).reshape(groups * outs, *kernel, channels // groups)
        b = to.array(node.input(2), "bias") if node.input(2) else np.zeros(groups * outs)
        if b.shape != (groups * outs,):
            raise Invalid(f"a bias of shape {list(b.shape)}", hint=f"{[groups * outs]}")
        inputs = (x, to.const(ohwi, node.input(1)), to.const(b, node.input(2)))
        to.nchw(to.emit("conv_transpose", inputs, params), node.outputs[0], like=node.input(0))

    def infer(self, params: ConvTransposeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        o, kh, kw, i = inputs[1].shape
        check_products(kh * kw * i)
        n, h, w, _ = inputs[0].shape
        plane_out(params, (n, h, w, 1), (1, 1))  # strides that the format does not hold
        sparse = (n, (h - 1) * params.stride_h + 1, (w - 1) * params.stride_w + 1, 1)
        return [(n, *plane_out(replace(params, stride_h=1, stride_w=1), sparse, (kh, kw)), o)]

    def rules(self, params: ConvTransposeParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        yield rank(inputs[0], 4)
        yield rank(inputs[1], 4)
        yield f"{params.groups} groups", params.groups >= 1
        yield from super().rules(params, inputs, output)

    def misfit(self, params: ConvTransposeParams, inputs: Sequence[Value]) -> str:
        shapes, groups = [x.shape for x in inputs], params.groups
        fits = len(shapes) == 3 and len(shapes[0]) == len(shapes[1]) == 4 and shapes[2] == shapes[1][:1]
        fits = fits and shapes[1][3] * groups == shapes[0][3] and shapes[1][0] % groups == 0
        return computed(inputs) if fits else unfit(self.name, inputs)

    def reference(
        self, params: ConvTransposeParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """z = x with stride - 1 zeros between pixels; y_c = sat(rsh(sum z*w_c, s_c) + b_c), as conv2d."""
        x, w, b = inputs
        quant = quant_of(outputs[0])
        bound = accumulator_bound(magnitude(x.q), w.q)
        shifts = weight_shifts(x.quant, w.quant, quant, w.q.shape[0])
        spread, shape, dense = self.as_convolution(params, x.q, w.q.shape)
        y = np.empty((len(x.q), *outputs[0].shape[1:]), quant.dtype)
        for images, acc in convolve(spread, w.q.reshape(shape), dense, None, bound):
            y[images] = output_step(acc, bound, b.q, shifts, quant)
        return [y]

    def origins(self, params: ConvTransposeParams, inputs: Sequence[Value], output: Value) -> Origins:
        """The zeros between and around the pixels have no constant."""
        return Origins.ANY if self.padding(params, inputs) is None else Origins.RESULT

    def padding(self, params: ConvTransposeParams, inputs: Sequence[Value]) -> np.ndarray | None:
        dense = params.stride_h == params.stride_w == 1 and not is_padded(params)
        return None if dense else np.zeros(inputs[0].shape[-1], np.int64)

    def as_convolution(
        self, params: ConvTransposeParams, x: np.ndarray, weights: Sequence[int]
    ) -> tuple[np.ndarray, tuple[int, ...], Conv2DParams]:
        fields = {**vars(params), "stride_h": 1, "stride_w": 1}
        return spread_out(x, params), tuple(weights), Conv2DParams(**fields)

    def macs(self, params: ConvTransposeParams, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return inputs[0].size * inputs[1].size // (inputs[1].shape[3] * params.groups)

    def cases(self) -> Iterator[Case]:
        for name, x, w, params in _GEOMETRIES:
            for bits in WIDTHS:
                yield self._case(f"{name}/int{bits}", x, w, params, (bits,) * 3)
        for widths, fill in product(product(WIDTHS, repeat=3), FILLS):
            params = ConvTransposeParams(2, 2, 1, 1, 1, 1, 2, 2)
            yield self._case(f"{fill}/{by(widths)}", (1, 3, 4, 3), (4, 3, 3, 3), params, widths, fill)

    def _case(
        self,
        name: str,
        x_shape: tuple[int, ...],
        w_shape: tuple[int, ...],
        params: ConvTransposeParams,
        bits: tuple[int, ...],
        fill: str = "random",
    ) -> Case:
        typical = bits[0] + bits[1] - bits[2] - 3 + prod(w_shape[1:]).bit_length() // 2
        operands = [
            fed(name + "x", x_shape, bits[0], -4, fill),
            constant(name + "w", w_shape, bits[1], *(1 - typical - c % 3 for c in range(w_shape[0])), fill=fill),
            constant(name + "b", w_shape[:1], 16, -3, fill=fill),
        ]
        return single(self, name, params, operands, grid(bits[2], -3))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p: ConvTransposeParams = node.params
        x, w, b = graph.ins(node)
        assert w.data is not None
        o, kh, kw, i = w.shape
        turned = w.data.reshape(p.groups, o // p.groups, kh, kw, i)[:, :, ::-1, ::-1]
        iohw = turned.transpose(0, 4, 1, 2, 3).reshape(p.groups * i, o // p.groups, kh, kw)
        reach = ((kh - 1) * p.dilation_h, (kw - 1) * p.dilation_w)
        starts = [reach[0] - p.pad_top, reach[1] - p.pad_left]
        ends = [reach[0] - p.pad_bottom, reach[1] - p.pad_right]
        y = to.node(
            "ConvTranspose",
            (to.transpose(x.name, (0, 3, 1, 2)), to.const(np.ascontiguousarray(iohw)), b.name),
            strides=[p.stride_h, p.stride_w],
            dilations=[p.dilation_h, p.dilation_w],
            pads=[max(cut, 0) for cut in (*starts, *ends)],
            output_padding=[max(-cut, 0) for cut in ends],
            group=p.groups,
        )
        to.transpose(y, (0, 2, 3, 1), node.outputs[0])


def spread_out(x: np.ndarray, params: Any) -> np.ndarray:
    """x [N,H,W,C] with stride - 1 zeros between its pixels."""
    n, h, w, c = x.shape
    if params.stride_h == params.stride_w == 1:
        return x
    z = np.zeros((n, (h - 1) * params.stride_h + 1, (w - 1) * params.stride_w + 1, c), x.dtype)
    z[:, :: params.stride_h, :: params.stride_w] = x
    return z


AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def _geometry(
    node: OnnxNode, size: Sequence[int], kernel: Sequence[int], rank: int, groups: int
) -> ConvTransposeParams:
    """In two dimensions; those of one are the last."""
    stride, dilation = ([1] * (2 - rank) + list(node.sides(name, 1, rank)) for name in ("strides", "dilations"))
    around = [(0, 0)] * (2 - rank) + transposed_padding(node, size[2 - rank :], kernel[2 - rank :])
    if min(side for pair in around for side in pair) < 0:
        raise Unsupported("pads beyond the kernel's reach", hint="pads smaller than the kernel")
    (top, bottom), (left, right) = around
    return ConvTransposeParams(stride[0], stride[1], dilation[0], dilation[1], top, left, bottom, right, groups)


def transposed_padding(node: OnnxNode, size: Sequence[int], kernel: Sequence[int]) -> list[tuple[int, int]]:
    """For each axis the zeros before and after the input, once its pixels are spread, less than 0 where it is cut.

    By strides, dilations, pads, output_padding, output_shape and auto_pad, which count from the last axis.
    """
    rank = len(kernel)
    stride, dilation, extra = (
        node.sides(name, plain, rank) for name, plain in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    if any(more >= max(sides) for more, *sides in zip(extra, stride, dilation, strict=True)):
        raise Invalid(f"output_padding {list(extra)}", hint="less than stride or dilation")
    # Some exporters write batch and channels, too.
    wanted = (node.integers("output_shape") or (0,) * rank)[-rank:]
    pads = node.integers("pads") or (0,) * (2 * rank)
    if len(wanted) != rank or len(pads) != 2 * rank:
        raise Invalid(f"output_shape or pads do not fit a {rank}d kernel", hint=f"{rank} and {2 * rank} of them")
    auto = node.text("auto_pad", "NOTSET")
    if auto not in AUTO_PADS:
        raise Invalid(f"auto_pad {auto}", hint=", ".join(AUTO_PADS))
    around = []
    for axis in range(rank):
        start, end = pads[axis], pads[rank + axis]
        reach = (kernel[axis] - 1) * dilation[axis]
        goal = wanted[axis] or (size[axis] * stride[axis] if auto.startswith("SAME") else 0)
        if goal:
            total = (size[axis] - 1) * stride[axis] + extra[axis] + reach + 1 - goal
            if total <= -stride[axis]:
                raise Invalid(f"output_shape {list(wanted)} cannot be reached from {list(size)}", hint="a smaller one")
            half = max(total, 0) // 2  # what is missing is added at the end
            start, end = (half, total - half) if auto == "SAME_UPPER" else (max(total, 0) - half, min(total, half))
        elif auto == "VALID":
            start = end = 0
        around.append((reach - start, reach - end + extra[axis]))
    return around


# name, x [N,H,W,C], w [O,KH,KW,I], params
_GEOMETRIES = (
    ("1x1", (1, 3, 4, 5), (6, 1, 1, 5), ConvTransposeParams()),
    ("2x2/stride", (1, 3, 4, 2), (3, 2, 2, 2), ConvTransposeParams(2, 2, 1, 1, 1, 1, 1, 1)),
    ("3x3/stride", (1, 4, 3, 3), (40, 3, 3, 3), ConvTransposeParams(2, 2, 1, 1, 1, 1, 2, 2)),
    ("4x3/uneven", (1, 3, 5, 2), (3, 4, 3, 2), ConvTransposeParams(3, 1, 1, 2, 3, 4, 2, 0)),
    ("dilation", (1, 4, 4, 3), (2, 3, 2, 3), ConvTransposeParams(2, 3, 2, 3, 4, 3, 4, 2)),
    ("groups", (1, 3, 3, 6), (4, 3, 3, 3), ConvTransposeParams(2, 2, 1, 1, 1, 1, 1, 1, 2)),
    ("depthwise", (1, 3, 4, 7), (7, 4, 4, 1), ConvTransposeParams(2, 2, 1, 1, 2, 2, 2, 2, 7)),
    ("batch", (2, 2, 2, 2), (2, 2, 2, 2), ConvTransposeParams(2, 2, 1, 1, 1, 1, 1, 1)),
)
