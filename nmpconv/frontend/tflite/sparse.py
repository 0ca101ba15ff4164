"""Constants that a TFLite file holds without their zeros.

A tensor, whose axes may be cut into blocks, is a tree: a level is an axis, of which a node has all places or those that
are listed. The leaves, in order, are the values.

Source: schema.fbs of TensorFlow Lite, SparsityParameters; LiteRT, FormatConverter::SparseToDense.
"""

from __future__ import annotations

import numpy as np

from nmpconv.frontend.tflite.flat_tables import FlatTable

DENSE_MAX = 2**24  # elements of all sparse tensors of a file, zeros among them, beside those for its bytes
DENSE_OF_BYTE = 16
_VECTORS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}  # numbers of the union of indices


def dense_places(sparsity: FlatTable, shape: tuple[int, ...], most: int) -> np.ndarray:
    """The place of each value in the flat tensor. Raises ValueError where they are not of this shape, or more than
    ``most``."""
    order, cut, levels = (sparsity[name] for name in ("traversal_order", "block_map", "dim_metadata"))
    rank = len(shape)
    is_whole = len(levels) == len(order) == rank + len(cut) and sorted(order) == list(range(len(order)))
    if not is_whole or not 0 < rank >= len(cut) or not all((cut >= 0) & (cut < rank)):
        raise ValueError("its axes are not those of the tensor")
    nodes = np.zeros(1, np.int64)
    axes = np.zeros((len(order), 1), np.int64)
    sizes = [0] * len(order)
    for axis, level in zip(order, levels, strict=True):
        counts, nodes, along = _below(level, nodes, most)
        axes = np.repeat(axes, counts, axis=1)
        axes[axis] = along
        sizes[axis] = level["dense_size"] or (shape[axis] if axis < rank else 0)
    for block, axis in enumerate(cut, start=rank):
        axes[axis] = axes[axis] * sizes[block] + axes[block]
    if any(((row < 0) | (row >= size)).any() for row, size in zip(axes, shape, strict=False)):
        raise ValueError("a value lies outside of it")
    return np.ravel_multi_index(tuple(axes[:rank]), shape)


def _below(level: FlatTable, nodes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The children of each node: how many, their numbers in this level, their places along its axis."""
    if not level["format"]:
        size = level["dense_size"]
        if not 0 < size * len(nodes) <= most:
            raise ValueError(f"an axis of {size}")
        along = np.tile(np.arange(size), len(nodes))
        return np.full(len(nodes), size), np.repeat(nodes, size) * size + along, along
    segments, indices = (_vector(level, name) for name in ("array_segments", "array_indices"))
    if nodes.max(initial=-1) + 1 >= len(segments):
        raise ValueError(f"{len(segments)} segments")
    if segments.min() < 0 or segments.max() > len(indices):
        raise ValueError(f"its segments lie outside of {len(indices)} indices")
    counts = segments[nodes + 1] - segments[nodes]
    if counts.min(initial=0) < 0 or counts.sum() > min(most, len(indices)):
        raise ValueError("its segments overlap")
    first = np.repeat(segments[nodes] - np.cumsum(counts) + counts, counts)
    children = first + np.arange(counts.sum())
    return counts, children, indices[children]


def _vector(level: FlatTable, name: str) -> np.ndarray:
    kind = _VECTORS.get(level[f"{name}_type"])
    table = level.as_table(name, kind) if kind else None
    return np.zeros(0, np.int64) if table is None else table["values"].astype(np.int64)
