"""Average pooling over H and W of x [N,H,W,C]; a global pool has the kernel of the whole plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op
from nmpconv.ops.window import pool_out


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


class AveragePool(Op):
    name = "average_pool"
    Params = AveragePoolParams
    clamps = True
    onnx = ("AveragePool", "GlobalAveragePool", "ReduceMean")

    def infer(self, params: AveragePoolParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [pool_out(params, inputs[0].shape)]
