"""StableHLO's reduction of windows along any axes, which PyTorch's exporter to TFLite writes for pools with padding."""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.onnx_writer import OperatorCall

_MOST_AXES = 3  # that windows move along
_LEAST = -1e38  # what a window of maxima begins with is not above


def reduce_window(call: OperatorCall, kind: str) -> str:
    """A pool, with the axes that windows move along behind the others. kind: operator that joins two elements."""
    first = float(call.array(1, "first value").item())
    if not (kind == "ADD" and first == 0) and not (kind == "MAXIMUM" and first <= _LEAST):
        raise Unsupported(f"windows joined by {kind} from {first:g} on", hint="ADD from 0, or MAXIMUM from -inf")
    shape = call.shape(0)
    windows, strides, dilations, apart = (
        _numbers(call, name, len(shape), 1)
        for name in ("window_dimensions", "window_strides", "window_dilations", "base_dilations")
    )
    pads = _numbers(call, "padding", 2 * len(shape), 0)
    axes = [i for i in range(len(shape)) if windows[i] > 1 or strides[i] > 1 or any(pads[2 * i : 2 * i + 2])]
    if not 1 <= len(axes) <= _MOST_AXES or max(apart) > 1 or min(shape) < 1:
        raise Unsupported(f"windows along {len(axes)} axes of {list(shape)}", hint=f"1 to {_MOST_AXES}, of fixed sizes")
    order = [*(i for i in range(len(shape)) if i not in axes), *axes]
    still = order[: -len(axes)]
    x = call("Transpose", call.input(0), perm=order)
    planes = np.array([1, np.prod([shape[i] for i in still]), *(shape[i] for i in axes)], np.int64)
    pool = {name: [values[i] for i in axes] for name, values in (("kernel_shape", windows), ("strides", strides))}
    pool |= {"dilations": [dilations[i] for i in axes], "pads": [pads[2 * i + end] for end in (0, 1) for i in axes]}
    if kind == "ADD":
        y = call("AveragePool", call("Reshape", x, planes), count_include_pad=1, **pool)
        y = call("Mul", y, float(np.prod(pool["kernel_shape"])))
    else:
        y = call("MaxPool", call("Reshape", x, planes), **pool)
    result = np.array([call.output().shape[i] for i in order], np.int64)
    return call("Transpose", call("Reshape", y, result), perm=[order.index(i) for i in range(len(shape))])


def _numbers(call: OperatorCall, name: str, count: int, least: int) -> list[int]:
    """One number for each axis, or two; ``least`` where the file has none."""
    numbers = [int(number) for number in call.options[name]] or [least] * count
    if len(numbers) != count or min(numbers) < least:
        raise ValueError(f"{name} {numbers}, {count} numbers from {least} on are allowed")
    return numbers
