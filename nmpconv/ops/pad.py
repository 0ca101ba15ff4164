"""Constant padding: inputs x and a scalar constant value [1]; pads are (before, after) of each axis in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmpconv.ir import Value
from nmpconv.ops.op import Op


@dataclass(frozen=True)
class PadParams:
    pads: tuple[int, ...] = ()


class Pad(Op):
    name = "pad"
    Params = PadParams
    grid = "same"
    onnx = ("Pad",)

    def infer(self, params: PadParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        pads = params.pads
        return [tuple(d + pads[2 * i] + pads[2 * i + 1] for i, d in enumerate(inputs[0].shape))]
