"""A pointwise function as a table: 256 entries for int8, interpolated for int16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class LookupParams:
    function: str = ""
    alpha: float = 0.0
    beta: float = 0.0


class Lookup(Op):
    name = "lookup"
    Params = LookupParams
    float_only = ("function", "alpha", "beta")
    in_place = True
    onnx = ("Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "LeakyRelu", "Elu")

    def infer(self, params: LookupParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [inputs[0].shape]
