"""Element-wise product of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class MulParams:
    pass


class Mul(Op):
    name = "mul"
    Params = MulParams
    clamps = True
    in_place = True
    onnx = ("Mul",)

    def infer(self, params: MulParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [np.broadcast_shapes(*(x.shape for x in inputs))]
