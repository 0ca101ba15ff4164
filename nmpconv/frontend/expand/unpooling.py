"""MaxUnpool with the indices of a MaxPool whose windows do not overlap.

The place of a maximum within its window stands for its index: the first of those that are equal, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
from onnx import TensorProto

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops.onnx_node import OnnxNode

PLACES_MAX = 64  # in a window


def _is_for_unpooling(node: OnnxNode, to: Importer) -> bool:
    """Checks that MaxUnpool alone reads the indices, and that each element lies in one window at most."""
    if len(node.outputs) < 2 or not to.only_read_by(node.outputs[1], "MaxUnpool"):
        return False
    kernel = node.integers("kernel_shape") or ()
    strides, dilations = (node.sides(name, 1, len(kernel)) for name in ("strides", "dilations"))
    padded = any(node.integers("pads") or ()) or node.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    left = (n % k for n, k in zip(to[node.input(0)].shape[2:], kernel, strict=True))
    whole = not padded and not (node.integer("ceil_mode", 0) and any(left))
    ordered = not node.integer("storage_order", 0)
    small = 1 < prod(kernel) <= PLACES_MAX
    return strides == tuple(kernel) and set(dilations) == {1} and whole and small and ordered


def max_pool(node: OnnxNode, body: Body) -> None:
    """The maxima, and their places within windows."""
    x, kernel = node.input(0), node.integers("kernel_shape") or ()
    size = body.shape(x)[2:]
    largest = body("MaxPool", x, kernel_shape=kernel, strides=kernel, output=node.outputs[0])
    place: str | float = float(prod(kernel)) - 1
    for i, start in reversed(list(enumerate(_starts(kernel)))[:-1]):
        ends = [first + n // k * k - k + 1 for first, n, k in zip(start, size, kernel, strict=True)]
        axes = np.arange(2, 2 + len(kernel))
        part = body("Slice", x, np.array(start), np.array(ends), axes, np.array(kernel))
        place = body("Where", body("Equal", part, largest), float(i), place)
    body("Cast", place, to=TensorProto.INT64, output=node.outputs[1])
    body.to.windows[node.outputs[1]] = tuple(kernel), size


def max_unpool(node: OnnxNode, body: Body) -> None:
    """Each element at its place, 0 at the others of its window, and what no window saw."""
    x, indices = node.input(0), node.input(1)
    if indices not in body.to.windows:
        raise Unsupported(
            f"its indices '{indices}' are not those of a MaxPool", hint="a MaxPool without overlap or pads"
        )
    kernel, size = body.to.windows[indices]
    whole = tuple(n * k for n, k in zip(body.shape(x)[2:], kernel, strict=True))
    wanted = body.to.integers(node.input(2), "output_shape")[2:] if node.input(2) else whole
    if tuple(node.integers("kernel_shape") or ()) != kernel or node.sides("strides", 1, len(kernel)) != kernel:
        raise Unsupported("windows other than the MaxPool's", hint=f"kernel_shape and strides {list(kernel)}")
    if wanted != size:
        raise Unsupported(f"an output of {list(wanted)}, where the MaxPool saw {list(size)}", hint="the same size")
    place = body("Cast", indices, to=TensorProto.FLOAT)
    parts = [body("Where", body("Equal", place, float(i)), x, 0.0) for i in range(prod(kernel))]
    spread = _woven(body, parts, kernel)
    more = [big - small for big, small in zip(size, whole, strict=True)]
    if any(more):
        body("Pad", spread, np.array([0] * (2 + len(kernel)) + [0, 0, *more]), output=node.outputs[0])
    else:
        body.rename(spread)


def _starts(kernel: Sequence[int]) -> list[tuple[int, ...]]:
    return list(product(*map(range, kernel)))


def _woven(body: Body, parts: Sequence[str], kernel: Sequence[int]) -> str:
    """One tensor of the parts [N, C, ...], which lie kernel apart: along the last axis first."""
    for axis in reversed(range(2, 2 + len(kernel))):
        count = kernel[axis - 2]
        rows = [parts[i : i + count] for i in range(0, len(parts), count)]
        parts = []
        for row in rows:
            shape = list(body.shape(row[0]))
            shape[axis] *= count
            stacked = body("Concat", *(body("Unsqueeze", part, np.array([axis + 1])) for part in row), axis=axis + 1)
            parts.append(body("Reshape", stacked, np.array(shape)))
    return parts[0]


ALWAYS = {"MaxUnpool": max_unpool}
FORMS = {"MaxPool": [(_is_for_unpooling, max_pool)]}
