"""Element-wise difference of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nmpconv.ops.add import AddParams
from nmpconv.ops.aligned import Aligned, AlignedParams

if TYPE_CHECKING:
    from nmpconv.frontend.onnx import Importer, OnnxNode


class Sub(Aligned):
    name = "sub"
    Params = AlignedParams
    kind = "Sub"
    combine = np.subtract
    onnx = ("Sub",)

    def affine(self, place: int, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ones = np.ones_like(constant)
        return (ones, -constant) if place == 0 else (-ones, constant)

    def lower(self, node: OnnxNode, to: Importer) -> None:
        """A constant is subtracted by adding its negative, which may merge into a layer."""
        left, right = node.inputs
        if to.is_const(right):
            negative = to.const(-to.array(right, "subtrahend"), right)
            to.emit("add", to.aligned(to.value(left), negative), AddParams(), node.outputs[0])
        else:
            to.emit("sub", to.aligned(to.value(left), to.value(right)), AlignedParams(), node.outputs[0])
