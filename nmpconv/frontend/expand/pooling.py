"""Pools and normalizations beyond what their ops take, by sums of windows and means of means."""

from __future__ import annotations

from math import isqrt, prod

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops.normalize import COUNT_MAX
from nmpconv.ops.onnx_node import OnnxNode


def lp_pool(node: OnnxNode, body: Body) -> None:
    """The p-th root of sums of |x|^p."""
    x, p = node.input(0), node.integer("p", 2)
    powers = body("Abs", x) if p == 1 else body("Mul", x, x) if p == 2 else body("Pow", body("Abs", x), float(p))
    if node.op_type == "GlobalLpPool":
        axes = np.arange(2, len(body.shape(x)))
        total = body("ReduceSum", powers, axes, keepdims=1)
    else:
        total = _window_sums(node, body, powers, 1.0)
    if p == 1:
        body.rename(total)
    elif p == 2:
        body("Sqrt", total, output=node.outputs[0])
    else:
        body("Pow", total, 1.0 / p, output=node.outputs[0])


def _window_sums(node: OnnxNode, body: Body, x: str, factor: float) -> str:
    """factor times the sum over each window of a pool; padding is 0. A convolution of each channel."""
    kernel = node.integers("kernel_shape") or ()
    channels = body.shape(x)[1]
    weights = np.full((channels, 1, *kernel), factor, np.float32)
    strides, dilations = (node.sides(name, 1, len(kernel)) for name in ("strides", "dilations"))
    before, after, _ = _geometry(node, body.shape(x)[2:])
    return body("Conv", x, weights, group=channels, strides=strides, dilations=dilations, pads=[*before, *after])


def _geometry(node: OnnxNode, size: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Padding before and after each axis of a pool, and how much of the latter ceil_mode added."""
    rank = len(size)
    kernel = node.integers("kernel_shape") or ()
    strides, dilations = (node.sides(name, 1, rank) for name in ("strides", "dilations"))
    pads = node.integers("pads") or (0,) * (2 * rank)
    axes = [
        node.padding(*axis) for axis in zip(size, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    ]
    before, after, overhang = (list(side) for side in zip(*axes, strict=True))
    return before, after, overhang


def _is_mean_by_sums(node: OnnxNode, to: Importer) -> bool:
    """A mean with dilations, or one that counts padding but not what ceil_mode adds to it."""
    size = to[node.input(0)].shape[2:]
    if len(size) not in (1, 2, 3) or len(node.integers("kernel_shape") or ()) != len(size):
        return False
    before, after, overhang = _geometry(node, size)
    counted = bool(node.integer("count_include_pad", 0)) and any(overhang) and any((*before, *after))
    return max(node.integers("dilations") or (1,)) > 1 or counted


def mean_by_sums(node: OnnxNode, body: Body) -> None:
    """Sums of the windows, each divided by how many pixels it counts."""
    x = node.input(0)
    size, kernel = body.shape(x)[2:], node.integers("kernel_shape") or ()
    before, after, overhang = _geometry(node, size)
    if not node.integer("count_include_pad", 0):
        seen = [(0, n) for n in size]
    else:
        seen = [(-b, n + a - o) for n, b, a, o in zip(size, before, after, overhang, strict=True)]
    strides, dilations = (node.sides(name, 1, len(kernel)) for name in ("strides", "dilations"))
    counts = np.ones(())
    for axis, (low, high) in enumerate(seen):
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        starts = np.arange(-before[axis], size[axis] + after[axis] - extent + 1, strides[axis])
        taps = starts[:, None] + np.arange(kernel[axis]) * dilations[axis]
        counts = np.multiply.outer(counts, ((taps >= low) & (taps < high)).sum(axis=1))
    if counts.min() == 0:
        raise Unsupported("a window can lie in the padding alone", hint="pads smaller than the kernel")
    area = prod(kernel)
    if (counts == area).all():
        return body.rename(_window_sums(node, body, x, 1.0 / area))
    body("Mul", _window_sums(node, body, x, 1.0 / area), (area / counts).astype(np.float32), output=node.outputs[0])
    return None


# -- normalizations ---------------------------------------------------------------------------------------------------


def _is_large(node: OnnxNode, to: Importer) -> bool:
    shape = to[node.input(0)].shape
    groups = shape[1] if node.op_type == "InstanceNormalization" else node.integer("num_groups", 1)
    return prod(shape[1:]) // max(groups, 1) > COUNT_MAX


def large_norm(node: OnnxNode, body: Body) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias with means of means, over parts of at most COUNT_MAX."""
    x = node.input(0)
    shape = body.shape(x)
    n, channels = shape[:2]
    groups = channels if node.op_type == "InstanceNormalization" else node.integer("num_groups", 1)
    count = prod(shape[1:]) // groups
    part = next((d for d in range(isqrt(count), 0, -1) if count % d == 0 and count // d <= COUNT_MAX), 0)
    if not part or count // part > COUNT_MAX:
        raise Unsupported(
            f"{count} elements with one mean", hint=f"at most {COUNT_MAX}, or a product of two such sizes"
        )
    rows = body("Reshape", x, np.array([n, groups, part, count // part]))

    def mean(value: str) -> str:
        return body("ReduceMean", body("ReduceMean", value, np.array([3]), keepdims=1), np.array([2]), keepdims=1)

    d = body("Sub", rows, mean(rows))
    variance = body("Add", mean(body("Mul", d, d)), node.number("epsilon", 1e-5))
    normalized = body("Reshape", body("Div", d, body("Sqrt", variance)), np.array(shape))
    along = (-1, *(1,) * (len(shape) - 2))
    scale, bias = (body.to.array(node.input(i), role) for i, role in ((1, "scale"), (2, "bias")))
    if scale.size == groups < channels:  # before opset 21, of a GroupNormalization
        scale, bias = (np.repeat(array, channels // groups) for array in (scale, bias))
    scaled = body("Mul", normalized, scale.reshape(along))
    body("Add", scaled, bias.reshape(along), output=node.outputs[0])


ALWAYS = {"GlobalLpPool": lp_pool, "LpPool": lp_pool}
FORMS = {
    "AveragePool": ((_is_mean_by_sums, mean_by_sums),),
    "GroupNormalization": ((_is_large, large_norm),),
    "InstanceNormalization": ((_is_large, large_norm),),
}
