"""Pads that are negative: what they take away is a slice, before anything is added in any mode, as in onnxruntime."""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Invalid
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops.onnx_node import OnnxNode


def pads_of(node: OnnxNode, to: Importer) -> np.ndarray:
    """Attributes before opset 11, an input since."""
    pads = (node.integers("pads") or ()) if node.opset < 11 else to.integers(node.input(1), "pads")
    return np.array(pads, np.int64)


def axes_of(node: OnnxNode, to: Importer) -> tuple[int, ...]:
    """Axes that the pads are of: an input since opset 18, else all."""
    rank = len(to[node.input(0)].shape)
    return node.axes(to.integers(node.input(3), "axes") if node.input(3) else range(rank), rank)


def _is_negative(node: OnnxNode, to: Importer) -> bool:
    return bool((pads_of(node, to) < 0).any())


def pad(node: OnnxNode, body: Body) -> None:
    x, pads = node.input(0), pads_of(node, body.to)
    shape = body.shape(x)
    axes = axes_of(node, body.to)
    before, after = np.split(pads, 2)
    for axis, first, last in zip(axes, before.tolist(), after.tolist(), strict=True):
        if shape[axis] + min(first, 0) + min(last, 0) < 1:
            raise Invalid(f"pads of {first} and {last} take all of the {shape[axis]} elements of axis {axis}")
    sizes = np.array([shape[axis] for axis in axes])
    x = body("Slice", x, np.maximum(-before, 0), sizes - np.maximum(-after, 0), np.array(axes))
    mode = node.text("mode", "constant")
    value = node.input(2) if node.opset >= 11 else ""
    if mode == "constant":
        value = value or body.operand(node.number("value", 0.0, finite=False))
    body("Pad", x, np.maximum(pads, 0), value, np.array(axes), output=node.outputs[0], mode=mode)


FORMS = {"Pad": ((_is_negative, pad),)}
