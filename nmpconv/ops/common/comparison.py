"""Base of greater and equal: 1 or 0, by two operands on the finer of their grids; and truth as numbers.

A tensor of bool is one of zeros and ones here: And is the minimum of two, Or the maximum, Not the difference to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MIN, SPREAD_MAX, rsh, sat
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.aligned import AlignedParams, aligned_operands
from nmpconv.ops.common.broadcast import Broadcast
from nmpconv.ops.common.case import elementwise
from nmpconv.ops.common.constant import quantize_constants
from nmpconv.ops.common.traits import Limit, spread_limits
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder


class Compare(Broadcast):
    """numpy broadcasting of two operands; one may be constant. kind: the ONNX op that compares floats."""

    Params = AlignedParams
    exponents = (SHIFT_MIN, 0)
    kind: ClassVar[str]
    holds: ClassVar[np.ufunc]
    counted = True

    def numbers(self, params: AlignedParams, inputs: Sequence[Value]) -> int:
        return 2

    def own_exponent(self, node: Node, bits: int) -> int | None:
        return 2 - bits

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        return spread_limits(node, graph)

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """A constant gets 16 bits and an exponent by its largest value, at most SPREAD_MAX from the other operand's."""
        return quantize_constants(node, graph, lambda other, out: (other - SPREAD_MAX, other + SPREAD_MAX))

    def reference(self, params: AlignedParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """m = min(e_a, e_b); y = sat(2^-e_y) where f(a*2^(e_a-m), b*2^(e_b-m)) holds, else sat(0); e_y in [-15, 0]."""
        quant = quant_of(outputs[0])
        assert self.exponents[0] <= quant.exponent <= self.exponents[1]
        a, b, _ = aligned_operands(*inputs)
        return [sat(rsh(self.holds(a, b).astype(np.int64), quant.exponent), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        exponents = ((-4, -4, 0), (-4, 2, -6), (3, -27, -14), (-30, 0, -15), (0, 1, -7), (0, 0, 0))
        return elementwise(self, self.Params(), exponents)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        to.node("Cast", (to.node(self.kind, node.inputs),), node.outputs[0], to=1)


def opposite(to: GraphBuilder, truth: str, output: str = "") -> str:
    """1 - truth."""
    ones = to.const(np.ones((1,) * len(to[truth].shape)), "")
    return to.emit("sub", to.aligned(ones, truth), AlignedParams(), output)
