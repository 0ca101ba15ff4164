"""The same values on another grid or in another width; with a narrower [lo, hi] it is a Relu, Relu6 or Clip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, isnan
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN, SHIFT_MAX, SHIFT_MIN, rsh, sat
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Given, Graph, Node, Value
from nmpconv.ops.common.aligned import AlignedParams, chained
from nmpconv.ops.common.case import WIDTHS, Operand, fed, grid, single
from nmpconv.ops.common.traits import Bounds, Limit, Origins
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

_PAIRS = {"Min": "minimum", "Max": "maximum"}
_INFINITE_AT_0 = ("log", "reciprocal")
FLOAT_MIN, FLOAT_MAX = -3.4028234663852886e38, 3.4028234663852886e38  # what exporters write for "no bound"


@dataclass(frozen=True)
class RequantizeParams:
    pass


class Requantize(Op):
    name = "requantize"
    Params = RequantizeParams
    clamps = True
    in_place = True
    onnx = ("Relu", "Clip", "Min", "Max", "QuantizeLinear", "DequantizeLinear")
    monotone = True
    elementwise = True
    homogeneous = True

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Relu, Clip, and Min or Max with one number; other tensors are compared two at a time.

        QuantizeLinear and DequantizeLinear in pairs tell the range of a tensor.
        """
        x, lo, hi = node.input(0), -inf, inf
        if node.op_type == "QuantizeLinear":
            return _lower_quantize(node, to)
        if node.op_type == "DequantizeLinear":
            return _lower_dequantize(node, to)
        if (grid := to.grid_of(x)) is not None:
            return _lower_narrowed(node, to, grid)
        if node.op_type in ("Min", "Max"):
            numbers = [name for name in node.inputs if to.is_const(name) and to.array(name, "bound").size == 1]
            if len(node.inputs) > 2 or (len(node.inputs) == 2 and len(numbers) != 1):
                return chained(to, _PAIRS[node.op_type], node.inputs, AlignedParams(), node.outputs[0])
            if numbers:
                x = next(name for name in node.inputs if name != numbers[0])
                limit = float(to.array(numbers[0], "bound").item())
                lo, hi = (lo, limit) if node.op_type == "Min" else (limit, hi)
        elif node.op_type == "Relu":
            lo = 0.0
        else:
            lo = float(to.array(node.input(1), "min").item()) if node.input(1) else node.number("min", lo, finite=False)
            hi = float(to.array(node.input(2), "max").item()) if node.input(2) else node.number("max", hi, finite=False)
        lo, hi = (-inf if lo <= FLOAT_MIN else lo), (inf if hi >= FLOAT_MAX else hi)
        if isnan(lo) or isnan(hi):
            raise Invalid(f"a range from {lo:g} to {hi:g}", hint="numbers")
        if lo > hi:
            raise Unsupported(f"an empty range, {lo:g} to {hi:g}")
        if (lo, hi) == (-inf, inf):
            return to.rename(node.outputs[0], to.value(x))
        to.emit("requantize", (to.value(x),), RequantizeParams(), node.outputs[0], clamp=(lo, hi))

    def infer(self, params: RequantizeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [inputs[0].shape]

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        return inputs[0]

    def origins(self, params: RequantizeParams, inputs: Sequence[Value], output: Value) -> Origins:
        return Origins.ALIKE

    def idle(self, params: RequantizeParams, x: Value, y: Value) -> bool:
        return True

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        x, y = quant_of(graph[node.inputs[0]]).exponent, quant_of(graph[node.outputs[0]]).exponent
        yield Limit(y - x, SHIFT_MIN, SHIFT_MAX, below=node.outputs, above=node.inputs)

    def reference(
        self, params: RequantizeParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """y = sat(rsh(x, e_y - e_x))."""
        x = inputs[0]
        quant = quant_of(outputs[0])
        return [sat(rsh(x.q, quant.exponent - x.quant.exponent), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        """Every integer of the type at every legal shift."""
        for source, target, shift in product(WIDTHS, WIDTHS, range(SHIFT_MIN, SHIFT_MAX + 1)):
            q = np.arange(INT_MIN[source], INT_MAX[source] + 1)[None].astype(f"int{source}")
            x = Operand(q, grid(source, -7))
            yield single(self, f"{source}to{target}/{shift}", RequantizeParams(), [x], grid(target, shift - 7))
        for bits in WIDTHS:
            x = fed("clamp", (1, 3, 5), bits, -4)
            yield single(self, f"clamp/int{bits}", RequantizeParams(), [x], grid(bits, -4, lo=0, hi=96))
            yield single(self, f"scalar/int{bits}", RequantizeParams(), [fed("scalar", (), bits, -4)], grid(bits, -3))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        to.node("Identity", node.inputs, node.outputs[0])


def requantize(name: str, x: str, y: str) -> Node:
    """The node that puts x on the grid of y, and saturates it as y says."""
    return Node(Requantize.name, name, (x,), (y,), RequantizeParams())


def _lower_quantize(node: OnnxNode, to: GraphBuilder) -> None:
    """The grid is noted, the rounding left out. A range from 0 on also saturates: it may be what is left of a Relu. So
    does what is infinite at 0, of numbers that may be 0: quantizers leave out the Clip before a logarithm.

    What is on another grid already becomes a tensor of its own, and so does what is also read as it was: it saturates.
    """
    x, grid = to.value(node.input(0)), replace(_grid(node, to), source=node.input(0))
    to.annotate(x, grid)
    saturates = x not in to.input_shapes and (grid.min == 0 or not to.is_only_rounded(x) or _may_be_infinite(x, to))
    if saturates or not grid.is_same(to.given(x)):
        clamp = (grid.min, grid.max) if saturates else None
        x = to.emit("requantize", (x,), RequantizeParams(), node.outputs[0], clamp=clamp)
        to.annotate(x, grid)
    to.rename_integers(node.outputs[0], x, grid)


def _may_be_infinite(x: str, to: GraphBuilder) -> bool:
    maker = to.maker(x)
    if maker is None or not (maker.op == "lookup" and maker.params.function in _INFINITE_AT_0):
        return False
    low, high = to.reach(maker.inputs[0])
    return low <= 0 <= high


def _lower_narrowed(node: OnnxNode, to: GraphBuilder, grid: Given) -> None:
    """A Clip of integers, as models with fewer bits than the type have it: the same grid with narrower ends."""
    ends = [to.array(name, "bound").item() if name else None for name in (node.input(1), node.input(2))]
    lo, hi = (default if end is None else int(end) for end, default in zip(ends, (-(2**31), 2**31), strict=True))
    narrow_grid = grid.within(lo, hi)
    if narrow_grid.min > narrow_grid.max:
        raise Unsupported(f"an empty range, {lo} to {hi}")
    x = to.value(node.input(0))
    x = to.emit("requantize", (x,), RequantizeParams(), node.outputs[0], clamp=(narrow_grid.min, narrow_grid.max))
    to.annotate(x, narrow_grid)
    to.rename_integers(node.outputs[0], x, narrow_grid)


def _lower_dequantize(node: OnnxNode, to: GraphBuilder) -> None:
    x = to.value(node.input(0))
    grid = to.grid_of(node.input(0))
    if grid is None:
        raise Unsupported(f"its input '{node.input(0)}' is no QuantizeLinear's result", hint="pairs of the two")
    own_grid = _grid(node, to, grid.dtype)
    if own_grid != replace(grid, lo=None, hi=None):
        raise Unsupported(
            f"scale {own_grid.scale:g} and zero point {own_grid.zero_point} for integers made with {grid.scale:g} and "
            f"{grid.zero_point}",
            hint="pairs of QuantizeLinear and DequantizeLinear on one grid",
        )
    if grid.is_plain:
        to.annotate(x, grid)
    to.rename(node.outputs[0], x)


def _grid(node: OnnxNode, to: GraphBuilder, dtype: str = "") -> Given:
    """dtype: of the integers, where the node does not say."""
    scales = to.array(node.input(1), "scale").astype(np.float64)
    if kind := node.integer("output_dtype", 0):
        from onnx import helper  # of the converter alone: readers of files have these ops, too

        dtype = helper.tensor_dtype_to_np_dtype(kind).name
    zeros = to.array(node.input(2), "zero point") if node.input(2) else np.zeros(1, dtype or "uint8")
    if len(np.unique(scales)) != 1 or len(np.unique(zeros)) != 1:
        raise Unsupported("scales or zero points per channel", hint="one for the tensor; weights may have more")
    if zeros.dtype.name not in ("int8", "uint8", "int16", "uint16"):
        raise Unsupported(f"integers of type {zeros.dtype.name}", hint="8 or 16 bits")
    scale = float(scales.flat[0])
    if not 0 < scale < inf:
        raise Unsupported(f"scale {scale:g}", hint="a positive number")
    return Given(scale, int(zeros.flat[0]), zeros.dtype.name)
