"""Traits that several ops share: the limits of their kernels, and which operands they take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, SHIFT_MAX, SHIFT_MIN, SPREAD_MAX
from nmpconv.ir import Graph, Node, Value

Bounds = tuple[float, float]
"""The least and the most that an element can be, as reals; an end that is not known is infinite."""

ANY: Bounds = (-math.inf, math.inf)


Rule = tuple[str, bool]
"""Text for where a rule does not hold, and whether it holds."""


class Origins(Enum):
    """Origins that the operands and the result of an op can have (`ir.Value.origin`); constants have none."""

    NONE = "0"
    ALIKE = "all the same one"
    SUM = "the result has that of the first operand plus that of the second one"
    DIFFERENCE = "the result has that of the first operand less that of the second one"
    RESULT = "the operands have 0, the result any: constants take it up"
    PRODUCT = "the first operand has any, the other one 0, the result any, where both are int8: offsets take them up"
    ANY = "any: constants take them up"


class Factors(Enum):
    """Positive factors that whole operands and the result of an op can have; constants follow."""

    NONE = "1"
    ALIKE = "all the same one"
    PRODUCT = "the result has that of the first operand times that of the second one; constants have none"
    QUOTIENT = "the result has that of the first operand over that of the second one; constants have none"
    OPERAND = "the first operand has any, the result none: `with_factors`"
    ANY = "the first operand and the result have any: `with_factors`"


class Border(NamedTuple):
    """Border that a pad puts around [N,H,W,C]: rows, columns, and the value that they hold."""

    top: int
    bottom: int
    left: int
    right: int
    value: float


@dataclass(frozen=True)
class Limit:
    """A shift, an exponent or a difference of exponents that a kernel relies on: least <= value <= most.

    below, above: the activations whose exponents are to rise where the value is too small, or too large.
    """

    value: int
    least: float
    most: float
    below: tuple[str, ...] = ()
    above: tuple[str, ...] = ()


def exponents_of(graph: Graph, node: Node) -> tuple[int | None, ...]:
    """The exponent of each input; None for a constant that has no grid yet."""
    quants = [value.quant for value in graph.ins(node)]
    return tuple(None if quant is None else quant.exponent for quant in quants)


def product_limits(node: Node, graph: Graph) -> Iterator[Limit]:
    """e_y - e_a - e_b is a legal shift, or can be one when a constant gets its exponent."""
    a, b = exponents_of(graph, node)
    y = _result(graph, node)
    if a is not None and b is not None:
        yield Limit(y - a - b, SHIFT_MIN, SHIFT_MAX, below=node.outputs, above=node.inputs[:1])
    for name, e, other in zip(node.inputs, (a, b), (b, a), strict=True):
        if e is not None and other is None:
            least, most = SHIFT_MIN + EXPONENT_MIN, SHIFT_MAX + EXPONENT_MAX
            yield Limit(y - e, least, most, below=node.outputs, above=(name,))


def spread_limits(node: Node, graph: Graph) -> Iterator[Limit]:
    """Operands that are brought to the finer of their grids lie at most SPREAD_MAX apart."""
    a, b = exponents_of(graph, node)
    if a is not None and b is not None:
        yield Limit(a - b, -SPREAD_MAX, SPREAD_MAX, below=node.inputs[:1], above=node.inputs[1:])


def weighted_limits(node: Node, graph: Graph) -> Iterator[Limit]:
    """e_y - e_x - e_w[c] is a legal shift. Weights without a grid get one that 8 bits hold them on, at most.

    A float bias fits 32 bits on the output's grid, with a bit to spare for its correction.
    """
    x, weights, bias = graph.ins(node)[:3]
    assert x.quant is not None
    y = _result(graph, node)
    room = y - x.quant.exponent
    if bias.data is not None and bias.quant is None and (largest := float(np.abs(bias.data).max(initial=0.0))):
        yield Limit(y, math.ceil(math.log2(largest)) - 30, math.inf, below=node.outputs)
    if weights.quant is not None:
        for exponent in (min(weights.quant.exponents), max(weights.quant.exponents)):
            yield Limit(room - exponent, SHIFT_MIN, SHIFT_MAX)
    elif weights.data is not None and (peak := float(np.abs(weights.data).max(initial=0.0))):
        most = max(math.ceil(math.log2(peak / INT_MAX[8])), EXPONENT_MIN)
        yield Limit(room - most, SHIFT_MIN, math.inf, below=node.outputs)
        yield Limit(room, -math.inf, SHIFT_MAX + EXPONENT_MAX, above=node.inputs[:1])


def _result(graph: Graph, node: Node) -> int:
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    return quant.exponent


def same_rank(inputs: Sequence[Value], output: Value) -> bool:
    """Checks that broadcasting aligns axis 0 of every computed operand with that of the output."""
    return all(x.is_const or len(x.shape) == len(output.shape) for x in inputs)


def channels_of(value: Value) -> np.ndarray:
    """0, 1, ..., C - 1 for a value of C channels, the last axis; a scalar has one."""
    return np.arange(value.shape[-1] if value.shape else 1)


def hull(inputs: Sequence[Bounds]) -> Bounds:
    """The bounds of what is an element of one of the inputs."""
    return min(low for low, _ in inputs), max(high for _, high in inputs)


def within_clamp(bounds: Bounds, clamp: tuple[float, float] | None) -> Bounds:
    """Bounds that a saturation leaves."""
    low, high = clamp or ANY
    return min(max(bounds[0], low), high), min(max(bounds[1], low), high)


def combined(combine: np.ufunc, inputs: Sequence[Bounds]) -> Bounds:
    """The bounds of a function of two numbers whose extremes lie at the ends of both."""
    with np.errstate(invalid="ignore"):
        ends = combine.outer(*inputs)
    return ANY if np.isnan(ends).any() else (float(ends.min()), float(ends.max()))


def unfit(op: str, inputs: Sequence[Value]) -> str:
    """Describes what is wrong with operands whose shapes do not go together."""
    return f"{op} cannot have inputs of shapes {[x.shape for x in inputs]}"


def computed(inputs: Sequence[Value]) -> str:
    """Describes what is wrong where an input but the first is computed; '' for nothing."""
    return next((f"its input '{value.name}' is no constant" for value in inputs[1:] if not value.is_const), "")
