"""Widths of activations and weights, in bits.

Indices, and whole numbers computed from them, are int16 where they exceed the int8 range. Integer inputs and outputs of
the model have 8 bits where these hold their type, else 16. At 8 bits, 16 are used where they cost next to nothing
(unless strict):

1. a graph input that is not an image, and what only moves its data; unless it has steps of its own (`input_steps`);
2. the graph's outputs, and what reaches an output only through ops of a head (`Op.head`): data movement, Resize,
   Sigmoid, Softmax, ArgMax;
3. tensors with one position (a 1x1 plane, a vector).
4. squares (a tensor times itself, moved perhaps, as in a Gram matrix), their pools, the tables after those, and
   element-wise results of such tensors alone, such as decibels above the smallest: 8 bits do not hold squares. The
   same goes for an input that an op squares itself (`Op.squares_input`), and for the tensors between it and a graph
   input that is not an image, if only layers, sums, multiples and quotients lie between. Places in another tensor
   (`Op.places`): 8 bits do not hold parts of a pixel.
5. precise: also outputs of convolutions whose only consumer is an Add or a table.

A width that was chosen by name goes before all of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.errors import InputError
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS, WEIGHTED, waves
from nmpconv.ops.common.traits import Factors
from nmpconv.passes.bounds import whole
from nmpconv.passes.quantize.overrides import Choices
from nmpconv.passes.quantize.shared_grids import grid_groups
from nmpconv.passes.rewrite import MOVES


def activation_bits(graph: Graph, bits: str, widths: str) -> Mapping[str, int]:
    """Bits by activation name. bits: "8", "16" or "a16w8"; widths: "default", "strict" or "precise"."""
    names = [value.name for value in graph.activations()]
    ports = _ports(graph)
    if bits != "8":
        return {name: 8 if name in graph.pixels else 16 for name in names} | ports
    wide = _indices(graph)
    if widths == "strict":
        return {name: 16 if name in wide else 8 for name in names} | ports
    promoted = _head(graph) | too_fine(graph)
    for group in grid_groups(graph):
        inputs = [n for n in group if n in graph.inputs]
        if any(n in graph.pixels for n in inputs):
            continue
        small = all(math.prod(graph[n].shape[:-1]) == 1 for n in group)
        if small or inputs or not promoted.isdisjoint(group):
            wide.update(group)
    if widths == "precise":
        consumers = graph.consumers()
        for node in graph.nodes:
            users = consumers[node.outputs[0]]
            if node.op in WEIGHTED and len(users) == 1 and users[0].op in ("add", "lookup"):
                wide.add(node.outputs[0])
    return {name: 16 if name in wide else 8 for name in names} | ports


def _head(graph: Graph) -> set[str]:
    """Names of the outputs and of what reaches them only through ops of a head: case 2."""
    consumers = graph.consumers()
    head: set[str] = set(graph.outputs)

    def passes_on(node: Node) -> bool:
        return OPS[node.op].in_head(node.params) and all(out in head for out in node.outputs)

    for node in reversed(graph.nodes):
        if passes_on(node):
            head.update(n for n in node.inputs if not graph[n].is_const and all(map(passes_on, consumers[n])))
    return head


def too_fine(graph: Graph) -> set[str]:
    """Names of tensors whose values 8 bits do not hold: case 4."""
    places = {node.inputs[place] for node in graph.nodes if (place := OPS[node.op].places) is not None}
    return holding_squares(graph) | places | _before_squares(graph)


def holding_squares(graph: Graph) -> set[str]:
    """Names of tensors that hold squares, or means or functions of squares."""
    squares: set[str] = set()
    sources: dict[str, str] = {}  # of what is moved
    for node in graph.nodes:
        op, out = OPS[node.op], graph[node.outputs[0]]
        computed = [name for name in node.inputs if not graph[name].is_const]
        if node.op in MOVES:
            sources[out.name] = sources.get(computed[0], computed[0])
        of = {sources.get(name, name) for name in computed}
        product = op.tensor_factors(node.params, graph.ins(node), out) is Factors.PRODUCT
        itself = product and len(node.inputs) == len(computed) and len(of) == 1
        whole = [name for name in computed if op.grid == "same" or graph[name].size == out.size]
        passes_on = (op.elementwise or op.grid == "same") and whole and squares.issuperset(whole)
        if passes_on or itself or op.squares(node, [name in squares for name in node.inputs]):
            squares.update(node.outputs)
    return squares


def _before_squares(graph: Graph) -> set[str]:
    """Names of tensors that are squared for their sums, and of waves on the way there."""
    bases = {node.inputs[0] for node in graph.nodes if OPS[node.op].squares_input(node.params)}
    between = waves(graph) if bases else set()
    for node in reversed(graph.nodes):
        if not between.isdisjoint(node.outputs) and not bases.isdisjoint(node.outputs):
            bases.update(name for name in node.inputs if name in between)
    return bases


def by_name(graph: Graph, bits: Mapping[str, int], choices: Choices) -> Mapping[str, int]:
    """The bits with those that were chosen. InputError for what a tensor cannot have; a pattern passes over it."""
    widths = dict(bits)
    ports = _ports(graph)
    needed = dict.fromkeys(_indices(graph), 16) | dict.fromkeys(graph.pixels, 8) | ports
    for group in grid_groups(graph) if choices.tensors else ():
        if (rule := choices.of(group, "bits")) is None:
            continue
        only = {needed[name] for name in group if name in needed}
        if only <= {rule.value}:
            widths.update(dict.fromkeys(group, rule.value))
        elif rule.exact:
            why = "raw pixels have 8 bits" if 8 in only else "its indices need 16 bits"
            if not ports.keys().isdisjoint(group):
                why = f"integers of the model have {only.pop()} bits"
            raise InputError(f"{group[0]!r} cannot have {rule.value} bits: {why}", where=rule.place)
    return widths


def _indices(graph: Graph) -> set[str]:
    """Tensors on one grid with whole numbers that 8 bits do not hold."""
    far = {name for name, (low, high) in whole(graph).items() if low < INT_MIN[8] or high > INT_MAX[8]}
    whole_places = ((node, OPS[node.op].places) for node in graph.nodes if OPS[node.op].grid == "same")
    for node, place in whole_places:
        if place is not None and graph[node.inputs[0]].shape[node.params.axis] > INT_MAX[8] + 1:
            far.add(node.inputs[place])
    groups = grid_groups(graph) if far else []
    return {name for group in groups if far.intersection(group) for name in group}


def _ports(graph: Graph) -> dict[str, int]:
    """Bits of integer inputs and outputs, and of what shares a grid with one."""
    ports = {name: 8 if dtype == "int8" else 16 for name, dtype in graph.plain_ports().items()}
    groups = [(group, [ports[name] for name in group if name in ports]) for group in grid_groups(graph) if ports]
    return {name: max(bits) for group, bits in groups if bits for name in group}


def weight_bits(bits: str) -> int:
    return 16 if bits == "16" else 8
