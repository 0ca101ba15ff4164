"""Grids of places that are computed from a few numbers."""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode


def affine_grid(node: OnnxNode, body: Body) -> None:
    """theta [N,2,3], or [N,3,4] for volumes: each place (right, down, 1) of a constant grid times its rows."""
    theta, size = node.input(0), body.to.integers(node.input(1), "size")
    n, *matrix = body.shape(theta)
    rank = len(size) - 2
    if rank not in (2, 3) or matrix != [rank, rank + 1] or n != size[0]:
        raise Invalid(f"theta {[n, *matrix]} for size {list(size)}", hint="[N,2,3] and [N,C,H,W], or a dimension more")
    if node.integer("align_corners", 0):
        if min(size[2:]) == 1:  # -1 by ONNX's reference, 1 by onnxruntime, 0 by PyTorch
            raise Unsupported(f"align_corners along an axis of 1 in {list(size)}", hint="align_corners=0")
        axes = [np.linspace(-1.0, 1.0, length) for length in size[2:]]
    else:
        axes = [(2 * np.arange(length) + 1) / length - 1 for length in size[2:]]
    places = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(size[2:])], axis=-1)
    rows = places.reshape(1, -1, rank + 1).astype(np.float32)
    moved = body("MatMul", rows, body("Transpose", theta, perm=[0, 2, 1]))
    body("Reshape", moved, np.array([*size[:1], *size[2:], rank]), output=node.outputs[0])


ALWAYS = {"AffineGrid": affine_grid}
