"""The same values on another grid or in another width; with a narrower [lo, hi] it is a Relu, Relu6 or Clip of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class RequantizeParams:
    pass


class Requantize(Op):
    name = "requantize"
    Params = RequantizeParams
    clamps = True
    in_place = True
    onnx = ("Relu", "Clip")

    def infer(self, params: RequantizeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [inputs[0].shape]
