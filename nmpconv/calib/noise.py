"""Where the noise at the heads comes from: each tensor's share of it, by forward passes alone.

The float graph runs in one session in which every tensor that is rounded has a fake quantization behind it, switched on
and off by an input. The error that it adds has no mean in a channel of an image, since corrected biases take that away.
One pass with all switches on is the whole, one with a single switch on a share. Where noise is small, the shares add up
to about 1; where a net amplifies it, to less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.calib.engine import Engine
from nmpconv.calib.evidence import Feeds
from nmpconv.frontend.export import is_batchable, to_onnx
from nmpconv.ir import Graph
from nmpconv.ops import OPS

IMAGES = 8
MACS_MOST = 3 * 10**10  # of all passes together; what would take more is not measured
POSITIONS = 16  # of a plane, from which on a mean over it is the channel's and not the value's
PREFIX = "nmpconv/"  # of what is added to the graph
BATCH_ELEMENTS = 1 << 22  # of the largest tensor, up to which images run together
DIGITS = 6  # of a share; those beyond depend on the CPU


@dataclass(frozen=True)
class Noise:
    """shares: by the first tensor of a grid, the largest first: the mean over the heads of what it alone makes of all
    noise there, 0 to about 1. skipped: why there are none."""

    shares: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""


def budget(
    ranged: Graph,
    groups: Sequence[Sequence[str]],
    heads: Sequence[str],
    images: Feeds,
    macs_most: int = MACS_MOST,
) -> Noise:
    """ranged: a float graph whose activations have grids. groups: the activations that share one. heads: where noise is
    measured. macs_most: of all passes together.
    """
    members = {group[0]: found for group in groups if (found := _rounded(ranged, group))}
    macs = sum(OPS[node.op].macs(node.params, ranged.ins(node), ranged.outs(node)) for node in ranged.nodes)
    count = min(IMAGES, len(images), macs_most // max(1, macs * (len(members) + 2)))
    if not count:
        return Noise({}, "the net is too large to measure where its noise comes from" if len(images) else "no images")
    passes = _Passes(ranged, members, heads, [images[i * len(images) // count] for i in range(count)])
    plain, whole = passes.run(()), passes.run(members)
    total = [_power(w - p) for w, p in zip(whole, plain, strict=True)]
    noisy = [i for i, power in enumerate(total) if power > 0]

    def share(name: str) -> float:
        found = passes.run((name,))
        return float(np.mean([_power(found[i] - plain[i]) / total[i] for i in noisy])) if noisy else 0.0

    shares = {name: round(share(name), DIGITS) for name in passes.switches}
    return Noise(dict(sorted(shares.items(), key=lambda item: -item[1])))


def _rounded(graph: Graph, group: Sequence[str]) -> list[str]:
    """The members that something is rounded in: not raw pixels, nor what only moves what has been rounded before."""
    moved = {out for node in graph.nodes if OPS[node.op].grid == "same" for out in node.outputs}
    return [name for name in group if name not in graph.pixels and name not in moved]


def _power(x: np.ndarray) -> float:
    return float(np.square(x, dtype=np.float64).sum())


class _Passes:
    """The session. members: by the name of a switch, the tensors that it rounds."""

    def __init__(self, graph: Graph, members: Mapping[str, Sequence[str]], heads: Sequence[str], images: Feeds) -> None:
        proto = to_onnx(graph, heads)
        ports = [*(name for node in proto.graph.node for name in node.output), *(v.name for v in proto.graph.input)]
        switch_of = {name: switch for switch, names in members.items() for name in names if name in ports}
        self._ports = {switch: f"{PREFIX}switch/{switch}" for switch in dict.fromkeys(switch_of.values())}
        self.switches = tuple(self._ports)  # of tensors that reach a head
        self._fetch = [_noisy(name) if name in switch_of else name for name in heads]
        _add_switches(proto, graph, {name: self._ports[switch] for name, switch in switch_of.items()}, self._fetch)
        self._engine = Engine(proto, self._fetch, where=graph.name)
        read = {value.name for value in proto.graph.input}
        feeds = [{name: image[name] for name in graph.inputs if name in read} for image in images]
        self._feeds = feeds
        largest = max(value.size for value in graph.activations())
        if is_batchable(graph) and largest * len(feeds) <= BATCH_ELEMENTS:
            self._feeds = [{name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}]

    def run(self, on: Collection[str]) -> list[np.ndarray]:
        """The heads on all images, with these switches on."""
        switches = {port: np.float32(switch in on) for switch, port in self._ports.items()}
        found = [self._engine.run({**feed, **switches}) for feed in self._feeds]
        return [np.stack([result[name] for result in found]) for name in self._fetch]


def _noisy(name: str) -> str:
    return f"{PREFIX}noisy/{name}"


def _add_switches(proto: onnx.ModelProto, graph: Graph, ports: Mapping[str, str], fetch: Sequence[str]) -> None:
    """Behind each of these tensors a fake quantization, behind its switch (an input of this name)."""
    nodes = []
    for name in (value.name for value in proto.graph.input if value.name in ports):
        nodes += _rounding(name, ports[name], graph)
    for node in proto.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = _noisy(name) if name in ports else name
        nodes.append(node)
        for name in node.output:
            nodes += _rounding(name, ports[name], graph) if name in ports else []
    made = helper.make_graph(
        nodes,
        proto.graph.name,
        [
            *proto.graph.input,
            *(helper.make_tensor_value_info(p, TensorProto.FLOAT, []) for p in dict.fromkeys(ports.values())),
        ],
        [onnx.ValueInfoProto(name=name) for name in fetch],
        proto.graph.initializer,
    )
    proto.graph.CopyFrom(made)


def _rounding(name: str, port: str, graph: Graph) -> list[onnx.NodeProto]:
    """_noisy(name) = name + switch * (its rounding error, less the mean of that in each channel of a plane)."""
    value, quant = graph[name], graph[name].quant
    assert quant is not None
    step = 2.0**quant.exponent
    nodes: list[onnx.NodeProto] = []

    def node(kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"{PREFIX}{len(nodes)}/{name}"
        nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def const(number: float | list[int]) -> str:
        array = np.float32(number) if isinstance(number, float) else np.array(number, np.int64)
        return node("Constant", value=numpy_helper.from_array(np.asarray(array)))

    level = node("Floor", node("Add", node("Div", name, const(step)), const(0.5)))
    clipped = node("Clip", level, const(float(quant.lo)), const(float(quant.hi)))
    error = node("Sub", node("Mul", clipped, const(step)), name)
    if len(value.shape) == 4 and value.shape[1] * value.shape[2] >= POSITIONS:
        error = node("Sub", error, node("ReduceMean", error, const([1, 2]), keepdims=1))
    node("Add", name, node("Mul", error, port), out=_noisy(name))
    return nodes
