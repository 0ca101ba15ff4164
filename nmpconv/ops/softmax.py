"""Softmax along one axis, integers only: a table of exponentials and one exact division."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.op import Op

if TYPE_CHECKING:
    from nmpconv.frontend.export import Exporter
    from nmpconv.frontend.onnx import Importer, OnnxNode


@dataclass(frozen=True)
class SoftmaxParams:
    axis: int = -1


class Softmax(Op):
    name = "softmax"
    Params = SoftmaxParams
    onnx = ("Softmax",)

    def lower(self, node: OnnxNode, to: Importer) -> None:
        """Before opset 13 all axes from ``axis`` on are one."""
        x = to.value(node.input(0))
        shape = to[x].shape
        axis = node.integer("axis", -1 if node.opset >= 13 else 1) % len(shape)
        if node.opset >= 13 or prod(shape[axis + 1 :]) == 1:
            to.emit("softmax", (x,), SoftmaxParams(axis), node.outputs[0])
        else:
            flat = to.reshape(x, (*shape[:axis], prod(shape[axis:])))
            to.reshape(to.emit("softmax", (flat,), SoftmaxParams(axis)), shape, node.outputs[0])

    def infer(self, params: SoftmaxParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [inputs[0].shape]

    def export(self, node: Node, graph: Graph, to: Exporter) -> None:
        to.node("Softmax", node.inputs, node.outputs[0], axis=node.params.axis)
