"""A permutation of the axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class TransposeParams:
    perm: tuple[int, ...] = ()


class Transpose(Op):
    name = "transpose"
    Params = TransposeParams
    grid = "same"
    onnx = ("Transpose",)

    def infer(self, params: TransposeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [tuple(inputs[0].shape[p] for p in params.perm)]
