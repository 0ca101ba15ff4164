"""A dozen published architectures in small, as PyTorch exports their blocks, with seeded weights: x [1,3,32,32]."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx_net import Net

SHAPE = (1, 3, 32, 32)

# -- parts ------------------------------------------------------------------------------------------------------------


def norm(net: Net, x: str) -> str:
    """BatchNormalization with statistics as of training."""
    channels = net.shape(x)[1]
    scale, bias, mean = (net.weights(channels, spread=0.2, middle=middle) for middle in (1.0, 0.5, 0.0))
    return net.add(
        "BatchNormalization",
        x,
        scale,
        bias,
        mean,
        net.const(np.exp(net.noise.normal(0, 0.3, channels)).astype(np.float32)),
    )


def conv(net: Net, x: str, outputs: int, kernel: int = 3, act: str = "Relu", **attributes: object) -> str:
    """With BatchNormalization and an activation, if any."""
    y = norm(net, net.conv(x, outputs, kernel, bias=False, **attributes))
    return activated(net, y, act)


def activated(net: Net, x: str, act: str) -> str:
    if act == "silu":
        return net.add("Mul", x, net.add("Sigmoid", x))
    if act == "gelu":  # as it was written out before opset 20
        inner = net.add("Add", net.add("Erf", net.add("Div", x, net.const(math.sqrt(2)))), net.const(1.0))
        return net.add("Mul", net.add("Mul", x, inner), net.const(0.5))
    return net.add(act, x) if act else x


def linear(net: Net, x: str, outputs: int) -> str:
    inputs = net.shape(x)[-1]
    return net.add(
        "Add", net.weights(outputs, spread=0.1), net.add("MatMul", x, net.weights(inputs, outputs, spread=inputs**-0.5))
    )


def layer_norm(net: Net, x: str, **attributes: object) -> str:
    size = net.shape(x)[-1]
    scale, bias = net.weights(size, spread=0.1, middle=1.0), net.weights(size, spread=0.1)
    return net.add("LayerNormalization", x, scale, bias, **attributes)


def reshaped(net: Net, x: str, *shape: int) -> str:
    return net.add("Reshape", x, net.const(list(shape)))


def turned(net: Net, x: str, *perm: int) -> str:
    return net.add("Transpose", x, perm=list(perm))


def tokens(net: Net, x: str) -> str:
    """[1,C,H,W] as [1,H*W,C]."""
    _, c, h, w = net.shape(x)
    return turned(net, reshaped(net, x, 1, c, h * w), 0, 2, 1)


def attention(net: Net, x: str, heads: int, bias: str = "") -> str:
    """Self-attention of tokens [N,T,C]; q, k and v from one product. bias: of the scores."""
    n, t, c = net.shape(x)
    qkv = turned(net, reshaped(net, linear(net, x, 3 * c), n, t, 3, heads, c // heads), 2, 0, 3, 1, 4)
    q, k, v = (net.add("Gather", qkv, net.const(np.array(i)), axis=0) for i in range(3))
    q = net.add("Mul", q, net.const((c / heads) ** -0.5))
    scores = net.add("MatMul", q, turned(net, k, 0, 1, 3, 2))
    scores = net.add("Add", scores, bias) if bias else scores
    y = turned(net, net.add("MatMul", net.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
    return linear(net, reshaped(net, y, n, t, c), c)


def encoder(net: Net, x: str, heads: int, act: str = "gelu", bias: str = "") -> str:
    """A block of a transformer, its norms first."""
    x = net.add("Add", x, attention(net, layer_norm(net, x), heads, bias))
    y = linear(net, activated(net, linear(net, layer_norm(net, x), 2 * net.shape(x)[-1]), act), net.shape(x)[-1])
    return net.add("Add", x, y)


def pooled(net: Net, x: str, classes: int = 10) -> str:
    return linear(net, net.add("Flatten", net.add("GlobalAveragePool", x)), classes)


def squeezed(net: Net, x: str, inner: int, double: bool = False) -> str:
    """Squeeze and excitation; by twice the gate as NFNets have it."""
    gate = net.add("Relu", net.conv(net.add("GlobalAveragePool", x), inner, 1))
    gate = net.add("Sigmoid", net.conv(gate, net.shape(x)[1], 1))
    return net.add("Mul", x, net.add("Mul", gate, net.const(2.0)) if double else gate)


# -- with convolutions ------------------------------------------------------------------------------------------------


def regnet(net: Net) -> list[str]:
    """RegNetY: grouped convolutions, squeeze and excitation, residuals."""
    x = conv(net, "x", 16, strides=[2, 2])
    for stride, width in ((1, 16), (2, 32), (1, 32)):
        y = conv(net, conv(net, x, width, 1), width, group=4, strides=[stride] * 2)
        y = conv(net, squeezed(net, y, 8), width, 1, act="")
        skip = x if net.shape(x) == net.shape(y) else conv(net, x, width, 1, act="", strides=[stride] * 2)
        x = net.add("Relu", net.add("Add", y, skip))
    return [pooled(net, x)]


def nfnet(net: Net) -> list[str]:
    """NFNet: weights that are standardized in the graph, scaled activations, no normalization of activations."""

    def scaled(x: str) -> str:
        return net.add("Mul", activated(net, x, "silu"), net.const(1.7881293296813965))

    def standardized(x: str, outputs: int, kernel: int, **attributes: object) -> str:
        inputs = net.shape(x)[1] // int(attributes.get("group", 1))  # type: ignore[call-overload]
        raw = net.weights(outputs, inputs, kernel, kernel, spread=0.5, middle=0.2)
        gain = net.const(np.full(outputs, (inputs * kernel**2) ** -0.5, np.float32))
        none, ones = net.const(np.zeros(outputs, np.float32)), net.const(np.ones(outputs, np.float32))
        row = reshaped(net, raw, 1, outputs, -1)
        flat = net.add("BatchNormalization", row, gain, none, none, ones, outputs=3, training_mode=1, epsilon=1e-6)
        w = reshaped(net, flat, outputs, inputs, kernel, kernel)
        return net.add("Conv", x, w, net.weights(outputs, spread=0.1), pads=[kernel // 2] * 4, **attributes)

    x = standardized("x", 16, 3, strides=[2, 2])
    for beta in (1.0, 0.95):
        y = scaled(net.add("Mul", x, net.const(beta)))
        y = scaled(standardized(y, 8, 1))
        y = standardized(scaled(standardized(y, 8, 3, group=2)), 16, 1)
        y = net.add("Mul", squeezed(net, y, 4, double=True), net.const(0.2))
        x = net.add("Add", y, x)
    return [pooled(net, scaled(x))]


def convnext(net: Net) -> list[str]:
    """ConvNeXt-V2: large depthwise kernels, LayerNorm over channels, global response normalization."""
    x = turned(net, net.conv("x", 16, 4, strides=[4, 4], pads=[0] * 4), 0, 2, 3, 1)
    x = turned(net, layer_norm(net, x, epsilon=1e-6), 0, 3, 1, 2)
    for _ in range(2):
        y = turned(net, net.conv(x, 16, 7, group=16), 0, 2, 3, 1)
        y = activated(net, linear(net, layer_norm(net, y, epsilon=1e-6), 64), "gelu")
        length = net.add("ReduceL2", y, net.const([1, 2]), keepdims=1)
        mean = net.add("Add", net.add("ReduceMean", length, net.const([-1]), keepdims=1), net.const(1e-6))
        shared = net.add("Mul", y, net.add("Div", length, mean))
        part = net.add("Add", net.add("Mul", shared, net.weights(64, spread=0.5)), net.weights(64, spread=0.1))
        y = turned(net, linear(net, net.add("Add", y, part), 16), 0, 3, 1, 2)
        x = net.add("Add", x, y)
    return [pooled(net, x)]


def poolformer(net: Net) -> list[str]:
    """Pools less their input instead of attention, GroupNorm of one group, layer scale."""
    x = net.conv("x", 16, 7, strides=[4, 4])

    def normed(x: str) -> str:
        flat = net.add(
            "InstanceNormalization",
            reshaped(net, x, 1, 1, -1),
            net.const(np.ones(1, np.float32)),
            net.const(np.zeros(1, np.float32)),
        )
        y = net.add("Mul", reshaped(net, flat, *net.shape(x)), net.weights(16, 1, 1, spread=0.1, middle=1.0))
        return net.add("Add", y, net.weights(16, 1, 1, spread=0.1))

    def scaled(x: str, y: str) -> str:
        return net.add("Add", x, net.add("Mul", y, net.weights(16, 1, 1, spread=0.3)))

    for _ in range(2):
        y = normed(x)
        mean = net.add("AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=0)
        x = scaled(x, net.add("Sub", mean, y))
        x = scaled(x, net.conv(activated(net, net.conv(normed(x), 64, 1), "gelu"), 16, 1))
    return [pooled(net, x)]


def pspnet(net: Net) -> list[str]:
    """A pyramid of adaptive pools, resized and joined; a mask as large as the image."""
    x = conv(net, conv(net, "x", 16, strides=[2, 2]), 24, strides=[2, 2], pads=[3] * 4)  # [1,24,10,10]: none divides it
    x = net.add("MaxPool", x, kernel_shape=[3, 3], pads=[2] * 4)  # 12
    joined = [x]
    for cells in (1, 2, 3, 6):
        if cells == 1:
            y = net.add("GlobalAveragePool", x)
        else:
            y = net.add("AveragePool", x, kernel_shape=[12 // cells] * 2, strides=[12 // cells] * 2)
        y = net.add("Relu", net.conv(y, 6, 1)) if cells == 1 else conv(net, y, 6, 1)
        size = net.const([1, 6, 12, 12])
        joined.append(net.add("Resize", y, "", "", size, mode="linear", coordinate_transformation_mode="align_corners"))
    x = conv(net, net.add("Concat", *joined, axis=1), 16)
    return [net.add("Resize", net.conv(x, 3), "", net.const(np.float32([1, 1, 4, 4])), mode="linear")]


def unet(net: Net) -> list[str]:
    """An encoder, and a decoder of transposed convolutions and resized maps that are joined with its maps."""
    skips = [conv(net, conv(net, "x", 8), 8)]
    for width in (16, 24):
        half = net.add("MaxPool", skips[-1], kernel_shape=[2, 2], strides=[2, 2])
        skips.append(conv(net, conv(net, half, width), width))
    weights = net.weights(24, 16, 2, 2, spread=0.2)
    up = net.add("ConvTranspose", skips[2], weights, net.weights(16, spread=0.1), strides=[2, 2])
    x = conv(net, net.add("Concat", up, skips[1], axis=1), 16)
    up = net.add("Resize", x, "", net.const(np.float32([1, 1, 2, 2])), mode="nearest")
    x = conv(net, conv(net, net.add("Concat", up, skips[0], axis=1), 8), 8)
    return [net.add("Sigmoid", net.conv(x, 1))]


def yolo(net: Net) -> list[str]:
    """YOLOv8-obb: C2f, boxes as distributions over distances (DFL), an angle, classes."""
    x = conv(net, conv(net, "x", 16, act="silu", strides=[2, 2]), 16, act="silu", strides=[2, 2])
    parts = [
        net.add("Slice", conv(net, x, 16, 1, act="silu"), net.const([i]), net.const([i + 8]), net.const([1]))
        for i in (0, 8)
    ]
    inner = conv(net, conv(net, parts[1], 8, act="silu"), 8, act="silu")
    parts.append(net.add("Add", parts[1], inner))
    x = conv(net, net.add("Concat", *parts, axis=1), 24, 1, act="silu")
    small = net.add("MaxPool", x, kernel_shape=[5, 5], pads=[2] * 4)
    x = conv(net, net.add("Concat", x, small, axis=1), 24, 1, act="silu")

    def head(channels: int) -> str:
        y = net.conv(conv(net, x, 16, act="silu"), channels, 1)
        return reshaped(net, y, 1, channels, 64)

    bins = turned(net, reshaped(net, head(64), 1, 4, 16, 64), 0, 2, 1, 3)
    places = net.const(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1))
    sides = reshaped(net, net.add("Conv", net.add("Softmax", bins, axis=1), places), 1, 4, 64)
    near, far = (net.add("Slice", sides, net.const([i]), net.const([i + 2]), net.const([1])) for i in (0, 2))
    angle = net.add("Mul", net.add("Sub", net.add("Sigmoid", head(1)), net.const(0.25)), net.const(math.pi))
    half = net.add("Div", net.add("Sub", far, near), net.const(2.0))
    right, down = (net.add("Slice", half, net.const([i]), net.const([i + 1]), net.const([1])) for i in (0, 1))
    cos, sin = net.add("Cos", angle), net.add("Sin", angle)
    across = net.add("Sub", net.add("Mul", right, cos), net.add("Mul", down, sin))
    along = net.add("Add", net.add("Mul", right, sin), net.add("Mul", down, cos))
    cells = np.stack(np.meshgrid(np.arange(8), np.arange(8))).reshape(1, 2, 64) + 0.5
    centre = net.add("Add", net.add("Concat", across, along, axis=1), net.const(cells.astype(np.float32)))
    boxes = net.add("Mul", net.add("Concat", centre, net.add("Add", near, far), axis=1), net.const(4.0))
    return [boxes, net.add("Concat", net.add("Sigmoid", head(5)), angle, axis=1)]


# -- with attention ---------------------------------------------------------------------------------------------------


def deit(net: Net) -> list[str]:
    """A token for the class, learned places, LayerNorm first, the token's features at the end."""
    x = tokens(net, net.conv("x", 24, 8, strides=[8, 8], pads=[0] * 4))
    x = net.add("Concat", net.weights(1, 1, 24, spread=0.5), x, axis=1)
    x = net.add("Add", x, net.weights(1, 17, 24, spread=0.3))
    for _ in range(2):
        x = encoder(net, x, 3)
    return [linear(net, net.add("Gather", layer_norm(net, x), net.const(np.array(0)), axis=1), 10)]


def swin(net: Net) -> list[str]:
    """Attention in shifted windows with a bias by distance and a mask, and patches that are merged."""
    x = turned(net, net.conv("x", 16, 4, strides=[4, 4], pads=[0] * 4), 0, 2, 3, 1)
    near = np.indices((4, 4)).reshape(2, 16)
    apart = near[:, :, None] - near[:, None] + 3
    for shift in (0, 2):
        table = net.weights(49, 2, spread=0.3)
        rows = net.add("Gather", table, net.const((apart[0] * 7 + apart[1]).ravel()), axis=0)
        bias = reshaped(net, turned(net, reshaped(net, rows, 16, 16, 2), 2, 0, 1), 1, 2, 16, 16)
        y = x
        for axis in (1, 2) if shift else ():
            ends = ([shift], [8]), ([0], [shift])
            y = net.add("Concat", *(net.add("Slice", y, *map(net.const, (*end, [axis]))) for end in ends), axis=axis)
        y = reshaped(net, turned(net, reshaped(net, y, 1, 2, 4, 2, 4, 16), 0, 1, 3, 2, 4, 5), 4, 16, 16)
        if shift:
            zone = np.digitize(np.arange(8), (4, 6))
            zones = (zone[:, None] * 3 + zone).reshape(2, 4, 2, 4).transpose(0, 2, 1, 3).reshape(4, 1, 16)
            hides = np.where(zones == zones.transpose(0, 2, 1), 0, -100).astype(np.float32)
            bias = net.add("Add", bias, net.const(hides[:, None]))
        y = encoder(net, y, 2, bias=bias)
        y = reshaped(net, turned(net, reshaped(net, y, 1, 2, 2, 4, 4, 16), 0, 1, 3, 2, 4, 5), 1, 8, 8, 16)
        x = net.add("Add", x, y)
    corners = [
        net.add("Slice", x, net.const([i, j]), net.const([8, 8]), net.const([1, 2]), net.const([2, 2]))
        for i in (0, 1)
        for j in (0, 1)
    ]
    x = linear(net, layer_norm(net, net.add("Concat", *corners, axis=-1)), 32)
    return [linear(net, net.add("ReduceMean", x, net.const([1, 2]), keepdims=0), 10)]


def levit(net: Net) -> list[str]:
    """BatchNormalization in linear layers, HardSwish, queries at every second place."""
    x = tokens(net, conv(net, conv(net, "x", 16, act="HardSwish", strides=[2, 2]), 24, act="HardSwish", strides=[2, 2]))

    def normed(x: str, outputs: int) -> str:
        n, t, c = net.shape(x)
        y = net.add("MatMul", x, net.weights(c, outputs, spread=c**-0.5))
        return reshaped(net, norm(net, reshaped(net, y, n * t, outputs)), n, t, outputs)

    for step in (1, 2):
        side, heads, width = 8, 3, 8
        kv = turned(net, reshaped(net, normed(x, heads * 3 * width), 1, 64, heads, 3 * width), 0, 2, 1, 3)
        k = net.add("Slice", kv, net.const([0]), net.const([width]), net.const([3]))
        v = net.add("Slice", kv, net.const([width]), net.const([3 * width]), net.const([3]))
        places = reshaped(net, x, 1, side, side, 24)
        if step > 1:
            places = net.add(
                "Slice", places, net.const([0, 0]), net.const([8, 8]), net.const([1, 2]), net.const([2, 2])
            )
        count = (side // step) ** 2
        q = turned(
            net,
            reshaped(net, normed(reshaped(net, places, 1, count, 24), heads * width), 1, count, heads, width),
            0,
            2,
            1,
            3,
        )
        scores = net.add("Mul", net.add("MatMul", q, turned(net, k, 0, 1, 3, 2)), net.const(width**-0.5))
        scores = net.add("Add", scores, net.weights(heads, count, 64, spread=0.3))
        y = turned(net, net.add("MatMul", net.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
        y = normed(net.add("HardSwish", reshaped(net, y, 1, count, 2 * heads * width)), 24)
        x = net.add("Add", x, y) if step == 1 else y
    return [linear(net, net.add("ReduceMean", x, net.const([1]), keepdims=0), 10)]


def efficientvit(net: Net) -> list[str]:
    """Linear weighted of two scales: relu(q) (relu(k)^T [v, 1]), the last column dividing the others."""
    x = conv(net, conv(net, "x", 16, act="HardSwish", strides=[2, 2]), 16, act="HardSwish", strides=[2, 2])
    for _ in range(2):
        qkv = net.conv(x, 48, 1, bias=False)
        wide = net.conv(net.conv(qkv, 48, 5, group=48, bias=False), 48, 1, group=6, bias=False)
        scales = reshaped(net, net.add("Concat", qkv, wide, axis=1), 1, 4, 24, 64)
        q, k, v = (net.add("Slice", scales, net.const([i]), net.const([i + 8]), net.const([2])) for i in (0, 8, 16))
        q, k = net.add("Relu", q), net.add("Relu", k)
        ones = net.add("Pad", v, net.const([0, 0, 0, 0, 0, 0, 1, 0]), net.const(1.0))
        weighted = net.add("MatMul", net.add("MatMul", ones, turned(net, k, 0, 1, 3, 2)), q)
        top = net.add("Slice", weighted, net.const([0]), net.const([8]), net.const([2]))
        low = net.add(
            "Add", net.add("Slice", weighted, net.const([8]), net.const([9]), net.const([2])), net.const(1e-5)
        )
        y = reshaped(net, net.add("Div", top, low), 1, 32, 8, 8)
        x = net.add("Add", x, conv(net, y, 16, 1, act=""))
        y = conv(net, conv(net, x, 32, 1, act="HardSwish"), 32, act="HardSwish", group=32)
        x = net.add("Add", x, conv(net, y, 16, 1, act=""))
    return [pooled(net, x)]


def mobilevit(net: Net) -> list[str]:
    """A transformer over the places that patches of 2x2 have in common, between convolutions."""
    x = conv(net, conv(net, "x", 16, act="silu", strides=[2, 2]), 16, act="silu", strides=[2, 2])
    y = net.conv(conv(net, x, 16, act="silu"), 24, 1, bias=False)
    y = turned(net, reshaped(net, y, 24 * 4, 2, 4, 2), 0, 2, 1, 3)
    y = reshaped(net, turned(net, reshaped(net, y, 1, 24, 16, 4), 0, 3, 2, 1), 4, 16, 24)
    for _ in range(2):
        y = encoder(net, y, 2, act="silu")
    y = reshaped(net, layer_norm(net, y), 1, 4, 16, 24)
    y = turned(net, reshaped(net, turned(net, y, 0, 3, 2, 1), 96, 4, 2, 2), 0, 2, 1, 3)
    y = conv(net, reshaped(net, y, 1, 24, 8, 8), 16, 1, act="silu")
    return [pooled(net, conv(net, net.add("Concat", x, y, axis=1), 16, act="silu"))]


ARCHITECTURES: Mapping[str, Callable[[Net], list[str]]] = {
    "RegNetY": regnet,
    "NFNet": nfnet,
    "ConvNeXt-V2": convnext,
    "PoolFormer": poolformer,
    "PSPNet": pspnet,
    "U-Net": unet,
    "YOLOv8-obb": yolo,
    "DeiT": deit,
    "Swin": swin,
    "LeViT": levit,
    "EfficientViT": efficientvit,
    "MobileViT": mobilevit,
}
