"""Outputs of a float model on samples, and the effect of float32 rounding on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.base.memo import Once
from nmpconv.calib.engine import Engine, is_small, serialized

# Operands of these are rounded once more. The exponent of a power has to stay whole.
ROUNDED = {
    *("Add", "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "Div", "Erf", "Exp", "Gelu", "Gemm"),
    *("GlobalAveragePool", "GroupNormalization", "HardSigmoid", "HardSwish", "InstanceNormalization", "LRN"),
    *("LayerNormalization", "Log", "LogSoftmax", "MatMul", "MeanVarianceNormalization", "Mish", "Mul", "Pow"),
    *("ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare", "Resize", "Sigmoid", "Softmax", "Softplus"),
    *("Sqrt", "Sub", "Sum", "Tanh", "Upsample"),
}
# onnxruntime's own arithmetic is off by a unit of 1, or of the operand, also where results are near 0.
UNIT_OF_1 = ("Erf", "HardSigmoid", "Sigmoid", "Softmax", "Tanh")
UNIT_OF_X = ("Celu", "Elu", "Gelu", "HardSwish", "Mish", "Selu", "Softplus")
SPECTRA = ("DFT", "STFT")  # sums of a whole line: off by a unit of the largest result, also where results are 0
WRITTEN_OUT = "InstanceNormalization"  # onnxruntime takes x * s - mean * s: where these cancel, moving x moves both
FIRST_ONLY = ("Pow", "ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare", "Resize", "Upsample")
PHASES = (1.3e6, 0.7e6, 1.7e6, 0.9e6, 1.1e6, 1.9e6, 0.6e6)
FAR = 1e30  # a sine's argument stays finite, and the unit of an infinite mask
NUMBERS = {
    "~unit": 2.0**-23,
    "~least": 2.0**-99,
    "~far": FAR,
    "~-far": -FAR,
    **{f"~{i}": c for i, c in enumerate(PHASES)},
}
MIN_OPSET = 8  # of Min and Max with operands of two shapes


class Known:
    """Outputs of a float model on samples, and the effect of float32 rounding on them: each is run once, when it is
    asked for. model: makes it, with ``names`` as outputs."""

    def __init__(
        self, model: Callable[[], onnx.ModelProto], names: Sequence[str], feeds: Sequence[Mapping[str, np.ndarray]]
    ) -> None:
        def run(*, rounded: bool) -> list[dict[str, np.ndarray]]:
            proto = model()
            small = is_small(proto)
            data = serialized(rounded_more(proto) if rounded else proto)
            del proto
            engine = Engine(data, names, optimize=rounded and small)
            return [engine.run(feed) for feed in feeds]

        self.plain, self.moved = Once(partial(run, rounded=False)), Once(partial(run, rounded=True))


def rounded_more(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every float operand x of an arithmetic op is x * (1 + sin(c * x) / 2^23): 0 or 1 unit away.

    Results of functions that saturate are moved by a unit of 1, or of their operand, those of a spectrum by a unit of
    the largest: what is left of a relative error where they are near 0 says nothing. The sine stands for dice. Each use
    has another c than the one before, so that two uses of a tensor do not cancel.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _write_out(copy)
    graph = copy.graph
    floats = _float_tensors(copy)
    spectra = {node.output[0] for node in graph.node if node.op_type in SPECTRA}
    dice = Dice()
    for node in graph.node:
        own = ""
        if node.input and node.input[0] in floats:
            own = dice.unit_of_result(node)
        if node.op_type in ROUNDED:
            for i, name in enumerate(node.input[:1] if node.op_type in FIRST_ONLY else node.input):
                if name in floats:
                    node.input[i] = dice.moved(name)
        dice.nodes.append(node)
        result = node.output[0]
        is_spectrum = result in spectra or (node.op_type == "Cast" and node.input[0] in spectra)
        if own or (is_spectrum and result in floats):
            node.output[0] = f"{result}~exact"
            own = own or dice.unit_of_largest(node.output[0])
            dice.nodes.append(helper.make_node("Add", [node.output[0], own], [result]))
    del graph.node[:]
    graph.node.extend(dice.nodes)
    graph.initializer.extend(numpy_helper.from_array(np.float32(x), name) for name, x in NUMBERS.items())
    graph.initializer.append(numpy_helper.from_array(np.array([1]), "~one"))
    for entry in copy.opset_import:
        if not entry.domain:
            entry.version = max(entry.version, MIN_OPSET)
    return copy


class Dice:
    """Nodes that move tensors by a unit, or by none. nodes: those of a graph, in order."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._uses = 0

    def moved(self, name: str) -> str:
        """x * (1 + dice / 2^23)."""
        near, dice = self._thrown(name)
        return self._add("Add", name, self._add("Mul", near, self._add("Mul", dice, "~unit")))

    def unit_of_result(self, node: onnx.NodeProto) -> str:
        """A unit of 1 or of the operand, for functions whose results are off by that; "" for others."""
        if node.op_type not in (*UNIT_OF_1, *UNIT_OF_X):
            return ""
        near, dice = self._thrown(node.input[0])
        unit = self._unit(dice)
        return unit if node.op_type in UNIT_OF_1 else self._add("Mul", near, unit)

    def unit_of_largest(self, name: str) -> str:
        """A unit of the tensor's largest number."""
        largest = self._add("Reshape", self._add("ReduceMax", self._add("Abs", name)), "~one")
        return self._add("Mul", largest, self._unit(self._thrown(self._add("Add", name, largest))[1]))

    def _thrown(self, name: str) -> tuple[str, str]:
        """x within +-FAR, and the dice that it throws, in -1..1."""
        self._uses += 1
        near = self._add("Min", self._add("Max", name, "~-far"), "~far")
        return near, self._add("Sin", self._add("Mul", near, f"~{self._uses % len(PHASES)}"))

    def _unit(self, dice: str) -> str:
        """A whole one, up or down: there may be one result only."""
        return self._add("Mul", self._add("Div", dice, self._add("Max", self._add("Abs", dice), "~least")), "~unit")

    def _add(self, kind: str, *inputs: str) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"~{len(self.nodes)}.{kind}"]))
        return str(self.nodes[-1].output[0])


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    """Names of the tensors that are float32, as far as shape inference says."""
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    for value in (*inferred.value_info, *inferred.input, *inferred.output):
        types.setdefault(value.name, value.type.tensor_type.elem_type)
    return {name for name, kind in types.items() if kind == TensorProto.FLOAT}


def _write_out(model: onnx.ModelProto) -> None:
    """Replaces normalizations of planes by what they are made of, so that each step is rounded."""
    graph = model.graph
    inferred = onnx.shape_inference.infer_shapes(model).graph
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in (*inferred.value_info, *inferred.input)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type != WRITTEN_OUT or ranks.get(node.input[0], 0) < 3:
            nodes.append(node)
            continue
        x, scale, bias = node.input
        y = node.output[0]
        eps = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
        shape = np.array([-1] + [1] * (ranks[x] - 2), np.int64)
        constants = {f"{y}~eps": np.float32(eps), f"{y}~shape": shape}
        graph.initializer.extend(numpy_helper.from_array(data, name) for name, data in constants.items())
        for kind, inputs, output in (
            ("GlobalAveragePool", (x,), "~mean"),
            ("Sub", (x, f"{y}~mean"), "~near"),
            ("Mul", (f"{y}~near", f"{y}~near"), "~square"),
            ("GlobalAveragePool", (f"{y}~square",), "~var"),
            ("Add", (f"{y}~var", f"{y}~eps"), "~sum"),
            ("Sqrt", (f"{y}~sum",), "~std"),
            ("Div", (f"{y}~near", f"{y}~std"), "~unit"),
            ("Reshape", (scale, f"{y}~shape"), "~scale"),
            ("Mul", (f"{y}~unit", f"{y}~scale"), "~scaled"),
            ("Reshape", (bias, f"{y}~shape"), "~bias"),
            ("Add", (f"{y}~scaled", f"{y}~bias"), ""),
        ):
            nodes.append(helper.make_node(kind, inputs, [y + output]))
    del graph.node[:]
    graph.node.extend(nodes)
