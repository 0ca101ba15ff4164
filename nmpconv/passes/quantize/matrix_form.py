"""Convolution and fully connected as one thing: rows of inputs times a matrix per group.

A weighted node's weights [O, KH, KW, I] or [O, K] are seen as [G, O/G, K]; a row of its input is what one output
position sees, [G, K]. Rows are gathered at chosen output positions, so nothing is ever unfolded as a whole.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmpconv.base.memo import Recent
from nmpconv.calib import native_sums
from nmpconv.ir import Graph, Node
from nmpconv.ops import WEIGHTED
from nmpconv.ops.common.accumulate import accumulate, accumulator_bound, exact_type, magnitude
from nmpconv.ops.common.weighted import groups_of
from nmpconv.ops.common.window import plane_out

CHUNK = 1024  # rows that are multiplied at a time
NO_LOCK = nullcontext()
PIXELS_KEPT = 16  # sets of places
EXACT_ROWS = 1024  # sums of so many products of int8 are exact in float32

_pixels = Recent[tuple[np.ndarray, np.ndarray]](PIXELS_KEPT)


@dataclass(frozen=True)
class Matrix:
    """The geometry of one weighted node."""

    groups: int
    outs: int  # per group
    k: int
    weight_shape: tuple[int, ...]

    def split(self, weights: np.ndarray) -> np.ndarray:
        """[O, ...] -> [G, O/G, K]."""
        return weights.reshape(self.groups, self.outs, self.k)

    def join(self, weights: np.ndarray) -> np.ndarray:
        """[G, O/G, K] -> the node's weight shape."""
        return weights.reshape(self.weight_shape)


def pad_of(graph: Graph, node: Node) -> np.ndarray | None:
    """The padding value per input channel [C] that a weighted node has as its fourth input; None for any other node."""
    return graph[node.inputs[3]].data if node.op in WEIGHTED and len(node.inputs) == 4 else None


def matrix(graph: Graph, node: Node) -> Matrix:
    shape = graph[node.inputs[1]].shape
    groups = groups_of(node)
    return Matrix(groups, shape[0] // groups, int(np.prod(shape[1:])), shape)


def out_positions(graph: Graph, node: Node) -> int:
    """Output positions of one image: the size of the output without its channels."""
    return int(np.prod(graph[node.outputs[0]].shape[:-1]))


def samples(graph: Graph, name: str, x: np.ndarray) -> int:
    """Number of images' tensors of this name that an array holds, one after the other along axis 0."""
    return x.size // graph[name].size


def gather(
    graph: Graph, node: Node, x: np.ndarray, pad: np.ndarray | None, images: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """Rows [R, G, K] of x [N, ...] (any number type) that the outputs at (images[r], positions[r]) see.

    pad: the padding value per input channel, None for 0. positions count over the output without its channels.
    """
    geometry = matrix(graph, node)
    x, (_, kh, kw, per_group), params = WEIGHTED[node.op].as_convolution(node.params, x, geometry.weight_shape)
    oh, ow = plane_out(params, x.shape, (kh, kw))
    places = images * out_positions(graph, node) + positions
    _, height, width, channels = x.shape
    one_to_one = (kh, kw, oh, ow, params.pad_top, params.pad_left) == (1, 1, height, width, 0, 0)
    if one_to_one and (params.stride_h, params.stride_w) == (1, 1) and per_group > 1:
        return x.reshape(-1, geometry.groups, per_group).take(places, axis=0)
    pixels, outside = _seen(places, (oh, ow), (kh, kw), params, (height, width))
    rows = x.reshape(-1, channels).take(pixels, axis=0)
    rows[outside] = 0 if pad is None else pad.astype(x.dtype)
    if per_group == 1:  # as `sums` has them
        return rows.reshape(len(places), kh * kw, geometry.groups).transpose(0, 2, 1)
    split = rows.reshape(len(places), kh * kw, geometry.groups, per_group)
    return np.swapaxes(split, 1, 2).reshape(len(places), geometry.groups, geometry.k)


def _seen(
    places: np.ndarray, plane: tuple[int, int], kernel: tuple[int, int], params: Any, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels, counted over all images, that outputs at these places see, tap after tap; and which of them are padding.
    Layers of one geometry, and all recipes, ask for the same ones."""

    def make() -> tuple[np.ndarray, np.ndarray]:
        images, positions = np.divmod(places, plane[0] * plane[1])
        rows, columns = np.divmod(positions, plane[1])
        h = (rows * params.stride_h - params.pad_top)[:, None] + np.arange(kernel[0]) * params.dilation_h
        w = (columns * params.stride_w - params.pad_left)[:, None] + np.arange(kernel[1]) * params.dilation_w
        outside = ((h < 0) | (h >= size[0]))[:, :, None] | ((w < 0) | (w >= size[1]))[:, None, :]
        lines = (images * size[0])[:, None] + np.clip(h, 0, size[0] - 1)
        at = (lines * size[1])[:, :, None] + np.clip(w, 0, size[1] - 1)[:, None, :]
        return at.ravel(), np.flatnonzero(outside)

    return _pixels((places.tobytes(), plane, kernel, params, size), make)


def multiply(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Integers: rows [R, G, K] times weights [G, O/G, K] of int16 -> [R, O] in float64, exact below 2^53."""
    groups, outs, k = weights.shape
    flat = weights.reshape(groups * outs, k)
    if groups > 1 and outs == 1 and rows.dtype in (np.int8, np.int16) and k <= native_sums.TAPS_MAX:
        return native_sums.by_channel(rows, flat)
    kind = exact_type(accumulator_bound(magnitude(rows), flat))
    flat = flat.astype(kind)
    product = np.empty((len(rows), groups * outs))
    for start in range(0, len(rows), CHUNK):
        product[start : start + CHUNK] = accumulate(rows[start : start + CHUNK], flat, kind)
    return product


def is_exact(rows: np.ndarray) -> bool:
    """Checks that their second moment has no rounding, so that the order of its parts does not matter."""
    return rows.dtype == np.int8


def second_moment(rows: np.ndarray, moment: np.ndarray, lock: AbstractContextManager[Any] = NO_LOCK) -> None:
    """Adds the sum over rows of x x^T with x = (1, row) to moment [G, K+1, K+1]; rows [R, G, K]. lock: of moment."""
    exact = is_exact(rows) and len(rows) <= EXACT_ROWS
    if exact and rows.shape[1] > 1:
        products, total = native_sums.moments(rows)
    else:
        x = np.ascontiguousarray(rows.transpose(1, 0, 2), np.float32)
        products = np.matmul(x.transpose(0, 2, 1), x)
        total = x.sum(axis=1) if exact else rows.sum(axis=0, dtype=np.float64)
    with lock:
        moment[:, 1:, 1:] += products
        moment[:, 0, 1:] += total
        moment[:, 1:, 0] += total
        moment[:, 0, 0] += len(rows)
