"""Element-wise product of which the first operand and the result have origins: y = (a + offset_a) * b + offset_y.

Offsets are as fine as 64ths of a step, since an origin need be no whole number of steps: what is tied to it may have
another grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpconv.base.fixed_point import rsh, sat
from nmpconv.errors import InputError
from nmpconv.ir import FLOAT, Graph, Node, Value
from nmpconv.ops.common.case import FILLS, WIDTHS, by, constant, fed, grid, single
from nmpconv.ops.common.traits import Bounds, Limit, Rule
from nmpconv.ops.mul import Mul, MulOffsetParams
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import OnnxBuilder

FINE = 6  # bits of an offset below a step
OFFSET_MAX = 1 << 14  # with it the first operand fits int16, and so does a product that the result holds


class MulOffset(Mul):
    name = "mul_offset"
    Params = MulOffsetParams
    restrictions = "int8 but for the second operand"
    onnx = ()
    source = "pass offsets: mul of a tensor with an origin"

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        p: MulOffsetParams = node.params
        (low, high), b = inputs
        low, high = super().bounds(node, [(low + p.offset_a, high + p.offset_a), b])
        return low + p.offset_y, high + p.offset_y

    def affine(self, place: int, constant: np.ndarray) -> None:
        """It is made after all passes that ask for it."""

    def squares(self, node: Node, inputs: Sequence[bool]) -> bool:
        return False

    def exact_exponent(self, exponents: Sequence[int]) -> None:
        """Offsets are any numbers."""

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        """Before there are integers, exponents may rise until the offsets fit."""
        yield from super().limits(node, graph)
        for value, offset in _moved(node, graph):
            if offset and value.dtype == FLOAT:
                least = math.ceil(math.log2(abs(offset) / OFFSET_MAX)) + FINE
                yield Limit(quant_of(value).exponent, least, math.inf, below=(value.name,))

    def rules(self, params: MulOffsetParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        for name, offset, value in (("a", params.offset_a, inputs[0]), ("y", params.offset_y, output)):
            yield f"{name} is not int8", quant_of(value).bits == 8
            yield f"offset_{name} is {offset}", abs(offset) <= OFFSET_MAX

    def makes_whole(self, params: Any) -> bool:
        return False

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """InputError for an origin by name where there are 16 bits by name."""
        wide = [value.name for value, _ in _moved(node, graph) if quant_of(value).bits != 8]
        if wide:
            why = f"the product {node.name!r} takes up origins of int8 tensors alone, and {wide[0]!r} has 16 bits"
            raise InputError(why, hint="no origin of its operand and its result, or 8 bits")
        offsets = (math.ldexp(offset, FINE - quant_of(value).exponent) for value, offset in _moved(node, graph))
        return super().quantize(replace(node, params=MulOffsetParams(*(math.floor(x + 0.5) for x in offsets))), graph)

    def restored(self, node: Node, graph: Graph) -> Node:
        offsets = (math.ldexp(offset, quant_of(value).exponent - FINE) for value, offset in _moved(node, graph))
        return replace(node, params=MulOffsetParams(*offsets))

    def reference(self, params: Any, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y = sat(rsh(rsh((a * 2^6 + offset_a) * b, e_y - e_a - e_b) + offset_y, 6))."""
        a, b = inputs
        quant = quant_of(outputs[0])
        shift = quant.exponent - a.quant.exponent - b.quant.exponent
        products = rsh(((a.q.astype(np.int64) << FINE) + params.offset_a) * b.q, shift)
        return [sat(rsh(products + params.offset_y, FINE), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        """Many lines of whole blocks and parts of one; shifts to either side; offsets as far as they go."""
        shapes = (
            ((1, 3, 37), (1, 3, 37)),
            ((1, 2, 3, 150), (1, 1, 1, 150)),
            ((2, 70), (2, 1)),
            ((5,), ()),
            ((1,), (3, 1)),
        )
        numbers = ((8192, -8192), (-8191, 8129), (3, 0), (0, -5), (OFFSET_MAX, -OFFSET_MAX), (-OFFSET_MAX, OFFSET_MAX))
        for wb, fill, (a, y) in product(WIDTHS, FILLS, numbers):
            for ea, eb, ey in ((-4, -7, -4), (-4, 2, 13), (0, 0, 0), (8, 7, 0), (-40, -7, 0), (-7, -7, -13)):
                operands = [fed("a", (1, 3, 37), 8, ea, fill), fed("b", (1, 3, 37), wb, eb, fill)]
                name = f"{wb}/{fill}/{a},{y}/{ea},{eb},{ey}"
                yield single(self, name, MulOffsetParams(a, y), operands, grid(8, ey))
        for (a_shape, b_shape), wb in product(shapes, WIDTHS):
            operands = [fed("a", a_shape, 8, -4), fed("b", b_shape, wb, 1 - wb)]
            name, clip = f"broadcast/{by(a_shape)}+{by(b_shape)}/{wb}", grid(8, -4, lo=-100, hi=90)
            yield single(self, name, MulOffsetParams(6400, -5800), operands, clip)
        x, k = fed("x", (1, 5, 7), 8, -4), constant("k", (7,), 16, -14)
        yield single(self, "constant", MulOffsetParams(6400, -5800), [x, k], grid(8, -4))
        yield single(self, "same", MulOffsetParams(6400, -5800), [x, x], grid(8, 0))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p: MulOffsetParams = node.params
        a, b = node.inputs
        if p.offset_a:
            a = to.node("Add", (a, to.const(np.float32(p.offset_a))))
        y = to.node("Mul", (a, b), "" if p.offset_y else node.outputs[0])
        if p.offset_y:
            to.node("Add", (y, to.const(np.float32(p.offset_y))), node.outputs[0])


def _moved(node: Node, graph: Graph) -> tuple[tuple[Value, float], tuple[Value, float]]:
    """The first operand and the result, each with its offset."""
    p: MulOffsetParams = node.params
    return (graph[node.inputs[0]], p.offset_a), (graph[node.outputs[0]], p.offset_y)
