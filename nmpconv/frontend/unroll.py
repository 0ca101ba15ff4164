"""Loop and Scan whose number of steps is known at import: the nodes of the graph inside, once for each step.

Sources: ONNX, Loop and Scan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from nmpconv.errors import Computed, Invalid, Unsupported
from nmpconv.frontend import scan_at_once
from nmpconv.frontend.bind import type_name
from nmpconv.frontend.importer import FollowsError, Importer
from nmpconv.frontend.local_functions import NODES_MAX
from nmpconv.frontend.scan_at_once import Stepped
from nmpconv.ops.onnx_node import OnnxNode

SCAN_OPSET = 9  # before it, Scan had a batch of its own
_HINT = "an export with the loop unrolled (Keras: unroll=True), or as GRU, LSTM or RNN"


class Unroller:
    """Steps of Loop and Scan.

    inline: converts the nodes of a graph with names put for its inputs, and returns the names of its outputs. write:
    converts a node. refused: how many nodes were refused so far.
    """

    def __init__(
        self,
        to: Importer,
        inline: Callable[[onnx.GraphProto, onnx.NodeProto, Mapping[str, str]], list[str]],
        write: Callable[[onnx.NodeProto], None],
        refused: Callable[[], int],
    ) -> None:
        self._to, self._inline, self._write, self._refused = to, inline, write, refused
        self._nodes = 0  # of all steps of all loops

    def run(self, proto: onnx.NodeProto, opset: int) -> None:
        """Converts the node. Raises Unsupported; FollowsError where a node inside is refused."""
        node = OnnxNode.of(proto, opset)
        if proto.op_type == "Loop":
            return self._loop(proto, node)
        if opset < SCAN_OPSET:
            raise Unsupported(f"Scan of opset {opset}", hint=f"an export with opset {SCAN_OPSET} or later")
        return self._scan(proto, node)

    def _loop(self, proto: onnx.NodeProto, node: OnnxNode) -> None:
        body, carried = node.attributes["body"], list(node.inputs[2:])
        names = [value.name for value in body.input]
        count = self._number(node.input(0), "trip count") if node.input(0) else inf
        goes = bool(self._number(node.input(1), "condition")) if node.input(1) else True
        if len(names) != 2 + len(carried) or len(body.output) < 1 + len(carried):
            raise ValueError(f"{len(carried)} states, a graph of {len(names)} inputs and {len(body.output)} outputs")
        condition = node.input(1) or self._constant(proto, np.array(True))
        rows: list[list[str]] = []
        step = 0
        while goes and step < count:
            place = self._constant(proto, np.array(step, np.int64))
            condition, *results = self._step(proto, body, dict(zip(names, (place, condition, *carried), strict=True)))
            carried, row = results[: len(carried)], results[len(carried) :]
            rows.append(row)
            goes = bool(self._number(condition, "condition"))
            step += 1
        stacks = [(list(column), 0) for column in zip(*rows, strict=True)]
        self._finish(proto, carried, stacks)

    def _scan(self, proto: onnx.NodeProto, node: OnnxNode) -> None:
        body, count = node.attributes["body"], node.integer("num_scan_inputs", 0)
        states = len(node.inputs) - count
        results = len(body.output) - states
        if not 1 <= count <= len(node.inputs) or len(body.input) != len(node.inputs) or results < 0:
            raise ValueError(f"{count} scanned of {len(node.inputs)} inputs, a graph of {len(body.input)}")
        carried, scanned = list(node.inputs[:states]), node.inputs[states:]
        shapes = [self._to.tensor(name).shape for name in scanned]
        if None in shapes:
            raise FollowsError(proto.op_type)
        axes = [
            node.axis(axis, len(shape or ()))
            for axis, shape in zip(_each(node, "scan_input_axes", count), shapes, strict=True)
        ]
        backwards, reversed_rows = (
            _each(node, f"scan_{side}_directions", many) for side, many in (("input", count), ("output", results))
        )
        lengths = {shape[axis] for shape, axis in zip(shapes, axes, strict=True) if shape is not None}
        if len(lengths) > 1:
            raise ValueError(f"scanned inputs of {sorted(lengths)} steps")
        [length] = lengths
        along = _each(node, "scan_output_axes", results)
        if not any((*axes, *along, *backwards, *reversed_rows)) and self._at_once(proto, body, carried, scanned):
            return
        rows: list[list[str]] = []
        for step in range(length):
            slices = [
                self._slice(proto, name, length - 1 - step if back else step, axis)
                for name, axis, back in zip(scanned, axes, backwards, strict=True)
            ]
            pairs = zip((value.name for value in body.input), (*carried, *slices), strict=True)
            values = self._step(proto, body, dict(pairs))
            carried = values[:states]
            rows.append(values[states:])
        columns = [list(column) for column in zip(*rows, strict=True)]
        columns = [column[::-1] if back else column for column, back in zip(columns, reversed_rows, strict=True)]
        self._finish(proto, carried, list(zip(columns, along, strict=True)))

    def _at_once(
        self, proto: onnx.NodeProto, body: onnx.GraphProto, states: Sequence[str], scanned: Sequence[str]
    ) -> bool:
        """Converts all steps of a Scan as one (`scan_at_once`), if they can be."""
        ranks = {name: len(self._to.tensor(name).shape or ()) for name in (*states, *scanned)}
        known = all(self._to.tensor(name).shape is not None for name in ranks)
        fed = [Stepped(name, ranks[name], False) for name in states]
        fed += [Stepped(name, ranks[name] - 1, True) for name in scanned]
        batched = scan_at_once.steps(body, fed, len(states), self._to.new_name) if known else None
        if batched is None:
            return False
        nodes, results = batched
        for step in nodes:
            self._to.define(step.fresh)
            self._add(proto, step.kind, step.inputs, step.output, **step.attributes)
        for name, output in zip((*states, *results), proto.output, strict=False):
            if output:
                self._add(proto, "Identity", [name], output)
        return True

    def _step(self, proto: onnx.NodeProto, body: onnx.GraphProto, inputs: Mapping[str, str]) -> list[str]:
        self._nodes += max(1, len(body.node))
        if self._nodes > NODES_MAX:
            raise Unsupported(f"its steps have more than {NODES_MAX} nodes", hint=f"fewer steps, or {_HINT}")
        before = self._refused()
        outputs = self._inline(body, proto, inputs)
        if self._refused() > before:  # it would be refused in each step
            raise FollowsError(proto.op_type)
        for value, name in zip(body.output, outputs, strict=True):
            declared, element = value.type.tensor_type.elem_type, self._to.tensor(name).element
            if declared and element and declared != element:
                raise Invalid(f"its graph makes '{value.name}' of type {type_name(element)}", hint=type_name(declared))
        return outputs

    def _finish(
        self, proto: onnx.NodeProto, carried: Sequence[str], stacks: Sequence[tuple[Sequence[str], int]]
    ) -> None:
        """Defines the outputs: the last states, then for each stack its rows, joined along a new axis."""
        if any(proto.output[len(carried) + len(stacks) :]):
            raise Unsupported("it runs no step", hint="at least one")
        for name, output in zip(carried, proto.output, strict=False):
            if name in self._to.sequences:
                self._to.sequences[output] = self._to.sequences[name]
            elif output:
                self._add(proto, "Identity", [name], output)
        for (rows, axis), output in zip(stacks, proto.output[len(carried) :], strict=False):
            if output:
                places = self._constant(proto, np.array([axis], np.int64))
                wide = [self._add(proto, "Unsqueeze", [row, places]) for row in rows]
                self._add(proto, "Concat", wide, output, axis=axis)

    def _slice(self, proto: onnx.NodeProto, name: str, place: int, axis: int) -> str:
        return self._add(proto, "Gather", [name, self._constant(proto, np.array(place, np.int64))], axis=axis)

    def _add(self, proto: onnx.NodeProto, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        label = proto.name or next(filter(None, proto.output), proto.op_type)
        result = output or self._to.new_name(f"{label}.{kind.lower()}")
        self._write(helper.make_node(kind, inputs, [result], label, **attributes))
        return result

    def _constant(self, proto: onnx.NodeProto, data: np.ndarray) -> str:
        name = self._to.new_name(f"{proto.name or proto.op_type}.constant")
        self._to.define({name: data})
        return name

    def _number(self, name: str, role: str) -> int:
        if not self._to.is_const(name):
            self._to[name]  # after a refused node: no complaint of its own
            raise Computed(role, name, or_else=f", or {_HINT}")
        array = self._to.array(name, role)
        if prod(array.shape) != 1:
            raise ValueError(f"its {role} has {prod(array.shape)} elements")
        return int(array.item())


def _each(node: OnnxNode, name: str, count: int) -> Sequence[int]:
    """A list of integers, one for each; zeros where it is left out."""
    values = node.integers(name) or (0,) * count
    if len(values) != count:
        raise ValueError(f"{name} {list(values)} for {count}")
    return values
