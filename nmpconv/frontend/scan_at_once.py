"""A Scan whose steps are alike and independent, in one step: what is scanned keeps its axis, in front of all others.

skl2onnx writes distances between rows so, to hundreds of training samples: each would be some nodes of its own.

Sources: ONNX, Scan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

POINTWISE = ("Add", "Sub", "Mul", "Div", "Pow", "Abs", "Neg", "Exp", "Sqrt", "Max", "Min")
REDUCTIONS = tuple(f"Reduce{kind}" for kind in ("Sum", "SumSquare", "Mean", "Max", "Min", "L1", "L2"))


class Stepped(NamedTuple):
    """A tensor of all steps. rank: of one step. moves: steps are its first axis; otherwise all have the same."""

    name: str
    rank: int
    moves: bool


class BatchedNode(NamedTuple):
    """A node of all steps: its kind, inputs, result and attributes. fresh: constants of it, by name."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]
    fresh: Mapping[str, np.ndarray]


def steps(
    body: onnx.GraphProto, fed: Sequence[Stepped], states: int, new_name: Callable[[str], str]
) -> tuple[list[BatchedNode], list[str]] | None:
    """The nodes, of the newest opset, and the results of all steps one behind the other; None where a state changes, a
    node is of another kind, or a constant is an operand, but for axes.

    fed: the inputs, states first.
    """
    known = {value.name: tensor for value, tensor in zip(body.input, fed, strict=True)}
    begin = [tensor.name for tensor in fed[:states]]
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in body.initializer}
    nodes: list[BatchedNode] = []
    for node in body.node:
        inputs = [known.get(name) for name in node.input if name not in constants]
        if None in inputs or len(node.output) != 1:
            return None
        operands = [tensor for tensor in inputs if tensor is not None]
        if node.op_type == "Identity" and operands:
            known[node.output[0]] = operands[0]
            continue
        batched: tuple[list[BatchedNode], Stepped] | None = None
        if node.op_type in POINTWISE and len(operands) == len(node.input):
            batched = _pointwise(node, operands, new_name)
        elif node.op_type in REDUCTIONS and operands:
            batched = _reduction(node, operands[0], constants, new_name)
        if batched is None:
            return None
        nodes += batched[0]
        known[node.output[0]] = batched[1]
    results = [known.get(value.name) for value in body.output]
    if [tensor and tensor.name for tensor in results[:states]] != begin:
        return None
    rows = [tensor for tensor in results[states:] if tensor is not None and tensor.moves]
    return (nodes, [tensor.name for tensor in rows]) if len(rows) == len(results) - states else None


def _pointwise(
    node: onnx.NodeProto, operands: Sequence[Stepped], new_name: Callable[[str], str]
) -> tuple[list[BatchedNode], Stepped]:
    """Steps stay in front of the axes that broadcasting adds."""
    rank, moves = max(tensor.rank for tensor in operands), any(tensor.moves for tensor in operands)
    nodes: list[BatchedNode] = []
    names: list[str] = []
    for tensor in operands:
        name = tensor.name
        if tensor.moves and tensor.rank < rank:
            axes, name = new_name(f"{tensor.name}.axes"), new_name(f"{tensor.name}.wide")
            places = np.arange(1, 1 + rank - tensor.rank, dtype=np.int64)
            nodes.append(BatchedNode("Unsqueeze", (tensor.name, axes), name, {}, {axes: places}))
        names.append(name)
    output = new_name(f"{node.output[0]}.steps")
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return [*nodes, BatchedNode(node.op_type, tuple(names), output, attributes, {})], Stepped(output, rank, moves)


def _reduction(
    node: onnx.NodeProto, x: Stepped, constants: Mapping[str, np.ndarray], new_name: Callable[[str], str]
) -> tuple[list[BatchedNode], Stepped] | None:
    """Axes are those of one step."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    listed = constants.get(node.input[1]) if len(node.input) > 1 else attributes.pop("axes", None)
    if listed is None or len(listed) == 0:
        return None
    axes = [int(axis) + x.rank * (int(axis) < 0) + x.moves for axis in listed]
    name, output = new_name(f"{node.output[0]}.axes"), new_name(f"{node.output[0]}.steps")
    rank = x.rank if attributes.get("keepdims", 1) else x.rank - len(axes)
    step = BatchedNode(node.op_type, (x.name, name), output, attributes, {name: np.array(axes, np.int64)})
    return [step], Stepped(output, rank, x.moves)
