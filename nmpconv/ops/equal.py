"""Equal: 1 where two tensors have the same value, elsewhere 0; and ONNX's other operators on truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.ops.add import AddParams
from nmpconv.ops.common.aligned import AlignedParams
from nmpconv.ops.common.comparison import Compare, opposite
from nmpconv.ops.mul import MulParams

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder
    from nmpconv.ops.onnx_node import OnnxNode

_PAIRS = {"Equal": "equal", "And": "minimum", "Or": "maximum"}


class Equal(Compare):
    name = "equal"
    kind = "Equal"
    holds = np.equal
    onnx = ("Equal", "Not", "And", "Or", "Xor", "Where")

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Truth is 0 or 1, so And, Or, Xor, Not are the smaller, the larger, the unequal, and the difference to 1."""
        if node.op_type == "Where":
            return _lower_where(node, to)
        if node.op_type == "Not":
            opposite(to, to.value(node.input(0)), node.outputs[0])
            return None
        pair = to.aligned(to.value(node.input(0)), to.value(node.input(1)))
        if node.op_type == "Xor":
            opposite(to, to.emit("equal", pair, AlignedParams()), node.outputs[0])
        else:
            to.emit(_PAIRS[node.op_type], pair, AlignedParams(), node.outputs[0])
        return None


def _lower_where(node: OnnxNode, to: GraphBuilder) -> None:
    """c * a + (1 - c) * b, or c * (a - b) + b for two constants: a product with 0 or 1 only changes the grid."""
    condition, a, b = (node.input(i) for i in range(3))
    for name in (a, b):
        if to.is_const(name) and not np.isfinite(to.array(name, "operand")).all():
            raise Unsupported(f"its operand '{name}' holds infinity or NaN", hint="a finite number")
    if _is_zero(to, b):
        _product(to, condition, a, True, node.outputs[0])
    elif _is_zero(to, a):
        _product(to, condition, b, False, node.outputs[0])
    elif to.is_const(a) and to.is_const(b):
        difference = to.const(to.array(a, "operand").astype(np.float64) - to.array(b, "operand"), a)
        chosen = to.emit("mul", to.aligned(to.value(condition), difference), MulParams())
        to.emit("add", to.aligned(chosen, to.value(b)), AddParams(), node.outputs[0])
    else:
        terms = _product(to, condition, a, True), _product(to, condition, b, False)
        to.emit("add", to.aligned(*terms), AddParams(), node.outputs[0])


def _is_zero(to: GraphBuilder, name: str) -> bool:
    return to.is_const(name) and to.array(name, "operand").size == 1 and not to.array(name, "operand").any()


def _product(to: GraphBuilder, condition: str, name: str, chosen: bool, output: str = "") -> str:
    """name where the condition is as chosen, elsewhere 0."""
    if not to.is_const(condition):
        truth = to.value(condition) if chosen else opposite(to, to.value(condition))
        return to.emit("mul", to.aligned(truth, to.value(name)), MulParams(), output)
    share = (to.array(condition, "condition") == chosen).astype(np.float64)
    if to.is_const(name):
        return to.const(share * to.array(name, "operand"), name)
    return to.emit("mul", to.aligned(to.const(share, condition), to.value(name)), MulParams(), output)
