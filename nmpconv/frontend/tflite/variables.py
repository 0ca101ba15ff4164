"""Variables that keep what a call has assigned to them: inputs and outputs of the ONNX model, and states of the file.

1. The first read of a variable is an input that has its name; of a quantized one the reals on its grid.
2. What is assigned to it last is the output `NAME.next`. A read behind an assignment is what was assigned.
3. States begin at 0, so a variable has to: the subgraph that runs once assigns it a constant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.model import ABSENT, Operator, TfliteModel
from nmpconv.frontend.tflite.onnx_writer import Writer, reals_of

STATES = "nmpconv.states"  # key of the metadata that has outputs by input, as JSON
HANDLE, READ, ASSIGN, ONCE = KINDS = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")


def starts(model: TfliteModel) -> dict[str, np.ndarray | None]:
    """Reals that a subgraph assigns to variables, by their names; None where it computes them."""
    names = _names(model)
    pairs = [(names.get(handle, ""), model.tensors[number]) for handle, number in _assignments(model)]
    return {name: None if tensor.data is None else reals_of(tensor) for name, tensor in pairs}


class Variables:
    """The variables of a model while it is written. starts: what they begin with, by name."""

    def __init__(self, writer: Writer, starts: Mapping[str, np.ndarray | None]) -> None:
        self._writer, self._starts = writer, starts
        self._names = _names(writer.model)
        self._assigned = {self._names.get(handle) for handle, _ in _assignments(writer.model)}
        self._inputs: dict[str, str] = {}  # ONNX names of ports, by variable
        self._now: dict[str, int] = {}  # tensors with what variables contain

    def write(self, operator: Operator) -> None:
        """An operator of `KINDS`. Raises Unsupported."""
        if operator.kind == READ:
            self._read(self._names[operator.inputs[0]], operator.outputs[0])
        elif operator.kind == ASSIGN:
            handle, number = operator.inputs
            if number == ABSENT:
                raise ValueError("it assigns nothing")
            self._now[self._names[handle]] = number

    def finish(self, model: onnx.ModelProto) -> None:
        """Adds the outputs that states take over."""
        pairs = {}
        for variable, port in self._inputs.items():
            pairs[port], source = self._writer.fresh(f"{port}.next"), self._writer.real(self._now[variable])
            model.graph.node.append(helper.make_node("Identity", [source], [pairs[port]], pairs[port]))
            shape = [None if size < 0 else size for size in self._writer.model.tensors[self._now[variable]].shape]
            model.graph.output.append(helper.make_tensor_value_info(pairs[port], onnx.TensorProto.FLOAT, shape))
        if pairs:
            helper.set_model_props(model, {STATES: json.dumps(pairs)})

    def _read(self, variable: str, number: int) -> None:
        if variable in self._now:
            self._writer.share(number, self._now[variable])
            return
        if variable not in self._assigned:
            hint = "a constant, as TFLiteConverter.from_keras_model and from_saved_model write it"
            raise Unsupported(f"nothing is assigned to variable '{variable}'", hint=hint)
        start = self._starts.get(variable, np.zeros(1))
        if start is None or np.any(start):
            numbers = "what is computed" if start is None else "other numbers than 0"
            raise Unsupported(f"variable '{variable}' begins with {numbers}", hint="states that begin at a constant 0")
        self._inputs[variable] = self._writer.state(number, variable)
        self._now[variable] = number


def of_metadata(model: onnx.ModelProto) -> dict[str, str]:
    """The output that each state takes over, by input; none where the metadata are no such mapping."""
    texts = [entry.value for entry in model.metadata_props if entry.key == STATES]
    try:
        pairs = json.loads(texts[0]) if texts else {}
    except (ValueError, RecursionError):
        return {}
    return {x: y for x, y in pairs.items() if isinstance(y, str)} if isinstance(pairs, dict) else {}


def _names(model: TfliteModel) -> dict[int, str]:
    """Names of variables by the tensor with their handle."""
    handles = [op for op in model.operators if op.kind == HANDLE and op.outputs]
    return {op.outputs[0]: op.options.get("shared_name") or model.tensors[op.outputs[0]].name for op in handles}


def _assignments(model: TfliteModel) -> list[tuple[int, int]]:
    """Handles, and the tensors that are assigned to their variables."""
    pairs = [op.inputs for op in model.operators if op.kind == ASSIGN and len(op.inputs) == 2]
    return [(handle, number) for handle, number in pairs if number != ABSENT]
