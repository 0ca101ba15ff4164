"""Reshape, Expand and Resize of a model of a fixed batch whose inputs are given a batch of 1: sizes follow.

A constant size that begins with the batch begins with 1 then, where what has the size depends on an input: a constant
may begin with as many by chance. That axis 0 is the batch in all of the graph is known later (`to_onnx.is_batchable`);
where it is not, the model is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

OF_SIZES = {"Reshape": 1, "Expand": 1, "Resize": 3}  # the place of the input that holds them
SUFFIX = ".sizes of batch 1"  # of the constants that are written


def follow(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Rewrites such nodes in place. shapes: of inputs, by name."""
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    ports = {value.name: value.type.tensor_type.shape.dim for value in graph.input if value.name not in tensors}
    batches = {dims[0].dim_value if dims else 0 for dims in ports.values()}
    if len(batches) != 1 or max(batches) < 2 or any(shapes.get(name, ())[:1] != (1,) for name in ports):
        return
    batch = batches.pop()
    for node in graph.node:
        value = next((a.t for a in node.attribute if node.op_type == "Constant" and a.name == "value"), None)
        if value is not None:
            tensors[node.output[0]] = value
    dependent = set(ports)
    for node in graph.node:
        if dependent.isdisjoint(node.input):
            continue
        dependent.update(node.output)
        place = OF_SIZES.get(node.op_type, len(node.input))
        tensor = tensors.get(node.input[place]) if place < len(node.input) else None
        if tensor is None or len(tensor.dims) != 1:
            continue
        try:
            sizes = numpy_helper.to_array(tensor)
        except Exception:  # whatever does not fit; the walk names it
            continue
        if sizes[:1].tolist() == [batch]:
            name = f"{node.output[0]}{SUFFIX}"
            graph.initializer.append(numpy_helper.from_array(np.array([1, *sizes[1:]], sizes.dtype), name))
            node.input[place] = name


def following(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes that `follow` has rewritten."""
    return [node for node in model.graph.node if any(name.endswith(SUFFIX) for name in node.input)]
