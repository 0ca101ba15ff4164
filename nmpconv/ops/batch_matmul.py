"""Matrix products of two tensors, the second one transposed: a [..., M, K], b [..., N, K] -> [..., M, N].

The axes before the last two broadcast as numpy's do. One operand may be constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MAX, SHIFT_MIN, rsh, sat
from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.accumulate import K_MAX, check_products, exact_type, magnitude
from nmpconv.ops.common.case import FILLS, WIDTHS, by, constant, fed, grid, single
from nmpconv.ops.common.constant import quantize_constants
from nmpconv.ops.common.rules import alike
from nmpconv.ops.common.traits import Factors, Limit, Rule, product_limits, same_rank
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder


@dataclass(frozen=True)
class BatchMatmulParams:
    pass


class BatchMatmul(Op):
    """fully_connected lowers Gemm and MatMul, and comes to `matmul` where neither side is its weight."""

    name = "batch_matmul"
    source = "MatMul, Gemm of two computed tensors"
    Params = BatchMatmulParams
    clamps = True
    operands = 2
    restrictions = f"sums of at most {K_MAX} products"

    def infer(self, params: BatchMatmulParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        a, b = (x.shape for x in inputs)
        check_products(a[-1])
        return [(*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-2])]

    def rules(self, params: BatchMatmulParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        a, b = (x.shape for x in inputs)
        yield alike((a, b))
        yield "there is no matrix", len(a) >= 2
        yield f"sums of {a[-1]} and {b[-1]} products", a[-1] == b[-1]

    def part(
        self, params: BatchMatmulParams, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[BatchMatmulParams, list[int | None]]:
        """Rows of the first, columns of the second (which are its rows here), or matrices of both."""
        rank = len(output.shape)
        if axis >= rank - 2:
            row = axis == rank - 2
            return params, [axis if row else None, None if row else rank - 2]
        return params, [axis if x.shape[axis] == output.shape[axis] else None for x in inputs]

    def work(self, params: BatchMatmulParams, inputs: Sequence[Value], output: Value) -> int:
        return output.size * inputs[0].shape[-1]

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        return product_limits(node, graph)

    def tensor_factors(self, params: BatchMatmulParams, inputs: Sequence[Value], output: Value) -> Factors:
        return Factors.PRODUCT

    def keeps_batch(self, params: BatchMatmulParams, inputs: Sequence[Value], output: Value) -> bool:
        """Axis 0 of a matrix counts rows."""
        return len(output.shape) > 2 and same_rank(inputs, output)

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """A constant gets 16 bits and an exponent by its largest value that keeps the shift e_y - e_a - e_b legal."""

        def window(other: int, out: int) -> tuple[int, int]:
            return out - other - SHIFT_MAX, out - other - SHIFT_MIN

        return quantize_constants(node, graph, window)

    def exact_exponent(self, exponents: Sequence[int]) -> int:
        return sum(exponents)

    def reference(
        self, params: BatchMatmulParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """y[m, n] = sat(rsh(sum over k of a[m, k] * b[n, k], e_y - e_a - e_b))."""
        a, b = inputs
        quant = quant_of(outputs[0])
        kind = exact_type(a.q.shape[-1] * magnitude(a.q) * magnitude(b.q))
        sums = np.matmul(a.q.astype(kind), np.swapaxes(b.q, -1, -2).astype(kind)).astype(np.int64)
        shift = quant.exponent - a.quant.exponent - b.quant.exponent
        return [sat(rsh(sums, shift), quant.lo, quant.hi).astype(quant.dtype)]

    def macs(self, params: BatchMatmulParams, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return outputs[0].size * inputs[0].shape[-1]

    def cases(self) -> Iterator[Case]:
        for (a, b), bits in product(_SHAPES, product(WIDTHS, repeat=3)):
            yield self._case(f"{by(a)}*{by(b)}/{by(bits)}", a, b, bits)
        for bits, fill in product(product(WIDTHS, repeat=3), FILLS[1:]):
            yield self._case(f"{fill}/{by(bits)}", (1, 2, 300), (1, 3, 300), bits, fill=fill)
        for shift in (SHIFT_MIN, 0, SHIFT_MAX):
            operands = [fed(f"a{shift}", (2, 9), 16, -7), fed(f"b{shift}", (3, 9), 16, -7)]
            yield single(self, f"shift/{shift}", BatchMatmulParams(), operands, grid(16, shift - 14, lo=-9))
        for width in WIDTHS:
            x, k = fed("x", (1, 4, 5), width, -4), constant("k", (2, 3, 5), 16, -15)
            yield single(self, f"constant/int{width}", BatchMatmulParams(), [x, k], grid(width, 0))
            yield single(self, f"constant/first/int{width}", BatchMatmulParams(), [k, x], grid(width, 0))
            yield single(self, f"same/int{width}", BatchMatmulParams(), [x, x], grid(16, -4))

    def _case(
        self, name: str, a: tuple[int, ...], b: tuple[int, ...], bits: tuple[int, ...], *, fill: str = "random"
    ) -> Case:
        """bits of a, b and y."""
        operands = [fed(f"{name}a", a, bits[0], 1 - bits[0], fill), fed(f"{name}b", b, bits[1], 1 - bits[1], fill)]
        return single(self, name, BatchMatmulParams(), operands, grid(bits[2], a[-1].bit_length() // 2 + 1 - bits[2]))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        a, b = node.inputs
        rank = len(graph[b].shape)
        to.node("MatMul", (a, to.transpose(b, swapped(rank))), node.outputs[0])


# a, b
_SHAPES = (
    ((5, 7), (3, 7)),
    ((1, 9, 16), (1, 33, 16)),
    ((3, 1, 21, 70), (1, 2, 40, 70)),
    ((2, 3, 4, 5), (2, 3, 6, 5)),
    ((2, 1, 4, 5), (1, 3, 2, 5)),
    ((1, 2, 1, 2, 3, 4), (2, 1, 3, 1, 2, 4)),
    ((1, 1), (1, 1)),
)


def swapped(rank: int) -> tuple[int, ...]:
    """The permutation that transposes the matrices in the last two axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def transposed(to: GraphBuilder, value: str) -> str:
    """The matrices of a value transposed; those of a constant here and now."""
    data, perm = to[value].data, swapped(len(to[value].shape))
    return to.transpose(value, perm) if data is None else to.const(data.transpose(perm), value)


def matmul(to: GraphBuilder, left: str, right: str, output: str) -> str:
    """numpy's matmul of two values of the graph, one of which may be constant."""
    a, b = to[left].shape, to[right].shape
    if not a or not b:
        raise Unsupported("a scalar", hint="vectors and matrices")
    if a[-1] != b[max(len(b) - 2, 0)]:
        raise Unsupported(f"{list(a)} does not fit {list(b)}")
    # A vector on the right is a column, so a row once it is transposed.
    right = transposed(to, right) if len(b) > 1 else right
    rank = max(len(a), len(b), 2)
    sides = [to.with_rank(value, rank) for value in (left, right)]
    if len(a) > 1 and len(b) > 1:
        return to.emit("batch_matmul", sides, BatchMatmulParams(), output)
    y = to.emit("batch_matmul", sides, BatchMatmulParams())
    *batch, rows, columns = to[y].shape
    return to.reshape(y, (*batch, *([rows] if len(a) > 1 else []), *([columns] if len(b) > 1 else [])), output)
