"""Rules of an op in a file, by its paragraph in FORMAT.md: most of it follows from traits, the rest is its own.

The twin of `check` and `work` in interpreter/src/ops. `broken` tells the first rule that does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.traits import Rule
from nmpconv.ops.op import Op, quant_of


def broken(op: Op, node: Node, graph: Graph) -> str:
    """The rule, '' for none. graph: integer values that are right for themselves; the output is an activation."""
    try:
        return next((problem for problem, holds in _rules(op, node, graph) if not holds), "")
    except (Unsupported, ValueError) as error:  # of `infer`: out of bounds, or shapes that do not broadcast
        return str(error)


def _rules(op: Op, node: Node, graph: Graph) -> Iterator[Rule]:
    params, inputs, (y,) = node.params, graph.ins(node), graph.outs(node)
    few, many = op.constants
    operands = max(len(inputs), 1) if op.operands is None else op.operands
    yield f"it has {len(inputs)} inputs", operands + few <= len(inputs) <= operands + many
    for x in inputs[:operands]:
        quant = quant_of(x)
        yield "an operand is no int8 or int16 with one exponent", quant.bits < 32 and len(quant.exponents) == 1
    if op.grid == "same":
        for x in op.moved(inputs[:operands]):
            yield "an operand has another grid than the output", quant_of(x).grid == quant_of(y).grid
    axis = getattr(params, "axis", None)
    if axis is not None:
        yield f"axis {axis} is not there", 0 <= axis < len(inputs[0].shape)
        yield f"axis {axis} is too long", op.axis_max is None or inputs[0].shape[axis] <= op.axis_max
    if op.border is not None:
        for value in inputs[op.border : op.border + 1]:
            yield "padding is on another grid than the input", quant_of(value).grid == quant_of(inputs[0]).grid
    yield from op.rules(params, inputs, y)
    wrong = op.misfit(params, inputs)
    yield wrong, not wrong
    shape = op.infer(params, inputs)[0]
    yield f"the output has shape {y.shape}, not {shape}", shape == y.shape
    exponent, (low, high) = quant_of(y).exponent, op.exponents
    yield f"the output's exponent {exponent} is not in [{low}, {high}]", low <= exponent <= high
    for limit in op.limits(node, graph):
        problem = f"a shift or a difference of exponents of {limit.value} is not in [{limit.least}, {limit.most}]"
        yield problem, limit.least <= limit.value <= limit.most


def rank(value: Value, wanted: int) -> Rule:
    return f"a tensor has rank {len(value.shape)}, not {wanted}", len(value.shape) == wanted


def vector(value: Value, size: int, bits: int, exponent: int) -> Rule:
    """A constant of a known length and grid."""
    quant = quant_of(value)
    actual = value.is_const, value.shape, quant.bits, quant.exponents
    return f"a constant is not {size} times int{bits} * 2^{exponent}", actual == (True, (size,), bits, (exponent,))


def within(data: np.ndarray | None, low: int, high: int) -> Rule:
    """All elements of a table, of which there is at least one."""
    assert data is not None
    least, most = int(data.min()), int(data.max())
    return f"a table holds [{least}, {most}], [{low}, {high}] is allowed", low <= least and most <= high


def alike(shapes: Sequence[tuple[int, ...]]) -> Rule:
    """All have one rank."""
    return f"ranks differ: {[list(shape) for shape in shapes]}", len({len(shape) for shape in shapes}) == 1
