"""Sums of which an operand keeps 0, and streams that grow by such sums, for `offsets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.traits import Origins
from nmpconv.ops.conv2d import is_depthwise

ONE_SIDED = 0.1  # how far, of its range on one side, a tensor may reach to the other


def one_sided(stats: TensorStats) -> bool:
    return min(-stats.min, stats.max) <= ONE_SIDED * stats.peak


def zero_operands(graph: Graph, stats: Mapping[str, TensorStats]) -> dict[str, Node]:
    """Operands of sums that keep 0, with the sum: layers without activation, and of two such layers in front of a
    one-sided sum only the larger one."""
    makers, users = graph.producers(), graph.consumers()
    return {name: node for node in graph.nodes for name in _zero_operands(node, graph, stats, makers, users)}


def _zero_operands(
    node: Node,
    graph: Graph,
    stats: Mapping[str, TensorStats],
    makers: Mapping[str, Node],
    users: Mapping[str, Sequence[Node]],
) -> list[str]:
    out = graph[node.outputs[0]]
    if OPS[node.op].origins(node.params, graph.ins(node), out) not in (Origins.SUM, Origins.DIFFERENCE):
        return []
    linear = [
        name
        for name in dict.fromkeys(node.inputs)
        if name in makers and makers[name].op in WEIGHTED and len(users[name]) == 1 and not one_sided(stats[name])
    ]
    if len(linear) == 2 and one_sided(stats[out.name]):
        linear.remove(min(linear, key=lambda name: stats[name].peak))
    return linear


def growing(graph: Graph, stats: Mapping[str, TensorStats]) -> dict[str, tuple[str, str]]:
    """The other operand and the result of one-sided sums that follow each other, by the result of the convolution that
    is added."""
    makers, operands = graph.producers(), zero_operands(graph, stats)
    sums: dict[str, tuple[str, str]] = {}
    for name, add in operands.items():
        others = [other for other in add.inputs if other != name and not graph[other].is_const]
        if (
            add.op == "add"
            and _is_dense(graph, makers[name])
            and len(others) == 1
            and others[0] not in operands
            and one_sided(stats[add.outputs[0]])
        ):
            sums[name] = others[0], add.outputs[0]
    ends, starts = ({pair[i] for pair in sums.values()} for i in (1, 0))
    return {name: (other, out) for name, (other, out) in sums.items() if other in ends or out in starts}


def _is_dense(graph: Graph, layer: Node) -> bool:
    shapes = graph[layer.inputs[0]].shape, graph[layer.outputs[0]].shape
    return layer.op == "conv2d" and not is_depthwise(layer.params.groups, *shapes)
