"""Spectra. A tensor of complex numbers is one of reals with a last axis of two, the real and the imaginary part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.arithmetic import LAST
from nmpconv.frontend.tflite.onnx_writer import OperatorCall
from nmpconv.frontend.tflite.rows import Write

_MOVES = {"CONCATENATION", "EXPAND_DIMS", "RESHAPE", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE"}
TAKES_COMPLEX = {"CAST", "COMPLEX_ABS", "IMAG", "REAL", *_MOVES}


def rfft2d(call: OperatorCall) -> str:
    """Spectra over the last two axes, cut or padded to two lengths; the first half along the last axis."""
    height, width = call.integers(1, "lengths")
    *_, rows, _ = call.shape(0)
    rank = len(call.shape(0))
    if height == 1 and rows != 1:
        raise Unsupported(f"one row of {rows}", hint="a slice before it")
    x = call("Unsqueeze", call.input(0), LAST)
    y = call("DFT", x, np.array(width, np.int64), np.array(rank - 1, np.int64), onesided=1)
    return y if height == 1 else call("DFT", y, np.array(height, np.int64), np.array(rank - 2, np.int64))


def complex_abs(call: OperatorCall) -> str:
    return call("ReduceL2", call.input(0), LAST, keepdims=0)


def _part(index: int) -> Write:
    def write(call: OperatorCall) -> str:
        return call("Gather", call.input(0), np.array(index, np.int64), axis=-1)

    return write


ROWS: Mapping[str, Write] = {
    "COMPLEX_ABS": complex_abs,
    "IMAG": _part(1),
    "REAL": _part(0),
    "RFFT2D": rfft2d,
}
