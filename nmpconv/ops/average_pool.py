"""Average pooling over H and W of x [N,H,W,C]; a global pool has the kernel of the whole plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import SPREAD_MAX, div, sat
from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.case import FILLS, WIDTHS, fed, grid, single
from nmpconv.ops.common.pool import Pool
from nmpconv.ops.common.reduction import lower_reduction
from nmpconv.ops.common.traits import Border, Bounds, Limit, Origins, hull
from nmpconv.ops.common.window import (
    bordered,
    is_padded,
    padded,
    sees_pixels,
    tap,
)
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

AREA_MAX = 65536  # legal kernel_h * kernel_w


@dataclass(frozen=True)
class AveragePoolParams:
    kernel_h: int = 1
    kernel_w: int = 1
    stride_h: int = 1
    stride_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0
    count_include_pad: bool = False


class AveragePool(Pool):
    name = "average_pool"
    Params = AveragePoolParams
    clamps = True
    restrictions = f"kernels of at most {AREA_MAX} pixels, every window sees a pixel"
    onnx = ("AveragePool", "GlobalAveragePool", "ReduceMean")

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        if node.op_type == "ReduceMean":

            def mean(x: str, height: int, width: int) -> str:
                return to.emit("average_pool", (x,), AveragePoolParams(height, width))

            return lower_reduction(node, to, to.value(node.input(0)), mean)
        x = to.nhwc(node.input(0))
        _, height, width, _ = to[x].shape
        if node.op_type == "GlobalAveragePool":
            params = AveragePoolParams(kernel_h=height, kernel_w=width)
        else:
            window = node.pool_window((height, width))
            if window.dilation != (1, 1):
                raise Unsupported(f"dilations {list(window.dilation)}", hint="dilation 1")
            count = bool(node.integer("count_include_pad", 0))
            if window.overhang != (0, 0) and count:
                # What ceil_mode adds is never counted, explicit padding is: both at once has no equivalent here.
                if window.before != (0, 0) or window.after != window.overhang:
                    raise Unsupported("ceil_mode together with counted padding", hint="count_include_pad = 0")
                count = False
            params = AveragePoolParams(**window.params("kernel", "stride", "pad"), count_include_pad=count)
        to.nchw(to.emit("average_pool", (x,), params), node.outputs[0], like=node.input(0))

    def infer(self, params: AveragePoolParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        if (area := params.kernel_h * params.kernel_w) > AREA_MAX:
            raise Unsupported(f"a kernel of {area} pixels", hint=f"at most {AREA_MAX}")
        return super().infer(params, inputs)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p: AveragePoolParams = node.params
        y = to.node(
            "AveragePool",
            (to.transpose(node.inputs[0], (0, 3, 1, 2)),),
            kernel_shape=[p.kernel_h, p.kernel_w],
            strides=[p.stride_h, p.stride_w],
            pads=[p.pad_top, p.pad_left, p.pad_bottom, p.pad_right],
            count_include_pad=int(p.count_include_pad),
        )
        to.transpose(y, (0, 2, 3, 1), node.outputs[0])

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        x, y = quant_of(graph[node.inputs[0]]).exponent, quant_of(graph[node.outputs[0]]).exponent
        yield Limit(x - y, -SPREAD_MAX, SPREAD_MAX, below=node.inputs, above=node.outputs)

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        return hull((*inputs, (0.0, 0.0))) if node.params.count_include_pad else inputs[0]

    def origins(self, params: AveragePoolParams, inputs: Sequence[Value], output: Value) -> Origins:
        return Origins.ALIKE

    def without_zeros(self, params: AveragePoolParams) -> tuple[tuple[int, ...], AveragePoolParams] | None:
        if not params.count_include_pad or not is_padded(params):
            return None
        sides = params.pad_top, params.pad_bottom, params.pad_left, params.pad_right
        bare = replace(params, pad_top=0, pad_bottom=0, pad_left=0, pad_right=0, count_include_pad=False)
        return (0, 0, *sides, 0, 0), bare

    def squares(self, node: Node, inputs: Sequence[bool]) -> bool:
        return inputs[0]

    def take_border(
        self, params: AveragePoolParams, inputs: Sequence[Value], border: Border, least: float
    ) -> tuple[AveragePoolParams, None] | None:
        """Zeros, which it counts then; so it must count the padding that it has."""
        wider = replace(bordered(params, border), count_include_pad=True)
        counts = params.count_include_pad or not is_padded(params)
        return (wider, None) if border.value == 0 and counts and sees_pixels(wider) else None

    def window(self, params: AveragePoolParams, inputs: Sequence[Value]) -> tuple[int, int]:
        return params.kernel_h, 1

    def reference(
        self, params: AveragePoolParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """y = sat(div(num, den)), num = sum * 2^max(d,0), den = n * 2^max(-d,0), d = e_x - e_y.

        n counts the pixels of the window, with count_include_pad the padding too. |d| <= SPREAD_MAX.
        """
        x = inputs[0]
        quant = quant_of(outputs[0])
        _, oh, ow, _ = outputs[0].shape
        total = _sums(x.q, params, oh, ow)
        if params.count_include_pad:
            count = np.full((1, oh, ow, 1), params.kernel_h * params.kernel_w, np.int64)
        else:
            count = _sums(np.ones((1, *x.q.shape[1:3], 1), np.int8), params, oh, ow)
        d = x.quant.exponent - quant.exponent
        assert abs(d) <= SPREAD_MAX
        num, den = total << max(d, 0), count << max(-d, 0)
        return [sat(div(num, den), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        for (name, shape, geometry), include in product(_GEOMETRIES, (False, True)):
            params = replace(geometry, count_include_pad=include)
            for bits, fill in product(product(WIDTHS, repeat=2), FILLS):
                case = f"{name}/{'include/' if include else ''}{bits[0]}to{bits[1]}/{fill}"
                yield single(self, case, params, [fed(case, shape, bits[0], -4, fill)], grid(bits[1], -4))
        for d in (-30, -9, -1, 1, 5, 30):
            x = fed(f"d{d}", (1, 5, 5, 3), 16, d)
            yield single(self, f"exponents/{d}", AveragePoolParams(3, 3, 2, 2, 1, 1, 1, 1), [x], grid(16, 0, lo=-30000))


def _sums(x: np.ndarray, params: AveragePoolParams, oh: int, ow: int) -> np.ndarray:
    """Sum over each window, padding as 0: int64 [N,OH,OW,C]."""
    source = padded(x, params)
    if oh == ow == 1:
        window = source[:, : params.kernel_h, : params.kernel_w]
        return np.asarray(np.sum(window, axis=(1, 2), dtype=np.int64, keepdims=True))
    total = np.zeros((x.shape[0], oh, ow, x.shape[3]), np.int64)
    for ky in range(params.kernel_h):
        for kx in range(params.kernel_w):
            total += tap(source, params, ky, kx, oh, ow)
    return total


# name, x [N,H,W,C], params
_GEOMETRIES = (
    ("2x2", (1, 6, 4, 5), AveragePoolParams(2, 2, 2, 2)),
    ("3x3/same", (1, 5, 7, 70), AveragePoolParams(3, 3, 1, 1, 1, 1, 1, 1)),
    ("3x2/uneven", (1, 8, 7, 3), AveragePoolParams(3, 2, 2, 3, 2, 0, 1, 1)),
    ("global", (1, 7, 9, 130), AveragePoolParams(7, 9)),
    ("batch", (2, 3, 3, 2), AveragePoolParams(2, 2)),
)
