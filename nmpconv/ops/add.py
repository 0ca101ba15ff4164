"""Element-wise sum of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.aligned import Aligned, AlignedParams, chained
from nmpconv.ops.common.traits import Origins
from nmpconv.ops.op import with_constants

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder
    from nmpconv.ops.onnx_node import OnnxNode

__all__ = ["Add", "AddParams"]


@dataclass(frozen=True)
class AddParams(AlignedParams):
    pass


class Add(Aligned):
    name = "add"
    Params = AddParams
    kind = "Add"
    combine = np.add
    onnx = ("Add", "Sum")
    monotone = True

    def affine(self, place: int, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ones_like(constant), constant

    def origins(self, params: AddParams, inputs: Sequence[Value], output: Value) -> Origins:
        return Origins.ANY if any(x.is_const for x in inputs) else Origins.SUM

    def with_origins(self, node: Node, graph: Graph, x: float, y: float) -> tuple[Node, list[Value]]:
        """A constant takes up both."""
        data = {i: v.data.astype(np.float64) + (x - y) for i, v in enumerate(graph.ins(node)) if v.data is not None}
        return with_constants(node, graph, {i: ("operand", array) for i, array in data.items() if x != y})

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """A Sum is a chain."""
        terms = list(node.inputs)
        if len(terms) == 1:
            return to.rename(node.outputs[0], to.value(terms[0]))
        chained(to, self.name, terms, AddParams(), node.outputs[0])
