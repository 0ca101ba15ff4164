"""Sources of the elements of a resized axis: ONNX's coordinates, nearest neighbours and weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpconv.base.fixed_point import round_half_up
from nmpconv.errors import Unsupported

WEIGHT_BITS = 15  # weights are on a grid of 2^-15
TIE = 1e-6  # of an element: what is this near to the middle between two is a tie but for rounding
ROUNDS = ("round_prefer_floor", "round_prefer_ceil")


def coordinates(mode: str, size: int, out: int, scale: float) -> np.ndarray:
    """The place in an axis of ``size`` of each of ``out`` new elements: float32 [out], as onnxruntime computes them."""
    i, s, n = np.arange(out, dtype=np.float32), np.float32(scale), np.float32(size)
    half = np.float32(0.5)
    if mode == "half_pixel":
        place = (i + half) / s - half
    elif mode == "half_pixel_symmetric":  # onnxruntime's sum is one of doubles
        shift = n / np.float32(2) * (np.float32(1) - np.float32(out) / (s * n))
        place = np.float64(shift) + (i.astype(np.float64) + 0.5) / np.float64(s) - 0.5
    elif mode == "pytorch_half_pixel":
        place = (i + half) / s - half if out > 1 else np.zeros(1)
    elif mode == "align_corners":
        place = i * np.float32(size - 1) / np.float32(out - 1) if out > 1 else np.zeros(1)
    elif mode == "asymmetric":
        place = i / s
    elif mode == "tf_half_pixel_for_nn":
        place = (i + half) / s
    else:
        raise Unsupported(f"coordinate_transformation_mode {mode}", hint="half_pixel, asymmetric or align_corners")
    return place.astype(np.float32)


def nearest(place: np.ndarray, mode: str, size: int) -> np.ndarray:
    """The element nearest to each place: int64, inside of the axis.

    What is a tie but for rounding (TIE) is one, as for onnxruntime since 1.27.
    """
    place = place.astype(np.float64)
    floor = np.floor(place)
    tie = np.abs(place - floor - 0.5) <= TIE
    modes = {
        "round_prefer_floor": np.where(tie, floor, np.floor(place + 0.5)),
        "round_prefer_ceil": np.where(tie, floor + 1, np.floor(place + 0.5)),
        "floor": floor,
        "ceil": np.ceil(place),
    }
    if mode not in modes:
        raise Unsupported(f"nearest_mode {mode}", hint=", ".join(modes))
    return np.clip(modes[mode], 0, size - 1).astype(np.int64)


def is_nearly_tied(place: np.ndarray) -> bool:
    """Checks that a place is a tie but for rounding: there versions of onnxruntime take either neighbour."""
    apart = np.abs(place - np.floor(place) - 0.5)
    return bool(((apart > 0) & (apart <= TIE)).any())


def linear(place: np.ndarray, size: int) -> np.ndarray:
    """Weights [out, size], float64: of the two elements around each place; beyond the ends that of the end."""
    inside = np.clip(place, 0, size - 1).astype(np.float64)
    first = np.minimum(inside.astype(np.int64), max(size - 2, 0))
    weights = np.zeros((len(place), size))
    rows = np.arange(len(place))
    weights[rows, first] += 1 - (inside - first)
    if size > 1:
        weights[rows, first + 1] += inside - first
    return weights


def cubic(place: np.ndarray, size: int, a: float, exclude_outside: bool) -> np.ndarray:
    """Weights [out, size], float64, of Keys' kernel; elements beyond the ends are those of the end, or left out."""
    floor = np.floor(place.astype(np.float64))
    t = place - floor
    weights = np.zeros((len(place), size))
    for k in range(-1, 3):
        d = np.abs(t - k)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        at = (floor + k).astype(np.int64)
        outside = (at < 0) | (at >= size)
        weight = np.where(exclude_outside & outside, 0.0, np.where(d <= 1, near, far))
        np.add.at(weights, (np.arange(len(place)), np.clip(at, 0, size - 1)), weight)
    return weights / weights.sum(axis=1, keepdims=True)


def antialiased(place: np.ndarray, size: int, scale: float, a: float | None, exclude_outside: bool) -> np.ndarray:
    """Weights [out, size], float64, of a kernel that is as many times wider as the axis gets shorter.

    a: of Keys' kernel; None for the linear one. Elements beyond the ends are those of the end, or left out.
    """
    shrink, half = min(scale, 1.0), 1 if a is None else 2
    reach = int(np.ceil(half / shrink)) + 1
    at = np.floor(place.astype(np.float64)).astype(np.int64)[:, np.newaxis] + np.arange(-reach, reach + 2)
    d = np.abs(at - place.astype(np.float64)[:, np.newaxis]) * shrink
    if a is None:
        kernel = np.maximum(1 - d, 0)
    else:
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        kernel = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    kernel = np.where(exclude_outside & ((at < 0) | (at >= size)), 0.0, kernel)
    weights = np.zeros((len(place), size))
    np.add.at(weights, (np.arange(len(place))[:, np.newaxis], np.clip(at, 0, size - 1)), kernel)
    return weights / weights.sum(axis=1, keepdims=True)


def table(weights: np.ndarray) -> tuple[int, tuple[int, ...], tuple[float, ...]]:
    """(taps, first element of each output, taps weights of each in turn, in units of 2^-15) of weights [out, size]."""
    size = weights.shape[1]
    first = (weights != 0).argmax(axis=1)
    last = size - (weights[:, ::-1] != 0).argmax(axis=1)
    taps = int((last - first).max())
    first = np.minimum(first, size - taps)
    near = np.take_along_axis(weights, first[:, None] + np.arange(taps), axis=1)
    return taps, tuple(map(int, first)), tuple(map(float, (near * 2.0**WEIGHT_BITS).ravel()))


def rounded(taps: int, weights: Sequence[float]) -> tuple[int, ...]:
    """The weights of `table` as integers that have the rounded sum; the largest of an output takes what is left."""
    exact = np.asarray(weights, np.float64).reshape(-1, taps)
    q = round_half_up(exact)
    q[np.arange(len(q)), np.abs(q).argmax(axis=1)] += round_half_up(exact.sum(axis=1)) - q.sum(axis=1)
    return tuple(map(int, q.ravel()))
