"""Nearest neighbours at ties, written out.

Where a coordinate of a Resize is the middle between two elements but for rounding, onnxruntime takes the neighbour that
float32 leaves it with, and since 1.27 that of a tie. The importer has the latter rule. A node with such a coordinate is
replaced by Gathers of the importer's indices, so that the comparison does not depend on the version.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.errors import Invalid, Unsupported
from nmpconv.ops.common.interpolation import ROUNDS, is_nearly_tied
from nmpconv.ops.onnx_node import OnnxNode
from nmpconv.ops.resize import axis_places, nearest_indices

Shapes = Mapping[str, tuple[int, ...]]


def write_out(model: onnx.ModelProto, constants: Mapping[str, TensorProto]) -> None:
    """In place; shapes of inputs are bound. A node whose shapes or scales cannot be told stays as it is."""
    opset = next((entry.version for entry in model.opset_import if not entry.domain), 0)
    asked = [n for n in model.graph.node if n.op_type == "Resize" and not n.domain]
    if opset < 11 or not any(_is_rounded(OnnxNode.of(node, opset)) for node in asked):
        return
    shapes = _shapes(model)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        indices = _indices(OnnxNode.of(node, opset), shapes, constants) if node in asked else None
        if indices is None:
            nodes.append(node)
            continue
        x, y = node.input[0], node.output[0]
        for last, (axis, index) in zip((*[False] * (len(indices) - 1), True), indices.items(), strict=True):
            name = f"{y}~index{axis}"
            model.graph.initializer.append(numpy_helper.from_array(index, name))
            output = y if last else f"{y}~axis{axis}"
            nodes.append(helper.make_node("Gather", [x, name], [output], node.name, axis=axis))
            x = output
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _is_rounded(node: OnnxNode) -> bool:
    return node.text("mode", "nearest") == "nearest" and node.text("nearest_mode", ROUNDS[0]) in ROUNDS


def _shapes(model: onnx.ModelProto) -> Shapes:
    """Returns the shapes of tensors where they are known."""
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim):
            shapes[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    return shapes


def _indices(node: OnnxNode, shapes: Shapes, constants: Mapping[str, TensorProto]) -> dict[int, np.ndarray] | None:
    """Indices along the axes that change, by axis; None where no coordinate is nearly a tie, or that is not known."""
    shape, sizes = (shapes.get(name, ()) for name in (node.input(0), node.outputs[0]))
    if not _is_rounded(node) or not shape or len(shape) != len(sizes):
        return None
    scales = [float(np.float32(out / size)) for size, out in zip(shape, sizes, strict=True)]
    if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    if node.input(2):
        if node.input(2) not in constants:
            return None
        factors = numpy_helper.to_array(constants[node.input(2)]).ravel()
        if factors.size:
            axes = node.axes(node.integers("axes") or range(len(shape)), len(shape))
            scales = [1.0] * len(shape)
            for axis, scale in zip(axes, factors, strict=False):
                scales[axis] = float(scale)
    try:
        places = axis_places(node, shape, sizes, scales)
    except (Invalid, Unsupported):
        return None
    if not any(place is not None and is_nearly_tied(place) for place in places):
        return None
    indices = nearest_indices(node, shape, scales, places)
    return {axis: np.asarray(indices[axis], np.int64) for axis, place in enumerate(places) if place is not None}
