"""Inputs of a model that have one value for good: they become constants, and each If that they decide its branch.

Conditions are computed where they follow from constants by operators of `_OF_CONDITIONS`. Those that follow from shapes
are known later, in the walk over the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nmpconv.errors import InputError, NmpError, UsageError
from nmpconv.frontend.bind import INTEGERS, bind, is_real, type_name
from nmpconv.frontend.fold import fold
from nmpconv.frontend.toposort import label, rename, subgraphs

Number = bool | int | float
Values = Mapping[str, Sequence[Number]]  # by input name: one number for all elements, or all of them, row by row
Shapes = Mapping[str, tuple[int, ...]]
_ONNX = ("", "ai.onnx")
FLAG = "--input-value"
NUMBERS_MAX = 4096  # of one input, and of a constant that a condition is computed from
# Operators whose results are no larger than a broadcast of the inputs.
_OF_CONDITIONS = {
    *("Abs", "Add", "And", "Cast", "Ceil", "Constant", "Div", "Equal", "Floor", "Gather", "Greater", "GreaterOrEqual"),
    *("Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Reshape", "Shape", "Sign"),
    *("Size", "Squeeze", "Sub", "Unsqueeze", "Where", "Xor"),
}


def of_config(config: Mapping[str, object]) -> tuple[Values, Shapes]:
    """Values and shapes of inputs that a .nmp file's metadata tell; what is none is left out."""
    values, shapes = (_lists(config.get(key)) for key in ("input_values", "input_shapes"))
    whole = {name: tuple(size for size in sizes if type(size) is int) for name, sizes in shapes.items()}
    return values, {name: sizes for name, sizes in whole.items() if len(sizes) == len(shapes[name])}


def _lists(value: object) -> dict[str, list[Number]]:
    rows = value.items() if isinstance(value, dict) else ()
    return {name: row for name, row in rows if isinstance(row, list) and all(isinstance(x, Number) for x in row)}


def fix(model: onnx.ModelProto, values: Values, shapes: Shapes) -> None:
    """Makes constants of these inputs, in place. Raises UsageError."""
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in constants}
    for name, numbers in values.items():
        if name not in inputs:
            raise UsageError(f"the model has no input '{name}'", where=FLAG, hint=f"inputs: {', '.join(inputs)}")
        value = inputs[name]
        if not is_real(value):
            element = type_name(value.type.tensor_type.elem_type)
            raise UsageError(f"input '{name}' is {element}", where=FLAG, hint="an input of numbers")
        shape = bind([value], [name], {key: size for key, size in shapes.items() if key == name})[name]
        graph.initializer.append(numpy_helper.from_array(_array(value, numbers, shape), name))
    left = [value for value in graph.input if value.name not in values]
    del graph.input[:]
    graph.input.extend(left)


def _array(value: onnx.ValueInfoProto, numbers: Sequence[Number], shape: tuple[int, ...]) -> np.ndarray:
    name, element = value.name, value.type.tensor_type.elem_type
    if len(numbers) not in (1, prod(shape)) or len(numbers) > NUMBERS_MAX:
        allowed = f"one, or {prod(shape)}" if prod(shape) <= NUMBERS_MAX else "one"
        raise UsageError(
            f"{len(numbers)} numbers for input '{name}' of shape {list(shape)}", where=FLAG, hint=f"allowed: {allowed}"
        )
    dtype = helper.tensor_dtype_to_np_dtype(element)
    exact = element in INTEGERS or element == onnx.TensorProto.BOOL
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if element in INTEGERS else (0, 1)
    for number in numbers:
        if not isfinite(number) or (exact and not (number == int(number) and low <= number <= high)):
            allowed = "a finite number" if not exact else f"a whole number from {low} to {high}"
            raise UsageError(
                f"input '{name}' cannot be {number}", where=FLAG, hint=f"it is {type_name(element)}: {allowed}"
            )
    array = np.array([int(x) if exact else float(x) for x in numbers]).astype(dtype)
    return np.full(shape, array[0]) if len(numbers) == 1 else array.reshape(shape)


def take_branches(model: onnx.ModelProto, opset: int, where: str) -> None:
    """Puts the branch that is taken in the place of each If whose condition follows from constants, in place."""
    while True:
        conditions = _Conditions(model.graph, opset)
        known = ((i, conditions.array(node.input[0])) for i, node in enumerate(model.graph.node) if _is_choice(node))
        place, condition = next(((i, array) for i, array in known if array is not None), (0, None))
        if condition is None:
            return
        node, taken = model.graph.node[place], "then_branch" if condition.all() else "else_branch"
        branch = next((a.g for a in node.attribute if a.name == taken), None)
        if branch is None or len(branch.output) != len(node.output):
            raise InputError(f"{label(node)} has no {taken} with its outputs", where=where)
        _inline(model.graph, place, branch)


def _is_choice(node: onnx.NodeProto) -> bool:
    return node.op_type == "If" and node.domain in _ONNX and len(node.input) == 1


class _Conditions:
    """Small constants of a graph, computed when they are asked for."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self._opset = opset
        self._makers = {name: node for node in graph.node for name in node.output}
        self._arrays: dict[str, np.ndarray | None] = {}
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}

    def array(self, name: str) -> np.ndarray | None:
        """None for what is computed from an input, or large."""
        waiting = [name]
        while waiting:
            here = waiting[-1]
            node = self._makers.get(here)
            if here in self._arrays:
                waiting.pop()
            elif (
                here in self._tensors or node is None or node.op_type not in _OF_CONDITIONS or node.domain not in _ONNX
            ):
                self._arrays[here] = self._constant(here)
            elif late := [x for x in node.input if x and x not in self._arrays]:
                waiting += late
            else:
                self._arrays |= dict.fromkeys(node.output) | self._folded(node)
        return self._arrays[name]

    def _constant(self, name: str) -> np.ndarray | None:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL or prod(tensor.dims) > NUMBERS_MAX:
            return None
        try:
            return numpy_helper.to_array(tensor)
        except Exception:  # whatever does not fit; the walk names it
            return None

    def _folded(self, node: onnx.NodeProto) -> dict[str, np.ndarray | None]:
        inputs = {name: array for name in node.input if name and (array := self._arrays[name]) is not None}
        if len(inputs) < len({name for name in node.input if name}):
            return {}
        try:
            arrays = fold(node, inputs, self._opset)
        except (NmpError, ArithmeticError, LookupError, TypeError, ValueError):  # the walk names it
            return {}
        return {name: array for name, array in arrays.items() if array.size <= NUMBERS_MAX}


def _inline(graph: onnx.GraphProto, place: int, branch: onnx.GraphProto) -> None:
    """Nodes and constants of the branch in the place of a node; what has another tensor's name gets a new one."""
    outer = graph.node[place]
    taken = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    taken |= {name for node in graph.node for name in node.output} | _inner_names(graph.node)
    names = [tensor.name for tensor in branch.initializer] + [n for node in branch.node for n in node.output if n]
    renames: dict[str, str] = {}
    results = {value.name: name for value, name in zip(branch.output, outer.output, strict=True) if name}
    own = {name for node in branch.node for name in node.output}
    for name in names:
        new, n = results.get(name, name) if name in own else name, 0
        while new in taken and not (name in own and new == results.get(name)):
            n += 1
            new = f"{name}_{n}"
        renames[name] = new
        taken.add(new)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in branch.node]
    for node in nodes:
        rename(node, renames)
    for value, name in zip(branch.output, outer.output, strict=True):
        if name and renames.get(value.name, value.name) != name:
            nodes.append(helper.make_node("Identity", [renames.get(value.name, value.name)], [name], outer.name))
    for tensor in branch.initializer:
        copy = onnx.TensorProto.FromString(tensor.SerializeToString())
        copy.name = renames[tensor.name]
        graph.initializer.append(copy)
    before, after = list(graph.node[:place]), list(graph.node[place + 1 :])
    del graph.node[:]
    graph.node.extend([*before, *nodes, *after])


def _inner_names(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Names of all that graphs inside of nodes make."""
    names: set[str] = set()
    for node in nodes:
        for graph in subgraphs(node):
            names |= {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
            names |= {name for sub in graph.node for name in sub.output} | _inner_names(graph.node)
    return names
