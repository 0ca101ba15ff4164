"""Element-wise product of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MAX, SHIFT_MIN, rsh, sat
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.broadcast import Broadcast
from nmpconv.ops.common.case import elementwise
from nmpconv.ops.common.constant import quantize_constants
from nmpconv.ops.common.traits import Bounds, Factors, Limit, Origins, combined, product_limits
from nmpconv.ops.op import Case, QArray, quant_of, with_constants

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class MulParams:
    pass


@dataclass(frozen=True)
class MulOffsetParams:
    """Addends of the first operand, and of the product: reals in a float graph, and 64ths of a step of the two tensors'
    grids in an integer graph."""

    offset_a: float = 0
    offset_y: float = 0


class Mul(Broadcast):
    name = "mul"
    Params: ClassVar[type] = MulParams
    clamps = True
    onnx: ClassVar[tuple[str, ...]] = ("Mul", "Neg")

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Neg is multiplying by -1."""
        x, output = to.value(node.input(0)), node.outputs[0]
        if node.op_type == "Neg":
            factor = to.const(np.full((1,) * len(to[x].shape), -1.0), "")
        else:
            factor = to.value(node.input(1))
        operands = to.aligned(x, factor)
        if not to.is_const(operands[1]) and to[operands[0]].size < to[operands[1]].size:
            operands = operands[::-1]  # the first one can have an origin
        to.emit("mul", operands, MulParams(), output)

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        if not self.squares(node, ()):
            return combined(np.multiply, inputs)
        low, high = inputs[0]
        ends = low * low, high * high
        return 0.0 if low <= 0 <= high else min(ends), max(ends)

    def corners(self, inputs: int) -> Sequence[Sequence[int]]:
        """It is linear in each of the two."""
        return tuple(product((0, 1), repeat=inputs))

    def affine(self, place: int, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        return constant, np.zeros_like(constant)

    def squares(self, node: Node, inputs: Sequence[bool]) -> bool:
        return node.inputs[0] == node.inputs[1]

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        return product_limits(node, graph)

    def makes_whole(self, params: Any) -> bool:
        return True

    def tensor_factors(self, params: Any, inputs: Sequence[Value], output: Value) -> Factors:
        """A constant takes up any factor."""
        return Factors.ANY if inputs[1].is_const and not inputs[0].is_const else Factors.PRODUCT

    def with_factors(self, node: Node, graph: Graph, x: np.ndarray, y: np.ndarray) -> tuple[Node, list[Value]]:
        constant, ratio = graph[node.inputs[1]].data, y / x
        if constant is None or not np.all(ratio == ratio[0]) or ratio[0] == 1:
            return node, []
        return with_constants(node, graph, {1: ("operand1", constant.astype(np.float64) * ratio[0])})

    def origins(self, params: Any, inputs: Sequence[Value], output: Value) -> Origins:
        """With a factor that is computed, as that of a squeeze-excite."""
        a, b = inputs
        alone = a.is_const or b.is_const or a is b or a.shape != output.shape
        return Origins.NONE if alone else Origins.PRODUCT

    def with_origins(self, node: Node, graph: Graph, x: float, y: float) -> tuple[Node, list[Value]]:
        """(a - x + x) * b - y: op mul_offset."""
        p = node.params if isinstance(node.params, MulOffsetParams) else MulOffsetParams()
        p = MulOffsetParams(float(p.offset_a + x), float(p.offset_y - y))
        if p.offset_a or p.offset_y:
            return replace(node, op="mul_offset", params=p), []
        return replace(node, op="mul", params=MulParams()), []

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """A constant gets 16 bits and an exponent by its largest value that keeps the shift e_y - e_a - e_b legal."""

        def window(other: int, out: int) -> tuple[int, int]:
            return out - other - SHIFT_MAX, out - other - SHIFT_MIN

        return quantize_constants(node, graph, window)

    def exact_exponent(self, exponents: Sequence[int]) -> int | None:
        return sum(exponents)

    def reference(self, params: Any, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y = sat(rsh(a*b, e_y - e_a - e_b))."""
        a, b = inputs
        quant = quant_of(outputs[0])
        shift = quant.exponent - a.quant.exponent - b.quant.exponent
        return [sat(rsh(a.q.astype(np.int64) * b.q, shift), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        exponents = ((-4, -7, -4), (-4, 2, 13), (0, 0, 0), (8, 7, 0), (-40, -7, 0), (-7, -7, -13))
        return elementwise(self, MulParams(), exponents)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        to.node("Mul", node.inputs, node.outputs[0])
