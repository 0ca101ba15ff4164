"""Models whose ops `costs.py` counts: each op alone, from inputs of its own to an output, at many shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.ops.common.case import Operand, fed, grid, single
from nmpconv.ops.sum_lookup import SumLookup, SumLookupParams
from nmpconv.runtime.costs import FEW

OPSET = 17
# Channels in and out, size of the kernel, height and width of the input, and what else a Conv says.
DENSE: Sequence[tuple[int, int, int, int, int, Mapping[str, Any]]] = (
    (3, 16, 3, 32, 32, {"pads": [1, 1, 1, 1]}),
    (3, 8, 3, 48, 48, {"pads": [0, 0, 1, 1], "strides": [2, 2]}),
    (3, 24, 5, 24, 24, {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
    (1, 32, 5, 20, 10, {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
    (16, 16, 3, 16, 16, {"pads": [1, 1, 1, 1]}),
    (16, 32, 3, 16, 16, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (32, 32, 3, 12, 12, {"pads": [1, 1, 1, 1]}),
    (64, 64, 3, 6, 6, {"pads": [1, 1, 1, 1]}),
    (96, 48, 3, 4, 4, {"pads": [1, 1, 1, 1]}),
    (8, 12, 3, 20, 20, {"pads": [1, 1, 1, 1]}),
    (5, 7, 3, 14, 14, {"pads": [1, 1, 1, 1]}),
    (20, 20, 5, 10, 10, {"pads": [2, 2, 2, 2]}),
    (12, 12, 3, 16, 16, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    (16, 24, 3, 12, 12, {"pads": [1, 1, 1, 1], "group": 4}),
    (32, 32, 3, 8, 8, {"pads": [1, 1, 1, 1], "group": 2}),
    (64, 64, 3, 6, 6, {"pads": [1, 1, 1, 1], "group": 16}),
    (24, 48, 1, 12, 12, {"group": 3}),
    (48, 24, 1, 10, 10, {"group": 4}),
    (32, 32, 3, 12, 12, {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 8}),
    (16, 48, 5, 8, 8, {"pads": [2, 2, 2, 2], "group": 2}),
    (6, 12, 3, 16, 16, {"pads": [1, 1, 1, 1], "group": 6}),
    (16, 16, 1, 24, 24, {}),
    (8, 24, 1, 24, 24, {}),
    (24, 144, 1, 10, 10, {}),
    (144, 24, 1, 10, 10, {}),
    (32, 64, 1, 12, 12, {}),
    (64, 64, 1, 12, 12, {}),
    (64, 64, 1, 25, 5, {}),
    (128, 128, 1, 6, 6, {}),
    (256, 256, 1, 3, 3, {}),
    (192, 32, 1, 7, 7, {}),
    (40, 60, 1, 9, 9, {}),
    (13, 10, 1, 15, 15, {}),
    (16, 32, 1, 16, 16, {"strides": [2, 2]}),
    (32, 64, 1, 16, 16, {"strides": [2, 2]}),
    (64, 18, 1, 8, 8, {}),
    (48, 3, 1, 16, 16, {}),
    (64, 32, 1, 1, 1, {}),
    (16, 96, 1, 1, 1, {}),
    (16, 32, 5, 5, 5, {}),
    (64, 64, 3, 3, 3, {}),
    (64, 32, 1, 2, 2, {"strides": [2, 2]}),
    (16, 16, 1, 1, 8, {}),
    (8, 6, 1, 2, 3, {}),
    (4, 8, 3, 3, 3, {"pads": [1, 1, 1, 1]}),
    (8, 8, 3, 4, 4, {}),
    (4, 4, 3, 3, 3, {"pads": [1, 1, 1, 1], "group": 2}),
)
DEPTHWISE: Sequence[tuple[int, int, int, int, Mapping[str, Any]]] = (
    (8, 3, 48, 48, {"pads": [1, 1, 1, 1]}),
    (16, 3, 24, 24, {"pads": [1, 1, 1, 1]}),
    (64, 3, 25, 5, {"pads": [1, 1, 1, 1]}),
    (128, 3, 6, 6, {"pads": [1, 1, 1, 1]}),
    (256, 3, 3, 3, {"pads": [1, 1, 1, 1]}),
    (30, 3, 12, 12, {"pads": [1, 1, 1, 1]}),
    (5, 3, 12, 12, {"pads": [1, 1, 1, 1]}),
    (3, 3, 24, 24, {"pads": [1, 1, 1, 1]}),
    (2, 5, 20, 20, {"pads": [2, 2, 2, 2]}),
    (2, 3, 12, 12, {}),
    (3, 3, 32, 32, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (2, 7, 10, 10, {"pads": [3, 3, 3, 3]}),
    (2, 1, 12, 12, {}),
    (32, 3, 12, 12, {}),
    (16, 3, 48, 48, {"pads": [0, 0, 1, 1], "strides": [2, 2]}),
    (64, 3, 12, 12, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (144, 3, 9, 9, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (24, 5, 16, 16, {"pads": [2, 2, 2, 2]}),
    (72, 5, 8, 8, {"pads": [2, 2, 2, 2]}),
    (48, 5, 14, 14, {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
    (16, 7, 12, 12, {"pads": [3, 3, 3, 3]}),
    (6, 5, 12, 12, {"pads": [2, 2, 2, 2]}),
    (32, 1, 12, 12, {}),
    (64, 1, 5, 5, {}),
    (40, 5, 10, 10, {"pads": [4, 4, 4, 4], "dilations": [2, 2]}),
    (24, 7, 9, 9, {"pads": [3, 3, 3, 3]}),
    (96, 5, 4, 4, {"pads": [2, 2, 2, 2]}),
    (20, 3, 11, 11, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
)
FULLY = (
    (640, 128),
    (128, 128),
    (128, 8),
    (8, 128),
    (64, 10),
    (256, 2),
    (100, 37),
    (33, 17),
    (512, 64),
    (16, 4),
    (256, 256),
)
TRANSPOSED: Sequence[tuple[int, int, int, int, Mapping[str, Any]]] = (
    (16, 16, 2, 12, {"strides": [2, 2]}),
    (32, 16, 4, 8, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (8, 8, 3, 12, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (24, 12, 3, 8, {"pads": [1, 1, 1, 1]}),
    (16, 32, 2, 6, {"strides": [2, 2]}),
    (4, 4, 4, 10, {"strides": [4, 4]}),
    (12, 20, 5, 9, {"pads": [2, 2, 2, 2]}),
    (48, 24, 3, 5, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (6, 10, 2, 16, {"strides": [2, 2]}),
    (64, 64, 2, 4, {"strides": [2, 2]}),
    (8, 3, 4, 14, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (20, 20, 1, 10, {}),
    (4, 6, 2, 2, {"strides": [2, 2]}),
    (3, 4, 3, 2, {"pads": [1, 1, 1, 1]}),
)
SHAPES = ((1, 16, 16, 16), (1, 32, 8, 8), (1, 8, 24, 24), (1, 64, 1, 1), (1, 3, 40, 40), (1, 96, 5, 5), (1, 10, 1, 1))
SMALL = ((1, 16, 12, 12), (1, 32, 6, 6), (1, 8, 20, 20), (1, 60, 4, 4))
# Of few elements, where most instructions are those of a call.
TINY = ((1, 4, 2, 2), (1, 6, 3, 2), (1, 16, 2, 2))
LINES = ((1, 8), (1, 32), (1, 6, 8), (1, 3, 4))


# Operands of element-wise ops: alike, an operand for each channel, and one for all of them.
PAIRS = (
    ((1, 16, 16, 16), (1, 16, 16, 16)),
    ((1, 8, 8, 64), (1, 8, 8, 64)),
    ((1, 1, 1, 96), (1, 1, 1, 96)),
    ((1, 5, 5, 12), (1, 5, 5, 12)),
    ((1, 16, 16, 16), (16,)),
    ((1, 8, 8, 64), (1, 1, 1, 64)),
    ((1, 4, 4, 160), (1, 1, 1, 160)),
    ((1, 20, 20, 6), (6,)),
    ((1, 3, 7, 33), (33,)),
    ((1, 16, 16, 16), (1,)),
    ((1, 8, 8, 64), (1, 8, 8, 1)),
    ((1, 20, 20, 6), (1, 20, 20, 1)),
    ((1, 5, 5, 12), (1, 5, 1, 1)),
    ((1, 8), (1, 8)),
    ((1, 2, 3), (1, 2, 3)),
    ((1, 8, 3), (3,)),
    ((1, 2, 8), (8,)),
    ((1, 8), (1,)),
    ((1, 4, 6), (1, 4, 1)),
)
PAIR_WIDTHS = ((8, 8, 8), (8, 8, 16), (8, 16, 16), (16, 16, 8), (16, 16, 16))  # the others are like the next wider ones
# Exponents of operands and results by op: with and without a shift.
ALIGNED = ((-6, -5, -5), (-6, -6, -6))
COMBINED: Mapping[str, Sequence[tuple[int, int, int]]] = {
    **dict.fromkeys(("add", "sub", "maximum", "minimum"), ALIGNED),
    **dict.fromkeys(("equal", "greater"), ((-6, -5, 0),)),
    **dict.fromkeys(("mul", "mul_offset"), ((-6, -5, -5),)),
    "divide": ((-6, -5, -4),),
}

# x, indices and axis of a GatherElements.
CHOSEN: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...] = (
    ((1, 200), (1, 20), 1),
    ((1, 200), (1, 150), 1),
    ((1, 50, 4), (1, 30, 1), 1),
    ((1, 50, 4), (1, 200, 1), 1),
    ((1, 50, 20), (1, 30, 1), 1),
    ((1, 20, 80), (1, 60, 1), 1),
    ((1, 30, 12), (1, 20, 12), 1),
    ((6, 10, 8), (6, 20, 1), 1),
    ((6, 10, 8), (6, 10, 3), 2),
    ((1, 8), (1, 2), 1),
    ((1, 5, 4), (1, 2, 1), 1),
    ((1, 5, 4), (1, 1, 4), 1),
)


# Rows, inputs and outputs of a sum, and groups.
SUMS = (
    (20, 80, 12, 1),
    (5, 258, 20, 1),
    (1, 400, 7, 1),
    (30, 64, 32, 32),
    (12, 30, 10, 10),
    (9, 50, 1, 1),
    (1, 8, 2, 1),
    (2, 6, 3, 1),
)


class Ops:
    """A model that grows op by op. Where more than one op comes of an ONNX node, all of them are counted."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[int, ...]] = {}

    def add(self, kind: str, shapes: Sequence[tuple[int, ...]], *constants: np.ndarray, **attributes: Any) -> str:
        """Computed operands first. Returns the name of the result."""
        number = len(self._nodes)
        names = [f"x{number}.{i}" for i in range(len(shapes))]
        self.inputs.update(zip(names, shapes, strict=True))
        for i, data in enumerate(constants):
            self._constants.append(numpy_helper.from_array(data, f"c{number}.{i}"))
            names.append(f"c{number}.{i}")
        self._nodes.append(helper.make_node(kind, names, [f"y{number}"], f"{kind}{number}", **attributes))
        return f"y{number}"

    def weights(self, *shape: int) -> np.ndarray:
        fan = max(1, int(np.prod(shape[1:])))
        return (self._rng.normal(size=shape) * (2 / fan) ** 0.5).astype(np.float32)

    def weighted(self, kind: str, x: tuple[int, ...], w: tuple[int, ...], out: int, **attributes: Any) -> None:
        """Every other one has a Relu behind it, or a Relu6's range."""
        y = self.add(kind, [x], self.weights(*w), self.weights(out) * 0.1, **attributes)
        number = len(self._nodes)
        if number % 4 < 2:
            self._nodes.append(helper.make_node("Relu", [y], [f"y{number}"]))
        elif number % 4 == 2:
            self._constants += [numpy_helper.from_array(np.float32(v), f"c{number}.{v}") for v in (0, 1)]
            self._nodes.append(helper.make_node("Clip", [y, f"c{number}.0", f"c{number}.1"], [f"y{number}"]))

    def model(self) -> onnx.ModelProto:
        read = {name for node in self._nodes for name in node.input}
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()]
        ends = [name for node in self._nodes for name in node.output if name not in read]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ends]
        graph = helper.make_graph(self._nodes, "ops", inputs, outputs, self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def weighted(seed: int) -> Ops:
    ops = Ops(seed)
    for c, o, k, h, w, attributes in DENSE:
        ops.weighted("Conv", (1, c, h, w), (o, c // attributes.get("group", 1), k, k), o, **attributes)
    for c, k, h, w, attributes in DEPTHWISE:
        ops.weighted("Conv", (1, c, h, w), (c, 1, k, k), c, group=c, **attributes)
    for c, o in FULLY:
        ops.weighted("Gemm", (1, c), (o, c), o, transB=1)
    for c, o, k, h, attributes in TRANSPOSED:
        ops.weighted("ConvTranspose", (1, c, h, h), (c, o, k, k), o, **attributes)
    return ops


def others(seed: int) -> Ops:
    """Every op without weights."""
    ops = Ops(seed)
    for s in (*SHAPES, *TINY):
        ops.add("Sigmoid", [s])
        ops.add("Relu", [s])
        ops.add("GlobalAveragePool", [s])
        ops.add("Softmax", [(1, s[1] * 4)], axis=1)
        ops.add("Softmax", [(1, s[2] * s[3], s[1])], axis=2)
        ops.add("Reshape", [s], np.array([1, -1]))
    for groups, rows, length in product((1, 8), (3, 4, 20, 200), (1, 2, 17, 128)):
        ops.add("Gather", [(1, groups, rows, length)], (3 * np.arange(rows) + 1) % rows, axis=2)
    for s in (*SMALL, *TINY):
        c, h, w = s[1:]
        plane = np.array([1, c, h * w])
        ops.add("MaxPool", [s], kernel_shape=[2, 2], strides=[2, 2])
        ops.add("MaxPool", [s], kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
        ops.add("AveragePool", [s], kernel_shape=[2, 2], strides=[2, 2])
        ops.add("AveragePool", [s], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        ops.add("Concat", [s, s], axis=1)
        ops.add("Concat", [s, (1, c // 2, h, w), s], axis=1)
        ops.add("Concat", [s, s], axis=2)
        ops.add("Pad", [s], np.array([0, 0, 1, 1, 0, 0, 1, 1]))
        ops.add("Slice", [s], np.array([0, 0, 1, 1]), np.array([1, c, h, w]))
        ops.add("Slice", [s], np.array([0]), np.array([c // 2]), np.array([1]))
        ops.add("Transpose", [s], perm=[0, 2, 3, 1])
        ops.add("Transpose", [s], perm=[0, 1, 3, 2])
        ops.add("Resize", [s], np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32), mode="nearest")
        ops.add("Resize", [s], np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32), mode="linear")
        ops.add("LRN", [s], size=5)
        ops.add("InstanceNormalization", [s], np.ones(c, np.float32), np.zeros(c, np.float32))
        ops.add("ArgMax", [s], axis=1)
        ops.add("MatMul", [(1, h, w), (1, w, c)])
        ops.add("MatMul", [(1, h * w, c), (1, c, h * w // 4)])
        ops.add("CumSum", [s], np.array(1))
        ops.add("Gather", [s], np.arange(c)[::-1].copy(), axis=1)
        ops.add("Gather", [s], np.arange(w)[::-1].copy(), axis=3)
        ops.add("GridSample", [s, (1, h, w, 2)])
        ops.add("Reshape", [s], plane)
    for s in LINES:
        rank, n, last = len(s), s[-1], np.array([-1])
        ops.add("Sigmoid", [s])
        ops.add("Softmax", [s], axis=-1)
        ops.add("Slice", [s], np.array([n // 4]), np.array([n // 2]), last)
        ops.add("Slice", [s], np.array([0]), np.array([n - 1]), last)
        ops.add("Concat", [s, s], axis=-1)
        ops.add("Concat", [s, s, (*s[:-1], 1)], axis=-1)
        ops.add("Pad", [s], np.array([*[0] * (rank - 1), 2, *[0] * rank]))
        ops.add("CumSum", [s], np.array(-1))
        ops.add("Gather", [s], np.array([n - 1, 0, 1]), axis=-1)
        ops.add("Transpose", [(1, n, s[1])], perm=[0, 2, 1])
        ops.add("MatMul", [(1, s[-2], 4), (1, 4, n)])
    return ops


def pairs(kind: str) -> Graph:
    """An op of two operands."""
    graphs, op = [], OPS[kind]
    widths = ((8, 8, 8), (8, 16, 8)) if kind == "mul_offset" else PAIR_WIDTHS
    for i, (bits, (a, b), exponents) in enumerate(product(widths, PAIRS, COMBINED[kind])):
        operands = [fed(f"{i}a", a, bits[0], exponents[0]), fed(f"{i}b", b, bits[1], exponents[1])]
        graphs.append(single(op, kind, op.Params(), operands, grid(bits[2], exponents[2])).graph)
    return _together(kind, graphs)


def chosen() -> Graph:
    """Elements and rows at computed places; of the axis that they are chosen from the length does not matter."""
    graphs, op = [], OPS["gather_elements"]
    for i, (bits, (x, index, axis)) in enumerate(product(product((8, 16), repeat=2), CHOSEN)):
        operands = [fed(f"{i}x", x, bits[0], 0), fed(f"{i}i", index, bits[1], 0)]
        graphs.append(single(op, op.name, op.Params(axis), operands, grid(bits[0], 0)).graph)
    return _together(op.name, graphs)


def sums() -> Graph:
    """Logarithms of weighted squares; half of the weights are 0."""
    graphs, op, noise = [], SumLookup(), np.random.default_rng(0)
    for i, (bits, (rows, k, o, groups)) in enumerate(product(product((8, 16), repeat=2), SUMS)):
        weights = noise.random((o, k // groups)) * (noise.random((o, k // groups)) < 0.5)
        operands = [fed(f"{i}x", (rows, k), bits[0], -8), Operand(weights, grid(32, 0), const=True)]
        params = SumLookupParams("log", squared=True, groups=groups)
        graphs.append(single(op, op.name, params, operands, grid(bits[1], 5 - bits[1]), quantize=True).graph)
    return _together(op.name, graphs)


def added() -> Graph:
    """Dense convolutions of one group, each with the other operand of a sum; half of them have light weights.

    None has so few pixels that kernels take them one by one: there is no row for that.
    """
    graphs, op, conv, noise = [], OPS["conv_add"], OPS["conv2d"], np.random.default_rng(0)
    shapes = [shape for shape in DENSE if "group" not in shape[5] and shape[3] * shape[4] > 1]
    for i, (c, o, k, h, w, attributes) in enumerate(shapes):
        (top, left, bottom, right), stride = attributes.get("pads", (0,) * 4), attributes.get("strides", (1,))[0]
        dilation = attributes.get("dilations", (1,))[0]
        params = op.Params(stride, stride, dilation, dilation, top, left, bottom, right)
        x, bias = fed(f"{i}x", (1, h, w, c), 8, 0), Operand(noise.integers(-9, 9, o), grid(8, 9), const=True)
        most = (127, 31)[i // 3 % 2]
        weights = Operand(noise.integers(-most, most + 1, (o, k, k, c)), grid(8, 0), const=True)
        y = single(conv, "y", params, [x, weights, bias], grid(8, 9)).graph["y"].shape
        if prod(y[:-1]) < max(FEW.values()):
            continue
        clips = ({}, {"lo": 0}, {"lo": -100, "hi": 100})[i % 3]
        operands = [fed(f"{i}r", y, 8, 9), x, weights, bias]
        graphs.append(single(op, op.name, params, operands, grid(8, 9, **clips)).graph)
    return _together(op.name, graphs)


def _together(kind: str, graphs: Sequence[Graph]) -> Graph:
    """Graphs of one node each as one graph."""
    whole = Graph(kind, (), (), (), {})
    for i, graph in enumerate(graphs):
        names = {name: f"{name}.{i}" for name in graph.values}
        (node,) = graph.nodes
        inputs, outputs = (tuple(names[name] for name in side) for side in (node.inputs, node.outputs))
        whole = replace(
            whole,
            inputs=(*whole.inputs, *(names[name] for name in graph.inputs)),
            outputs=(*whole.outputs, *(names[name] for name in graph.outputs)),
            nodes=(*whole.nodes, replace(node, name=f"{kind}{i}", inputs=inputs, outputs=outputs)),
            values={**whole.values, **{names[n]: replace(v, name=names[n]) for n, v in graph.values.items()}},
        )
    return whole
