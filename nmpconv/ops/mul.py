"""Element-wise product of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.op import Op

if TYPE_CHECKING:
    from nmpconv.frontend.export import Exporter
    from nmpconv.frontend.onnx import Importer, OnnxNode


@dataclass(frozen=True)
class MulParams:
    pass


class Mul(Op):
    name = "mul"
    Params = MulParams
    clamps = True
    in_place = True
    onnx = ("Mul", "Div", "Neg")

    def lower(self, node: OnnxNode, to: Importer) -> None:
        """Dividing by a constant is multiplying by its reciprocal; Neg is multiplying by -1."""
        x, output = to.value(node.input(0)), node.outputs[0]
        if node.op_type == "Neg":
            factor = to.const(np.full((1,) * len(to[x].shape), -1.0), "")
        elif node.op_type == "Div":
            divisor = to.array(node.input(1), "divisor").astype(np.float64)
            if not divisor.all():
                raise Unsupported(f"its divisor '{node.input(1)}' holds a zero")
            factor = to.const(1.0 / divisor, node.input(1))
        else:
            factor = to.value(node.input(1))
        to.emit("mul", to.aligned(x, factor), MulParams(), output)

    def infer(self, params: MulParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [np.broadcast_shapes(*(x.shape for x in inputs))]

    def export(self, node: Node, graph: Graph, to: Exporter) -> None:
        to.node("Mul", node.inputs, node.outputs[0])
