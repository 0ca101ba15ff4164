"""Operators on integers, as deployed models have them, become those on reals with their grids beside them.

1. QLinearX of integers with scales and zero points: DequantizeLinear, X, QuantizeLinear.
2. DynamicQuantizeLinear, whose grid is that of each input: nothing. Its integers are the reals, on a grid of scale 1.
   Biases that are rounded to that grid keep their reals.
3. ConvInteger and MatMulInteger, and what onnxruntime fuses of them: Conv and MatMul of integers less their zero point.
   MatMulNBits, whose weights are packed and have a grid for each block: MatMul. DynamicQuantizeLSTM: LSTM. QAttention:
   Attention.
4. Outputs of the model that are quantized integers: the same numbers as reals, on a grid of scale 1.
5. Quant and BipolarQuant: see `nmpconv.frontend.qonnx`.
6. Operators that choose among integers of one grid, or put constants between them, as Pad and Concat do:
   DequantizeLinear, the operator on reals, QuantizeLinear.

Constant integers become real constants at once. Sources: ONNX and onnxruntime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.errors import InputError
from nmpconv.frontend.qonnx import DOMAINS, QonnxRewriter
from nmpconv.frontend.toposort import label

# Case 1: QLinearX of one or two tensors, each followed by its scale and zero point, then those of the result.
_PLAIN = {
    "com.microsoft.QLinearAdd": ("Add", 2),
    "com.microsoft.QLinearAveragePool": ("AveragePool", 1),
    "com.microsoft.QLinearGlobalAveragePool": ("GlobalAveragePool", 1),
    "com.microsoft.QLinearLeakyRelu": ("LeakyRelu", 1),
    "com.microsoft.QLinearMul": ("Mul", 2),
    "com.microsoft.QLinearSigmoid": ("Sigmoid", 1),
    "com.microsoft.QLinearSoftmax": ("Softmax", 1),
    "QLinearMatMul": ("MatMul", 2),
}
# Case 4: types of ports.
_PORTS: dict[int, type] = {
    **{TensorProto.INT8: np.int8, TensorProto.UINT8: np.uint8},
    **{TensorProto.INT16: np.int16, TensorProto.UINT16: np.uint16},
}
# Operators whose results are among the numbers of their inputs, or between them: integers stay on their grid.
MOVES = {
    *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity", "MaxPool", "Reshape"),
    *("Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}
# Case 6: the inputs that are integers; (), all of them.
_CHOICES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("ArgMax", "ArgMin", "ReduceMax", "ReduceMin", "TopK"), (0,)),
    **dict.fromkeys(("Concat", "Max", "Min"), ()),
    **{"Pad": (0, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2), "Where": (1, 2)},
}
_INDICES = ("ArgMax", "ArgMin")  # of these, those whose results are no integers of the grid
_OTHERS = {
    "ConvInteger": "_conv_integer",
    "DynamicQuantizeLinear": "_dynamic",
    "MatMulInteger": "_matmul_integer",
    "QLinearConv": "_conv",
    "com.microsoft.DynamicQuantizeLSTM": "_lstm",
    "com.microsoft.DynamicQuantizeMatMul": "_dynamic_matmul",
    "com.microsoft.MatMulIntegerToFloat": "_matmul_to_float",
    "com.microsoft.MatMulNBits": "_matmul_of_blocks",
    "com.microsoft.QAttention": "_attention",
    "com.microsoft.QGemm": "_gemm",
    "com.microsoft.QLinearConcat": "_concat",
    "com.microsoft.QLinearWhere": "_choice",
}
_OTHERS |= {f"{domain}.{kind}": f"_{kind.lower()}" for domain in DOMAINS for kind in ("Quant", "BipolarQuant")}
KINDS = (*_PLAIN, *_OTHERS)  # op types that are rewritten
_ROUNDING = ("Cast", "Floor", "Round")  # of biases to the grid of each input
_EXACT = ("com.microsoft.MatMulNBits",)  # those that round no activation


def rewrite(graph: onnx.GraphProto, where: str) -> None:
    """Rewrites the nodes of the graph in place."""
    _operators(graph, where)
    ports = [output for output in graph.output if output.type.tensor_type.elem_type in _PORTS]
    if ports:
        writer = _Writer(graph, where)
        writer.index(graph.node)
        for output in ports:
            writer.port(output)


def fill_places(graph: onnx.GraphProto) -> None:
    """Names the places of zero points that are left out at the end: onnxruntime 1.32 ends the process that opens a
    QLinearLeakyRelu or a QLinearSigmoid without one."""
    for node in graph.node:
        _, tensors = _PLAIN.get(_kind(node), ("", 0))
        if tensors:
            node.input.extend([""] * (3 * tensors + 2 - len(node.input)))


def is_quantized(graph: onnx.GraphProto) -> bool:
    """Checks for operators that round activations."""
    return any(
        _kind(node) == "QuantizeLinear" or _kind(node) in KINDS for node in graph.node if _kind(node) not in _EXACT
    )


def _operators(graph: onnx.GraphProto, where: str) -> None:
    """Cases 1 to 3, 5 and 6."""
    if not any(_kind(node) in (*KINDS, "QuantizeLinear") for node in graph.node):
        return
    writer = _Writer(graph, where)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        writer.note(node)
        make = writer.maker(node)
        if make is None:
            nodes.append(node)
            continue
        writer.begin(node)
        try:
            make(node)
        except (IndexError, ValueError) as error:
            raise InputError(f"{label(node)} is malformed: {error}", where=where) from error
        nodes += writer.nodes
    del graph.node[:]
    graph.node.extend(nodes)


def _kind(node: onnx.NodeProto) -> str:
    return str(node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}")


class _Writer(QonnxRewriter):
    def __init__(self, graph: onnx.GraphProto, where: str) -> None:
        super().__init__(graph, where)
        self._makers: dict[str, onnx.NodeProto] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        self._dynamic_reals: set[str] = set()  # results of case 2
        self._dynamic_scales: set[str] = set()  # of these, times constants
        self._dynamic_biases: set[str] = set()
        self._grids: dict[str, Sequence[str]] = {}  # scale and zero point of integers, by name

    def maker(self, node: onnx.NodeProto) -> Callable[[onnx.NodeProto], None] | None:
        """Returns the function that rewrites this node, if any does."""
        name = "_plain" if _kind(node) in _PLAIN else _OTHERS.get(_kind(node))
        if _kind(node) in _CHOICES and self._grid(node):
            name = "_choice_of_integers"
        if node.op_type == "DequantizeLinear" and self._dynamic_reals.intersection(node.input[:1]):
            name = "_same"
        if node.op_type in _ROUNDING and self._dynamic_biases.issuperset(node.output) and len(node.output) == 1:
            name = "_same"
        return getattr(self, name) if name else None

    def note(self, node: onnx.NodeProto) -> None:
        """Notes grids of integers, reals of case 2 that are moved, and steps of Cast(Floor(bias / (scale of case 2 *
        scale of weights))) behind the scale."""
        if node.op_type == "QuantizeLinear":
            self.begin(node)
            dtype = next((a.i for a in node.attribute if a.name == "output_dtype"), 0)
            if grid := self._plain_grid(node.input[1:], _PORTS.get(dtype or TensorProto.UINT8)):
                self._grids[node.output[0]] = grid
        elif node.op_type in MOVES and (moved := self._grids.keys() & _moved(node)):
            self._grids |= dict.fromkeys(node.output, self._grids[min(moved)])
        elif node.op_type in MOVES and self._dynamic_reals.issuperset(_moved(node)):
            self._dynamic_reals.update(node.output)
        scales, biases = self._dynamic_scales, self._dynamic_biases
        if node.op_type == "Mul" and scales.intersection(node.input):
            if all(name in scales or name in self._tensors for name in node.input):
                scales.update(node.output)
            return
        steps = node.op_type == "Div" and scales.intersection(node.input[1:]) and node.input[0] in self._tensors
        if steps or (node.op_type in _ROUNDING and biases.intersection(node.input)):
            biases.update(node.output)

    def _plain_grid(self, grid: Sequence[str], dtype: Any) -> Sequence[str]:
        """One scale, and a zero point, written in this type where there is none; () for any other grid."""
        scale, zero = (*grid, "", "")[:2]
        if not self._is_number(scale):
            return ()
        if not zero and dtype is not None:
            zero = self._const(np.zeros((), dtype))
        return (scale, zero) if self._is_number(zero) else ()

    def _is_number(self, name: str) -> bool:
        """Checks for a constant of one element."""
        return name in self._tensors and self._array(name).size == 1

    # -- case 1 -------------------------------------------------------------------------------------------------------

    def _plain(self, node: onnx.NodeProto) -> None:
        op, count = _PLAIN[_kind(node)]
        inputs = [self._real(*node.input[3 * i : 3 * i + 3]) for i in range(count)]
        attributes = {
            name: value for name, value in self._attributes().items() if name not in ("opset", "channels_last")
        }
        if self._attributes().get("channels_last"):
            raise ValueError("channels_last")
        self._quantized(self._add(op, inputs, **attributes), node.input[3 * count :])

    def _conv(self, node: onnx.NodeProto) -> None:
        x, xs, xz, w, ws, wz, ys, yz, *bias = node.input
        inputs = [self._real(x, xs, xz), self._real(w, ws, wz, axis=0)]
        if bias and bias[0]:
            inputs.append(self._bias(bias[0], xs, ws))
        self._quantized(self._add("Conv", inputs, **self._attributes()), (ys, yz))

    def _gemm(self, node: onnx.NodeProto) -> None:
        a, as_, az, b, bs, bz, *more = node.input
        c, ys, yz = (*more, "", "", "")[:3]
        attributes = self._attributes()
        axis = 0 if attributes.get("transB") else 1
        inputs = [self._real(a, as_, az), self._real(b, bs, bz, axis=axis)]
        if c:
            inputs.append(self._bias(c, as_, bs))
        y = self._add("Gemm", inputs, output="" if ys else node.output[0], **attributes)
        if ys:
            self._quantized(y, (ys, yz))

    def _concat(self, node: onnx.NodeProto) -> None:
        ys, yz, *rest = node.input
        parts = [self._real(*rest[i : i + 3]) for i in range(0, len(rest), 3)]
        self._quantized(self._add("Concat", parts, **self._attributes()), (ys, yz))

    def _choice(self, node: onnx.NodeProto) -> None:
        condition, x, xs, xz, y, ys, yz, *grid = node.input
        self._quantized(self._add("Where", [condition, self._real(x, xs, xz), self._real(y, ys, yz)]), grid)

    def _quantized(self, y: str, grid: Sequence[str]) -> None:
        """Without a zero point, its integers have the type of those that it is made of."""
        names = (self._grids.get(name, ("", name))[1] for name in self._node.input)
        dtypes = (self._array(name).dtype for name in names if name in self._tensors)
        plain = self._plain_grid(grid, next((dtype for dtype in dtypes if dtype in _PORTS.values()), np.uint8))
        if plain:
            self._grids[self._node.output[0]] = plain
        self._add("QuantizeLinear", [y, *(plain or grid)], output=self._node.output[0])

    def _bias(self, name: str, x_scale: str, w_scale: str) -> str:
        """int32 on the product of two scales."""
        scale = self._array(x_scale).astype(np.float64) * self._array(w_scale)
        return self._const((self._array(name) * scale).astype(np.float32))

    def _real(self, name: str, scale: str, zero: str = "", axis: int | None = None) -> str:
        """The reals that integers stand for. axis: of the scales of a constant, where there are several."""
        if name not in self._tensors:
            return self._add("DequantizeLinear", [name, scale, *([zero] if zero else [])])
        data, s = self._array(name), self._array(scale).astype(np.float64)
        z = self._array(zero).astype(np.float64) if zero else np.zeros(())
        if axis is not None:
            s, z = (_along(a, data.ndim, axis) for a in (s, z))
        return self._const(((data - z) * s).astype(np.float32))

    # -- cases 2 and 3 ------------------------------------------------------------------------------------------------

    def _dynamic(self, node: onnx.NodeProto) -> None:
        y, scale, zero = node.output
        self._add("Identity", [node.input[0]], output=y)
        self._tensors[scale] = numpy_helper.from_array(np.float32(1), scale)
        self._tensors[zero] = numpy_helper.from_array(np.uint8(0), zero)
        self._graph.initializer.extend([self._tensors[scale], self._tensors[zero]])
        self._dynamic_reals.add(y)
        self._dynamic_scales.add(scale)

    def _same(self, node: onnx.NodeProto) -> None:
        self._add("Identity", [node.input[0]], output=node.output[0])

    def _matmul_integer(self, node: onnx.NodeProto) -> None:
        a, b, *zeros = node.input
        az, bz = (*zeros, "", "")[:2]
        sides = [self._less_zero(a, az, -2), self._less_zero(b, bz, -1)]
        self._add("MatMul", sides, output=node.output[0])

    def _conv_integer(self, node: onnx.NodeProto) -> None:
        x, w, *zeros = node.input
        xz, wz = (*zeros, "", "")[:2]
        self._add(
            "Conv", [self._less_zero(x, xz), self._less_zero(w, wz, 0)], output=node.output[0], **self._attributes()
        )

    def _matmul_to_float(self, node: onnx.NodeProto) -> None:
        a, b, as_, bs, *more = node.input
        az, bz, bias = (*more, "", "", "")[:3]
        self._scaled(self._less_zero(a, az), self._less_zero(b, bz, -1), [as_, bs], bias)

    def _matmul_of_blocks(self, node: onnx.NodeProto) -> None:
        """Weights [N,blocks,bytes]: integers of 2, 4 or 8 bits, the first in a byte's low bits."""
        x, packed, scales, *more = node.input
        zeros, order, bias = (*more, "", "", "")[:3]
        attributes = self._attributes()
        columns, size, bits = attributes["N"], attributes["block_size"], attributes.get("bits", 4)
        if order or bits not in (2, 4, 8) or size < 1:
            raise ValueError("g_idx, a block of no elements, or other bits than 2, 4 and 8")
        blocks = -(-attributes["K"] // size)
        q = _unpacked(self._array(packed).reshape(columns, -1), bits)[:, : blocks * size]
        zero = np.full((columns, blocks), 2.0 ** (bits - 1))
        if zeros:
            array = self._array(zeros).reshape(columns, -1)
            zero = (_unpacked(array, bits) if array.dtype == np.uint8 else array.astype(np.float64))[:, :blocks]
        scale = self._array(scales).astype(np.float64).reshape(columns, blocks, 1)
        real = (q.reshape(columns, blocks, size) - zero[..., np.newaxis]) * scale
        weights = self._const(real.reshape(columns, -1)[:, : attributes["K"]].T.astype(np.float32))
        y = self._add("MatMul", [x, weights], output="" if bias else node.output[0])
        if bias:
            self._add("Add", [y, bias], output=node.output[0])

    def _dynamic_matmul(self, node: onnx.NodeProto) -> None:
        a, b, bs, *more = node.input
        bz, bias = (*more, "", "")[:2]
        self._scaled(a, self._less_zero(b, bz, -1), [bs], bias)

    def _lstm(self, node: onnx.NodeProto) -> None:
        """Weights [directions, inputs, 4 * states], the other way round than those of LSTM."""
        x, w, r, b, lengths, h, c, p, *grids = node.input
        weights = []
        for name, scale, zero in zip((w, r), grids[::2], grids[1::2], strict=True):
            s, z = (self._array(n).astype(np.float64) for n in (scale, zero))
            s, z = (a.reshape(a.shape[0], 1, -1) for a in (s, z))
            weights.append(self._const(((self._array(name) - z) * s).transpose(0, 2, 1).astype(np.float32)))
        inputs = [x, *weights, b, lengths, h, c, p]
        self.nodes.append(helper.make_node("LSTM", inputs, node.output, node.name, **self._attributes()))

    def _attention(self, node: onnx.NodeProto) -> None:
        x, w, bias, xs, ws, *more = node.input
        mask, xz, wz, past = (*more, "", "", "", "")[:4]
        real = x if x in self._dynamic_reals else self._real(x, xs, xz)
        inputs = [real, self._real(w, ws, wz, axis=1), bias, mask, past]
        attributes = {"domain": node.domain, **self._attributes()}
        self.nodes.append(helper.make_node("Attention", inputs, node.output, node.name, **attributes))

    def _scaled(self, a: str, b: str, scales: Iterable[str], bias: str) -> None:
        y = self._add("MatMul", [a, b])
        *first, last = scales
        for scale in first:
            y = self._add("Mul", [y, scale])
        y = self._add("Mul", [y, last], output="" if bias else self._node.output[0])
        if bias:
            self._add("Add", [y, bias], output=self._node.output[0])

    def _less_zero(self, name: str, zero: str, axis: int | None = None) -> str:
        """Integers less their zero point, as reals; those of case 2 are that already."""
        if name in self._tensors:
            z = self._array(zero).astype(np.float64) if zero else np.zeros(())
            data = self._array(name)
            z = z if axis is None else _along(z, data.ndim, axis % data.ndim)
            return self._const((data - z).astype(np.float32))
        if name in self._dynamic_reals or not zero:
            return name
        x = self._add("Cast", [name], to=TensorProto.FLOAT)
        return self._add("Sub", [x, self._add("Cast", [zero], to=TensorProto.FLOAT)])

    # -- case 4 -------------------------------------------------------------------------------------------------------

    def port(self, output: onnx.ValueInfoProto) -> None:
        """Appends what makes reals of an output, where it is what QuantizeLinear made, or moved from that."""
        name, dtype = output.name, _PORTS[output.type.tensor_type.elem_type]
        if not self._is_quantized(name):
            return
        maker, readers = self._makers.pop(name), self._readers.pop(name, [])
        self.begin(maker)
        renamed = self._fresh("integers")
        maker.output[:] = [renamed if x == name else x for x in maker.output]
        for node in readers:
            node.input[:] = [renamed if x == name else x for x in node.input]
        self._makers[renamed], self._readers[renamed] = maker, readers
        grid = self._const(np.float32(1)), self._const(np.zeros((), dtype))
        self._add("DequantizeLinear", [self._counted(renamed, grid), *grid], output=name)
        self._graph.node.extend(self.nodes)
        self.index(self._graph.node[-len(self.nodes) :])
        output.type.tensor_type.elem_type = TensorProto.FLOAT

    def index(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Notes the makers and the readers of tensors, which `port` asks for."""
        for node in nodes:
            self._makers |= dict.fromkeys(node.output, node)
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node)

    def _is_quantized(self, name: str) -> bool:
        node = self._makers.get(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            return False
        if node.op_type == "QuantizeLinear":
            return all(map(self._is_number, node.input[1:]))
        return node.op_type in MOVES and all(map(self._is_quantized, _moved(node)))

    def _counted(self, name: str, grid: tuple[str, str]) -> str:
        """The same numbers on the grid of scale 1: x / scale + zero point is quantized, and moved as it was."""
        node = self._makers[name]
        if node.op_type != "QuantizeLinear":
            copy = onnx.NodeProto.FromString(node.SerializeToString())
            copies = {x: self._counted(x, grid) for x in _moved(node)}
            copy.input[:] = [copies.get(x, x) for x in node.input]
            copy.output[:] = [self._fresh(node.op_type) if x else "" for x in node.output]
            self.nodes.append(copy)
            return str(copy.output[list(node.output).index(name)])
        steps = self._add("Div", [node.input[0], node.input[1]])
        if len(node.input) > 2 and node.input[2] and self._array(node.input[2]).any():
            steps = self._add("Add", [steps, self._const(self._array(node.input[2]).astype(np.float32))])
        return self._add("QuantizeLinear", [steps, *grid])

    # -- case 6 -------------------------------------------------------------------------------------------------------

    def _integers(self, node: onnx.NodeProto) -> list[int]:
        """Returns the places of the inputs that are integers, of a grid or constant."""
        places = _CHOICES[_kind(node)] or range(len(node.input))
        return [i for i in places if i < len(node.input) and node.input[i]]

    def _grid(self, node: onnx.NodeProto) -> Sequence[str]:
        """The one grid of its integers; () where there are several, or a Concat has no constants."""
        names = [node.input[i] for i in self._integers(node)]
        grids = [self._grids[name] for name in names if name in self._grids]
        known = all(name in self._grids or name in self._tensors for name in names)
        if not known or not grids or (_kind(node) == "Concat" and len(grids) == len(names)):
            return ()
        ends = {tuple(self._array(name).item() for name in grid) for grid in grids}
        return grids[0] if len(ends) == 1 else ()

    def _choice_of_integers(self, node: onnx.NodeProto) -> None:
        grid, attributes, inputs = self._grid(node), self._attributes(), list(node.input)
        if node.op_type == "Pad" and attributes.get("mode", b"constant") == b"constant" and not inputs[2:3] > [""]:
            inputs[2:3] = [self._const(np.zeros((), np.int8))]
        for i in self._integers(helper.make_node(node.op_type, inputs, [])):
            inputs[i] = self._real(inputs[i], grid[0], grid[1])
        if node.op_type in _INDICES:
            self._add(node.op_type, inputs, output=node.output[0], **attributes)
            return
        y = self._add(node.op_type, inputs, **attributes)
        self.nodes[-1].output.extend(node.output[1:])
        self._quantized(y, grid)


def _unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """[rows, bytes] as [rows, numbers], the first number in a byte's low bits."""
    shifts = np.arange(0, 8, bits)
    return ((data[..., np.newaxis] >> shifts) & (2**bits - 1)).reshape(len(data), -1).astype(np.float64)


def _moved(node: onnx.NodeProto) -> list[str]:
    """The inputs of one of `MOVES` that its results are made of."""
    return list(node.input if node.op_type == "Concat" else node.input[:1])


def _along(numbers: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """One number for each index of an axis, to be broadcast to this rank."""
    return numbers if numbers.size == 1 else numbers.reshape([-1 if i == axis else 1 for i in range(rank)])
