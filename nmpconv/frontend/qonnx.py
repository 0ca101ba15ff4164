"""Quant and BipolarQuant of QONNX.

Quant: QuantizeLinear, Clip, DequantizeLinear; constants are rounded. Where the grid is one for each channel, or has
more than 8 bits, only its ends are left. Source: QONNX's description of its operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from nmpconv.errors import InputError
from nmpconv.frontend.node_rewriter import NodeRewriter
from nmpconv.frontend.toposort import label

DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")  # the newest first
_ROUND: dict[str, Callable[..., Any]] = {
    "ROUND": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ROUND_TO_ZERO": np.trunc,
}  # by rounding_mode


class QonnxRewriter(NodeRewriter):
    def _quant(self, node: onnx.NodeProto) -> None:
        x, y, attributes = node.input[0], node.output[0], self._attributes()
        scale, zero = (self._array(name).astype(np.float64) for name in node.input[1:3])
        bits, signed = round(float(self._array(node.input[3]).item())), bool(attributes.get("signed", 1))
        narrow, mode = int(attributes.get("narrow", 0)), attributes.get("rounding_mode", b"ROUND").decode().upper()
        if not 1 <= bits <= 64 or not (scale > 0).all():
            raise ValueError(f"{bits} bits, scales from {scale.min():g} on")
        low = narrow - 2 ** (bits - 1) if signed else 0
        high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
        constant = x in self._tensors
        if mode not in (_ROUND if constant else ("ROUND",)):
            hint = f"allowed: {', '.join(_ROUND)} for constants, ROUND for others"
            raise InputError(f"{label(node)} has rounding_mode {mode}", where=self._where, hint=hint)
        if constant:
            steps = _ROUND[mode](np.clip(self._array(x) / scale + zero, low, high))
            self._add("Identity", [self._const(((steps - zero) * scale).astype(np.float32))], output=y)
        elif bits <= 8 and scale.size == 1 and zero.size == 1 and low <= zero.item() == round(zero.item()) <= high:
            dtype = np.dtype(np.int8 if signed else np.uint8)
            grid = self._const(np.float32(scale.item())), self._const(np.array(round(zero.item()), dtype))
            q = self._add("QuantizeLinear", [x, *grid])
            if (low, high) != (np.iinfo(dtype).min, np.iinfo(dtype).max):
                q = self._add("Clip", [q, self._const(np.array(low, dtype)), self._const(np.array(high, dtype))])
            self._add("DequantizeLinear", [q, *grid], output=y)
        else:
            ends = [self._const(np.asarray((end - zero) * scale, np.float32)) for end in (low, high)]
            self._add("Min", [self._add("Max", [x, ends[0]]), ends[1]], output=y)

    def _bipolarquant(self, node: onnx.NodeProto) -> None:
        """scale from 0 on, -scale below."""
        x, scale = node.input[0], self._array(node.input[1])
        if x in self._tensors:
            signs = np.where(self._array(x) >= 0, 1, -1) * scale
            self._add("Identity", [self._const(signs.astype(np.float32))], output=node.output[0])
            return
        below = self._add("Cast", [self._add("Less", [x, self._const(np.float32(0))])], to=TensorProto.FLOAT)
        step = self._add("Mul", [below, self._const((-2 * scale).astype(np.float32))])
        self._add("Add", [step, self._const(scale.astype(np.float32))], output=node.output[0])
