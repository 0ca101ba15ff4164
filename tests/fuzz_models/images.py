"""Steps for [N,C,W] and [N,C,H,W]: convolutions, pools, normalizations, sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz_models.net import Net, Reject

Attributes = dict[str, Any]


def batch_norm(net: Net, x: str) -> str:
    channels = net.shape(x)[1]
    scale = net.weights(channels, like=x, spread=0.3, middle=1.0)
    bias = net.weights(channels, like=x, spread=net.among(0.5, 0.5, 5.0))
    mean = net.weights(channels, like=x, spread=0.5)
    low = net.among(0.3, 0.3, 1e-4)
    variance = net.const(np.asarray(net.noise.uniform(low, 2, channels), np.float32), x)
    return net.add("BatchNormalization", x, scale, bias, mean, variance, epsilon=net.among(1e-5, 1e-3))


def act(net: Net, x: str) -> str:
    """An op that follows a convolution."""
    kind = net.among("Relu", "Relu", "Relu6", "LeakyRelu", "Sigmoid", "none")
    if kind == "none":
        return x
    if kind != "Relu6":
        return net.add(kind, x)
    if net.opset < 11:
        return net.add("Clip", x, min=0.0, max=6.0)
    return net.add("Clip", x, net.const(np.float32(0), x), net.const(np.float32(6), x))


def window(net: Net, x: str, *, most: int = 3) -> tuple[list[int], Attributes]:
    """A kernel that fits, and strides and pads or auto_pad."""
    plane = net.shape(x)[2:]
    kernel = [net.dice.randint(1, min(most, n)) for n in plane]
    strides = [net.among(1, 1, 2) for _ in plane]
    attributes: Attributes = {} if net.chance(0.3) else {"strides": strides}
    if net.chance(0.2):
        return kernel, attributes | {"auto_pad": net.among("SAME_UPPER", "SAME_LOWER", "VALID")}
    if net.chance(0.6):
        before, after = ([net.dice.randint(0, k // 2) for k in kernel] for _ in range(2))
        attributes["pads"] = [*before, *(before if net.chance(0.6) else after)]
    return kernel, attributes


def conv(net: Net, x: str) -> str:
    channels = net.shape(x)[1]
    group = net.dice.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    outputs = group * net.among(1, 1, 2, 3) if group > 1 else net.among(1, 2, 3, 4, 6, 8)
    kernel, attributes = window(net, x)
    fan = channels // group * int(np.prod(kernel))
    spread = net.among(1.4, 1.4, 1.4, 0.1, 5.0) * fan**-0.5
    w = net.weights(outputs, channels // group, *kernel, like=x, spread=spread)
    if net.chance(0.06):  # weights whose sums are 0, as edge detectors have them
        data = net.fixed(w)
        if data is not None and w in net.constants:
            w = net.const(data - data.mean(axis=(1, 2, 3) if data.ndim == 4 else (1, 2), keepdims=True), x)
    bias = net.weights(outputs, like=x, spread=net.among(0.2, 0.2, 1.0, 10.0)) if net.chance(0.7) else ""
    if max(kernel) > 1 and net.chance(0.1):
        attributes["dilations"] = [
            min(2, (n - 1) // max(k - 1, 1)) or 1 for n, k in zip(net.shape(x)[2:], kernel, strict=True)
        ]
    named = {"kernel_shape": kernel} if net.chance(0.7) else {}
    return net.add("Conv", x, w, *([bias] if bias else []), group=group, **named, **attributes)


def conv_block(net: Net, x: str) -> str:
    y = conv(net, x)
    y = batch_norm(net, y) if net.chance(0.6) else y
    return act(net, y)


def conv_transpose(net: Net, x: str) -> str:
    channels = net.shape(x)[1]
    group = net.dice.choice([g for g in (1, 1, channels) if channels % g == 0])
    plane = net.shape(x)[2:]
    kernel = [net.dice.randint(1, 3) for _ in plane]
    w = net.weights(channels, net.among(1, 2, 3), *kernel, like=x, spread=0.5)
    strides = [net.among(1, 2) for _ in plane]
    attributes: Attributes = {"strides": strides, "group": group}
    if net.chance(0.5):
        attributes["pads"] = [net.dice.randint(0, k) for k in kernel * 2]  # k: one beyond the reach of a tap
    if net.chance(0.3):
        attributes["output_padding"] = [net.dice.randint(0, s - 1) for s in strides]
    outputs = net.shape(w)[1] * group
    return net.add("ConvTranspose", x, w, *([net.weights(outputs, like=x)] if net.chance(0.5) else []), **attributes)


def pool(net: Net, x: str) -> str:
    kind = net.among("MaxPool", "AveragePool")
    kernel, attributes = window(net, x, most=4)
    if net.opset >= 10 and "auto_pad" not in attributes and net.chance(0.4):
        attributes["ceil_mode"] = 1
    if kind == "AveragePool" and net.chance(0.5):
        attributes["count_include_pad"] = 1
    if "pads" in attributes and any(p >= k for p, k in zip(attributes["pads"], kernel * 2, strict=True)):
        raise Reject("a window in the padding")
    return net.add(kind, x, kernel_shape=kernel, **attributes)


def global_pool(net: Net, x: str) -> str:
    return net.add(net.among("GlobalAveragePool", "GlobalMaxPool"), x)


def pad_before(net: Net, x: str) -> str:
    """A Pad node where the layer could pad itself, as TensorFlow's exporters write it."""
    plane = len(net.shape(x)) - 2
    pads = [0, 0, *(net.among(0, 1, 1) for _ in range(plane)), 0, 0, *(net.among(0, 1, 1) for _ in range(plane))]
    y = net.add("Pad", x, pads=pads) if net.opset < 11 else net.add("Pad", x, net.const(pads))
    return net.among(conv, conv, pool)(net, y)


def _spread(net: Net, x: str, channels: int) -> None:
    """Reject where a mean would be that of one element: what is left is 0, and noise of float32."""
    if channels * int(np.prod(net.shape(x)[2:])) < 2:
        raise Reject("one element has no variance")


def instance_norm(net: Net, x: str) -> str:
    c = net.shape(x)[1]
    _spread(net, x, 1)
    weights = net.weights(c, like=x, spread=0.3, middle=1.0), net.weights(c, like=x, spread=0.5)
    return net.add("InstanceNormalization", x, *weights, epsilon=net.among(1e-5, 1e-3))


def group_norm(net: Net, x: str) -> str:
    net.since(18)
    c = net.shape(x)[1]
    groups = net.dice.choice([g for g in range(1, c + 1) if c % g == 0])
    _spread(net, x, c // groups)
    size = c if net.opset >= 21 else groups
    weights = net.weights(size, like=x, spread=0.3, middle=1.0), net.weights(size, like=x, spread=0.5)
    return net.add("GroupNormalization", x, *weights, num_groups=groups, epsilon=1e-3)


def variance_norm(net: Net, x: str) -> str:
    net.since(9)
    _spread(net, x, 1)
    axes = {} if net.chance(0.4) else {"axes": net.among([0, 2, 3], [0, 1, 2, 3], [2, 3])}
    return net.add("MeanVarianceNormalization", x, **axes)


def lrn(net: Net, x: str) -> str:
    alpha, bias = net.among(1e-4, 1e-2, 1.0), net.among(1.0, 2.0)
    return net.add("LRN", x, size=net.among(1, 3, 5), alpha=alpha, beta=net.among(0.75, 0.5), bias=bias)


def shuffle(net: Net, x: str) -> str:
    if net.chance(0.5):
        mode = {"mode": net.among("DCR", "CRD")} if net.opset >= 11 else {}
        return net.add("DepthToSpace", x, blocksize=2, **mode)
    return net.add("SpaceToDepth", x, blocksize=2)


def _tie(net: Net, size: int) -> float:
    """A scale by which a result lies half-way between two numbers of so many, but for rounding (half_pixel)."""
    below = net.dice.randint(0, size - 1)
    return (below + net.among(1, 2) + 0.5) / (below + 1)


def resize(net: Net, x: str) -> str:
    """By whole scales, by fractions, or to sizes; every way to place and to round."""
    shape = net.shape(x)
    plane = [net.among(1.0, 2.0, 2.0, 3.0, 0.5, 1.5, _tie(net, n)) for n in shape[2:]]
    if net.opset < 11:
        plane = [max(scale, 1.0) for scale in plane]
        mode = net.among("nearest", "linear")
        scales = [1.0, 1.0, *plane]
        if net.opset < 9:
            return net.add("Upsample", x, mode=mode, scales=scales)
        name = net.const(np.array(scales, np.float32))
        return net.add("Upsample" if net.opset == 9 else "Resize", x, name, mode=mode)
    sizes = [*shape[:2], *(max(int(n * scale), 1) for n, scale in zip(shape[2:], plane, strict=True))]
    roi = "" if net.opset >= 13 else net.const(np.zeros(0, np.float32))
    transforms = ("half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners")
    mode = net.among("nearest", "linear", "linear", "cubic")
    attributes: Attributes = {"mode": mode, "coordinate_transformation_mode": net.among(*transforms)}
    if mode == "nearest":
        attributes["nearest_mode"] = net.among("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic" and net.chance(0.5):
        attributes |= {"cubic_coeff_a": net.among(-0.5, -0.75), "exclude_outside": net.among(0, 1)}
    if net.opset >= 18 and mode != "nearest" and net.chance(0.3):
        attributes["antialias"] = 1
    if net.chance(0.5):
        return net.add(
            "Resize",
            x,
            roi,
            net.const(np.zeros(0, np.float32)) if net.opset < 13 else "",
            net.const(sizes),
            **attributes,
        )
    return net.add("Resize", x, roi, net.const(np.array([1.0, 1.0, *plane], np.float32)), **attributes)


def warp(net: Net, x: str) -> str:
    """GridSample at constant places, some of them outside, or at those that a layer finds, alone or beside a grid."""
    net.since(16)
    count, channels, *plane = net.shape(x)
    mode = net.among("linear" if net.opset >= 20 else "bilinear", "nearest")
    padding = net.among("zeros", "border", "reflection")
    attributes: Attributes = {"mode": mode, "padding_mode": padding, "align_corners": net.among(0, 1)}
    size = [net.dice.randint(1, 6) for _ in plane] if net.chance(0.5) else plane
    if net.chance(0.4):
        places = net.noise.uniform(-1, 1, (count, *size, 2)) * net.among(0.7, 1.0, 1.3, 3.0)
        return net.add("GridSample", x, net.const(np.asarray(places, np.float32), x), **attributes)
    flow = net.add("Conv", x, net.weights(2, channels, 1, 1, like=x, spread=channels**-0.5))
    flow = net.add("Transpose", net.add("Tanh", flow), perm=[0, 2, 3, 1])
    if net.chance(0.5):
        down, right = np.meshgrid(*(np.linspace(-1, 1, n) for n in plane), indexing="ij")
        flow = net.add("Mul", flow, net.const(np.float32(net.among(0.1, 0.5)), x))
        flow = net.add("Add", flow, net.const(np.asarray(np.stack([right, down], -1)[np.newaxis], np.float32), x))
    return net.add("GridSample", x, flow, **attributes)


def quantized(net: Net, x: str) -> str:
    """QuantizeLinear and DequantizeLinear."""
    net.since(10)
    if net.half:
        raise Reject("float32 only")
    kind = net.among(np.int8, np.uint8)
    zero = net.const(np.asarray(0 if kind is np.int8 else net.among(0, 128), kind))
    scale = net.const(np.float32(max(net.largest(x), 1e-3) / 127))
    return net.add("DequantizeLinear", net.add("QuantizeLinear", x, scale, zero), scale, zero)


LINES = (conv, conv_block, conv_block, pool, batch_norm, instance_norm, global_pool, pad_before, conv_transpose)
IMAGES = (
    *(conv_block,) * 6,
    *(conv, conv, conv_transpose, pool, pool, batch_norm, global_pool, pad_before, pad_before, instance_norm),
    *(group_norm, variance_norm, lrn, quantized, shuffle, shuffle, resize, resize, resize, warp),
)
