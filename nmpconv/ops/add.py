"""Element-wise sum of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.fixed import SHIFT_MAX, rsh, sat
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.case import elementwise
from nmpconv.ops.constant import quantize_constants
from nmpconv.ops.mul import MulParams
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.frontend.export import Exporter
    from nmpconv.frontend.onnx import Importer, OnnxNode

SPREAD = 30  # legal |e_a - e_b|


@dataclass(frozen=True)
class AddParams:
    pass


class Add(Op):
    name = "add"
    Params = AddParams
    clamps = True
    in_place = True
    onnx = ("Add", "Sub", "Sum")

    def lower(self, node: OnnxNode, to: Importer) -> None:
        """A constant is subtracted by adding its negative; a Sum is a chain."""
        terms = list(node.inputs)
        if node.op_type == "Sub":
            return _lower_sub(node, to)
        if len(terms) == 1:
            return to.rename(node.outputs[0], to.value(terms[0]))
        total = to.value(terms[0])
        for term in terms[1:-1]:
            total = to.emit("add", to.aligned(total, to.value(term)), AddParams())
        to.emit("add", to.aligned(total, to.value(terms[-1])), AddParams(), node.outputs[0])

    def infer(self, params: AddParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [np.broadcast_shapes(*(x.shape for x in inputs))]

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """A constant gets 16 bits and an exponent by its largest value, at most SPREAD from the other operand's."""

        def window(other: int, out: int) -> tuple[int, int]:
            return max(other - SPREAD, out - SHIFT_MAX), other + SPREAD

        return quantize_constants(node, graph, window)

    def reference(self, params: AddParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """m = min(e_a, e_b); y = sat(rsh(a*2^(e_a-m) + b*2^(e_b-m), e_y - m)); |e_a - e_b| <= SPREAD."""
        a, b = inputs
        quant = quant_of(outputs[0])
        ea, eb = a.quant.exponent, b.quant.exponent
        m = min(ea, eb)
        assert abs(ea - eb) <= SPREAD
        total = (a.q.astype(np.int64) << (ea - m)) + (b.q.astype(np.int64) << (eb - m))
        return [sat(rsh(total, quant.exponent - m), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        exponents = ((-4, -4, -3), (-4, 2, 0), (3, -27, 0), (-30, 0, 5), (0, 0, -15), (0, 1, 47), (0, 0, 0))
        return elementwise(self, AddParams(), exponents)

    def export(self, node: Node, graph: Graph, to: Exporter) -> None:
        to.node("Add", node.inputs, node.outputs[0])


def _lower_sub(node: OnnxNode, to: Importer) -> None:
    """x - c = x + (-c) and c - x = x * -1 + c."""
    left, right = node.inputs
    if to.is_const(right):
        x, c = to.value(left), to.const(-to.array(right, "subtrahend"), right)
    elif to.is_const(left):
        minus = to.const(np.full((1,) * len(to[right].shape), -1.0), "")
        x, c = to.emit("mul", (to.value(right), minus), MulParams()), to.value(left)
    else:
        to.value(left), to.value(right)
        raise Unsupported("the difference of two computed tensors", hint="one of them constant")
    to.emit("add", to.aligned(x, c), AddParams(), node.outputs[0])
