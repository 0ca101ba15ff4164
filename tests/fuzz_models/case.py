"""A model with the samples that it is run on: what is generated, checked, shrunk and written."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

IR_VERSION = 8  # of the files; onnxruntime takes it with every opset
ML = "ai.onnx.ml"
SEQUENCES = ("SequenceConstruct", "SequenceErase", "SequenceInsert", "SplitToSequence")  # make no tensors
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Node:
    """One ONNX node. kind: with the domain in front where it has one. inputs: '' for an absent one."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def proto(self) -> onnx.NodeProto:
        domain, _, kind = self.kind.rpartition(".")
        name = f"{kind}_{self.outputs[0]}"
        return helper.make_node(kind, self.inputs, self.outputs, name, domain=domain, **self.attributes)


@dataclass(frozen=True)
class Case:
    """feeds: [n, *shape] by input, n samples; an input's shape and type are those of its feed.

    loose: constants that are Constant nodes instead of initializers. batched: axis 0 of the inputs has no size in the
    file, only a name.
    """

    opset: int
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    feeds: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    loose: frozenset[str] = frozenset()
    batched: bool = False

    @property
    def count(self) -> int:
        """Samples."""
        return len(next(iter(self.feeds.values())))

    def makers(self) -> dict[str, Node]:
        return {name: node for node in self.nodes for name in node.outputs if name}

    def tensors(self) -> list[str]:
        """Results of nodes, without those that are sequences of tensors."""
        return [name for node in self.nodes if node.kind not in SEQUENCES for name in node.outputs if name]

    def trimmed(self) -> Case:
        """Without nodes and constants that no output needs; inputs that nobody reads stay."""
        needed, live = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                live.append(node)
                needed.update(node.inputs)
        constants = {name: x for name, x in self.constants.items() if name in needed}
        return replace(self, nodes=tuple(live[::-1]), constants=constants, loose=self.loose & constants.keys())

    def model(self, metadata: Mapping[str, str] | None = None) -> onnx.ModelProto:
        def info(name: str, x: np.ndarray) -> onnx.ValueInfoProto:
            shape: list[int | str] = list(x.shape[1:])
            if self.batched:
                shape[:1] = ["N"]
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), shape)

        tensors = {name: numpy_helper.from_array(np.asarray(x), name) for name, x in self.constants.items()}
        nodes = [helper.make_node("Constant", [], [n], f"Constant_{n}", value=tensors[n]) for n in sorted(self.loose)]
        graph = helper.make_graph(
            [*nodes, *(node.proto() for node in self.nodes)],
            "fuzz",
            [info(name, x) for name, x in self.feeds.items()],
            [onnx.ValueInfoProto(name=name) for name in self.outputs],
            [tensor for name, tensor in tensors.items() if name not in self.loose],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.kind.startswith(ML) for node in self.nodes):
            opsets.append(helper.make_opsetid(ML, 1))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        if metadata:
            helper.set_model_props(model, dict(metadata))
        return model

    def run(self, fetch: Sequence[str] = ()) -> Arrays:
        """The fetched tensors (none named: the outputs), [n, ...] each, by onnxruntime as the file says."""
        case = replace(self, outputs=tuple(dict.fromkeys(fetch))).trimmed() if fetch else self
        return run_model(case.model(), self.feeds, case.outputs)

    def __str__(self) -> str:
        """The nodes as text; constants and inputs with their values where those are few."""
        lines = [f"opset {self.opset}, {self.count} samples"]
        lines += [f"  {name} = input {_brief(x[0])} from {x.min():g} to {x.max():g}" for name, x in self.feeds.items()]
        lines += [f"  {name} = constant {_brief(np.asarray(x))}" for name, x in self.constants.items()]
        for node in self.nodes:
            attributes = "".join(f", {name}={_text(value)}" for name, value in node.attributes.items())
            lines.append(f"  {', '.join(node.outputs)} = {node.kind}({', '.join(node.inputs)}{attributes})")
        return "\n".join([*lines, f"  outputs {', '.join(self.outputs)}"])


def _text(value: Any) -> str:
    return onnx.printer.to_text(value) if isinstance(value, onnx.GraphProto) else str(value)


def _brief(x: np.ndarray) -> str:
    values = f" {np.array2string(x.ravel(), precision=4, threshold=12, edgeitems=4, separator=' ')}" if x.size else ""
    return f"{x.dtype}{list(x.shape)}{values}".replace("\n", "")


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """As the file says: without onnxruntime's own rewriting."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def run_model(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], fetch: Iterable[str]) -> Arrays:
    """The fetched outputs for each sample, [n, ...]."""
    fetch = list(fetch)
    ready = session(model)
    read = [value.name for value in ready.get_inputs()]
    rows = [
        ready.run(fetch, {name: np.asarray(feeds[name][i]) for name in read})
        for i in range(len(next(iter(feeds.values()))))
    ]
    return {name: np.stack([np.asarray(row[i]) for row in rows]) for i, name in enumerate(fetch)}


def single(case: Case) -> Case:
    """The function that is meant: float32 where it says float16, and saturation only where it quantizes."""

    def wide(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32) if x.dtype == np.float16 else x

    def node(old: Node) -> Node:
        if old.kind == "Cast" and old.attributes["to"] == onnx.TensorProto.FLOAT16:
            return replace(old, attributes={"to": onnx.TensorProto.FLOAT})
        if old.kind == "QuantizeLinear" and old.inputs[0] not in case.constants:
            saturated.update(old.outputs)
            scale, zero = (case.constants[name] for name in old.inputs[1:])
            ends = np.iinfo(zero.dtype)
            low, high = (np.float32((end - int(zero)) * scale) for end in (ends.min, ends.max))
            bounds = {f"{old.outputs[0]}/low": low, f"{old.outputs[0]}/high": high}
            if case.opset < 11:
                return Node("Clip", old.inputs[:1], old.outputs, {"min": float(low), "max": float(high)})
            extra.update(bounds)
            return Node("Clip", (old.inputs[0], *bounds), old.outputs)
        if old.kind == "DequantizeLinear" and old.inputs[0] in saturated:
            return Node("Identity", old.inputs[:1], old.outputs)
        return old

    saturated, extra = set[str](), Arrays()
    return replace(
        case,
        nodes=tuple(node(n) for n in case.nodes),
        constants={name: wide(x) for name, x in case.constants.items()} | extra,
        feeds={name: wide(x) for name, x in case.feeds.items()},
    )


def save(path: Path, case: Case, **metadata: str) -> None:
    """An ONNX file whose metadata holds the samples, and what else is given."""
    store = io.BytesIO()
    np.savez_compressed(store, **{name: np.asarray(x) for name, x in case.feeds.items()})
    samples = base64.b64encode(store.getvalue()).decode()
    path.write_bytes(case.model({**metadata, "samples": samples}).SerializeToString())


def load(path: Path) -> tuple[Case, dict[str, str]]:
    """Reads what `save` wrote: the case, and the metadata."""
    model = onnx.load(path)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    with np.load(io.BytesIO(base64.b64decode(metadata.pop("samples")))) as store:
        feeds = {value.name: store[value.name] for value in model.graph.input}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    loose, nodes = {}, []
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            loose[node.output[0]] = numpy_helper.to_array(attributes["value"])
        else:
            plain = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
            kind = f"{node.domain}.{node.op_type}".lstrip(".")
            nodes.append(Node(kind, tuple(node.input), tuple(node.output), plain))
    outputs = tuple(value.name for value in model.graph.output)
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    batched = any(v.type.tensor_type.shape.dim[0].dim_param for v in model.graph.input if v.type.tensor_type.shape.dim)
    return Case(opset, tuple(nodes), constants | loose, feeds, outputs, frozenset(loose), batched), metadata
