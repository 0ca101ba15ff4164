"""Products of matrices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.onnx_writer import OperatorCall
from nmpconv.frontend.tflite.rows import Write


def fully_connected(call: OperatorCall) -> str:
    """Weights [O,I], constant or computed; the input is [.., I], and all but its last axis are one of the result, or
    stay."""
    if call.options.get("weights_format"):
        raise Unsupported("shuffled weights", hint="weights_format DEFAULT")
    x, shape, weights = call.input(0), call.shape(0), call.shape(1)
    if len(weights) != 2:
        raise ValueError(f"weights of {len(weights)} dimensions")
    if call.options.get("keep_num_dims") and len(shape) > 2:
        return _biased(call, call("MatMul", x, call.moved(1, (1, 0))))
    if len(shape) != 2 or shape[1] != weights[1]:
        x = call("Reshape", x, np.array([-1, weights[1]], np.int64))
    if call.is_const(1):
        return call("Gemm", x, call.input(1), *call.optional(2), transB=1)
    return _biased(call, call("MatMul", x, call.moved(1, (1, 0))))


def _biased(call: OperatorCall, name: str) -> str:
    return call("Add", name, call.input(2)) if call.has(2) else name


def batch_matmul(call: OperatorCall) -> str:
    sides = [_turned(call, place, name) for place, name in enumerate(("adj_x", "adj_y"))]
    return call("MatMul", *sides)


def _turned(call: OperatorCall, place: int, option: str) -> str:
    """A side with its last two axes swapped, where the option says so."""
    if not call.options.get(option):
        return call.input(place)
    *outer, rows, columns = range(len(call.shape(place)))
    return call.moved(place, (*outer, columns, rows))


ROWS: Mapping[str, Write] = {
    "BATCH_MATMUL": batch_matmul,
    "FULLY_CONNECTED": fully_connected,
}
