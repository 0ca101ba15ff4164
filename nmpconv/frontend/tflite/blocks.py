"""Dilated convolutions, as TFLite writes them with a batch that is not fixed: SPACE_TO_BATCH_ND, a convolution without
dilation, BATCH_TO_SPACE_ND.

The first one cuts images into every d-th pixel, the last one joins them again. In ONNX the images stay whole: they are
padded, convolutions between the two are dilated by d, operators on single elements are the same, and the result is
cropped.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.onnx_writer import OperatorCall
from nmpconv.frontend.tflite.rearranging import END
from nmpconv.frontend.tflite.rows import Write

_ELEMENTWISE = {
    *("ABS", "ADD", "DEQUANTIZE", "ELU", "EXP", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MAXIMUM", "MINIMUM"),
    *("MUL", "NEG", "PRELU", "QUANTIZE", "RELU", "RELU6", "RELU_N1_TO_1", "SQUARE", "SUB", "TANH"),
}
INSIDE = {"BATCH_TO_SPACE_ND", "CONV_2D", "DEPTHWISE_CONV_2D", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", *_ELEMENTWISE}


def space_to_batch_nd(call: OperatorCall) -> str:
    block, widths = call.integers(1, "block"), call.array(2, "paddings").reshape(-1, 2).tolist()
    rank = len(call.shape(0))
    if len(block) != len(widths) or not len(block) < rank or min(block) < 1:
        raise ValueError(f"blocks {block} of an input of {rank} dimensions")
    before, after = zip(*widths, strict=True)
    rest = (0,) * (rank - 1 - len(block))
    call.block = tuple(block)
    return call("Pad", call.input(0), np.array([0, *before, *rest, 0, *after, *rest], np.int64))


def batch_to_space_nd(call: OperatorCall) -> str:
    block, crops = tuple(call.integers(1, "block")), call.array(2, "crops").reshape(-1, 2).tolist()
    if call.block != block:
        raise Unsupported(f"blocks {list(block)} of images cut into {list(call.block)}", hint="the same blocks")
    call.block = ()
    starts, ends = zip(*((start, -end if end else END) for start, end in crops), strict=True)
    axes = range(1, 1 + len(block))
    return call("Slice", call.input(0), *(np.array(list(numbers), np.int64) for numbers in (starts, ends, axes)))


ROWS: Mapping[str, Write] = {
    "BATCH_TO_SPACE_ND": batch_to_space_nd,
    "SPACE_TO_BATCH_ND": space_to_batch_nd,
}
