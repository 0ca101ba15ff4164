"""Max pooling over H and W of x [N,H,W,C]; padding never wins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.case import FILLS, WIDTHS, fed, grid, single
from nmpconv.ops.common.pool import Pool
from nmpconv.ops.common.reduction import lower_reduction
from nmpconv.ops.common.traits import Border
from nmpconv.ops.common.window import bordered, padded, sees_pixels, tap
from nmpconv.ops.mul import MulParams
from nmpconv.ops.op import Case, QArray
from nmpconv.ops.pad import LOWEST

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class MaxPoolParams:
    kernel_h: int = 1
    kernel_w: int = 1
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0


class MaxPool(Pool):
    name = "max_pool"
    Params = MaxPoolParams
    grid = "same"
    restrictions = "every window sees a pixel"
    onnx = ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin")

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        if node.op_type in ("ReduceMax", "ReduceMin"):
            return _lower_reduction(node, to)
        source, border = _without_border(to, node.input(0))
        x = to.nhwc(source)
        _, height, width, _ = to[x].shape
        height, width = height + border.top + border.bottom, width + border.left + border.right
        if node.op_type == "GlobalMaxPool":
            params = MaxPoolParams(kernel_h=height, kernel_w=width)
        else:
            if node.integer("storage_order", 0) not in (0, 1):
                raise Invalid(f"storage_order {node.integer('storage_order', 0)}", hint="0 or 1")
            params = MaxPoolParams(**node.pool_window((height, width)).params("kernel", "stride", "dilation", "pad"))
        to.nchw(to.emit("max_pool", (x,), bordered(params, border)), node.outputs[0], like=node.input(0))

    def take_border(
        self, params: MaxPoolParams, inputs: Sequence[Value], border: Border, least: float
    ) -> tuple[MaxPoolParams, None] | None:
        """Padding never wins, nor does a border that no element is below."""
        wider = bordered(params, border)
        plain = params.dilation_h == params.dilation_w == 1 and sees_pixels(wider)
        return (wider, None) if plain and least >= border.value else None

    def window(self, params: MaxPoolParams, inputs: Sequence[Value]) -> tuple[int, int]:
        return params.kernel_h, params.dilation_h

    def reference(self, params: MaxPoolParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """The largest pixel of each window; every window holds at least one."""
        x = inputs[0].q
        _, oh, ow, _ = outputs[0].shape
        source = padded(x, params, int(np.iinfo(x.dtype).min))
        y = tap(source, params, 0, 0, oh, ow).copy()
        for ky in range(params.kernel_h):
            for kx in range(params.kernel_w):
                np.maximum(y, tap(source, params, ky, kx, oh, ow), out=y)
        return [y]

    def cases(self) -> Iterator[Case]:
        for (name, shape, params), bits, fill in product(_GEOMETRIES, WIDTHS, FILLS):
            case = f"{name}/int{bits}/{fill}"
            yield single(self, case, params, [fed(case, shape, bits, -4, fill)], grid(bits, -4))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p: MaxPoolParams = node.params
        y = to.node(
            "MaxPool",
            (to.transpose(node.inputs[0], (0, 3, 1, 2)),),
            kernel_shape=[p.kernel_h, p.kernel_w],
            strides=[p.stride_h, p.stride_w],
            dilations=[p.dilation_h, p.dilation_w],
            pads=[p.pad_top, p.pad_left, p.pad_bottom, p.pad_right],
        )
        to.transpose(y, (0, 2, 3, 1), node.outputs[0])


def _without_border(to: GraphBuilder, name: str) -> tuple[str, Border]:
    """Returns the tensor within a border of -inf, and the border; of any other tensor the tensor itself."""
    pad = to.maker(to.value(name))
    if pad is None or pad.op != "pad" or to[pad.inputs[1]].data != LOWEST:
        return name, Border(0, 0, 0, 0, -math.inf)
    outside, inside = pad.params.pads[:4], pad.params.pads[4:]
    if any(outside) or len(inside) not in (2, 4):
        raise Unsupported("its input has a border of -inf along other axes than height and width", hint="its own pads")
    top, bottom, left, right = (0,) * (4 - len(inside)) + tuple(inside)
    return pad.inputs[0], Border(top, bottom, left, right, -math.inf)


def _lower_reduction(node: OnnxNode, to: GraphBuilder) -> None:
    """The least is the negative of the largest of the negatives."""

    def negative(x: str) -> str:
        if node.op_type == "ReduceMax":
            return x
        return to.emit("mul", (x, to.const(np.full((1,) * len(to[x].shape), -1.0), "")), MulParams())

    def largest(x: str, height: int, width: int) -> str:
        return negative(to.emit("max_pool", (x,), MaxPoolParams(height, width)))

    lower_reduction(node, to, negative(to.value(node.input(0))), largest)


# name, x [N,H,W,C], params
_GEOMETRIES = (
    ("2x2", (1, 6, 4, 5), MaxPoolParams(2, 2, 2, 2)),
    ("3x3/same", (1, 5, 7, 70), MaxPoolParams(3, 3, 1, 1, 1, 1, 1, 1, 1, 1)),
    ("3x2/uneven", (1, 8, 7, 3), MaxPoolParams(3, 2, 2, 3, 1, 1, 2, 0, 1, 1)),
    ("dilation", (1, 9, 9, 4), MaxPoolParams(3, 2, 1, 2, 2, 3, 2, 1, 2, 1)),
    ("dilation/behind", (1, 2, 2, 3), MaxPoolParams(2, 2, 1, 1, 2, 2, 0, 0, 1, 1)),
    ("global", (1, 7, 9, 33), MaxPoolParams(7, 9)),
    ("pixel", (1, 1, 1, 3), MaxPoolParams(3, 3, 1, 1, 1, 1, 1, 1, 1, 1)),
    ("batch", (2, 3, 3, 2), MaxPoolParams(2, 2)),
)
