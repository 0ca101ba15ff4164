"""The same elements in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class ReshapeParams:
    shape: tuple[int, ...] = ()


class Reshape(Op):
    name = "reshape"
    Params = ReshapeParams
    grid = "same"
    in_place = True
    onnx = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")

    def infer(self, params: ReshapeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [params.shape]
