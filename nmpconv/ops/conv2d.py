"""2D convolution, depthwise and grouped included: x [N,H,W,C], w [O,KH,KW,C/groups], b [O], optional pad [C]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op
from nmpconv.ops.window import window_out


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


class Conv2D(Op):
    name = "conv2d"
    Params = Conv2DParams
    clamps = True
    onnx = ("Conv", "BatchNormalization")

    def infer(self, params: Conv2DParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        n, h, w, _ = inputs[0].shape
        o, kh, kw, _ = inputs[1].shape
        oh = window_out(
            h,
            kh,
            params.stride_h,
            params.dilation_h,
            params.pad_top + params.pad_bottom,
        )
        ow = window_out(
            w,
            kw,
            params.stride_w,
            params.dilation_w,
            params.pad_left + params.pad_right,
        )
        return [(n, oh, ow, o)]
