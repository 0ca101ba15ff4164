"""A channel attention as an op of this sample's own: y = x * clip(0.5 + slope * mean of the channel, 0, 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.base.fixed_point import div, rsh, sat
from nmpconv.ir import Quant, Value
from nmpconv.ops.builders import OnnxBuilder
from nmpconv.ops.custom_op import CustomCase, CustomOp
from nmpconv.ops.op import QArray

ONE = 256  # the slope is in 256ths
PIXELS_MAX = 65536


class Gate(CustomOp):
    name = "samples.gate::Gate"
    channels_last = True
    keeps_batch = True
    source = Path(__file__).with_name("gate.c")
    row = "gate_op"
    shift = (-15, 15)

    def attributes(self, onnx_attributes: Mapping[str, Any]) -> Sequence[int]:
        return (round(float(onnx_attributes.get("slope", 1.0)) * ONE),)

    def infer(self, attributes: tuple[int, ...], inputs: Sequence[Value]) -> tuple[int, ...]:
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or len(attributes) != 1:
            raise ValueError("it takes [N,C,H,W] and a slope")
        return inputs[0].shape

    def check(self, attributes: tuple[int, ...], inputs: Sequence[Value], output: Value) -> str:
        """The rules of `check` in gate.c."""
        x = inputs[0].quant
        assert x is not None
        _, height, width, _ = inputs[0].shape
        if height * width > PIXELS_MAX or abs(attributes[0]) > 32767:
            return "more than 65536 pixels, or a slope of more than 127"
        return "" if -31 <= x.exponent <= 14 else f"the exponent {x.exponent}"

    def scratch(self, attributes: tuple[int, ...], inputs: Sequence[Value], output: Value) -> int:
        """A sum of 32 bits for each channel."""
        return 4 * inputs[0].shape[-1]

    def macs(self, attributes: tuple[int, ...], inputs: Sequence[Value], output: Value) -> int:
        return output.size

    def instructions(self, attributes: tuple[int, ...], inputs: Sequence[Value], output: Value) -> int:
        return 60 * output.size

    def export(self, attributes: tuple[int, ...], inputs: Sequence[str], output: str, to: OnnxBuilder) -> None:
        mean = to.node("ReduceMean", [inputs[0], to.const([1, 2])])
        sloped = to.node("Mul", [mean, to.const(np.float32(attributes[0] / ONE))])
        raised = to.node("Add", [sloped, to.const(np.float32(0.5))])
        gate = to.node("Clip", [raised, to.const(np.float32(0)), to.const(np.float32(1))])
        to.node("Mul", [inputs[0], gate], output)

    def reference(self, attributes: tuple[int, ...], inputs: Sequence[QArray], output: Value) -> np.ndarray:
        """m = div(64 * sum, pixels); g = min(max(2^14 + rsh(m * slope, -1 - e_x), 0), 2^15);
        y = sat(rsh(x * g, e_y - e_x + 15))."""
        (x, grid), y = inputs[0], output.quant
        assert y is not None
        q = x.astype(np.int64)
        mean = div(64 * q.sum((1, 2), keepdims=True), np.int64(x.shape[1] * x.shape[2]))
        gate = np.clip(2**14 + rsh(mean * attributes[0], -1 - grid.exponent), 0, 2**15)
        return sat(rsh(q * gate, y.exponent - grid.exponent + 15), y.lo, y.hi)

    def cases(self) -> Iterator[CustomCase]:
        """Both widths, gates that are shut, open and between, the lowest and highest numbers, ends of the shifts."""
        random = np.random.default_rng(0)
        for bits in (8, 16):
            for slope in (-32767, -ONE, 0, 77, ONE, 32767):
                for exponents in ((-bits, 1 - bits), (-31, -40), (-1, 14), (14, -1), (-5, -5)):
                    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
                    for fill in ("random", "low", "high"):
                        q = {
                            "random": random.integers(low, high, (1, 5, 3, 7), endpoint=True),
                            "low": np.full((1, 2, 2, 3), low),
                            "high": np.full((1, 1, 1, 1), high),
                        }[fill].astype(f"int{bits}")
                        x, y = (Quant(bits, (exponent,), low, high) for exponent in exponents)
                        name = f"int{bits}/{slope}/{exponents[0]}to{exponents[1]}/{fill}"
                        yield CustomCase(name, (QArray(q, x),), y, (slope,))
