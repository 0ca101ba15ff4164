"""A strided block: starts, sizes and steps of every axis; a negative step walks backwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class SliceParams:
    starts: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


class Slice(Op):
    name = "slice"
    Params = SliceParams
    grid = "same"
    onnx = ("Slice",)

    def infer(self, params: SliceParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [params.sizes]
