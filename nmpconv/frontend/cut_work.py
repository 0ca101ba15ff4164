"""Places where a graph is cut, and the share of the model that is left to the host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod

import onnx

from nmpconv.frontend.integer_operators import MOVES
from nmpconv.frontend.node_check import TensorType
from nmpconv.frontend.toposort import subgraphs

Known = Callable[[str], TensorType]
FEW_PARTS = 8  # of one tensor, that a cut names one by one
# What puts numbers elsewhere or gives them another type, and computes nothing with them.
NO_WORK = {
    *(MOVES - {"GlobalMaxPool", "MaxPool", "Resize"}),
    *("Cast", "CastLike", "Compress", "ConcatFromSequence", "Constant", "DequantizeLinear", "Dropout"),
    *("GatherElements", "GatherND", "Pad", "QuantizeLinear", "ReverseSequence", "ScatterElements", "Shape", "Size"),
    *("SplitToSequence", "Trilu"),
}


@dataclass(frozen=True)
class Work:
    """nodes: how many the host gets of how many; macs: the same of multiply-accumulates, a lower bound of each.
    computes: the device does more than NO_WORK.
    """

    nodes: tuple[int, int]
    macs: tuple[int, int]
    computes: bool

    @classmethod
    def of(
        cls,
        nodes: Sequence[onnx.NodeProto],
        remaining: Collection[onnx.NodeProto],
        tensor: Known,
        is_const: Callable[[str], bool],
    ) -> Work:
        """nodes: of the model; remaining: of the graph that is cut; tensor: what is known of one by its name; is_const:
        says that a tensor of the graph that is cut depends on no input."""
        names = {name for node in remaining for name in node.output}
        left = [node for node in nodes if not names.intersection(node.output)]
        lost, all_ = (sum(_macs(node, tensor) for node in group) for group in (left, nodes))
        computes = any(
            node.op_type not in NO_WORK and not all(map(is_const, filter(None, node.output))) for node in remaining
        )
        return cls((len(left), len(nodes)), (lost, all_), computes)

    @property
    def is_some_left(self) -> bool:
        """Says that the device has some of the convolutions and products; without any, something to compute."""
        return self.macs[0] < self.macs[1] if self.macs[1] else self.computes

    def __str__(self) -> str:
        share = 100 * self.macs[0] / max(self.macs[1], 1)
        return f"{self.nodes[0]} of {self.nodes[1]} nodes and {share:.0f} % of the MACs"


def with_whole_tensors(
    ends: Sequence[str], nodes: Iterable[onnx.NodeProto], is_const: Callable[[str], bool], outputs: Collection[str]
) -> list[str]:
    """The ends of a cut, with a tensor in place of its parts where these are many: detectors select class by class.
    Outputs of the model stay.
    """
    makers = {name: node for node in nodes for name in node.output}
    parts = dict[str, list[str]]()
    for end in (name for name in ends if name not in outputs):
        node = makers.get(end)
        if node is not None and node.op_type in ("Gather", "Slice", "Split"):
            whole, *places = filter(None, node.input)
            if whole in makers and not is_const(whole) and all(map(is_const, places)):
                parts.setdefault(whole, []).append(end)
    wholes = {part: whole for whole, own in parts.items() if len(own) > FEW_PARTS for part in own}
    return list(dict.fromkeys(wholes.get(end, end) for end in ends))


def of_branches(node: onnx.NodeProto, tensor: Known) -> tuple[int, int]:
    """Multiply-accumulates of an If where all branches are computed, and of the largest path through them."""
    costs = [_paths(graph, tensor) for graph in subgraphs(node)]
    return sum(total for total, _ in costs), max((most for _, most in costs), default=0)


def _paths(graph: onnx.GraphProto, tensor: Known) -> tuple[int, int]:
    known = _inner(graph, tensor)
    costs = [of_branches(node, known) if node.op_type == "If" else (_macs(node, known),) * 2 for node in graph.node]
    return sum(total for total, _ in costs), sum(most for _, most in costs)


def _macs(node: onnx.NodeProto, tensor: Known) -> int:
    """Multiply-accumulates of convolutions and matrix products; each weight counts once where the result's shape is not
    known, and all as one where their own is not. Of graphs inside of a node, the largest, once."""
    graphs = subgraphs(node)
    if graphs:
        return max(_inner_macs(graph, tensor) for graph in graphs)
    if node.op_type.startswith("TreeEnsemble"):
        return 1  # what a model of trees is about, without a product
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return 0
    x, w, y = (tensor(name).shape for name in (node.input[0], node.input[1], node.output[0]))
    if w is None:
        return 1
    if node.op_type == "ConvTranspose":
        return prod(w) if x is None else prod(x) * prod(w[1:])
    if x is None or y is None:
        return prod(w)
    if node.op_type == "Conv":
        return prod(y) * prod(w[1:])
    turned = node.op_type == "Gemm" and any(a.name == "transA" and a.i for a in node.attribute)
    return prod(y) * (x[0] if turned else x[-1]) if x else 0


def _inner_macs(graph: onnx.GraphProto, tensor: Known) -> int:
    known = _inner(graph, tensor)
    return sum(_macs(node, known) for node in graph.node)


def _inner(graph: onnx.GraphProto, tensor: Known) -> Known:
    """Returns the shapes that are known in a graph inside of a node; of what it makes itself, only those of
    constants."""
    shapes: dict[str, tuple[int, ...] | None] = {name: None for node in graph.node for name in node.output}
    shapes |= {value.name: None for value in graph.input}
    shapes |= {constant.name: tuple(constant.dims) for constant in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            shapes[node.output[0]] = next((tuple(a.t.dims) for a in node.attribute if a.name == "value"), None)

    def known(name: str) -> TensorType:
        return TensorType(0, shapes[name]) if name in shapes else tensor(name)

    return known
