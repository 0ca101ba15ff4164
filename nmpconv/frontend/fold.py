"""The outputs of a single node whose inputs are all constant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.to_float32 import HALVES, single_array, single_node
from nmpconv.ops.onnx_node import OnnxNode

_IR_VERSION = 8


def fold(node: onnx.NodeProto, constants: Mapping[str, np.ndarray], opset: int) -> dict[str, np.ndarray]:
    """The node's outputs by ONNX's reference implementation (onnxruntime aborts on some malformed attributes).

    What the model computes in float16 or bfloat16 is computed in float32, as all that is not constant will be.
    Those of `_OWN` are computed here, since that implementation does not agree with onnxruntime about them: before
    opset 14 it normalizes by statistics of the batch, its LRN adds up other channels, and its GatherElements fails
    where there are fewer indices than elements along the axis.
    """
    feeds = {name: single_array(constants[name]) for name in node.input if name}
    if node.op_type == "CumSum":  # exporters give the axis as a list of one, which onnxruntime takes
        feeds[node.input[1]] = feeds[node.input[1]].reshape(())
    single = onnx.NodeProto()
    single.CopyFrom(node)
    if node.op_type != "Constant":  # whose type the nodes after it are checked with
        single_node(single, HALVES)
    if own := _OWN.get(node.op_type):
        arrays = [feeds[name] for name in node.input if name]
        computed = zip(node.output, own(OnnxNode.of(node, opset), arrays), strict=False)
        return {name: np.asarray(y, arrays[0].dtype) for name, y in computed if name}
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        opset = max(opset, 21)  # the reference knows them only from 19 on; what they compute has not changed
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([single], "fold", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    try:
        from onnx.reference import ReferenceEvaluator  # 20 ms: most models fold nothing

        with np.errstate(all="ignore"):  # MPNet's buckets of places take the logarithm of 0, and leave it out later
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # whatever the reference trips over
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Unsupported(f"it cannot be evaluated on its constants: {reason}") from error
    return {name: np.asarray(result) for name, result in zip(filter(None, node.output), results, strict=True)}


def _batch_norm(node: OnnxNode, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """(x - mean) / sqrt(var + epsilon) * scale + bias along axis 1, and in training mode the running statistics.

    There mean and variance (of n, not n - 1) are those of x. Source: ONNX, BatchNormalization-15.
    """
    x, scale, bias, mean, var = (array.astype(np.float64) for array in inputs)
    if not node.integer("spatial", 1):
        raise Unsupported("statistics per pixel (spatial = 0)", hint="statistics per channel")
    for array in (scale, bias, mean, var):
        if array.shape != x.shape[1:2]:
            raise Invalid(f"statistics of shape {list(array.shape)}", hint=f"{list(x.shape[1:2])}")
    running: list[np.ndarray] = []
    if node.is_training:
        others = tuple(axis for axis in range(x.ndim) if axis != 1)
        share, old = node.number("momentum", 0.9), (mean, var)
        mean, var = x.mean(axis=others), x.var(axis=others)
        running = [a * share + b * (1 - share) for a, b in zip(old, (mean, var), strict=True)]
    along = (-1, *(1,) * (x.ndim - 2))
    factor = scale / np.sqrt(var + node.number("epsilon", 1e-5))
    return [(x - mean.reshape(along)) * factor.reshape(along) + bias.reshape(along), *running]


def _lrn(node: OnnxNode, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """x / (bias + alpha / size * s)^beta, s the sum of squares of up to size channels around. Source: ONNX, LRN-13."""
    [x] = inputs
    squares, size = np.square(x.astype(np.float64)), node.integer("size", 1)
    before, after = (size - 1) // 2, size // 2
    padded = np.pad(squares, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
    total = sum(padded[:, i : i + x.shape[1]] for i in range(size))
    return [x / (node.number("bias", 1.0) + node.number("alpha", 1e-4) / size * total) ** node.number("beta", 0.75)]


def _gather_elements(node: OnnxNode, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """data at the place of each index, but along an axis at the index. Source: ONNX, GatherElements-13."""
    data, indices = inputs
    places = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    places[node.axis(node.integer("axis", 0), data.ndim)] = indices
    return [data[tuple(places)]]


_OWN: Mapping[str, Callable[[OnnxNode, Sequence[np.ndarray]], list[np.ndarray]]] = {
    "BatchNormalization": _batch_norm,
    "GatherElements": _gather_elements,
    "LRN": _lrn,
}
