"""Geometry that convolution and pooling share."""

from __future__ import annotations

from typing import Any

import numpy as np


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


def padded(x: np.ndarray, params: Any, value: np.ndarray | int | None = None) -> np.ndarray:
    """x [N,H,W,C] inside its padding, which holds value (scalar or [C], default 0); x itself when there is none."""
    top, left, bottom, right = params.pad_top, params.pad_left, params.pad_bottom, params.pad_right
    if top == left == bottom == right == 0:
        return x
    n, h, w, c = x.shape
    out = np.empty((n, h + top + bottom, w + left + right, c), x.dtype)
    out[:] = 0 if value is None else value
    out[:, top : top + h, left : left + w] = x
    return out


def tap(source: np.ndarray, params: Any, ky: int, kx: int, oh: int, ow: int) -> np.ndarray:
    """What window element (ky, kx) sees at each of the OH x OW positions of padded input: a view [N,OH,OW,C]."""
    y = ky * getattr(params, "dilation_h", 1)
    x = kx * getattr(params, "dilation_w", 1)
    rows = slice(y, y + (oh - 1) * params.stride_h + 1, params.stride_h)
    columns = slice(x, x + (ow - 1) * params.stride_w + 1, params.stride_w)
    return source[:, rows, columns]
