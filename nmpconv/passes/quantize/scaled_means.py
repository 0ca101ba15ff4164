"""Means as depthwise convolutions whose weights are exact, so that their sums are.

1. A mean times a number: AMD Quark writes the global mean of 36 elements as a mean times 63/64, since its device
   multiplies the sum by 7/256. Two roundings would miss what one of the model hits.
2. A mean of 32, 64, ... elements: it has ties, as the smaller ones that have tables.

Both only where the result has a grid of the model that is a power of two. `finer_sums` treats their ties where 16 bits
have room for them; where not, they are layers all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nmpconv.ir import Given, Graph, Node, Value
from nmpconv.ops.average_pool import AveragePoolParams
from nmpconv.ops.conv2d import Conv2D, Conv2DParams

LEAST_PART = 2.0**-20  # of a weight: what float32 leaves of it
MOST = 127  # integer of a weight
COARSEST = 24  # bits below 1 that weights have
TABLE_MOST = 16  # elements of a mean that has a table (`finer_sums`)


def as_convolutions(graph: Graph, grids: Mapping[str, Given]) -> Graph:
    """The graph with these convolutions. grids: those of the model, also before a Transpose to them."""
    makers, users = graph.producers(), graph.consumers()
    nodes: list[Node] = []
    fresh: list[Value] = []
    gone: set[str] = set()
    for node in graph.nodes:
        mean, number = _mean(graph, node, makers, grids)
        weight = None if mean is None else _weight(mean.params, number)
        grid = grids.get(node.outputs[0])
        if mean is None or weight is None or grid is None or not grid.is_power:
            nodes.append(node)
            continue
        out = mean.outputs[0]
        if mean is not node:
            if out in grids or out in graph.outputs or len(users[out]) != 1 or graph[out].clamp:
                nodes.append(node)
                continue
            gone.add(mean.name)
        layer, constants = _layer(graph, node, mean, weight)
        nodes.append(layer)
        fresh += constants
    nodes = [node for node in nodes if node.name not in gone]
    left = {name: value for name, value in graph.values.items() if name not in makers or makers[name].name not in gone}
    return replace(graph, nodes=tuple(nodes), values=left).with_values(*fresh)


def _mean(
    graph: Graph, node: Node, makers: Mapping[str, Node], grids: Mapping[str, Given]
) -> tuple[Node | None, float]:
    """The mean that the node is, or multiplies, and the number that it multiplies it by; None where it is neither."""
    if isinstance(node.params, AveragePoolParams):
        count = node.params.kernel_h * node.params.kernel_w
        large = count > TABLE_MOST and count & (count - 1) == 0
        return (node, 1.0) if large else (None, 1.0)
    mean = next((makers[name] for name in node.inputs if name in makers), None)
    number = next((graph[name].data for name in node.inputs if graph[name].data is not None), None)
    if node.op != "mul" or mean is None or number is None or number.size != 1:
        return None, 1.0
    return mean, float(number.item())


def _weight(params: object, number: float) -> float | None:
    """The factor of each element of the window, if 8 bits hold it; None where padding is not counted."""
    if not isinstance(params, AveragePoolParams):
        return None
    pads = params.pad_top, params.pad_left, params.pad_bottom, params.pad_right
    if any(pads) and not params.count_include_pad:
        return None
    exact = number / (params.kernel_h * params.kernel_w)
    if exact == 0:
        return None
    for bits in range(COARSEST):
        whole = round(math.ldexp(exact, bits))
        if 0 < abs(whole) <= MOST and abs(math.ldexp(exact, bits) - whole) <= LEAST_PART * abs(whole):
            return math.ldexp(whole, -bits)
    return None


def _layer(graph: Graph, node: Node, mean: Node, weight: float) -> tuple[Node, list[Value]]:
    """The convolution, its weights and biases."""
    p, channels = mean.params, graph[mean.outputs[0]].shape[-1]
    assert isinstance(p, AveragePoolParams)
    names = f"{node.name}.weight", f"{node.name}.bias"
    shape = (channels, p.kernel_h, p.kernel_w, 1)
    constants = [
        Value(names[0], shape, data=np.full(shape, weight, np.float32)),
        Value(names[1], (channels,), data=np.zeros(channels, np.float32)),
    ]
    pads = {"pad_top": p.pad_top, "pad_left": p.pad_left, "pad_bottom": p.pad_bottom, "pad_right": p.pad_right}
    params = Conv2DParams(stride_h=p.stride_h, stride_w=p.stride_w, groups=channels, **pads)
    return Node(Conv2D.name, node.name, (mean.inputs[0], *names), node.outputs, params), constants
