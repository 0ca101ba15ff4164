"""Fully connected: x [..., K], w [O, K], b [O] -> [..., O]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class FullyConnectedParams:
    pass


class FullyConnected(Op):
    name = "fully_connected"
    Params = FullyConnectedParams
    clamps = True
    onnx = ("Gemm", "MatMul")

    def infer(self, params: FullyConnectedParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [(*inputs[0].shape[:-1], inputs[1].shape[0])]
