"""Element-wise sum of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.ops.aligned import Aligned, AlignedParams

if TYPE_CHECKING:
    from nmpconv.frontend.onnx import Importer, OnnxNode

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

    def lower(self, node: OnnxNode, to: Importer) -> None:
        """A Sum is a chain."""
        terms = list(node.inputs)
        if len(terms) == 1:
            return to.rename(node.outputs[0], to.value(terms[0]))
        total = to.value(terms[0])
        for term in terms[1:-1]:
            total = to.emit("add", to.aligned(total, to.value(term)), AddParams())
        to.emit("add", to.aligned(total, to.value(terms[-1])), AddParams(), node.outputs[0])
