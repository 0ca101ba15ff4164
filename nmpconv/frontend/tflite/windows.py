"""Operators with windows over height and width: convolutions, pools, resizing, LRN. TFLite's layout is [N,H,W,C]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.onnx_writer import OperatorCall
from nmpconv.frontend.tflite.rows import Write
from nmpconv.frontend.tflite.tflite_schema import PADDINGS


def padding_name(call: OperatorCall) -> str:
    number = call.options.get("padding", 0)
    if not 0 <= number < len(PADDINGS):
        raise ValueError(f"padding {number}")
    return PADDINGS[number]


def pad_attributes(
    call: OperatorCall, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int] = (1, 1)
) -> dict[str, Any]:
    """Attributes for the padding. Numbers where sizes are fixed: onnxruntime has no name for it with dilations."""
    sizes, padding = call.shape(0)[1 : 1 + len(kernel)], padding_name(call)
    if padding == "VALID" or min(sizes) < 1:
        return {"auto_pad": padding}
    axes = zip(sizes, kernel, strides, dilations, strict=True)
    total = [max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0) for size, k, s, d in axes]
    before = [pad // 2 for pad in total]
    return {"pads": [*before, *(pad - half for pad, half in zip(total, before, strict=True))]}


def option_sizes(call: OperatorCall, *names: str) -> list[int]:
    """Options of which each is at least 1."""
    numbers = [int(call.options.get(name, 0)) for name in names]
    if wrong := [f"{name} {number}" for name, number in zip(names, numbers, strict=True) if number < 1]:
        raise ValueError(f"{wrong[0]}, at least 1 is allowed")
    return numbers


def _strides(call: OperatorCall) -> list[int]:
    return option_sizes(call, "stride_h", "stride_w")


def _image(call: OperatorCall, place: int = 0) -> str:
    """An input [N,H,W,C] as [N,C,H,W]."""
    if len(call.shape(place)) != 4:
        raise Unsupported(f"an input of {len(call.shape(place))} dimensions", hint="[N,H,W,C]")
    return call.nchw(call.input(place))


def conv_2d(call: OperatorCall) -> str:
    """Weights [O,H,W,I], with groups where the input has more channels than I."""
    channels, weights = call.shape(0)[-1], call.shape(1)[-1]
    group = channels // weights if channels > 0 and weights > 0 else 1
    return _conv(call, call.moved(1, (0, 3, 1, 2)), group)


def depthwise_conv_2d(call: OperatorCall) -> str:
    """Weights [1,H,W,O]."""
    channels = call.shape(0)[-1]
    if channels < 1:
        raise Unsupported("the number of its channels is not fixed", hint="a fixed number")
    return _conv(call, call.moved(1, (3, 0, 1, 2)), channels)


def _conv(call: OperatorCall, weights: str, group: int) -> str:
    strides, dilations = _strides(call), option_sizes(call, "dilation_h_factor", "dilation_w_factor")
    if call.block:
        if strides != [1, 1] or len(call.block) != 2:
            raise Unsupported(f"strides {strides} on images that are cut into blocks", hint="[1, 1]")
        dilations = [dilation * size for dilation, size in zip(dilations, call.block, strict=True)]
    x, pads = _image(call), pad_attributes(call, call.shape(1)[1:3], strides, dilations)
    bias = call.optional(2)
    return call.nhwc(call("Conv", x, weights, *bias, strides=strides, dilations=dilations, group=group, **pads))


def transpose_conv(call: OperatorCall) -> str:
    """Sizes of the result, weights [O,H,W,I], the input, a bias. Where sizes are not fixed, they are the input's times
    the strides."""
    asked = call.integers(0, "sizes") if call.is_const(0) else list(call.output().shape)
    return _transposed(call, 2, asked, padding_name(call), _strides(call), *call.optional(3))


def transpose_conv_bias(call: OperatorCall) -> str:
    """MediaPipe's: the input, weights [O,H,W,I], a bias. Options: padding from 1 on, strides of width and of height.

    Source: MediaPipe, transpose_conv_bias.cc.
    """
    padding, width, height = (int(number) for number in call.options["bytes"][:12].view("<i4"))
    if padding not in (1, 2) or min(width, height) < 1:
        raise ValueError(f"padding {padding}, strides {height} and {width}")
    asked = list(call.output().shape)
    return _transposed(call, 0, asked, PADDINGS[padding - 1], [height, width], call.input(2))


def _transposed(
    call: OperatorCall, place: int, asked: Sequence[int], padding: str, strides: Sequence[int], *bias: str
) -> str:
    """place: of the input. asked: shape of the result.

    Source: LiteRT, ComputePaddingHeightWidth: the padding is that of the convolution the other way.
    """
    sizes, kernel = call.shape(place)[1:3], call.shape(1)[1:3]
    attributes: dict[str, Any] = {"strides": list(strides)}
    if min(*asked[1:3], *sizes) < 1:
        attributes["auto_pad"] = padding
    else:
        axes = zip(sizes, asked[1:3], kernel, strides, strict=True)
        befores, afters = zip(*(margins(padding, *numbers) for numbers in axes), strict=True)
        attributes["pads"] = [*befores, *(max(after, 0) for after in afters)]
        attributes["output_padding"] = [max(-after, 0) for after in afters]
    return call.nhwc(call("ConvTranspose", _image(call, place), call.moved(1, (3, 0, 1, 2)), *bias, **attributes))


def margins(padding: str, size: int, asked: int, kernel: int, stride: int) -> tuple[int, int]:
    """Widths that are cut from the start and from the end of one axis, or added to it where they are negative."""
    steps = -(-asked // stride) if padding == "SAME_UPPER" else (asked + stride - kernel) // stride
    before = max((steps - 1) * stride + kernel - asked, 0) // 2
    return before, (size - 1) * stride + kernel - before - asked


def _pool(kind: str, call: OperatorCall, x: str) -> str:
    kernel, strides = option_sizes(call, "filter_height", "filter_width"), _strides(call)
    return call.nhwc(call(kind, x, kernel_shape=kernel, strides=strides, **pad_attributes(call, kernel, strides)))


def average_pool_2d(call: OperatorCall) -> str:
    return _pool("AveragePool", call, _image(call))


def max_pool_2d(call: OperatorCall) -> str:
    return _pool("MaxPool", call, _image(call))


def l2_pool_2d(call: OperatorCall) -> str:
    x = _image(call)
    return call("Sqrt", _pool("AveragePool", call, call("Mul", x, x)))


def resize_bilinear(call: OperatorCall) -> str:
    return _resized(call, mode="linear")


def resize_nearest_neighbor(call: OperatorCall) -> str:
    """Pixels are chosen by floor, or where corners or centres are aligned, by rounding half up."""
    rounds = call.options.get("align_corners") or call.options.get("half_pixel_centers")
    return _resized(call, mode="nearest", nearest_mode="round_prefer_ceil" if rounds else "floor")


def _resized(call: OperatorCall, **attributes: Any) -> str:
    if call.options.get("align_corners"):
        coordinates = "align_corners"
    else:
        coordinates = "half_pixel" if call.options.get("half_pixel_centers") else "asymmetric"
    x, (batch, _, _, channels) = _image(call), call.shape(0)
    if channels < 1:
        raise Unsupported("the number of its channels is not fixed", hint="a fixed number")
    sizes = np.array([max(batch, 1), channels, *call.integers(1, "sizes")], np.int64)
    return call.nhwc(call("Resize", x, "", "", sizes, coordinate_transformation_mode=coordinates, **attributes))


def local_response_normalization(call: OperatorCall) -> str:
    """TFLite's alpha is of the sum of squares, ONNX's of their mean."""
    radius = int(call.options.get("radius", 0))
    alpha, beta, bias = (float(call.options.get(name, 0.0)) for name in ("alpha", "beta", "bias"))
    size = 2 * radius + 1
    return call.nhwc(call("LRN", _image(call), size=size, alpha=alpha * size, beta=beta, bias=bias))


def depth_to_space(call: OperatorCall) -> str:
    return _blocks("DepthToSpace", call)


def space_to_depth(call: OperatorCall) -> str:
    return _blocks("SpaceToDepth", call)


def _blocks(kind: str, call: OperatorCall) -> str:
    return call.nhwc(call(kind, _image(call), blocksize=option_sizes(call, "block_size")[0]))


ROWS: Mapping[str, Write] = {
    "Convolution2DTransposeBias": transpose_conv_bias,
    "AVERAGE_POOL_2D": average_pool_2d,
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "DEPTH_TO_SPACE": depth_to_space,
    "L2_POOL_2D": l2_pool_2d,
    "LOCAL_RESPONSE_NORMALIZATION": local_response_normalization,
    "MAX_POOL_2D": max_pool_2d,
    "RESIZE_BILINEAR": resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": resize_nearest_neighbor,
    "SPACE_TO_DEPTH": space_to_depth,
    "TRANSPOSE_CONV": transpose_conv,
}
