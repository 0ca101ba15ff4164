"""Writes a TFLite model as an ONNX graph of the same layout, its tensors under their own names.

Quantized tensors are reals with QuantizeLinear and DequantizeLinear behind the operator that makes them; quantized
constants are real ones. An operator that cannot be written stays in the graph, in a domain of its own, with the reason:
the importer names it, and says where the model can be cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.errors import InputError, Unsupported
from nmpconv.frontend.tflite.model import ABSENT, Grid, Operator, Tensor, TfliteModel
from nmpconv.frontend.tflite.tflite_schema import ACTIVATIONS

DOMAIN = "tflite"  # of operators that could not be written
QUANTIZED = ("int8", "uint8", "int16")
_ELEMENTS = {
    **{"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE},
    **{"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16, "uint16": TensorProto.UINT16},
    **{"int32": TensorProto.INT32, "uint32": TensorProto.UINT32, "int64": TensorProto.INT64},
    **{"bool": TensorProto.BOOL, "string": TensorProto.STRING},
}
_HELPERS = ("Cast", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # not the node that an operator is known by
_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
Operand = str | np.ndarray | float


class Writer:
    """The ONNX graph of a model under construction. outer: of the graph around it. bound: what its inputs are there.

    Constants of inner graphs are those of the whole one, each of them once.
    """

    def __init__(
        self, model: TfliteModel, where: str, outer: Writer | None = None, bound: Sequence[str] | None = None
    ) -> None:
        self.model, self.where = model, where
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = outer.initializers if outer else []
        self.constants: dict[str, np.ndarray] = outer.constants if outer else {}  # by ONNX name
        self._is_inner = outer is not None
        self._kept: dict[object, str] = outer._kept if outer else {}  # names of constants; see `_keep`
        self.blocks: dict[int, tuple[int, ...]] = {}  # of tensors whose images are cut into blocks, see `blocks`
        self._taken: dict[str, int] = outer._taken if outer else {}  # names, and the last number behind each
        self._names = {number: self.fresh(model.tensors[number].name) for number in sorted({*model.operands()})}
        self._reals: dict[int, str] = {}  # ONNX names of tensors, as reals where they are quantized
        self._states: dict[int, str] = {}  # ports of tensors that are read of variables
        self._reals |= dict(zip(model.inputs, bound or (), strict=bound is not None))
        for number in model.inputs if bound is None else ():
            tensor, name = model.tensors[number], self._names[number]
            self._reals[number] = self._dequantized(tensor, name, name) if _is_quantized(tensor) else name

    def fresh(self, wish: str) -> str:
        """A name that no tensor has."""
        name = wish
        while name in self._taken:
            self._taken[wish] += 1
            name = f"{wish}_{self._taken[wish]}"
        self._taken[name] = 0
        return name

    def constant(self, data: np.ndarray, wish: str) -> str:
        return self._keep(data, self.fresh(wish))

    def real(self, number: int) -> str:
        """The ONNX name of a tensor; of its reals, where it is quantized."""
        if number not in self._reals:
            tensor, name = self.model.tensors[number], self._names[number]
            if tensor.data is not None:
                name = self._keep(reals_of(tensor), name)
            self._reals[number] = name
        return self._reals[number]

    def add(self, operator: Operator, nodes: Sequence[onnx.NodeProto], results: Sequence[str]) -> None:
        """Appends the nodes of an operator. results: what they call its outputs."""
        computed = {name for node in nodes for name in node.output}
        behind: list[onnx.NodeProto] = []
        rounded: dict[int, str] = {}
        for number, result in zip(operator.outputs, results, strict=True):
            tensor, name, is_end = self.model.tensors[number], self._names[number], number in self.model.outputs
            quantized = _is_quantized(tensor)
            called = self.fresh(f"{name}.real") if quantized and is_end else name
            if result in computed:
                _rename(nodes, result, called)
                computed.discard(result)
            elif quantized or is_end:
                behind.append(helper.make_node("Identity", [result], [called], called))
            else:
                called = result
            self._reals[number] = called
            if quantized:
                integers = name if is_end else self.fresh(f"{name}.quantized")
                behind.append(
                    helper.make_node("QuantizeLinear", [called, *self._grid(tensor)], [integers], f"{name}.quantized")
                )
                rounded[number] = integers
        self.nodes += [*nodes, *behind]
        for number, integers in rounded.items():
            self._reals[number] = self._dequantized(self.model.tensors[number], self._names[number], integers)

    def state(self, number: int, wish: str) -> str:
        """A port of reals for a tensor that is kept from call to call, and its name."""
        tensor, port = self.model.tensors[number], self.fresh(wish)
        if tensor.type != "float32" and not _is_quantized(tensor):
            raise Unsupported(f"a variable of {tensor.type}", hint="reals, or quantized ones")
        self._states[number] = self._reals[number] = port
        if _is_quantized(tensor):
            integers = self.fresh(f"{port}.quantized")
            self.nodes.append(helper.make_node("QuantizeLinear", [port, *self._grid(tensor)], [integers], integers))
            self._reals[number] = self._dequantized(tensor, port, integers)
        return port

    def results(self) -> list[str]:
        """Names of the model's outputs; of their reals, where they are quantized."""
        return [self.real(number) for number in self.model.outputs]

    def include(self, inner: Writer) -> None:
        """Appends what was written inside of this one."""
        self.nodes += inner.nodes

    def port(self, number: int, name: str) -> onnx.ValueInfoProto:
        """An input of an inner graph, of reals where it is quantized."""
        return self._port(number, name, TensorProto.FLOAT if _is_quantized(self.model.tensors[number]) else None)

    def share(self, number: int, other: int) -> None:
        """Makes a tensor the same as another one."""
        self._reals[number] = self.real(other)

    def refuse(self, operator: Operator, error: Unsupported) -> None:
        """Leaves the operator in the graph, for the importer to name."""
        numbers = [number for number in operator.inputs if self.model.tensors[number].type != "resource"]
        inputs = ["" if number == ABSENT else self.real(number) for number in numbers]
        outputs = [self._names[number] for number in operator.outputs]
        reason = f"{error.message}\n{error.hint}"
        self.nodes.append(
            helper.make_node(operator.kind, inputs, outputs, next(iter(outputs), ""), reason, domain=DOMAIN)
        )

    def graph(self) -> onnx.GraphProto:
        """The whole graph. An output that is an input or a constant is a copy of it, under a name of its own."""
        computed = {name for node in self.nodes for name in node.output}
        ends = dict(self._names)
        for number in dict.fromkeys(self.model.outputs):
            name = self._names[number]
            if name not in computed:
                source = name if number in self.model.inputs else self.real(number)
                ends[number] = self.fresh(f"{name}.output")
                self.nodes.append(helper.make_node("Identity", [source], [ends[number]], ends[number]))
        inputs = [self._port(number, self._names[number]) for number in self.model.inputs]
        inputs += [self._port(number, name, TensorProto.FLOAT) for number, name in self._states.items()]
        outputs = [self._port(number, ends[number]) for number in self.model.outputs]
        return helper.make_graph(self.nodes, self.model.name, inputs, outputs, self.initializers)

    def _port(self, number: int, name: str, element: int | None = None) -> onnx.ValueInfoProto:
        tensor = self.model.tensors[number]
        if element is None:
            element = _ELEMENTS.get(tensor.type, TensorProto.UNDEFINED)
        return helper.make_tensor_value_info(name, element, [None if size < 0 else size for size in tensor.shape])

    def _keep(self, data: np.ndarray, name: str) -> str:
        """Returns the constant's name: another one, where it is in an inner graph, and one of them has it already."""
        whole = np.ascontiguousarray(data)
        key = (data.dtype.str, data.shape, hashlib.sha256(whole.data).digest()) if self._is_inner else name
        if key not in self._kept:
            self._kept[key], self.constants[name] = name, data
            self.initializers.append(numpy_helper.from_array(whole.reshape(data.shape), name))
        return self._kept[key]

    def _dequantized(self, tensor: Tensor, name: str, integers: str) -> str:
        real = self.fresh(f"{name}.dequantized")
        self.nodes.append(helper.make_node("DequantizeLinear", [integers, *self._grid(tensor)], [real], real))
        return real

    def _grid(self, tensor: Tensor) -> tuple[str, str]:
        """Scale and zero point as constants."""
        grid, ends = tensor.grid, np.iinfo(tensor.type)
        assert grid is not None
        if len(grid.scales) > 1 or len(grid.zeros) > 1:
            raise InputError(f"tensor '{tensor.name}' has a scale for each channel", where=self.where, hint="one scale")
        zero = float(grid.zeros[0])
        if not ends.min <= zero <= ends.max:
            allowed = f"{ends.min} to {ends.max}"
            raise InputError(f"tensor '{tensor.name}' has zero point {zero:g}", where=self.where, hint=allowed)
        scale = self.constant(np.float32(grid.scales[0]), f"{tensor.name}.scale")
        return scale, self.constant(np.array(int(zero), tensor.type), f"{tensor.name}.zero_point")


class OperatorCall:
    """One operator, and the nodes that it is written as so far."""

    def __init__(self, operator: Operator, writer: Writer) -> None:
        self.operator, self.options, self._writer = operator, operator.options, writer
        self.nodes: list[onnx.NodeProto] = []
        self.block = self._block()  # of the inputs; then that of the result
        self._has_main = False  # the node that has the name of the operator's output
        self._label = writer.model.tensors[operator.outputs[0]].name if operator.outputs else operator.kind

    def __call__(self, kind: str, *inputs: Operand, **attributes: Any) -> str:
        """Writes a node and returns its output."""
        return self.several(kind, inputs, 1, **attributes)[0]

    def several(self, kind: str, inputs: Sequence[Operand], outputs: int, **attributes: Any) -> list[str]:
        """Writes a node with this many outputs."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        results = [self._writer.fresh(f"{self._label}.{kind.lower()}") for _ in range(outputs)]
        first = not self._has_main and kind not in _HELPERS
        self._has_main |= first
        self.nodes.append(helper.make_node(kind, names, results, self._label if first else results[0], **attributes))
        return results

    def fresh(self, wish: str) -> str:
        return self._writer.fresh(wish)

    def inner(self, model: TfliteModel, operands: Sequence[str], around: Writer | None = None) -> Writer:
        """Writer of a subgraph that this operator runs on these tensors. around: the one that they lie in."""
        return Writer(model, self._writer.where, around or self._writer, operands)

    def include(self, inner: Writer) -> None:
        """Writes before this operator what was written inside of it."""
        self._writer.include(inner)

    def constant(self, data: np.ndarray | float) -> str:
        array = np.asarray(data, np.float32 if isinstance(data, float) else None)
        return self._writer.constant(array, f"{self._label}.constant")

    def _block(self) -> tuple[int, ...]:
        """Blocks that images are cut into, () for none."""
        blocks = {number: block for number, block in self._writer.blocks.items() if number in self.operator.inputs}
        computed = [number for number in self.operator.inputs if number != ABSENT and number not in blocks]
        if blocks and any(self._writer.model.tensors[number].data is None for number in computed):
            raise Unsupported("images cut into blocks beside whole ones", hint="BATCH_TO_SPACE_ND before it")
        if len(set(blocks.values())) > 1:
            raise Unsupported("images cut into different blocks", hint="the same blocks")
        return next(iter(blocks.values()), ())

    # -- what the operator reads --------------------------------------------------------------------------------------

    def has(self, place: int) -> bool:
        return place < len(self.operator.inputs) and self.operator.inputs[place] != ABSENT

    def input(self, place: int) -> str:
        """The name of an input; of its reals, where it is quantized."""
        if not self.has(place):
            raise ValueError(f"it has no input {place}")
        return self._writer.real(self.operator.inputs[place])

    def inputs(self) -> list[str]:
        return [self.input(place) for place in range(len(self.operator.inputs))]

    def optional(self, place: int) -> list[str]:
        """The name of an input that can be left out."""
        return [self.input(place)] if self.has(place) else []

    def tensor(self, place: int) -> Tensor:
        self.input(place)
        return self._writer.model.tensors[self.operator.inputs[place]]

    def output(self, place: int = 0) -> Tensor:
        return self._writer.model.tensors[self.operator.outputs[place]]

    def shape(self, place: int) -> tuple[int, ...]:
        """-1 for a size that is not fixed."""
        return self.tensor(place).shape

    def is_const(self, place: int) -> bool:
        return self.input(place) in self._writer.constants

    def is_complex(self, place: int) -> bool:
        """Checks for an input of `complex_numbers`: it has a last axis of two that TFLite does not count."""
        return self.tensor(place).type == "complex64"

    def array(self, place: int, role: str) -> np.ndarray:
        """A constant input. Raises Unsupported."""
        name = self.input(place)
        if name not in self._writer.constants:
            raise Unsupported(f"its {role} '{name}' is computed", hint=f"a constant {role}")
        return self._writer.constants[name]

    def integers(self, place: int, role: str) -> list[int]:
        """The elements of a constant list."""
        return [int(number) for number in self.array(place, role).ravel()]

    def moved(self, place: int, perm: Sequence[int]) -> str:
        """An input with its axes in another order; a constant is moved now."""
        name = self.input(place)
        if name in self._writer.constants:
            return self._writer.constant(self._writer.constants[name].transpose(perm), self.tensor(place).name)
        return self("Transpose", name, perm=list(perm))

    def indices(self, place: int) -> str:
        """Sizes or indices, constant or computed, in the type that ONNX wants."""
        if self.is_const(place):
            return self.constant(self.array(place, "sizes").astype(np.int64))
        return self("Cast", self.input(place), to=TensorProto.INT64)

    # -- layouts and types --------------------------------------------------------------------------------------------

    def nchw(self, name: str) -> str:
        return self("Transpose", name, perm=_TO_NCHW)

    def nhwc(self, name: str) -> str:
        return self("Transpose", name, perm=_TO_NHWC)

    def cast(self, name: str, kind: str) -> str:
        """kind: of `schema.TYPES`."""
        if kind not in _ELEMENTS:
            raise Unsupported(f"numbers of type {kind}", hint="a cut before it")
        return self("Cast", name, to=_ELEMENTS[kind])

    def activated(self, name: str) -> str:
        """With the activation that is fused into the operator."""
        number = self.options.get("fused_activation_function", 0)
        kind = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else f"number {number}"
        if not kind:
            return name
        if kind not in CLAMPS:
            raise Unsupported(f"the fused activation {kind}", hint=", ".join(CLAMPS))
        return self.clamp(name, kind)

    def clamp(self, name: str, kind: str) -> str:
        low, high = CLAMPS[kind]
        return self("Relu", name) if np.isinf(high) else self("Clip", name, low, high)


CLAMPS: Mapping[str, tuple[float, float]] = {
    "RELU": (0.0, np.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


def _is_quantized(tensor: Tensor) -> bool:
    return tensor.grid is not None and tensor.type in QUANTIZED


def reals_of(tensor: Tensor) -> np.ndarray:
    assert tensor.data is not None
    data, grid = tensor.data, tensor.grid
    if isinstance(grid, Grid) and data.dtype.kind in "iu":
        return grid.reals(data)
    return data.astype(np.float32) if data.dtype.kind == "f" else data


def _rename(nodes: Sequence[onnx.NodeProto], old: str, new: str) -> None:
    for node in nodes:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
