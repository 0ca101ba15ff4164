"""Softmax along one axis, integers only: a table of exponentials and one exact division."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class SoftmaxParams:
    axis: int = -1


class Softmax(Op):
    name = "softmax"
    Params = SoftmaxParams
    onnx = ("Softmax",)

    def infer(self, params: SoftmaxParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [inputs[0].shape]
