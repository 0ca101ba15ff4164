"""Running float models: an IR graph or the user's own ONNX file, through onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

# Without it onnxruntime reports its uses to its makers, and keeps an id of the machine in HOME.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from nmpconv.base.thread_pool import cpu_count
from nmpconv.calib.original_model import axes_from_the_front, cut
from nmpconv.errors import InputError
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.ir import Graph

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(bool)": np.bool_,
    **{f"tensor({name})": getattr(np, name) for name in ("int8", "uint8", "int16", "uint16", "int32", "int64")},
}

NODES_MANY = 3_000  # from which on onnxruntime takes longer to optimize a model than a few runs take


class EngineRefused(InputError):
    """onnxruntime does not take a model: it is no valid one, or has an operator or a type that is not implemented."""


def serialized(model: onnx.ModelProto, where: str = "") -> bytes:
    """Raises EngineRefused from 2 GiB on. Release the model before a session takes its own copies."""
    try:
        return bytes(axes_from_the_front(model).SerializeToString())
    except Exception as error:  # protobuf's own
        raise EngineRefused(f"onnxruntime refuses the model: {error}", where=where) from error


def is_small(model: onnx.ModelProto) -> bool:
    """Checks that onnxruntime is to optimize a model, which takes a time that grows with the square of its nodes.

    Those of branches count."""
    count = len(model.graph.node)
    if count < NODES_MANY:
        branches = (attribute.g for node in model.graph.node for attribute in node.attribute if attribute.HasField("g"))
        count += sum(len(branch.node) for branch in branches)
    return count < NODES_MANY


class Engine:
    """A session over a model, or what is `serialized` of it, whose outputs are ``fetch``. optimize: let onnxruntime
    rewrite the model first. threads: of one run; None: one for each CPU.
    """

    def __init__(
        self,
        model: onnx.ModelProto | bytes,
        fetch: Sequence[str],
        *,
        where: str = "",
        optimize: bool = True,
        threads: int | None = None,
    ) -> None:
        import onnxruntime as ort  # not loaded where only a file is evaluated

        self.fetch = tuple(fetch)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or cpu_count()
        options.log_severity_level = 4
        if not optimize:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Products of uint8 and int8 saturate at 16 bits on x86-64 CPUs without VNNI, unless they are asked not to.
        options.add_session_config_entry("session.x64quantprecision", "1")
        # Spinning threads would take the CPU from what is done with the results between two runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        data = model if isinstance(model, bytes) else serialized(model, where)
        try:
            self._session = ort.InferenceSession(
                data,
                options,
                providers=["CPUExecutionProvider"],
                # onnxruntime 1.31 merges Pad(0) into MaxPool although a pool's own padding never wins.
                disabled_optimizers=["Pad_Fusion"],
            )
        except Exception as error:  # onnxruntime has no base class of its own
            raise EngineRefused(f"onnxruntime refuses the model: {error}", where=where) from error
        self._session._model_bytes = None  # a copy for other providers, as large as the model
        self._where = where
        self._inputs = {value.name: _TYPES.get(value.type) for value in self._session.get_inputs()}

    def run(self, feeds: Mapping[str, np.ndarray], names: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """The fetched tensors for these inputs, in the model's own type; ones that nothing reads are ignored.

        names: only these of them. InputError for an input that is missing, and for what fails in a run.
        """
        if missing := [name for name in self._inputs if name not in feeds]:
            raise InputError(f"there is nothing to feed input {missing[0]!r} of the model with", where=self._where)
        typed = {name: np.asarray(feeds[name], dtype) for name, dtype in self._inputs.items()}
        wanted = tuple(names) or self.fetch
        # onnxruntime 1.23 gives an input back as a view of what was fed, and lets that go.
        computed = [name for name in wanted if name not in self._inputs]
        try:
            results = self._session.run(computed, typed) if computed else []
        except Exception as error:
            raise InputError(f"onnxruntime cannot run the model: {error}", where=self._where) from error
        tensors = dict(zip(computed, results, strict=True))
        return {name: tensors[name] if name in tensors else typed[name].copy() for name in wanted}


class FloatEngine(Engine):
    """The float meaning of an IR graph. fetch: names of activations; the results are float32 in the IR's layout.

    values: how many there are in the results.
    """

    def __init__(self, graph: Graph, fetch: Sequence[str], threads: int | None = None) -> None:
        self.values = sum(graph[name].size for name in fetch)
        proto = to_onnx(graph, fetch)
        data, small = serialized(proto, graph.name), is_small(proto)
        del proto
        super().__init__(data, fetch, where=graph.name, optimize=small, threads=threads)


class OnnxEngine(Engine):
    """The user's original model with the input shapes bound. fetch: any tensor names; None for the model's outputs.

    Inputs that these do not depend on need no feed. optimize: see `Engine`.
    """

    def __init__(
        self,
        model: str | Path | onnx.ModelProto,
        input_shapes: Mapping[str, Sequence[int]],
        fetch: Sequence[str] | None = None,
        *,
        optimize: bool = True,
    ) -> None:
        where = "" if isinstance(model, onnx.ModelProto) else str(model)
        proto = onnx.ModelProto()
        try:
            proto.CopyFrom(model if isinstance(model, onnx.ModelProto) else onnx.load(model))
        except Exception as error:  # protobuf, onnx and the file system each raise their own
            raise InputError(f"not a readable ONNX file: {error}", where=where) from error
        fetch = [value.name for value in proto.graph.output] if fetch is None else list(fetch)
        known = {name for node in proto.graph.node for name in node.output} | {v.name for v in proto.graph.input}
        if missing := [name for name in fetch if name not in known]:
            raise InputError(f"the model has no tensor named {missing[0]!r}", where=where)
        cut(proto, fetch, input_shapes)
        super().__init__(proto, fetch, where=where, optimize=optimize)
