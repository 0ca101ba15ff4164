"""Max pooling over H and W of x [N,H,W,C]; padding never wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op
from nmpconv.ops.window import pool_out


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


class MaxPool(Op):
    name = "max_pool"
    Params = MaxPoolParams
    grid = "same"
    onnx = ("MaxPool", "GlobalMaxPool")

    def infer(self, params: MaxPoolParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [pool_out(params, inputs[0].shape)]
