"""Element-wise sum of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class AddParams:
    pass


class Add(Op):
    name = "add"
    Params = AddParams
    clamps = True
    in_place = True
    onnx = ("Add",)

    def infer(self, params: AddParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [np.broadcast_shapes(*(x.shape for x in inputs))]
