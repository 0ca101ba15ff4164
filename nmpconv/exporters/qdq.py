"""A .nmp file as ONNX with QuantizeLinear and DequantizeLinear, for tools that read that form.

The model takes the inputs of the model that was converted and returns its outputs, in float. Every activation lies on
its grid: a power-of-two scale, and a zero point where the file has an origin.

1. int8 activations are uint8 with 128 more, the form that most runtimes are best at; int16 ones are int16.
2. Weights of convolutions are integers with one scale a channel, their biases integers on the grid of the sums. A
   matrix is of floats: onnxruntime would round what it is multiplied by once more (MatMulNBits).
3. QuantizeLinear rounds halves to even, the file rounds them up: half of what exact results are multiples of is added
   before, or what float32 still resolves.
4. A pointwise function is a Gather from the table of all its results.
5. An origin that is no whole number of steps within the type is subtracted before the rounding and added after it.
6. Pixels are made of the model's input: the inverse of the preprocessing. Inputs with a grid for each channel are less
   their offsets, and divided by their steps. Halves are rounded up here: numbers far from 0 have few digits behind the
   point in float32, so many of them lie halfway between two steps.
7. A matrix at 16 bits is multiplied in double, as its sums are wider than float32. A logit that is off by one would
   move its probability by several steps.
8. What `mul_offset` rounds to 64ths of a step first is rounded so here, in double, as products have 30 bits.
9. A convolution that takes the other operand of a sum is a convolution whose sums nothing rounds, and an Add.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx import helper

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.errors import UnsupportedModel
from nmpconv.file.reader import FileOp, FilePort, FileTensor, Model
from nmpconv.frontend.to_onnx import IR_VERSION, OPSET, Exporter
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS, WEIGHTED, QArray
from nmpconv.ops.add import AddParams
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.ops.conv_add import ConvAddParams
from nmpconv.ops.mul import MulOffsetParams
from nmpconv.ops.mul_offset import FINE
from nmpconv.ops.op import quant_of
from nmpconv.passes.float.fold_input import weights_of
from nmpconv.passes.quantize import offsets

WITH_INT16 = 21, 10  # opset and IR version: the first QuantizeLinear of int16
STORED: dict[int, tuple[np.dtype[Any], int]] = {8: (np.dtype(np.uint8), 128), 16: (np.dtype(np.int16), 0)}
"""Case 1: by bits, the type and what is added to an integer of the file."""
# Case 3, by bits of a result: how many bits below its step float32 resolves, where a result is a sum of multiples of
# powers of two, and where it is a quotient or was rounded on the way.
RESOLVED = {8: 16, 16: 8}
QUOTIENT = {8: 13, 16: 7}


def to_onnx(model: Model) -> onnx.ModelProto:
    """The model of a file; its first dimensions are dynamic where samples can go through it at once.

    Raises UnsupportedModel for ops whose float meaning is not in a file.
    """
    graph = _graph(model)
    lost = [node for node in graph.nodes if node.params is None]
    if lost:
        rows = [(node.name, node.op, "a file has only its integer tables", "") for node in lost]
        raise UnsupportedModel(rows, hint="export the ONNX model that was converted")
    grids = {
        name: _grid(value)
        for name, value in graph.values.items()
        if not value.is_const and quant_of(value).bits in STORED
    }
    constants = {name: tensor.data for name, tensor in zip(names_of(model), model.tensors, strict=True)}
    real = offsets.store(graph, {name: -value.origin for name, value in graph.values.items()})
    to = _Exporter(real, grids, constants)
    inputs = [to.open(port, name) for port, name in zip(model.inputs, graph.inputs, strict=True)]
    for node in graph.nodes:
        to.add(node)
    outputs = [to.close(port, name) for port, name in zip(model.outputs, graph.outputs, strict=True)]
    initializers = list(to.constants(()))
    proto = helper.make_graph(to.nodes, model.name or "graph", inputs, outputs, initializers)
    wide = any(tensor.data_type == onnx.TensorProto.INT16 for tensor in initializers)
    opset, version = WITH_INT16 if wide else (OPSET, IR_VERSION)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=version, producer_name="nmpconv")


@dataclass(frozen=True)
class _Grid:
    """value = (integer - zero) * 2^exponent + rest, the integer being of the type that `STORED` says."""

    quant: Quant
    zero: int
    rest: float

    @property
    def dtype(self) -> np.dtype[Any]:
        return STORED[self.quant.bits][0]

    @property
    def scale(self) -> np.ndarray:
        return np.array(math.ldexp(1.0, self.quant.exponent), np.float32)

    def stored(self, q: np.ndarray) -> np.ndarray:
        """Integers of the file as this form has them."""
        return (q.astype(np.int64) + STORED[self.quant.bits][1]).astype(self.dtype)

    def real(self, q: int) -> float:
        """Returns the real value of an integer of the file."""
        return math.ldexp(q + STORED[self.quant.bits][1] - self.zero, self.quant.exponent) + self.rest


def _grid(value: Value) -> _Grid:
    """Case 5."""
    quant = quant_of(value)
    dtype, more = STORED[quant.bits]
    zero = more - math.ldexp(value.origin, -quant.exponent)
    if zero == round(zero) and np.iinfo(dtype).min <= zero <= np.iinfo(dtype).max:
        return _Grid(quant, round(zero), 0.0)
    return _Grid(quant, more, value.origin)


def _graph(model: Model) -> Graph:
    """The file as a graph whose constants are floats; a node whose meaning is not known has no parameters."""
    names = names_of(model)
    values = {name: _value(name, tensor) for name, tensor in zip(names, model.tensors, strict=True)}

    def of(indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(names[i] for i in indices)

    ports = [of([port.tensor for port in side]) for side in (model.inputs, model.outputs)]
    graph = Graph(model.name, ports[0], ports[1], (), values)
    return _apart(replace(graph, nodes=tuple(_node(op, of(op.inputs), of(op.outputs), graph) for op in model.ops)))


def _apart(graph: Graph) -> Graph:
    """Case 9."""
    nodes: list[Node] = []
    values = dict(graph.values)
    for node in graph.nodes:
        if not isinstance(node.params, ConvAddParams):
            nodes.append(node)
            continue
        other, x, w = graph.ins(node)[:3]
        y, products = graph[node.outputs[0]], f"{node.outputs[0]}~products"
        sums = Quant(32, tuple(quant_of(x).exponent + e for e in quant_of(w).exponents), INT_MIN[32], INT_MAX[32])
        values[products] = replace(y, name=products, quant=sums, clamp=None, origin=y.origin - other.origin)
        params = Conv2DParams(**asdict(node.params))
        nodes.append(Node("conv2d", node.name, node.inputs[1:], (products,), params))
        nodes.append(Node("add", f"{node.name}~sum", (products, other.name), node.outputs, AddParams()))
    return replace(graph, nodes=tuple(nodes), values=values)


def _node(op: FileOp, inputs: tuple[str, ...], outputs: tuple[str, ...], graph: Graph) -> Node:
    node = Node(op.kind, op.name, inputs, outputs, OPS[op.kind].Params(**op.params))
    original = OPS[op.kind].restored(node, graph)
    if original is None:
        return node if _has_table(node) else replace(node, params=None)
    return original


def _has_table(node: Node) -> bool:
    """Case 4."""
    return OPS[node.op].elementwise and bool(OPS[node.op].float_only)


def names_of(model: Model) -> list[str]:
    """Names of the tensors in an export: each once, and none of a port's. In a file they may be empty or the same."""
    taken = {port.name for port in (*model.inputs, *model.outputs)}
    names = []
    for i, tensor in enumerate(model.tensors):
        name = tensor.name
        while not name or name in taken:
            name += f"~{i}"
        taken.add(name)
        names.append(name)
    return names


def _value(name: str, tensor: FileTensor) -> Value:
    bits = 8 * np.dtype(tensor.dtype).itemsize
    quant = Quant(bits, tensor.exponents, tensor.clip_min, tensor.clip_max, tensor.axis)
    if tensor.data is None:
        # With a clamp, what a node computes and the value have two names in an export.
        whole, shifts = (-math.inf, math.inf), tensor.shifts
        return Value(name, tensor.shape, clamp=whole, quant=quant, origin=tensor.origin, shifts=shifts)
    exponents = _along(tensor.exponents, tensor.axis, tensor.data.ndim)
    data = np.ldexp(tensor.data.astype(np.float64), exponents).astype(np.float32)
    return Value(name, tensor.shape, data=data, quant=quant)


def _along(exponents: Sequence[int], axis: int | None, rank: int) -> np.ndarray:
    """One exponent, or one for each index of an axis, to broadcast over an array of this rank."""
    shape = [1] * rank
    if len(exponents) > 1:
        shape[axis or 0] = len(exponents)
    return np.array(exponents).reshape(shape)


class _Exporter(Exporter):
    """Rounds every value. grids: of all activations. stored: the integers of the file's constants."""

    def __init__(self, graph: Graph, grids: Mapping[str, _Grid], stored: Mapping[str, np.ndarray | None]) -> None:
        super().__init__(graph)
        self._grids = grids
        self._stored = stored
        self._makers = graph.producers()
        self._integers: dict[str, str] = {}
        self._on_grid: dict[int, tuple[Sequence[int], int]] = {}  # case 2: by rank of a constant, exponents and bits

    def open(self, port: FilePort, name: str) -> onnx.ValueInfoProto:
        """Case 6, and the rounding."""
        value, raw = self.graph[name], port.name
        if port.preprocess is not None and port.pixels:
            channels = value.shape[-1]
            weights, shift = (x.astype(np.float64) for x in weights_of(name, port.preprocess, channels))
            back = np.linalg.inv(weights.reshape(channels, channels).T)
            if port.preprocess.layout == "nchw":
                raw = self.transpose(raw, (0, 2, 3, 1))
            raw = self.node("MatMul", (raw, self.const(back.astype(np.float32))))
            raw = self.node("Sub", (raw, self.const((shift @ back).astype(np.float32))))
        if value.shifts is not None:
            rank = len(value.shape)
            if value.shifts.offsets:
                raw = self.node("Sub", (raw, self.const(value.shifts.origins(rank).astype(np.float32))))
            step = self._grids[name].scale
            raw = self.node("Div", (raw, self.const((step / value.shifts.factors(rank)).astype(np.float32))))
            raw = self.node("Floor", (self.node("Add", (raw, self.const(np.float32(0.5)))),))
            raw = self.node("Mul", (raw, self.const(step)))
        self._round(name, raw)
        return self.info(Value(port.name, port.source_shape or value.shape))

    def close(self, port: FilePort, name: str) -> onnx.ValueInfoProto:
        value = self.graph[name]
        shape = port.source_shape or value.shape
        if value.shifts is not None:
            factors = 1 / value.shifts.factors(len(value.shape))
            name = self.node("Mul", (name, self.const(factors.astype(np.float32))))
        self.nodes.append(helper.make_node("Reshape", [name, self.shape(shape)], [port.name]))
        return self.info(Value(port.name, shape))

    def add(self, node: Node) -> None:
        """node: of the file; constants are those of the exporter's graph, where no tensor has an origin."""
        if _has_table(node):
            self._table(node)
            return
        rounded_finely = isinstance(node.params, MulOffsetParams)
        node = self._makers[node.outputs[0]]
        if rounded_finely:
            self._round(node.outputs[0], self._in_64ths(node))
            return
        if self._is_wide_matrix(node):
            self._round(node.outputs[0], self._in_double(node))
            return
        exact = self._exact(node)
        if node.op in WEIGHTED and len(self.graph[node.inputs[1]].shape) == 4:
            weights = quant_of(self.graph[node.inputs[1]])
            self._on_grid = {1: (exact, 32), 4: (weights.exponents, weights.bits)}
        OPS[node.op].export(self._without_border(node), self.graph, self)
        self._on_grid = {}
        for name in (name for name in node.outputs if name in self._grids):
            raw = self._raw(name)
            if OPS[node.op].grid == "free":
                raw = self.node("Add", (raw, self.const(_half(exact, self._grids[name].quant))))
            self._round(name, raw)

    def _is_wide_matrix(self, node: Node) -> bool:
        wide = 16 in (quant_of(self.graph[name]).bits for name in (node.inputs[0], *node.outputs))
        return wide and node.op in WEIGHTED and WEIGHTED[node.op].is_matrix(node.params, self.graph[node.inputs[1]])

    def _in_double(self, node: Node) -> str:
        """Case 7."""
        x, w, b = node.inputs
        bias, weights, grid = self.graph[b].data, self._stored[w], self._grids[node.outputs[0]]
        assert bias is not None
        assert weights is not None
        matrix = weights.reshape(len(weights), -1)
        step, double = math.ldexp(1.0, grid.quant.exponent), onnx.TensorProto.DOUBLE
        operands = [self.node("Cast", (name,), to=double) for name in (x, self.const(np.ascontiguousarray(matrix.T)))]
        scales = np.exp2(np.array(quant_of(self.graph[w]).exponents, np.float64)) / step
        raw = self.node("Mul", (self.node("MatMul", operands), self.const(scales)))
        raw = self.node("Add", (raw, self.const((bias.astype(np.float64) - grid.rest) / step + 0.5)))
        raw = self.node("Mul", (self.node("Floor", (raw,)), self.const(np.float64(step))))
        raw = self.node("Cast", (raw,), to=onnx.TensorProto.FLOAT)
        return self.node("Add", (raw, self.const(np.float32(grid.rest)))) if grid.rest else raw

    def _in_64ths(self, node: Node) -> str:
        """Case 8. node: with what origins leave of its offsets."""
        left = node.params if isinstance(node.params, MulOffsetParams) else MulOffsetParams()
        step = math.ldexp(1.0, self._grids[node.outputs[0]].quant.exponent - FINE)
        a, b = (self.node("Cast", (name,), to=onnx.TensorProto.DOUBLE) for name in node.inputs)
        a = self.node("Add", (a, self.const(np.float64(left.offset_a)))) if left.offset_a else a
        raw = self.node("Mul", (self.node("Mul", (a, b)), self.const(np.float64(1 / step))))
        raw = self.node("Floor", (self.node("Add", (raw, self.const(np.float64(0.5)))),))
        raw = self.node("Mul", (raw, self.const(np.float64(step))))
        raw = self.node("Add", (raw, self.const(np.float64(step / 2 + left.offset_y))))
        return self.node("Cast", (raw,), to=onnx.TensorProto.FLOAT)

    def const(self, data: np.ndarray | Sequence[int]) -> str:
        """Case 2, of an array that is on the grid that is expected of its rank, however the op has turned it."""
        array = np.asarray(data)
        if array.ndim not in self._on_grid:
            return super().const(data)
        exponents, bits = self._on_grid[array.ndim]
        for axis, size in enumerate(array.shape):
            if len(exponents) not in (1, size):
                continue
            q = np.ldexp(array.astype(np.float64), -_along(exponents, axis, array.ndim))
            if (q == np.rint(q)).all() and INT_MIN[bits] <= q.min() and q.max() <= INT_MAX[bits]:
                del self._on_grid[array.ndim]
                scale = np.exp2(np.array(exponents)).astype(np.float32)
                grid = [scale, np.zeros(len(scale), f"int{bits}")]
                if len(scale) == 1:
                    grid = [part.reshape(()) for part in grid]
                operands = [super(_Exporter, self).const(part) for part in (q.astype(f"int{bits}"), *grid)]
                return self.node("DequantizeLinear", operands, axis=axis)
        return super().const(data)

    def _without_border(self, node: Node) -> Node:
        """A layer whose padding stands for 0 needs no operand that says so."""
        if node.op in WEIGHTED and len(node.inputs) == 4:
            pad = self.graph[node.inputs[3]].data
            assert pad is not None
            return node if pad.any() else replace(node, inputs=node.inputs[:3])
        return node

    def _exact(self, node: Node) -> tuple[int, ...]:
        """Exponents of what exact results are multiples of, one or one a channel; () where they lie anywhere, which
        a constant that took up an origin may."""
        grids = [self.graph[name].quant for name in node.inputs[:2]]
        exponents = [() if grid is None else grid.exponents for grid in grids]
        exact = [OPS[node.op].exact_exponent(pair) for pair in product(*exponents)]
        return tuple(exponent for exponent in exact if exponent is not None)

    def _round(self, name: str, raw: str) -> None:
        """The value from a float: clipped, to an integer, and back."""
        grid = self._grids[name]
        quant = grid.quant
        if (quant.lo, quant.hi) != (INT_MIN[quant.bits], INT_MAX[quant.bits]):
            raw = self.node("Clip", (raw, *(self.const(np.float32(grid.real(end))) for end in (quant.lo, quant.hi))))
        if grid.rest:
            raw = self.node("Sub", (raw, self.const(np.float32(grid.rest))))
        self._dequantize(name, self.node("QuantizeLinear", (raw, *self._operands(grid))))

    def _table(self, node: Node) -> None:
        """Case 4: the results of all integers of the input."""
        x, y = self._grids[node.inputs[0]], self._grids[node.outputs[0]]
        every = np.arange(INT_MIN[x.quant.bits], INT_MAX[x.quant.bits] + 1).astype(x.quant.dtype)
        operands = [QArray(every, x.quant)]
        for name in node.inputs[1:]:
            data = self._stored[name]
            assert data is not None
            operands.append(QArray(data, quant_of(self.graph[name])))
        result = Value("", every.shape, y.quant.dtype, quant=y.quant)
        (results,) = OPS[node.op].reference(node.params, operands, [result])
        index = self.node("Cast", (self._integers[node.inputs[0]],), to=onnx.TensorProto.INT32)
        if first := int(np.iinfo(x.dtype).min):
            index = self.node("Sub", (index, self.const(np.int32(first))))
        self._dequantize(node.outputs[0], self.node("Gather", (self.const(y.stored(results)), index)))

    def _operands(self, grid: _Grid) -> tuple[str, str]:
        """Operands of QuantizeLinear and DequantizeLinear."""
        return self.const(grid.scale), self.const(np.array(grid.zero, grid.dtype))

    def _dequantize(self, name: str, integers: str) -> None:
        grid = self._grids[name]
        self._integers[name] = integers
        operands = (integers, *self._operands(grid))
        if not grid.rest:
            self.nodes.append(helper.make_node("DequantizeLinear", operands, [name]))
            return
        raw = self.node("DequantizeLinear", operands)
        self.nodes.append(helper.make_node("Add", [raw, self.const(np.float32(grid.rest))], [name]))


def _half(exact: Sequence[int], quant: Quant) -> np.ndarray:
    """Case 3: what is added to a result, one number or one a channel. Halves are then above halves, and what was below
    them still is."""
    below = np.minimum(np.array(exact) - quant.exponent, -1) if exact else np.array(-math.inf)
    least = RESOLVED[quant.bits] if exact else QUOTIENT[quant.bits]
    return (
        np.exp2(quant.exponent - 1 + np.maximum(below, -least)).astype(np.float32).reshape(-1 if len(exact) > 1 else ())
    )
