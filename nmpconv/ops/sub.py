"""Element-wise difference of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.add import AddParams
from nmpconv.ops.common.aligned import Aligned, AlignedParams
from nmpconv.ops.common.traits import Origins
from nmpconv.ops.op import with_constants

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder
    from nmpconv.ops.onnx_node import OnnxNode


class Sub(Aligned):
    name = "sub"
    Params = AlignedParams
    kind = "Sub"
    combine = np.subtract
    onnx = ("Sub",)

    def affine(self, place: int, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ones = np.ones_like(constant)
        return (ones, -constant) if place == 0 else (-ones, constant)

    def origins(self, params: AlignedParams, inputs: Sequence[Value], output: Value) -> Origins:
        return Origins.ANY if any(x.is_const for x in inputs) else Origins.DIFFERENCE

    def with_origins(self, node: Node, graph: Graph, x: float, y: float) -> tuple[Node, list[Value]]:
        """A constant takes up both: (a - x) - (b - x + y), or (a - x - y) - (b - x)."""
        moves = (-x - y, y - x)
        data = {i: v.data.astype(np.float64) + moves[i] for i, v in enumerate(graph.ins(node)) if v.data is not None}
        return with_constants(node, graph, {i: ("operand", array) for i, array in data.items() if moves[i]})

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """A constant is subtracted by adding its negative, which may merge into a layer."""
        left, right = node.inputs
        if to.is_const(right):
            negative = to.const(-to.array(right, "subtrahend"), right)
            to.emit("add", to.aligned(to.value(left), negative), AddParams(), node.outputs[0])
        else:
            pair = to.aligned(to.value(left), to.value(right))
            clamp = _remainder(to, *pair) if to.is_integer(left) else None
            to.emit("sub", pair, AlignedParams(), node.outputs[0], clamp=clamp)


def _remainder(to: GraphBuilder, a: str, b: str) -> tuple[float, float] | None:
    """Bounds of a - n * floor(a / n)."""
    product = to.maker(b)
    quotient = to.maker(product.inputs[0]) if product is not None and product.op == "mul" else None
    if product is None or quotient is None or quotient.op != "divide" or not quotient.params.down:
        return None
    factor, divisor = to[product.inputs[1]].data, to[quotient.inputs[1]].data
    if quotient.inputs[0] != a or factor is None or divisor is None or not (factor == divisor.max()).all():
        return None
    return (0.0, float(divisor.max()) - 1) if (divisor == divisor.max()).all() else None
