"""From a float graph back to ONNX, for onnxruntime: calibration and comparisons run what the converter understood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nmpconv.ir import Graph, Value
from nmpconv.ops import OPS, keeps_batch
from nmpconv.ops.builders import OnnxBuilder

OPSET = 20
IR_VERSION = 9  # the newest that every onnxruntime allowed by pyproject.toml reads
BATCH = "N"


def to_onnx(graph: Graph, fetch: Iterable[str]) -> onnx.ModelProto:
    """The nodes that the values named in ``fetch`` need, in float; a fetched value is taken after its clamp.

    Inputs and outputs have the graph's shapes (NHWC inside of the model), with a dynamic first dimension "N" when
    `is_batchable`: then the model also runs on batches, although the graph is for batch 1.
    """
    wanted = tuple(dict.fromkeys(fetch))
    to = Exporter(graph)
    needed, live = set(wanted), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            live.append(node)
            needed.update(node.inputs)
    for node in reversed(live):
        OPS[node.op].export(node, graph, to)
        for value in graph.outs(node):
            to.clamp(value)
    inputs = [to.info(graph[name]) for name in graph.inputs if name in needed]
    outputs = [to.info(graph[name]) for name in wanted]
    proto = helper.make_graph(to.nodes, graph.name or "graph", inputs, outputs)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(proto, opset_imports=opsets, ir_version=IR_VERSION, producer_name="nmpconv")
    for tensor in to.constants(wanted):  # one by one: `make_graph` and `make_model` copy what they are given
        model.graph.initializer.append(tensor)
    return model


def is_batchable(graph: Graph) -> bool:
    """Checks that axis 0 is the batch everywhere: size 1, and no node mixes it with another axis or changes its
    size."""
    return all(graph[name].shape[:1] == (1,) for name in graph.inputs) and all(
        keeps_batch(graph, node) for node in graph.nodes
    )


class Exporter(OnnxBuilder):
    """The ONNX graph under construction. Values keep their names."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.batchable = is_batchable(graph)
        self.nodes: list[onnx.NodeProto] = []
        self._constants: list[tuple[np.ndarray, str]] = []  # that are made here, and their names
        self._names = set(graph.values)
        self._numbers: dict[str, int] = {}  # of a wished name: the last one that was taken
        self._unclamped: dict[str, str] = {}
        self._alike: dict[str, onnx.NodeProto] = {}  # a node without names, by its operator and attributes

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        if not output:
            output = self._fresh(inputs[0] + "." + kind)
        elif self.graph[output].clamp is not None:
            output = self._raw(output)
        self._append(kind, inputs, (output,), attributes)
        return output

    def second(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        outputs = [self._fresh(f"{inputs[0]}.{kind}") for _ in range(2)]
        self._append(kind, inputs, outputs, attributes)
        return outputs[1]

    def _append(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
        """Adds a node; attributes are made once, as that takes most of the time."""
        plain = {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in attributes.items()}
        key = f"{kind}{plain}"
        if key not in self._alike:
            self._alike[key] = helper.make_node(kind, (), (), **attributes)
        node = onnx.NodeProto()
        node.CopyFrom(self._alike[key])
        node.input.extend(inputs)
        node.output.extend(outputs)
        self.nodes.append(node)

    def const(self, data: np.ndarray | Sequence[int]) -> str:
        name = self._fresh("const")
        array = np.asarray(data) if isinstance(data, np.ndarray | np.generic) else np.asarray(data, np.int64)
        self._constants.append((array, name))
        return name

    def transpose(self, value: str, perm: Sequence[int], output: str = "") -> str:
        return self.node("Transpose", (value,), output, perm=list(perm))

    def shape(self, shape: Sequence[int]) -> str:
        return self.const([0, *shape[1:]] if self.batchable else list(shape))

    def clamp(self, value: Value) -> None:
        """The saturation after the node that computes a clamped value."""
        if value.clamp is None:
            return
        bounds = [self.const(np.float32(bound)) if np.isfinite(bound) else "" for bound in value.clamp]
        self._append("Clip", [self._raw(value.name), *bounds], [value.name], {})

    def constants(self, fetched: Iterable[str]) -> Iterator[onnx.TensorProto]:
        """Initializers, one by one: the ones made here, and the graph's constants that are read or fetched."""
        read = {name for node in self.nodes for name in node.input} | set(fetched)
        own = [(v.data, v.name) for v in self.graph.values.values() if v.data is not None and v.name in read]
        yield from (numpy_helper.from_array(np.asarray(data), name) for data, name in (*own, *self._constants))

    def info(self, value: Value) -> onnx.ValueInfoProto:
        shape: list[int | str] = list(value.shape)
        if self.batchable and not value.is_const:
            shape[0] = BATCH
        return helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, shape)

    def _raw(self, value: str) -> str:
        """The name of a clamped value before its clamp."""
        if value not in self._unclamped:
            self._unclamped[value] = self._fresh(f"{value}.unclamped")
        return self._unclamped[value]

    def _fresh(self, name: str) -> str:
        n = self._numbers.get(name, 0)
        candidate = f"{name}_{n}" if n else name
        while candidate in self._names:
            n += 1
            candidate = f"{name}_{n}"
        self._names.add(candidate)
        self._numbers[name] = n
        return candidate
