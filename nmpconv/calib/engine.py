"""Running float models: an IR graph or the user's own ONNX file, through onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from nmpconv.errors import InputError
from nmpconv.frontend.export import to_onnx
from nmpconv.ir import Graph


def cpu_count() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
    """A session over a model whose outputs are ``fetch``."""

    def __init__(self, model: onnx.ModelProto, fetch: Sequence[str], *, where: str = "") -> None:
        self.fetch = tuple(fetch)
        options = ort.SessionOptions()
        options.intra_op_num_threads = cpu_count()
        options.log_severity_level = 4
        # Spinning threads would take the CPU from what is done with the results between two runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = ort.InferenceSession(
                model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                # onnxruntime 1.31 merges Pad(0) into MaxPool although a pool's own padding never wins.
                disabled_optimizers=["Pad_Fusion"],
            )
        except Exception as error:  # onnxruntime has no base class of its own
            raise InputError(f"onnxruntime refuses the model: {error}", where=where) from error
        self._inputs = [value.name for value in self._session.get_inputs()]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The fetched tensors for these inputs; inputs that they do not depend on are ignored."""
        outputs = self._session.run(list(self.fetch), {name: feeds[name] for name in self._inputs})
        return dict(zip(self.fetch, outputs, strict=True))


class FloatEngine(Engine):
    """The float meaning of an IR graph. fetch: names of activations; the results are float32 in the IR's layout."""

    def __init__(self, graph: Graph, fetch: Sequence[str]) -> None:
        super().__init__(to_onnx(graph, fetch), fetch, where=graph.name)


class OnnxEngine(Engine):
    """The user's original model with the input shapes bound. fetch: any tensor names; None for the model's outputs."""

    def __init__(
        self,
        model: str | Path | onnx.ModelProto,
        input_shapes: Mapping[str, Sequence[int]],
        fetch: Sequence[str] | None = None,
    ) -> None:
        where = "" if isinstance(model, onnx.ModelProto) else str(model)
        proto = onnx.ModelProto()
        try:
            proto.CopyFrom(model if isinstance(model, onnx.ModelProto) else onnx.load(model))
        except Exception as error:  # protobuf, onnx and the file system each raise their own
            raise InputError(f"not a readable ONNX file: {error}", where=where) from error
        for value in proto.graph.input:
            if value.name in input_shapes:
                dims = [onnx.TensorShapeProto.Dimension(dim_value=n) for n in input_shapes[value.name]]
                value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
        outputs = {value.name: value for value in proto.graph.output}
        fetch = list(outputs) if fetch is None else list(fetch)
        known = {name for node in proto.graph.node for name in node.output} | {v.name for v in proto.graph.input}
        if missing := [name for name in fetch if name not in known]:
            raise InputError(f"the model has no tensor named {missing[0]!r}", where=where)
        del proto.graph.output[:]
        proto.graph.output.extend(outputs.get(name) or onnx.ValueInfoProto(name=name) for name in fetch)
        super().__init__(proto, fetch, where=where)
