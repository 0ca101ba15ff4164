"""ONNX models from text, for tests: `build("(float[1,3] x) => (y) { y = Relu(x) }", 13)`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper


def build(
    text: str,
    opset: int,
    path: Path | None = None,
    header: str = "",
    arrays: Mapping[str, np.ndarray] | None = None,
    name: str = "g",
) -> onnx.ModelProto:
    """Declared tensors that nothing produces become random weights; those named var* are positive.

    text: a graph in the syntax of onnx.parser without its name; "[name] y = Relu(x)" names a node. path: where to save
    the model, if anywhere. arrays: constants that have these numbers, float64 as float32.
    """
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{header}]> {name} {text}')
    graph = model.graph
    for key, array in (arrays or {}).items():
        data = np.asarray(array)
        graph.initializer.append(numpy_helper.from_array(data.astype(np.float32) if data.dtype == float else data, key))
    known = {t.name for t in graph.initializer} | {name for node in graph.node for name in node.output}
    for value in graph.value_info:
        if value.name in known:
            continue
        rng = np.random.default_rng(zlib.crc32(value.name.encode()))
        data = rng.normal(size=[d.dim_value for d in value.type.tensor_type.shape.dim])
        if value.name.startswith("var"):
            data = np.abs(data) + 0.1
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        graph.initializer.append(numpy_helper.from_array(np.asarray(data, dtype), value.name))
    if path is not None:
        onnx.save(model, path)
    return model


def feeds(graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float inputs of a graph of ours, by name."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=graph[name].shape).astype(np.float32) * 2 for name in graph.inputs}
