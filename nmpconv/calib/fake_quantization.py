"""A float graph in one session in which every tensor's rounding, and every layer's own rounded constants, have a
switch. Those of tensors are elements of one input of the ONNX model: very many inputs take longer than a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.calib.activation_cache import Feeds
from nmpconv.calib.engine import Engine, is_small
from nmpconv.frontend.to_onnx import is_batchable, to_onnx
from nmpconv.ir import Graph
from nmpconv.ops.op import quant_of

POSITIONS = 16  # of a plane, from which on a mean over it is the channel's and not the value's
PREFIX = "nmpconv/"  # of what is added to the graph
SWITCHES = f"{PREFIX}switches"
BATCH_ELEMENTS = 1 << 22  # of the largest tensor, up to which images run together


class Switched:
    """members: by the name of a switch, the activations that it rounds to their grids. centred: the error that a
    rounding adds has no mean in a channel of an image, as where biases are corrected. What saturation adds keeps its
    mean: no bias makes up for that, and where a HardSwish follows, it is often nothing in the end.

    rounded: the same graph with other constants. Each node that has some then gets a switch called by its first
    output, which is no name of ``members``' (`constant_switch`); with it on, the node has the constants of ``rounded``.
    """

    def __init__(
        self,
        graph: Graph,
        members: Mapping[str, Sequence[str]],
        heads: Sequence[str],
        images: Feeds,
        *,
        centred: bool,
        rounded: Graph | None = None,
    ) -> None:
        proto = to_onnx(graph, heads)
        ports = [*(name for node in proto.graph.node for name in node.output), *(v.name for v in proto.graph.input)]
        switch_of = {name: switch for switch, names in members.items() for name in names if name in ports}
        self.switch_of: Mapping[str, str] = switch_of  # by the tensor that is rounded
        blended = {} if rounded is None else _blend(proto, to_onnx(rounded, heads), graph)
        rounds = {switch: f"{PREFIX}switch/{switch}" for switch in dict.fromkeys(switch_of.values())}
        self._rounds, self._blends = tuple(rounds), blended
        self.switches = (*rounds, *blended)  # of tensors that reach a head
        self._fetch = [_noisy(name) if name in switch_of else name for name in heads]
        read = {value.name for value in proto.graph.input}
        by_name = {name: rounds[switch] for name, switch in switch_of.items()}
        _add_switches(proto, graph, by_name, tuple(blended.values()), self._fetch, centred)
        self._engine = Engine(proto, self._fetch, where=graph.name, optimize=is_small(proto), threads=1)
        self._read = [name for name in graph.inputs if name in read]
        largest = max(value.size for value in graph.activations())
        self._batch = BATCH_ELEMENTS // max(largest, 1) if is_batchable(graph) else 0
        self._feeds = self._fed(images)

    def over(self, images: Feeds) -> Switched:
        """The same session on other images."""
        other = copy(self)
        other._feeds = self._fed(images)
        return other

    def _fed(self, images: Feeds) -> list[Mapping[str, np.ndarray]]:
        whole = (images[i] for i in range(len(images)))
        feeds = [{name: image[name] for name in self._read} for image in whole]
        if not 0 < len(feeds) <= self._batch:
            return list(feeds)
        return [{name: np.concatenate([feed[name] for feed in feeds]) for name in self._read}]

    @property
    def runs(self) -> int:
        """Runs of the graph that a pass takes."""
        return len(self._feeds)

    def run(self, on: Collection[str]) -> list[np.ndarray]:
        """The heads on all images, with these switches on."""
        on = frozenset(on)
        blends = {port: np.float32(switch in on) for switch, port in self._blends.items()}
        rounds = {SWITCHES: np.array([switch in on for switch in self._rounds])}
        results = [self._engine.run({**feed, **rounds, **blends}) for feed in self._feeds]
        return [np.stack([result[name] for result in results]) for name in self._fetch]


def constant_switch(output: str) -> str:
    """The switch of the constants of the node that makes this."""
    return f"constants/{output}"


def _noisy(name: str) -> str:
    return f"{PREFIX}noisy/{name}"


def _blend(proto: onnx.ModelProto, other: onnx.ModelProto, graph: Graph) -> dict[str, str]:
    """Adds both constants and a switch where two exports of one graph differ; returns the switches by constant."""
    makers = {out: node.outputs[0] for node in graph.nodes for out in node.outputs}
    readers = {name: node for node in reversed(proto.graph.node) for name in node.input}
    theirs = {tensor.name: tensor for tensor in other.graph.initializer}
    ports, nodes, constants = {}, [], []
    for tensor in proto.graph.initializer:
        if tensor.name not in readers:  # its op has a turned copy
            continue
        ours, rounded = numpy_helper.to_array(tensor), numpy_helper.to_array(theirs[tensor.name])
        if ours.dtype.kind != "f" or np.array_equal(ours, rounded):
            constants.append(tensor)
            continue
        reader, out = readers[tensor.name], ""
        while (out := reader.output[0]) not in makers:
            reader = readers[out]
        name = constant_switch(makers[out])
        ports[name] = port = f"{PREFIX}switch/{name}"
        difference = numpy_helper.from_array(rounded - ours, f"{PREFIX}difference/{tensor.name}")
        floats = numpy_helper.from_array(ours, f"{PREFIX}float/{tensor.name}")
        constants += [difference, floats]
        product = f"{PREFIX}product/{tensor.name}"
        nodes += [
            helper.make_node("Mul", [difference.name, port], [product]),
            helper.make_node("Add", [floats.name, product], [tensor.name]),
        ]
    name, inputs, outputs = proto.graph.name, proto.graph.input, proto.graph.output
    proto.graph.CopyFrom(helper.make_graph([*nodes, *proto.graph.node], name, inputs, outputs, constants))
    return ports


def _add_switches(
    proto: onnx.ModelProto,
    graph: Graph,
    ports: Mapping[str, str],
    blends: Sequence[str],
    fetch: Sequence[str],
    centred: bool,
) -> None:
    """Behind each of these tensors a fake quantization, behind its switch. ports: by tensor. blends: of constants."""
    inputs = [helper.make_tensor_value_info(port, TensorProto.FLOAT, []) for port in blends]
    nodes = []
    if every := list(dict.fromkeys(ports.values())):
        inputs.append(helper.make_tensor_value_info(SWITCHES, TensorProto.BOOL, [len(every)]))
        nodes.append(helper.make_node("Split", [SWITCHES], every, num_outputs=len(every)))
    for name in (value.name for value in proto.graph.input if value.name in ports):
        nodes += _rounding(name, ports[name], graph, centred)
    for node in proto.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = _noisy(name) if name in ports else name
        nodes.append(node)
        for name in node.output:
            nodes += _rounding(name, ports[name], graph, centred) if name in ports else []
    new_graph = helper.make_graph(
        nodes,
        proto.graph.name,
        [*proto.graph.input, *inputs],
        [onnx.ValueInfoProto(name=name) for name in fetch],
        proto.graph.initializer,
    )
    proto.graph.CopyFrom(new_graph)


def _rounding(name: str, port: str, graph: Graph, centred: bool) -> list[onnx.NodeProto]:
    """_noisy(name): with the switch on, what the grid makes of name, if centred less the mean of the rounding errors in
    a plane's channels, not of what saturates. With it off that is not computed: most of a pass would be for nothing."""
    value = graph[name]
    quant = quant_of(value)
    step = 2.0**quant.exponent
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        out = f"{PREFIX}{len(nodes)}/{name}"
        nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def const(number: float | list[int]) -> str:
        array = np.asarray(number, np.float32 if isinstance(number, float) else np.int64)
        constants.append(numpy_helper.from_array(array, f"{PREFIX}constant{len(constants)}/{name}"))
        return str(constants[-1].name)

    whole = const(step)
    held = node("Clip", name, const(step * quant.lo), const(step * quant.hi))
    level = node("Floor", node("Add", node("Div", held, whole), const(0.5)))
    rounded = node("Mul", level, whole)
    if centred and len(value.shape) == 4 and value.shape[1] * value.shape[2] >= POSITIONS:
        node("Sub", rounded, node("ReduceMean", node("Sub", rounded, held), const([1, 2]), keepdims=1))
    same = [helper.make_node("Identity", [name], [f"{PREFIX}same/{name}"])]
    on, off = _branch(nodes, constants), _branch(same)
    return [helper.make_node("If", [port], [_noisy(name)], then_branch=on, else_branch=off)]


def _branch(nodes: Sequence[onnx.NodeProto], constants: Sequence[onnx.TensorProto] = ()) -> onnx.GraphProto:
    """Branch of an If: what the last node makes."""
    return helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name=nodes[-1].output[0])], constants)
