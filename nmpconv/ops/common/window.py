"""Geometry that convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from nmpconv.base.fixed_point import INT_MAX
from nmpconv.errors import Unsupported
from nmpconv.ops.common.traits import Border

P = TypeVar("P", bound=Any)

SIDE_MAX = 32767  # legal strides, dilations and paddings
ALONG = (  # the parameters of H and of W
    ("kernel_h", "stride_h", "dilation_h", "pad_top", "pad_bottom"),
    ("kernel_w", "stride_w", "dilation_w", "pad_left", "pad_right"),
)


def window_out(size: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    """Number of positions of a window along one axis; padding is the sum of both sides."""
    return (size + padding - dilation * (kernel - 1) - 1) // stride + 1


def plane_out(params: Any, shape: tuple[int, ...], kernel: tuple[int, int]) -> tuple[int, int]:
    """(OH, OW) of windows over x [N,H,W,C]. Raises Unsupported for sides that the format does not hold."""
    outs = []
    for size, extent, stride, dilation, before, after in _axes(params, shape, kernel):
        for side, least in ((stride, 1), (dilation, 1), (before, 0), (after, 0)):
            if not least <= side <= SIDE_MAX:
                raise Unsupported(f"a stride, dilation or padding of {side}", hint=f"{least} to {SIDE_MAX}")
        if size + before + after > INT_MAX[32]:
            raise Unsupported(f"an axis of {size} with a padding of {before + after}", hint="less than 2^31 in all")
        outs.append(window_out(size, extent, stride, dilation, before + after))
    return outs[0], outs[1]


def pool_out(params: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Output shape of a pool over [N,H,W,C]. Raises Unsupported, also when a window would see nothing but padding."""
    kernel = (params.kernel_h, params.kernel_w)
    oh, ow = plane_out(params, shape, kernel)
    for (size, extent, stride, dilation, before, _), out in zip(_axes(params, shape, kernel), (oh, ow), strict=True):
        last = (out - 1) * stride - before
        early = range(-before, min(last + 1, 0), stride)  # windows that start in the padding; of them the first pixel:
        first_pixels = early if size < dilation else early[:0]
        far = before > dilation * (extent - 1) or any(start % dilation >= size for start in first_pixels)
        if last >= size or far:
            raise Unsupported("a window that sees only padding", hint="paddings smaller than the kernel")
    return (shape[0], oh, ow, shape[3])


def readings(params: Any, shape: tuple[int, ...], kernel: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of x [N,H,W,C] that windows read: each one as often as windows see it, padding not at all."""
    counts = []
    for size, extent, stride, dilation, before, after in _axes(params, shape, kernel):
        taps = np.arange(extent, dtype=np.int64) * dilation - before
        last = np.minimum((size - 1 - taps) // stride, window_out(size, extent, stride, dilation, before + after) - 1)
        counts.append(int(np.maximum(last - np.maximum(-(taps // stride), 0) + 1, 0).sum()))
    return counts[0], counts[1]


def _axes(params: Any, shape: tuple[int, ...], kernel: tuple[int, int]) -> list[tuple[int, ...]]:
    """(size, kernel, stride, dilation, before, after) of H and of W."""
    p = params
    return [
        (shape[1], kernel[0], p.stride_h, getattr(p, "dilation_h", 1), p.pad_top, p.pad_bottom),
        (shape[2], kernel[1], p.stride_w, getattr(p, "dilation_w", 1), p.pad_left, p.pad_right),
    ]


def is_padded(params: Any) -> bool:
    return any((params.pad_top, params.pad_left, params.pad_bottom, params.pad_right))


def bordered(params: P, border: Border) -> P:
    """The parameters with the border's rows and columns as further padding."""
    return replace(
        params,
        pad_top=params.pad_top + border.top,
        pad_bottom=params.pad_bottom + border.bottom,
        pad_left=params.pad_left + border.left,
        pad_right=params.pad_right + border.right,
    )


def renamed_window(params: P, axes: Sequence[int]) -> P | None:
    """`Op.renamed` of a pool: an axis along which it does nothing may lie anywhere."""
    idle = type(params)()
    moved = dict[str, Any]()
    for axis, names in enumerate(ALONG, 1):
        used = [name for name in names if hasattr(params, name)]
        moved = {name: getattr(idle, name) for name in used} | moved
        if all(getattr(params, name) == getattr(idle, name) for name in used):
            continue
        if axes[0] != 0 or axes[axis] not in (1, 2):
            return None
        there = dict(zip(names, ALONG[axes[axis] - 1], strict=True))
        moved |= {there[name]: getattr(params, name) for name in used}
    return replace(params, **moved)


def sees_pixels(params: Any) -> bool:
    """Checks that every window of a pool without dilation sees a pixel, as `pool_out` asks, wherever it ends."""
    p = params
    return max(p.pad_top, p.pad_bottom) < p.kernel_h and max(p.pad_left, p.pad_right) < p.kernel_w


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
    """Values that window element (ky, kx) sees at each of the OH x OW positions of padded input: a view [N,OH,OW,C]."""
    y = ky * getattr(params, "dilation_h", 1)
    x = kx * getattr(params, "dilation_w", 1)
    rows = slice(y, y + (oh - 1) * params.stride_h + 1, params.stride_h)
    columns = slice(x, x + (ow - 1) * params.stride_w + 1, params.stride_w)
    return source[:, rows, columns]
