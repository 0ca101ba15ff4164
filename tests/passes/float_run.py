"""A float graph through onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime

from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.ir import Graph


def run_float(graph: Graph, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the graph, in order. feeds: by input name; inputs that no output needs are left out."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Its fusion of Pad into MaxPool is wrong for negative numbers.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = to_onnx(graph, graph.outputs).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(list(graph.outputs), {i.name: feeds[i.name] for i in session.get_inputs()})
    return results
