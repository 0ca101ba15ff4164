"""Sums of 16 bits with finer steps, each rounded once to the grid that a quantized model has there (`given_grids`).

1. A layer whose biases are no integers on the output's grid: a requantize rounds the finer sum to the model's grid, and
   biases lose next to nothing. They are half a finer step less: two roundings upwards are too many, and down and up is
   one.
2. On a grid of powers of two, a layer whose products are whole in finer steps has ties where biases are whole, too, as
   those of int8 with a step of their own (AMD Quark's XINT8). Where a requantize would round a tie to an odd integer, a
   finer step is subtracted before the sum is rounded: ties go to even integers, as in the model. A sum that is never
   negative has a bit more if it is stored less its middle.
3. So have products of two tensors, or matrices, of 8 bits without origins, if 16 bits hold them.
4. A sum of two tensors of 8 bits, or a mean of 2, 4, ... elements, many of whose results are ties: a table of all of
   them rounds these to even.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Given, Graph, Node, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.average_pool import AveragePoolParams
from nmpconv.ops.common.even_tables import TOWARDS_16, is_odd, ties_to_even
from nmpconv.ops.common.traits import Factors, Origins
from nmpconv.ops.lookup import FINEST
from nmpconv.ops.requantize import requantize
from nmpconv.ops.sub import Sub
from nmpconv.passes.quantize.exponents import GIVEN
from nmpconv.passes.quantize.overrides import Row, Said

INT16_FINER = 8  # bits that 16 of them have below a grid of 8
FINER_MOST = 12  # bits below a step that sums of 16 bits have
SAME = 2.0**-20  # of a step: how much less is no difference
NO_BIT = 999  # exponent of 0
NEAR = 2.0**-12  # of a step: what float32 leaves of a multiple of it


@dataclass
class Finer:
    """A float graph with finer sums. stats, bits: of its activations. rows: choices for those that are new."""

    graph: Graph
    stats: dict[str, TensorStats]
    bits: dict[str, int]
    rows: dict[str, Row] = field(default_factory=dict)

    def add(self, value: Value, stats: TensorStats, bits: int, exponent: int) -> None:
        """Adds an activation."""
        self.graph = self.graph.with_values(value)
        self.stats[value.name], self.bits[value.name] = stats, bits
        exact = {"bits": bits, "exponent": exponent}
        self.rows[value.name] = {key: Said(number, GIVEN, exact=False) for key, number in exact.items()}


def refine(
    graph: Graph,
    stats: Mapping[str, TensorStats],
    bits: Mapping[str, int],
    rows: Mapping[str, Row],
    grids: Mapping[str, Given],
) -> Finer:
    """rows: choices for tensors. grids: those of the model, also before a Transpose to them."""
    finer, nodes = Finer(graph, dict(stats), dict(bits)), list[Node]()
    for node in graph.nodes:
        out, row = node.outputs[0], rows.get(node.outputs[0], {})
        if out in grids and "exponent" in row:
            nodes += _rounded(finer, node, grids[out], rows)
        else:
            nodes.append(node)
    finer.graph = replace(finer.graph, nodes=tuple(nodes))
    return finer


def lowest_bits(values: np.ndarray) -> np.ndarray:
    """The exponent of the largest power of two that each value, float32, is a multiple of; NO_BIT for 0."""
    mantissas, exponents = np.frexp(values.astype(np.float64))
    whole = np.ldexp(mantissas, 24).astype(np.int64)  # float32 has 24 bits
    low = np.where(whole == 0, 2**24, whole & -whole)
    return np.where(values == 0, NO_BIT, exponents - 24 + np.log2(low).astype(np.int64))


def _rounded(finer: Finer, node: Node, grid: Given, rows: Mapping[str, Row]) -> list[Node]:
    """The node, and those that round its result."""
    graph, name, out = finer.graph, f"{node.name}.sum", node.outputs[0]
    exponent, y, stats = rows[out]["exponent"].value, graph[out], finer.stats[out]
    summed = replace(node, outputs=(name,))
    if node.op in WEIGHTED:
        if grid.is_power and (whole := _whole_sum(graph, node, rows, grid)) is not None:
            return _to_even(finer, node, exponent, *whole)
        if _are_whole(graph, node, exponent):
            return [node]
        bits = _bits_of(grid, y.origin, exponent)
        finer.add(replace(y, name=name), stats, 16, exponent - bits)
        return [_less(finer, summed, math.ldexp(0.5, exponent - bits)), requantize(name, name, out)]
    if grid.is_power and 0 < (bits := _bits_of_products(graph, node, rows)) <= INT16_FINER:
        return _to_even(finer, node, exponent, bits, 0.0)
    if grid.is_power and (below := _bits_below(graph, node, rows)):
        finer.graph = graph.with_values(replace(y, clamp=None))
        finer.add(replace(y, name=name), stats, 16, exponent - INT16_FINER)
        return [summed, _table(name, y, grid, below)]
    return [node]


def _bits_of_products(graph: Graph, node: Node, rows: Mapping[str, Row]) -> int:
    """Bits that products of tensors of 8 bits without origins, and sums of these, have below the steps of the output.

    0: there are none, or they are others.
    """
    is_product = OPS[node.op].tensor_factors(node.params, graph.ins(node), graph[node.outputs[0]]) == Factors.PRODUCT
    names = (*node.outputs, *node.inputs)
    ports = [rows.get(name, {}) for name in names]
    narrow = all("exponent" in row and row["bits"].value == 8 for row in ports)
    if not is_product or not narrow or any(graph[name].origin for name in names):
        return 0
    exponent, *factors = (row["exponent"].value for row in ports)
    return exponent - sum(factors)


def _to_even(finer: Finer, node: Node, exponent: int, bits: int, middle: float) -> list[Node]:
    """Cases 2 and 3. exponent: of the result. bits: of the sum below it. middle: what the sum is stored less."""
    name, out, step = f"{node.name}.sum", node.outputs[0], math.ldexp(1.0, exponent - bits)
    half, odd, y = f"{node.name}.half", f"{node.name}.odd", finer.graph[out]
    clamp, stats = None if y.clamp is None else (y.clamp[0] - middle, y.clamp[1] - middle), finer.stats[out]
    moved = replace(y, clamp=clamp, origin=y.origin + middle)
    stats = replace(stats, min=stats.min - middle, max=stats.max - middle)
    finer.add(replace(moved, name=name), stats, 16, exponent - bits)
    finer.add(replace(moved, name=half), stats, 8, exponent)
    finer.add(
        Value(odd, y.shape, origin=middle), TensorStats(-middle, step - middle, 1), 16 if middle else 8, exponent - bits
    )
    return [
        _less(finer, replace(node, outputs=(name,)), middle) if middle else replace(node, outputs=(name,)),
        requantize(half, name, half),
        is_odd(odd, half, odd, math.ldexp(1.0, exponent), step, moved.origin, middle),
        Node(Sub.name, f"{node.name}.even", (name, odd), (out,), Sub.Params()),
    ]


def _whole_sum(graph: Graph, node: Node, rows: Mapping[str, Row], grid: Given) -> tuple[int, float] | None:
    """Bits below the result's exponent that a sum has whose products, and biases of one output channel or more, are
    whole, and what it is stored less so that 16 bits hold it; None where there are no ties, or no room."""
    x, (weights, bias) = rows.get(node.inputs[0], {}), (graph[name].data for name in node.inputs[1:3])
    if "exponent" not in x or x["bits"].value != 8 or weights is None or bias is None:
        return None
    exponent = rows[node.outputs[0]]["exponent"].value
    products = x["exponent"].value + int(lowest_bits(weights).min(initial=NO_BIT))
    terms = min(products, int(lowest_bits(bias).min(initial=NO_BIT)))
    y, step = graph[node.outputs[0]], math.ldexp(1.0, exponent)
    low, high = y.clamp or (-math.inf, math.inf)
    low, high = (max(low, grid.min - y.origin) / step, min(high, grid.max - y.origin) / step)
    for least in (terms, products):
        bits = exponent - least
        if not 0 < bits <= FINER_MOST or not _whole(bias, least).any():
            continue
        room = math.ldexp(1.0, 15 - bits)
        for middle in (0, 2 * max(round((low + high) / 4), 0)):
            if max(middle - low, high - middle + SAME, middle) <= room:
                return bits, middle * step
    return None


def _less(finer: Finer, node: Node, amount: float) -> Node:
    """The layer whose biases are less by so much."""
    x, weights, bias, *more = node.inputs
    data = finer.graph[bias].data
    assert data is not None
    less = replace(finer.graph[bias], name=f"{node.outputs[0]}.bias", data=data - np.float32(amount))
    finer.graph = finer.graph.with_values(less)
    return replace(node, inputs=(x, weights, less.name, *more))


def _bits_of(grid: Given, origin: float, exponent: int) -> int:
    """By how many bits 16 of them hold finer steps than a tensor's, from end to end of its grid in the model."""
    far = max(abs(grid.min - origin), abs(grid.max - origin))
    return min(max(15 - math.ceil(math.log2(far) - exponent - SAME), 0), FINER_MOST)


def _bits_below(graph: Graph, node: Node, rows: Mapping[str, Row]) -> int:
    """Bits that results of a sum or mean have below the steps of the output; 0 where a table has no room for them, or
    few of them are ties, as of a mean of other counts than 2, 4, ...: its rounding would only be done twice."""
    ports = [rows.get(name, {}) for name in (*node.outputs, *node.inputs)]
    if any("exponent" not in row or row["bits"].value != 8 for row in ports):
        return 0
    exponent, *operands = (row["exponent"].value for row in ports)
    below = exponent - min(operands)
    if isinstance(node.params, AveragePoolParams):
        count = node.params.kernel_h * node.params.kernel_w
        if count & (count - 1):
            return 0
        below += count.bit_length() - 1
    elif OPS[node.op].origins(node.params, graph.ins(node), graph[node.outputs[0]]) not in (
        Origins.SUM,
        Origins.DIFFERENCE,
    ):
        return 0
    return below if 0 < below <= FINEST - INT16_FINER else 0


def _table(name: str, y: Value, grid: Given, below: int) -> Node:
    """Case 4: the table of a sum with so many bits below the grid; it has a sample at each of its results."""
    low, high = y.clamp or (-math.inf, math.inf)
    shift = y.origin
    return ties_to_even(
        *(name, name, y.name, grid.scale, (max(low + shift, grid.min), min(high + shift, grid.max)), TOWARDS_16),
        origin_x=shift,
        origin_y=shift,
        coarsest=INT16_FINER + below,
    )


def _are_whole(graph: Graph, node: Node, exponent: int) -> bool:
    """Checks that the biases are integers on the output's grid."""
    bias = graph[node.inputs[2]].data
    assert bias is not None
    return bool(_whole(bias, exponent).all())


def _whole(bias: np.ndarray, exponent: int) -> np.ndarray:
    """Checks each bias for an integer on this grid."""
    steps = np.ldexp(bias.astype(np.float64), -exponent)
    return np.asarray(np.abs(steps - np.rint(steps)) < NEAR)
