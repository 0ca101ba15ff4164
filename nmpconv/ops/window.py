"""Geometry that convolution and pooling share."""

from __future__ import annotations

from typing import Any


def window_out(size: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    """Number of positions of a window along one axis; padding is the sum of both sides."""
    return (size + padding - dilation * (kernel - 1) - 1) // stride + 1


def pool_out(params: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Output shape of a pool over [N,H,W,C]."""
    n, h, w, c = shape
    dilation_h, dilation_w = (
        getattr(params, "dilation_h", 1),
        getattr(params, "dilation_w", 1),
    )
    oh = window_out(
        h,
        params.kernel_h,
        params.stride_h,
        dilation_h,
        params.pad_top + params.pad_bottom,
    )
    ow = window_out(
        w,
        params.kernel_w,
        params.stride_w,
        dilation_w,
        params.pad_left + params.pad_right,
    )
    return (n, oh, ow, c)
