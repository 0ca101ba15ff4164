"""Element-wise quotient of two tensors with numpy broadcasting, rounded once; either may be constant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import (
    EXPONENT_MAX,
    EXPONENT_MIN,
    INT_MAX,
    INT_MIN,
    SHIFT_MAX,
    SHIFT_MIN,
    SPREAD_MAX,
    Int64,
    div,
    rsh,
    sat,
)
from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.broadcast import Broadcast
from nmpconv.ops.common.case import WIDTHS, Operand, by, elementwise, fed, grid, single
from nmpconv.ops.common.constant import quantize_constants
from nmpconv.ops.common.traits import ANY, Bounds, Factors, Limit, combined, exponents_of
from nmpconv.ops.mul import MulParams
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class DivideParams:
    """down: the quotient is rounded down to a whole number, as integers are divided."""

    down: bool = False


class Divide(Broadcast):
    name = "divide"
    Params = DivideParams
    clamps = True
    restrictions = "a divisor of 0 gives the end of the range, and 0 / 0 is 0"
    onnx = ("Div",)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Dividing by a constant is multiplying by its reciprocal; integers are divided to integers, and so are whole
        numbers whose quotient is rounded down next."""
        x, divisor = to.value(node.input(0)), node.input(1)
        if to.is_integer(node.input(0)):
            _lower_whole(node, to, x, to.value(divisor))
            return
        if not to.is_const(divisor):
            to.emit("divide", to.aligned(x, to.value(divisor)), DivideParams(), node.outputs[0])
            return
        numbers = to.array(divisor, "divisor").astype(np.float64)
        if not numbers.all():
            raise Unsupported(f"its divisor '{divisor}' holds a zero")
        if to.is_whole(x) and to.only_read_by(node.outputs[0], "Floor") and _are_positive(numbers):
            to.emit("divide", to.aligned(x, to.value(divisor)), DivideParams(True), node.outputs[0])
            return
        to.emit("mul", to.aligned(x, to.const(1.0 / numbers, divisor)), MulParams(), node.outputs[0])

    def work(self, params: DivideParams, inputs: Sequence[Value], output: Value) -> int:
        return output.size * 8

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        a, b = exponents_of(graph, node)
        y = quant_of(graph[node.outputs[0]]).exponent
        if node.params.down:
            yield Limit(y, SHIFT_MIN, SHIFT_MAX, below=node.outputs)
            y = 0
        # What a constant that gets its exponent later can make up for.
        least, most = -SPREAD_MAX + EXPONENT_MIN, SPREAD_MAX + EXPONENT_MAX
        if a is not None and b is not None:
            yield Limit(a - b - y, -SPREAD_MAX, SPREAD_MAX, below=node.inputs[:1], above=node.outputs)
        elif a is not None:
            yield Limit(a - y, least, most, below=node.inputs[:1], above=node.outputs)
        elif b is not None:
            yield Limit(b + y, least, most, below=node.outputs)

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        """Bounds of whole numbers divided by positive ones."""
        return combined(np.floor_divide, inputs) if node.params.down and inputs[1][0] > 0 else ANY

    def tensor_factors(self, params: DivideParams, inputs: Sequence[Value], output: Value) -> Factors:
        return Factors.NONE if params.down else Factors.QUOTIENT

    def makes_whole(self, params: DivideParams) -> bool:
        return params.down

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """A constant gets 16 bits and an exponent by its largest value that keeps e_a - e_b - e_y legal."""
        constant_dividend = graph[node.inputs[0]].is_const

        def window(other: int, out: int) -> tuple[int, int]:
            out = 0 if node.params.down else out
            middle = other + out if constant_dividend else other - out
            return middle - SPREAD_MAX, middle + SPREAD_MAX

        return quantize_constants(node, graph, window)

    def reference(self, params: DivideParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """d = e_a - e_b - e_y; y = sat(floor(a*2^d / b + 1/2)), |d| <= SPREAD_MAX; where b is 0: lo, 0 or hi, as a < 0,
        a = 0 or a > 0, the latter within [lo, hi]. So a result is off by at most half a step of y.
        down: d = e_a - e_b; y = sat(rsh(floor(a*2^d / b), e_y)), and so where b is 0.
        """
        a, b = inputs
        quant = quant_of(outputs[0])
        d = a.quant.exponent - b.quant.exponent - (0 if params.down else quant.exponent)
        assert abs(d) <= SPREAD_MAX
        num = np.asarray(a.q.astype(np.int64) << max(d, 0))
        den = np.asarray(b.q.astype(np.int64) << max(-d, 0))
        far = np.where(num > 0, INT_MAX[32], np.where(num < 0, INT_MIN[32], 0))
        divided = _floor if params.down else div
        y = np.where(den == 0, far, divided(num * np.where(den < 0, -1, 1), np.maximum(np.abs(den), 1)))
        return [sat(rsh(y, quant.exponent) if params.down else y, quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        exponents = ((-4, -7, -4), (-4, 2, -3), (0, 0, 0), (10, -20, 0), (0, 30, 0), (-30, 0, -7))
        yield from elementwise(self, DivideParams(), exponents)
        for bits in WIDTHS:
            low, small = fed("low", (1, 300), bits, 0, "lowest"), fed("small", (1, 300), 8, 0)
            yield single(self, f"small/int{bits}", DivideParams(), [low, small], grid(bits, -2, lo=-100, hi=90))
            yield single(self, f"first/int{bits}", DivideParams(), [small, low], grid(bits, -9, lo=-100, hi=90))
        down = DivideParams(True)
        for widths, (ea, eb, ey) in product(
            product(WIDTHS, repeat=3), ((0, 0, 0), (-3, 1, -2), (4, -6, 3), (0, 30, 0))
        ):
            operands = [fed("a", (1, 300), widths[0], ea), fed("b", (1, 300), widths[1], eb)]
            yield single(self, f"down/{by(widths)}/{ea},{eb},{ey}", down, operands, grid(widths[2], ey))
        every = Operand(np.arange(-(2**15), 2**15, dtype=np.int16).reshape(1, -1), grid(16, 0))
        for number in (1, 3, 80, 255):
            divisor = Operand(np.array([[number]], np.int16), grid(16, 0), const=True)
            yield single(self, f"down/every/{number}", down, [every, divisor], grid(16, 0))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        if node.params.down:
            to.node("Floor", (to.node("Div", node.inputs),), node.outputs[0])
        else:
            to.node("Div", node.inputs, node.outputs[0])


def _are_positive(numbers: np.ndarray) -> bool:
    return bool((numbers == np.rint(numbers)).all() and (numbers > 0).all())


def _floor(a: Int64, b: Int64) -> Int64:
    return a // b


def _lower_whole(node: OnnxNode, to: GraphBuilder, x: str, divisor: str) -> None:
    """ONNX cuts off what is behind the point, which is rounding down where nothing is negative."""
    low, least = to.reach(x)[0], to.reach(divisor)[0]
    if low < 0 or least <= 0:
        name = node.input(0 if low < 0 else 1)
        raise Unsupported(f"a quotient of computed integers: '{name}' may be negative or 0", hint="a Cast to float")
    to.emit("divide", to.aligned(x, divisor), DivideParams(True), node.outputs[0])
