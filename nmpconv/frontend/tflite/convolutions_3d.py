"""Convolutions over depth, height and width. TFLite's layout is [N,D,H,W,C]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.onnx_writer import OperatorCall
from nmpconv.frontend.tflite.rows import Write
from nmpconv.frontend.tflite.windows import margins, option_sizes, pad_attributes, padding_name

_TO_FRONT, _TO_BACK = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)  # of channels


def conv_3d(call: OperatorCall) -> str:
    """Weights [D,H,W,I,O]; groups where the input has more channels than I."""
    strides, dilations = _steps(call)
    channels, (*kernel, inputs, _) = call.shape(0)[-1], call.shape(1)
    group = channels // inputs if channels > 0 else 1
    attributes = pad_attributes(call, kernel, strides, dilations)
    weights = call.moved(1, (4, 3, 0, 1, 2))
    return _conv(
        call, "Conv", 0, weights, *call.optional(2), strides=strides, dilations=dilations, group=group, **attributes
    )


def conv_3d_transpose(call: OperatorCall) -> str:
    """Sizes of the result, weights [D,H,W,O,I], the input, a bias."""
    strides, dilations = _steps(call)
    sizes, asked, kernel = call.shape(2)[1:4], call.integers(0, "sizes")[1:4], call.shape(1)[:3]
    if min(sizes) < 1 or dilations != [1, 1, 1]:
        raise Unsupported(f"sizes {list(sizes)}, dilations {dilations}", hint="fixed sizes, no dilations")
    padding, axes = padding_name(call), zip(sizes, asked, kernel, strides, strict=True)
    befores, afters = zip(*(margins(padding, *numbers) for numbers in axes), strict=True)
    return _conv(
        call,
        "ConvTranspose",
        2,
        call.moved(1, (4, 3, 0, 1, 2)),
        *call.optional(3),
        strides=strides,
        pads=[*befores, *(max(after, 0) for after in afters)],
        output_padding=[max(-after, 0) for after in afters],
    )


def _conv(call: OperatorCall, kind: str, place: int, *operands: str, **attributes: Any) -> str:
    """place: of the input."""
    if len(call.shape(place)) != 5:
        raise Unsupported(f"an input of {len(call.shape(place))} dimensions", hint="[N,D,H,W,C]")
    x = call("Transpose", call.input(place), perm=_TO_FRONT)
    return call("Transpose", call(kind, x, *operands, **attributes), perm=_TO_BACK)


def _steps(call: OperatorCall) -> tuple[list[int], list[int]]:
    """Strides and dilations."""
    return (
        option_sizes(call, "stride_d", "stride_h", "stride_w"),
        option_sizes(call, "dilation_d_factor", "dilation_h_factor", "dilation_w_factor"),
    )


ROWS: Mapping[str, Write] = {"CONV_3D": conv_3d, "CONV_3D_TRANSPOSE": conv_3d_transpose}
