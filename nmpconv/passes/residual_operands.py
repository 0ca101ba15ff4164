"""Sums whose other operand a convolution takes, so that the result is rounded once (op conv_add).

That is the sum of a convolution's result, which nobody else reads, and of another tensor. The other one and the sum are
int8 on one grid, so the sum may lie on it: `grids` puts the convolution's results on that grid, in int16, where their
own grid would be finer by FINER bits at most; `run` makes the two ops one, with the same integers. A bias is coarser
there, and weights make up for its rounding (`quantize.rounding`).

1. Of two convolutions the later one takes the other's result, so that its input is not needed for longer.
2. Depthwise ones and other widths than int8 stay two ops: the op has none.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import asdict, replace
from typing import NamedTuple

from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.conv2d import is_depthwise
from nmpconv.ops.conv_add import SHIFT_MAX, ConvAddParams
from nmpconv.ops.op import quant_of

INT16 = -32768, 32767
FINER = 1  # bits that a grid of its own may gain a convolution; one rounding in place of two is worth as much


class Sum(NamedTuple):
    """layer: the convolution; add: the op behind it; other: the name of its other operand."""

    layer: Node
    add: Node
    other: str


def grids(graph: Graph, weight_bits: Callable[[Node], int], fixed: Container[str] = ()) -> Graph:
    """A graph whose activations have grids, and whose weights are float yet: of so many bits they will be.

    fixed: names of tensors that stay on their grids, as a quantized model has them.
    """
    fresh = []
    for residual in _sums(graph):
        product, grid = graph[residual.layer.outputs[0]], quant_of(graph[residual.add.outputs[0]])
        if product.name in fixed:
            continue
        if (
            quant_of(product).bits == 8
            and quant_of(product).exponent >= grid.exponent - FINER
            and weight_bits(residual.layer) == 8
        ):
            fresh.append(replace(product, quant=Quant(16, grid.exponents, *INT16)))
    return graph.with_values(*fresh)


def found(graph: Graph) -> dict[str, Sum]:
    """Sums that `grids` has chosen, by the name of the convolution's result; graph: with grids."""
    sums = ((residual.layer.outputs[0], residual) for residual in _sums(graph))
    return {name: residual for name, residual in sums if _is_ready(graph[name], graph[residual.add.outputs[0]])}


def run(graph: Graph) -> Graph:
    """An integer graph. The op has the name of the convolution."""
    sums = {residual.add.name: residual for residual in found(graph).values() if _is_legal(graph, residual)}
    gone = {residual.layer.name: residual.layer.outputs[0] for residual in sums.values()}
    nodes = []
    for node in graph.nodes:
        if node.name in sums:
            layer, _, other = sums[node.name]
            params = ConvAddParams(**asdict(layer.params))
            node = Node("conv_add", layer.name, (other, *layer.inputs), node.outputs, params)
        elif node.name in gone:
            continue
        nodes.append(node)
    names = set(gone.values())
    values = {name: value for name, value in graph.values.items() if name not in names}
    return replace(graph, nodes=tuple(nodes), values=values) if sums else graph


def _is_legal(graph: Graph, residual: Sum) -> bool:
    """Checks what weights tell: their width, and how far the operand's grid is from those of the sums."""
    x, w = (quant_of(value) for value in graph.ins(residual.layer)[:2])
    base = quant_of(graph[residual.other]).exponent - x.exponent
    return w.bits == 8 and all(0 <= base - exponent <= SHIFT_MAX for exponent in w.exponents)


def _is_ready(product: Value, total: Value) -> bool:
    quant, grid = quant_of(product), quant_of(total)
    return (quant.bits, quant.lo, quant.hi, quant.exponents) == (16, *INT16, grid.exponents)


def _sums(graph: Graph) -> Iterator[Sum]:
    users, makers, outputs = graph.consumers(), graph.producers(), frozenset(graph.outputs)
    at = {node.name: i for i, node in enumerate(graph.nodes)}

    def fits(add: Node, name: str, other: str) -> bool:
        layer, product, total, rest = makers.get(name), graph[name], graph[add.outputs[0]], graph[other]
        alone = layer is not None and layer.op == "conv2d" and users[name] == [add] and name not in outputs
        if not alone or product.clamp or rest.is_const or not product.shape == rest.shape == total.shape:
            return False
        assert layer is not None
        x = graph[layer.inputs[0]]
        one_grid = quant_of(rest).grid == quant_of(total).grid and quant_of(total).bits == quant_of(x).bits == 8
        return one_grid and not is_depthwise(layer.params.groups, x.shape, product.shape)

    for node in graph.nodes:
        if node.op == "add" and len({*node.inputs}) == 2:
            pairs = (node.inputs, node.inputs[::-1])
            chosen = [(name, other) for name, other in pairs if fits(node, name, other)]
            if chosen:
                name, other = max(chosen, key=lambda pair: at[makers[pair[0]].name])  # case 1
                yield Sum(makers[name], node, other)
