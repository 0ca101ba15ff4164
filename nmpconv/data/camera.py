"""Frames of a camera as the integers of a model's input: the specification of interpreter/include/nmp_image.h.

schema/FORMAT.md has the formula. C returns the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.errors import InputError, refusal
from nmpconv.ir import Preprocess

FORMATS = {"gray": 1, "rgb888": 3, "rgb565": 2, "rgb565_be": 2, "yuyv": 2}  # bytes of a pixel; in C's order
FILTERS = ("bilinear", "area")
SIDE_MAX, SHRINK_MAX = 4096, 64  # pixels of a side; times that it may shrink
ONE, FINE = 1024, 16  # largest weight; steps of a level between the two passes
SHIFT_MAX, FACTOR_MAX, BIAS_MAX = 24, 2**21, 2**30


@dataclass(frozen=True)
class ImageInput:
    """An input that pictures feed. factor, bias: of each channel; the integer of a pixel p is
    (p * factor + bias) / 2^shift, rounded half up, within clip_min and clip_max. bgr: blue is the first channel."""

    width: int
    height: int
    channels: int
    bgr: bool
    bits: int
    shift: int
    clip_min: int
    clip_max: int
    factor: tuple[int, ...]
    bias: tuple[int, ...]


def pixel_input(size: tuple[int, int, int], bgr: bool) -> ImageInput:
    """An input whose integers are pixels less 128. size: height, width and channels."""
    height, width, channels = size
    return ImageInput(width, height, channels, bgr, 8, 0, INT_MIN[8], INT_MAX[8], (1,) * 3, (-128,) * 3)


def scaled_input(
    size: tuple[int, int, int],
    preprocess: Preprocess,
    grid: tuple[int, int, int],
    steps: tuple[float, ...],
    offsets: tuple[float, ...],
) -> ImageInput:
    """An input that takes the numbers that `preprocess` makes of pixels. size: height, width and channels; grid: bits
    and ends of the integers; steps, offsets: of the real values, one or one a channel. Raises InputError for numbers
    beyond 32 bits."""
    height, width, channels = size
    bits, low, high = grid
    numbers = preprocess.mean, preprocess.std, offsets, steps
    mean, std, offset, step = (np.broadcast_to(x, channels).astype(float) for x in numbers)
    least, most = preprocess.range
    factor = (most - least) / 255.0 / std / step
    bias = ((least - mean) / std - offset) / step
    shift = SHIFT_MAX
    while shift >= 0 and (
        np.abs(factor).max() * 2.0**shift > FACTOR_MAX - 1 or np.abs(bias).max() * 2.0**shift > BIAS_MAX - 1
    ):
        shift -= 1
    if shift < 0:
        problem = (
            f"a level of a pixel is up to {np.abs(factor).max():.3g} steps of the input, {FACTOR_MAX - 1} are allowed"
        )
        raise InputError(problem, where="preprocess", hint="feed the input from a program of your own")
    factors, biases = (
        tuple(int(n) for n in np.rint(x * 2.0**shift).astype(np.int64)) + (0,) * (3 - channels) for x in (factor, bias)
    )
    return ImageInput(
        width, height, channels, preprocess.channel_order == "bgr", bits, shift, low, high, factors, biases
    )


def decoded(frame: np.ndarray, kind: str, width: int, channels: int) -> np.ndarray:
    """Pixels uint8 [height, width, channels], gray or RGB. frame: bytes, uint8 [height, stride]; kind: of FORMATS.
    Raises UsageError, InputError."""
    if kind not in FORMATS:
        raise refusal(kind, ", ".join(FORMATS), "format")
    needed = -(-width // 2) * 4 if kind == "yuyv" else width * FORMATS[kind]
    if frame.ndim != 2 or frame.shape[1] < needed:
        raise InputError(f"rows of shape {frame.shape}; {width} pixels of {kind} take {needed} bytes", where="frame")
    rows = frame[:, :needed].astype(np.int32)
    if kind == "gray":
        return np.repeat(rows[..., None], channels, axis=2).astype(np.uint8)
    if kind == "rgb888":
        rgb = rows.reshape(len(rows), width, 3)
    elif kind == "yuyv":
        pairs = rows.reshape(len(rows), -1, 4)
        y = pairs[..., (0, 2)].reshape(len(rows), -1)[:, :width]
        if channels == 1:
            return y[..., None].astype(np.uint8)
        u, v = (np.repeat(pairs[..., i] - 128, 2, axis=1)[:, :width] for i in (1, 3))
        parts = (y + _rounded(359 * v, 8), y - _rounded(88 * u + 183 * v, 8), y + _rounded(454 * u, 8))
        rgb = np.clip(np.stack(parts, axis=2), 0, 255)
    else:
        low, high = rows[:, kind == "rgb565_be" :: 2], rows[:, kind != "rgb565_be" :: 2]
        value = low | high << 8
        r, g, b = value >> 11, value >> 5 & 63, value & 31
        rgb = np.stack((r << 3 | r >> 2, g << 2 | g >> 4, b << 3 | b >> 2), axis=2)
    if channels == 1:
        rgb = ((rgb @ np.array([19595, 38470, 7471]) + 32768) >> 16)[..., None]
    return rgb.astype(np.uint8)


def weights(size: int, out: int, filter_: str) -> np.ndarray:
    """Weights of an axis, int64 [out, size]. Raises InputError for sizes that are not allowed, UsageError."""
    if not (0 < size <= SIDE_MAX and 0 < out <= SIDE_MAX and size <= SHRINK_MAX * out):
        allowed = f"sides of 1 to {SIDE_MAX} pixels that shrink to a {SHRINK_MAX}th at most"
        raise InputError(f"a side of {size} pixels to {out}; allowed: {allowed}", where="frame")
    x, i = np.arange(size), np.arange(out)[:, None]
    if filter_ == "area":
        overlap = np.minimum((2 * x + 2) * out, (2 * i + 2) * size) - np.maximum(2 * x * out, 2 * i * size)
        return np.maximum(overlap, 0) * (ONE // 2) // min(size, out)
    if filter_ != "bilinear":
        raise refusal(filter_, ", ".join(FILTERS), "filter")
    reach = 2 * max(size, out)
    return np.maximum(reach - np.abs((2 * x + 1) * out - (2 * i + 1) * size), 0) * ONE // reach


def resized(pixels: np.ndarray, height: int, width: int, filter_: str) -> np.ndarray:
    """Pixels uint8 [height, width, C] of pixels [H, W, C]. Raises InputError, UsageError."""
    v, h = weights(pixels.shape[0], height, filter_), weights(pixels.shape[1], width, filter_)
    sums, total = np.tensordot(v, pixels.astype(np.int64), 1), v.sum(axis=1)[:, None, None]
    fine = (sums * FINE + total // 2) // total
    sums, total = np.einsum("jx,ixc->ijc", h, fine), h.sum(axis=1)[None, :, None]
    return ((sums + total * (FINE // 2)) // (total * FINE)).astype(np.uint8)


def integers(pixels: np.ndarray, to: ImageInput, filter_: str = "bilinear") -> np.ndarray:
    """Integers of the input, int8 or int16 [height, width, channels], of RGB or gray pixels [H, W, C]. Raises
    InputError, UsageError."""
    levels = resized(pixels, to.height, to.width, filter_).astype(np.int64)
    levels = levels[..., ::-1] if to.bgr else levels
    factor, bias = (np.array(x[: to.channels], dtype=np.int64) for x in (to.factor, to.bias))
    numbers = np.clip(_rounded(levels * factor + bias, to.shift), to.clip_min, to.clip_max)
    return numbers.astype(np.int8 if to.bits == 8 else np.int16)


def _rounded(value: np.ndarray, bits: int) -> np.ndarray:
    """value / 2^bits, halves up."""
    return value + (1 << bits >> 1) >> bits
