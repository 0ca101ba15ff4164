"""Exact integer sums of products by BLAS, and the output step of conv2d and fully_connected.

Why floats are exact here: a float type with p bits of significand (24 or 53) holds every integer of magnitude up
to 2^p. If max|x| * sum|w_c| <= 2^p for every output channel c, then every product and every partial sum is such an
integer, in whatever order BLAS adds them and fused or not, so nothing is ever rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nmpconv.base.fixed_point import rsh, sat
from nmpconv.errors import Unsupported
from nmpconv.ir import Quant
from nmpconv.ops.common.window import padded, plane_out, tap

K_MAX = 131071  # legal products of a sum: int8 * int8 stays below 2^31
CHUNK = 2**19  # elements of a temporary: 2 MB of float32, which stay in the cache
TILE = 2**18  # elements that stay in the cache while a depthwise convolution goes over its taps


def exact_type(bound: float) -> type:
    """The fastest type in which integers of magnitude up to bound add exactly (bound at most 2^62)."""
    return np.float32 if bound <= 2**24 else np.float64 if bound < 2**53 else np.int64


def check_products(k: int) -> None:
    """Raises Unsupported when a sum has more products than the format allows."""
    if k > K_MAX:
        raise Unsupported(f"sums of {k} products", hint=f"at most {K_MAX}")


def magnitude(x: np.ndarray) -> int:
    """max|x|, 0 for nothing."""
    return max(-int(x.min()), int(x.max())) if x.size else 0


def accumulator_bound(x_max: int, w: np.ndarray) -> int:
    """max_c sum |x * w_c| for |x| <= x_max; w [O, ...] integers."""
    sums = np.abs(w.reshape(w.shape[0], -1).astype(np.int64)).sum(axis=1)
    return x_max * magnitude(sums)


def im2col(x: np.ndarray, params: Any, w_shape: tuple[int, ...], pad: np.ndarray | None = None) -> np.ndarray:
    """The patches that a convolution multiplies: [N*OH*OW, groups, KH*KW*I], in the order of w.reshape(O, -1).

    x [N,H,W,C] of any type; w_shape (O,KH,KW,I); pad [C] is the padding value per channel, default 0. A view of x
    when that is possible (1x1, stride 1, one group, no padding).
    """
    n, _, _, c = x.shape
    _, kh, kw, i = w_shape
    groups = params.groups
    oh, ow = plane_out(params, x.shape, (kh, kw))
    source = padded(x, params, pad)
    if (kh, kw, groups, params.stride_h, params.stride_w) == (1, 1, 1, 1, 1):
        return source.reshape(n * oh * ow, 1, c)
    rows = np.empty((n, oh, ow, groups, kh, kw, i), x.dtype)
    for ky in range(kh):
        for kx in range(kw):
            taps = tap(source, params, ky, kx, oh, ow)
            rows[:, :, :, :, ky, kx] = taps.reshape(n, oh, ow, groups, i)
    return rows.reshape(n * oh * ow, groups, kh * kw * i)


def accumulate(rows: np.ndarray, w: np.ndarray, kind: type) -> np.ndarray:
    """rows [M, G, K] times w [O, K] (O in G blocks) -> [M, O] in the exact type ``kind``."""
    m, groups, k = rows.shape
    o = w.shape[0]
    a: np.ndarray = rows.astype(kind, copy=False).transpose(1, 0, 2)
    b: np.ndarray = w.reshape(groups, o // groups, k).astype(kind).transpose(0, 2, 1)
    if groups == 1:
        return np.asarray(a[0] @ b[0])
    return np.asarray(np.matmul(a, b).transpose(1, 0, 2).reshape(m, o))


def convolve(
    x: np.ndarray, w: np.ndarray, params: Any, pad: np.ndarray | None, bound: float
) -> Iterator[tuple[slice, np.ndarray]]:
    """The sums of a convolution, some images at a time: (slice of images, exact integers [n,OH,OW,O]).

    x [N,H,W,C], w [O,KH,KW,I] and pad [C] hold integers; bound is at least their `accumulator_bound`.
    """
    kind = exact_type(bound)
    o, kh, kw, i = w.shape
    oh, ow = plane_out(params, x.shape, (kh, kw))
    depthwise = i == 1 and params.groups == x.shape[3] > 1
    per_image = oh * ow * (o if depthwise else max(kh * kw * i * params.groups, o))
    step = max(1, (TILE if depthwise else CHUNK) // max(per_image, 1))
    for first in range(0, x.shape[0], step):
        part: np.ndarray = x[first : first + step].astype(kind)
        if depthwise:
            acc = _depthwise(part, w.astype(kind), params, pad, oh, ow)
        else:
            acc = accumulate(im2col(part, params, w.shape, pad), w.reshape(o, -1), kind)
        yield slice(first, first + step), acc.reshape(len(part), oh, ow, o)


def _depthwise(x: np.ndarray, w: np.ndarray, params: Any, pad: np.ndarray | None, oh: int, ow: int) -> np.ndarray:
    n, c = x.shape[0], x.shape[3]
    o, kh, kw, _ = w.shape
    multiplier = o // c
    source = padded(x, params, pad)
    acc = np.zeros((n, oh, ow, c, multiplier), x.dtype)
    product = np.empty_like(acc)
    for ky in range(kh):
        for kx in range(kw):
            # The weights are repeated along OW so that numpy sees whole rows as one contiguous run.
            weights = np.tile(w[:, ky, kx, 0].reshape(1, c, multiplier), (ow, 1, 1))
            np.multiply(tap(source, params, ky, kx, oh, ow)[..., None], weights, out=product)
            acc += product
    return acc.reshape(n, oh, ow, o)


def output_step(acc: np.ndarray, bound: float, bias: np.ndarray, shifts: np.ndarray, quant: Quant) -> np.ndarray:
    """sat(rsh(acc, s) + b) in quant's type; acc [..., O] exact integers of magnitude <= bound, may be overwritten.

    With integers this is what the formula says. With floats it is floor(acc * 2^-s + (b + 1/2 if s > 0 else b)): both
    terms and their sum are multiples of 2^-max(s, 0), so all are exact when
    bound * 2^max(-s, 0) + (|b| + 1/2) * 2^max(s, 0) fits the significand.
    """
    s = np.asarray(shifts, np.int64)
    b = bias.astype(np.float64)
    need = np.max(np.ldexp(float(bound), np.maximum(-s, 0)) + np.ldexp(np.abs(b) + 0.5, np.maximum(s, 0)))
    kind = exact_type(float(need))
    if kind is np.int64:
        return sat(rsh(acc.astype(np.int64), s) + bias.astype(np.int64), quant.lo, quant.hi).astype(quant.dtype)
    y: np.ndarray = acc.astype(kind, copy=False)
    y *= np.ldexp(1.0, -s).astype(kind)
    y += (b + np.where(s > 0, 0.5, 0.0)).astype(kind)
    np.floor(y, out=y)
    np.minimum(np.maximum(y, quant.lo, out=y), quant.hi, out=y)
    return y.astype(quant.dtype)


def weight_shifts(x: Quant, w: Quant, y: Quant, channels: int) -> np.ndarray:
    """s_c = e_y - e_x - e_w[c] for every output channel: int64 [channels]."""
    shifts = y.exponent - x.exponent - np.asarray(w.exponents, np.int64)
    return shifts if len(shifts) == channels else np.full(channels, shifts[0])
