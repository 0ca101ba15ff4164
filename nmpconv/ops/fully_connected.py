"""Fully connected: x [..., K], w [O, K], b [O] -> [..., O]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.add import AddParams
from nmpconv.ops.batch_matmul import matmul, swapped, transposed
from nmpconv.ops.common.accumulate import (
    K_MAX,
    accumulate,
    accumulator_bound,
    check_products,
    exact_type,
    magnitude,
    output_step,
    weight_shifts,
)
from nmpconv.ops.common.case import FILLS, WIDTHS, by, constant, fed, grid, single
from nmpconv.ops.common.reduction import lower_reduction, reduced_axes
from nmpconv.ops.common.rules import rank
from nmpconv.ops.common.traits import Rule, computed, unfit
from nmpconv.ops.common.weighted import Weighted
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.ops.lookup import LookupParams
from nmpconv.ops.mul import MulParams
from nmpconv.ops.op import Case, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


# What is summed, as a function of x, and what is taken of the sum.
SUMS = {
    "ReduceSum": ("", ""),
    "ReduceL1": ("abs", ""),
    "ReduceL2": ("square", "sqrt"),
    "ReduceSumSquare": ("square", ""),
    "ReduceLogSum": ("", "log"),
}


@dataclass(frozen=True)
class FullyConnectedParams:
    pass


class FullyConnected(Weighted):
    name = "fully_connected"
    Params = FullyConnectedParams
    restrictions = f"sums of at most {K_MAX} products"
    onnx = ("Gemm", "MatMul", *SUMS)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """A constant matrix is a weight: x @ w directly, w @ x through transposes. Other products are batch_matmul."""
        if node.op_type in SUMS:
            return _lower_sum(node, to)
        if node.op_type == "Gemm":
            return _lower_gemm(node, to)
        left, right = node.input(0), node.input(1)
        if not _is_weight(to, right, left, 1) and not _is_weight(to, left, right, 2):
            matmul(to, to.value(left), to.value(right), node.outputs[0])
            return
        if to.is_const(left):
            return _lower_left(node, to)
        w = _matrix(to.array(right, "right side"))
        shape = to[left].shape
        _check(w.shape[0], shape[-1])
        rows = to.reshape(to.value(left), shape if len(shape) > 1 else (1, *shape))
        inputs = (rows, to.const(w.T, right), to.const(np.zeros(w.shape[1]), ""))
        if to.array(right, "right side").ndim > 1 and len(shape) > 1:
            to.emit("fully_connected", inputs, FullyConnectedParams(), node.outputs[0])
        else:  # what a vector has become an axis for disappears
            result_shape = (*shape[:-1], *(w.shape[1:] if to.array(right, "right side").ndim > 1 else ()))
            to.reshape(to.emit("fully_connected", inputs, FullyConnectedParams()), result_shape, node.outputs[0])

    def infer(self, params: FullyConnectedParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        o, k = inputs[1].shape
        check_products(k)
        return [(*inputs[0].shape[:-1], o)]

    def part(
        self, params: FullyConnectedParams, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[FullyConnectedParams, list[int | None]]:
        """Rows of the input, or rows of the weights with their biases."""
        last = axis == len(output.shape) - 1
        return params, [None, 0, 0] if last else [axis, None, None]

    def rules(self, params: FullyConnectedParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        yield rank(inputs[1], 2)
        yield from super().rules(params, inputs, output)

    def misfit(self, params: FullyConnectedParams, inputs: Sequence[Value]) -> str:
        shapes = [x.shape for x in inputs]
        fits = len(shapes) == 3 and shapes[1][1:] == shapes[0][-1:] and shapes[2] == shapes[1][:1]
        return computed(inputs) if fits else unfit(self.name, inputs)

    def reference(
        self, params: FullyConnectedParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """y_c = sat(rsh(sum x*w_c, s_c) + b_c), s_c = e_y - e_x - e_w[c]."""
        x, w, b = inputs
        quant = quant_of(outputs[0])
        o, k = w.q.shape
        bound = accumulator_bound(magnitude(x.q), w.q)
        acc = accumulate(x.q.reshape(-1, 1, k), w.q, exact_type(bound))
        y = output_step(acc, bound, b.q, weight_shifts(x.quant, w.quant, quant, o), quant)
        return [y.reshape(*x.q.shape[:-1], o)]

    def is_matrix(self, params: FullyConnectedParams, weights: Value) -> bool:
        return True

    def as_convolution(
        self, params: FullyConnectedParams, x: np.ndarray, weights: Sequence[int]
    ) -> tuple[np.ndarray, tuple[int, ...], Conv2DParams]:
        """1x1, of as many images as there are rows."""
        o, k = weights
        return x.reshape(-1, 1, 1, k), (o, 1, 1, k), Conv2DParams()

    def keeps_batch(self, params: FullyConnectedParams, inputs: Sequence[Value], output: Value) -> bool:
        """A single axis is summed up."""
        return len(inputs[0].shape) > 1

    def macs(self, params: FullyConnectedParams, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return outputs[0].size * inputs[1].shape[1]

    def cases(self) -> Iterator[Case]:
        for x, o in (((1, 7), 3), ((1, 300), 33), ((2, 9, 5), 4), ((11,), 2), ((1, 1), 1), ((19, 6), 35)):
            for bits in product(WIDTHS, repeat=3):
                yield self._case(f"{by(x)}/{by(bits)}", x, o, bits)
        for bits in product(WIDTHS, repeat=3):
            for fill in FILLS[1:]:
                yield self._case(f"{fill}/{by(bits)}", (1, 700), 2, bits, fill=fill)
        yield self._case("per-tensor", (1, 6), 5, (8, 8, 8), shifts=(9,))

    def _case(
        self,
        name: str,
        x: tuple[int, ...],
        o: int,
        bits: tuple[int, ...],
        *,
        shifts: tuple[int, ...] = (),
        fill: str = "random",
    ) -> Case:
        """bits of x, w and y; the bias has the width of w."""
        shifts = shifts or tuple(bits[0] + bits[1] - bits[2] - 1 + x[-1].bit_length() // 2 + c % 2 for c in range(o))
        operands = [
            fed(name + "x", x, bits[0], 2, fill),
            constant(name + "w", (o, x[-1]), bits[1], *(3 - s for s in shifts), fill=fill),
            constant(name + "b", (o,), bits[1], 5, fill=fill),
        ]
        return single(self, name, FullyConnectedParams(), operands, grid(bits[2], 5))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        x, w, b = node.inputs
        data = graph[w].data
        assert data is not None
        to.node("Add", (to.node("MatMul", (x, to.const(np.ascontiguousarray(data.T)))), b), node.outputs[0])


def _lower_sum(node: OnnxNode, to: GraphBuilder) -> None:
    """A sum is a product with ones; what is summed and what follows are functions of their own."""
    before, after = SUMS[node.op_type]
    x = to.value(node.input(0))
    shape = to[x].shape
    if node.op_type == "ReduceL2" and all(shape[axis] == 1 for axis in reduced_axes(node, to, len(shape))):
        before, after = "abs", ""  # a square has half of the bits for small numbers
    if before == "square":
        x = to.emit("mul", (x, x), MulParams())
    elif before:
        x = to.emit("lookup", (x,), LookupParams(before))

    def total(value: str, height: int, width: int) -> str:
        n, _, _, c = to[value].shape
        k = height * width
        if k == 1:
            return to.emit("lookup", (value,), LookupParams(after)) if after else value
        rows = to.transpose(to.reshape(value, (n, to[value].size // (n * k * c), k, c)), (0, 1, 3, 2))
        ones, zero = to.const(np.ones((1, k)), ""), to.const(np.zeros(1), "")
        y = to.transpose(to.emit("fully_connected", (rows, ones, zero), FullyConnectedParams()), (0, 1, 3, 2))
        return to.emit("lookup", (y,), LookupParams(after)) if after else y

    lower_reduction(node, to, x, total)


def _lower_gemm(node: OnnxNode, to: GraphBuilder) -> None:
    """alpha * A @ B + beta * C: alpha goes into the weights, C into the bias where it is one number per output."""
    if to.is_const(node.input(0)) or not to.is_const(node.input(1)):
        return _lower_gemm_of_two(node, to)
    x = to.value(node.input(0))
    w = to.array(node.input(1), "weight").astype(np.float64) * node.number("alpha", 1.0)
    if node.integer("transA", 0):
        x = to.transpose(x, (1, 0))
    w = w if node.integer("transB", 0) else w.T
    _check(w.shape[1], to[x].shape[-1])
    addend, beta = node.input(2), node.number("beta", 1.0)
    if addend and to.is_const(addend):
        c = to.array(addend, "addend").astype(np.float64) * beta
        if c.ndim < 3 and c.size == (c.shape or (1,))[-1]:
            bias = np.broadcast_to(c.ravel(), w.shape[0])
            inputs = (x, to.const(w, node.input(1)), to.const(bias, addend))
            to.emit("fully_connected", inputs, FullyConnectedParams(), node.outputs[0])
            return
    inputs = (x, to.const(w, node.input(1)), to.const(np.zeros(w.shape[0]), ""))
    if not addend:
        to.emit("fully_connected", inputs, FullyConnectedParams(), node.outputs[0])
        return
    _add(to, to.emit("fully_connected", inputs, FullyConnectedParams()), addend, beta, node.outputs[0])


def _lower_gemm_of_two(node: OnnxNode, to: GraphBuilder) -> None:
    """alpha * A @ B + beta * C of two tensors, or with the constant on the left."""
    alpha, beta, addend = node.number("alpha", 1.0), node.number("beta", 1.0), node.input(2)
    sides = [
        transposed(to, value) if node.integer(flag, 0) else value
        for value, flag in ((to.value(node.input(0)), "transA"), (to.value(node.input(1)), "transB"))
    ]
    y = matmul(to, sides[0], sides[1], "" if addend or alpha != 1.0 else node.outputs[0])
    if alpha != 1.0:
        y = _times(to, y, alpha, "" if addend else node.outputs[0])
    if addend:
        _add(to, y, addend, beta, node.outputs[0])


def _times(to: GraphBuilder, value: str, factor: float, output: str = "") -> str:
    number = to.const(np.full((1,) * len(to[value].shape), factor), "")
    return to.emit("mul", (value, number), MulParams(), output)


def _add(to: GraphBuilder, value: str, addend: str, beta: float, output: str) -> None:
    """value + beta * addend, which broadcasts to the value."""
    shape = to[value].shape
    addend_shape = to.array(addend, "addend").shape if to.is_const(addend) else to[addend].shape
    if np.broadcast_shapes(shape, addend_shape) != shape:
        raise Invalid(f"an addend of shape {list(addend_shape)}", hint=f"one that broadcasts to {list(shape)}")
    if to.is_const(addend):
        term = to.const(to.array(addend, "addend").astype(np.float64) * beta, addend)
    else:
        term = to.value(addend)
        term = term if beta == 1.0 else _times(to, term, beta)
    to.emit("add", to.aligned(value, term), AddParams(), output)


def _lower_left(node: OnnxNode, to: GraphBuilder) -> None:
    """w @ x = (x^T @ w^T)^T."""
    w, x = _matrix(to.array(node.input(0), "left side")), to.value(node.input(1))
    swap = swapped(len(to[x].shape))
    _check(w.shape[1], to[x].shape[-2])
    inputs = (to.transpose(x, swap), to.const(w, node.input(0)), to.const(np.zeros(w.shape[0]), ""))
    to.transpose(to.emit("fully_connected", inputs, FullyConnectedParams()), swap, node.outputs[0])


def _is_weight(to: GraphBuilder, name: str, other: str, least: int) -> bool:
    """A constant matrix, or vector where ``least`` is 1, for a product with a tensor of at least as many axes."""
    if not to.is_const(name) or to.is_const(other):
        return False
    shape, rank = to.array(name, "operand").shape, len(to[other].shape)
    return prod(shape[:-2]) == 1 and least <= len(shape) <= rank


def _matrix(w: np.ndarray) -> np.ndarray:
    """A vector as a column; leading axes of size 1 dropped."""
    if w.ndim < 2:
        return w.reshape(-1, 1)
    return w.reshape(w.shape[-2:])


def _check(needed: int, actual: int) -> None:
    if needed != actual:
        raise Unsupported(f"weights for {needed} inputs do not fit {actual}")
