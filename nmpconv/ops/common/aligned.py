"""Base of add, sub, minimum and maximum: both operands are brought to the finer of their two grids, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MAX, SHIFT_MIN, SPREAD_MAX, Int64, rsh, sat
from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.broadcast import Broadcast
from nmpconv.ops.common.case import elementwise
from nmpconv.ops.common.constant import exponent_for, quantize_constants
from nmpconv.ops.common.traits import Bounds, Limit, Origins, combined, exponents_of, spread_limits
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder


TERMS_MAX = 1000  # of a chain: the verifier of a file walks from every read of a tensor back to where it is made


@dataclass(frozen=True)
class AlignedParams:
    pass


class Aligned(Broadcast):
    """numpy broadcasting of two operands; one may be constant. kind: the ONNX op that computes it in float."""

    clamps = True
    kind: ClassVar[str]
    combine: ClassVar[np.ufunc]
    homogeneous = True

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        yield from spread_limits(node, graph)
        y, exponents = quant_of(graph[node.outputs[0]]).exponent, exponents_of(graph, node)
        known = {name: e for name, e in zip(node.inputs, exponents, strict=True) if e is not None}
        if known:
            yield Limit(y - min(known.values()), SHIFT_MIN, math.inf, below=node.outputs)
        for name, e in known.items():
            yield Limit(y - e, -math.inf, SHIFT_MAX, above=(name,))
        for value in graph.ins(node):  # a constant saturates only beyond the result's range
            if value.data is not None and value.quant is None:
                for name, e in known.items():
                    yield Limit(min(exponent_for(value.data, 16), y + 1) - e, -math.inf, SPREAD_MAX, above=(name,))

    def origins(self, params: Any, inputs: Sequence[Value], output: Value) -> Origins:
        """Origins of a minimum or maximum; a sum or difference says its own."""
        return Origins.ALIKE

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        return combined(self.combine, inputs)

    def makes_whole(self, params: Any) -> bool:
        return True

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """A constant gets 16 bits and an exponent by its largest value, at most SPREAD_MAX from the other operand's."""

        def window(other: int, out: int) -> tuple[int, int]:
            return max(other - SPREAD_MAX, out - SHIFT_MAX), other + SPREAD_MAX

        return quantize_constants(node, graph, window)

    def exact_exponent(self, exponents: Sequence[int]) -> int:
        return min(exponents)

    def reference(self, params: AlignedParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """m = min(e_a, e_b); y = sat(rsh(f(a*2^(e_a-m), b*2^(e_b-m)), e_y - m)); |e_a - e_b| <= SPREAD_MAX."""
        quant = quant_of(outputs[0])
        a, b, m = aligned_operands(*inputs)
        return [sat(rsh(self.combine(a, b), quant.exponent - m), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        exponents = ((-4, -4, -3), (-4, 2, 0), (3, -27, 0), (-30, 0, 5), (0, 0, -15), (0, 1, 47), (0, 0, 0))
        return elementwise(self, self.Params(), exponents)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        to.node(self.kind, node.inputs, node.outputs[0])


def chained(to: GraphBuilder, op: str, names: Sequence[str], params: Any, output: str) -> None:
    """Lower an operator of two or more operands to a chain of ops of two."""
    if len(names) > TERMS_MAX:
        raise Unsupported(
            f"{len(names)} operands", hint=f"at most {TERMS_MAX}; a sum of sums, or one Reduce of a Concat"
        )
    total = to.value(names[0])
    for name in names[1:-1]:
        total = to.emit(op, to.aligned(total, to.value(name)), params)
    to.emit(op, to.aligned(total, to.value(names[-1])), params, output)


def aligned_operands(a: QArray, b: QArray) -> tuple[Int64, Int64, int]:
    """Both as integers on the finer of their grids, 2^m, and m."""
    ea, eb = a.quant.exponent, b.quant.exponent
    m = min(ea, eb)
    assert abs(ea - eb) <= SPREAD_MAX
    return a.q.astype(np.int64) << (ea - m), b.q.astype(np.int64) << (eb - m), m
