"""Concatenation along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class ConcatParams:
    axis: int = 0


class Concat(Op):
    name = "concat"
    Params = ConcatParams
    grid = "same"
    onnx = ("Concat",)

    def infer(self, params: ConcatParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        shape = list(inputs[0].shape)
        shape[params.axis] = sum(x.shape[params.axis] for x in inputs)
        return [tuple(shape)]
