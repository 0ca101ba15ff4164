"""Constants that an op makes for itself at quantization: tables, and the integers of a constant operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, INT_MIN, quantize
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.op import quant_of


def with_constant(node: Node, role: str, data: np.ndarray, quant: Quant) -> tuple[Node, list[Value]]:
    """The node with a second input ``<output>.<role>`` that holds data on the grid of quant."""
    name = f"{node.outputs[0]}.{role}"
    value = Value(name, data.shape, quant.dtype, data.astype(quant.dtype), quant=quant)
    return replace(node, inputs=(node.inputs[0], name)), [value]


def exponent_for(data: np.ndarray, bits: int) -> int:
    """The smallest exponent whose grid of this many bits reaches max|data|; 0 when all are zero."""
    largest = float(np.max(np.abs(data), initial=0.0))
    if largest == 0.0:
        return 0
    exponent = math.frexp(largest)[1] - (bits - 1)  # largest < 2^(exponent + bits - 1)
    return exponent + 1 if round(math.ldexp(largest, -exponent)) > INT_MAX[bits] else exponent


def quantize_constants(
    node: Node, graph: Graph, window: Callable[[int, int], tuple[int, int]]
) -> tuple[Node, list[Value]]:
    """The node with its float constant operands in 16 bits, each a clone of its own.

    window(e_other, e_y) is the range of exponents that the op's shifts allow; one below its start loses precision,
    one above its end saturates.
    """
    y = quant_of(graph[node.outputs[0]])
    names, constants = list(node.inputs), []
    for i, value in enumerate(graph.ins(node)):
        other = graph[node.inputs[1 - i]].quant
        if value.data is None or value.quant is not None or other is None:
            continue
        low, high = window(other.exponent, y.exponent)
        exponent = min(max(exponent_for(value.data, 16), low, EXPONENT_MIN), high, EXPONENT_MAX)
        quant = Quant(16, (exponent,), INT_MIN[16], INT_MAX[16])
        data = quantize(value.data, exponent, quant.lo, quant.hi).astype(quant.dtype)
        names[i] = f"{node.outputs[0]}.operand"
        constants.append(Value(names[i], value.shape, quant.dtype, data, quant=quant))
    return replace(node, inputs=tuple(names)), constants
