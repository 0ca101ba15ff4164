"""A network as a TFLite file: of reals, with dynamic ranges, of int8 and of int16 by int8."""

from __future__ import annotations

import numpy as np
from tflite_files import Op, Tensor, constant, tflite

SAMPLES = 16
CONV = {"stride_w": 1, "stride_h": 1, "fused_activation_function": 1}


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def net(kind: str) -> bytes:
    """[1,8,9,3] -> CONV_2D, DEPTHWISE_CONV_2D, ADD, AVERAGE_POOL_2D, RESHAPE, FULLY_CONNECTED, SOFTMAX.

    kind: float32; float16, whose weights are dequantized by operators; dynamic, with weights of int8; int8 or int16,
    with activations of this type.
    """
    shapes = {"x": (1, 8, 9, 3), "c": (1, 8, 9, 6), "d": (1, 8, 9, 6), "s": (1, 8, 9, 6), "p": (1, 4, 4, 6)}
    shapes |= {"f": (1, 96), "g": (1, 5), "y": (1, 5)}
    ranges = {
        "x": (-2, 2),
        "c": (0, 4),
        "d": (0, 4),
        "s": (0, 6),
        "p": (0, 6),
        "f": (0, 6),
        "g": (-12, 12),
        "y": (0, 1),
    }
    tensors: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        scale, zero = grid(kind, *ranges[name]) if kind in ("int8", "int16") else (None, 0)
        tensors[name] = Tensor(shape, "float32" if scale is None else kind, scale=scale, zero=zero)
    ops = [Op("CONV_2D", ("x", "w", "b"), ("c",), "Conv2DOptions", CONV)]
    ops += [Op("DEPTHWISE_CONV_2D", ("c", "v", "k"), ("d",), "DepthwiseConv2DOptions", {**CONV, "depth_multiplier": 1})]
    ops += [Op("ADD", ("c", "d"), ("s",), "AddOptions", {})]
    size = {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2, "padding": 1}
    ops += [Op("AVERAGE_POOL_2D", ("s",), ("p",), "Pool2DOptions", size)]
    tensors["n"] = constant(np.array([-1, 96], np.int32))
    ops += [
        Op("RESHAPE", ("p", "n"), ("f",)),
        Op("FULLY_CONNECTED", ("f", "u", "t"), ("g",), "FullyConnectedOptions", {}),
    ]
    ops += [Op("SOFTMAX", ("g",), ("y",), "SoftmaxOptions", {"beta": 1.0})]
    random = rng()
    for name, shape, axis, source in (("w", (6, 3, 3, 3), 0, "x"), ("v", (1, 3, 3, 6), 3, "c"), ("u", (5, 96), 0, "f")):
        data = random.normal(0, 1.5 / np.sqrt(np.prod(shape) / shape[axis]), shape).astype(np.float32)
        bias = {"w": "b", "v": "k", "u": "t"}[name]
        numbers = random.normal(0, 0.3, shape[axis]).astype(np.float32)
        if kind == "float16":
            tensors[f"{name}16"], tensors[name] = constant(data.astype(np.float16)), Tensor(shape)
            ops.insert(0, Op("DEQUANTIZE", (f"{name}16",), (name,)))
        elif kind == "float32":
            tensors[name] = constant(data)
        else:
            scales = np.abs(data).max(axis=tuple(i for i in range(data.ndim) if i != axis)) / 127
            scales = scales if name != "u" or kind == "dynamic" else np.array([scales.max()])
            sides = [-1 if i == axis and len(scales) > 1 else 1 for i in range(data.ndim)]
            q = np.clip(np.rint(data / scales.reshape(sides)), -127, 127).astype(np.int8)
            tensors[name] = constant(q, scale=scales.astype(np.float32), axis=axis)
        step = tensors[source].scale
        if step is not None:
            wide = np.int32 if kind == "int8" else np.int64
            scale = np.float32(step) * np.float32(tensors[name].scale)
            tensors[bias] = constant(np.rint(numbers / scale).astype(wide), scale=scale, axis=0)
        else:
            tensors[bias] = constant(numbers)
    return tflite(tensors, ops, ["x"], ["y"])


def grid(kind: str, low: float, high: float) -> tuple[float, int]:
    """As LiteRT wants them: int16 without a zero point."""
    if kind == "int16":
        return max(-low, high) / 32767, 0
    if (low, high) == (0, 1):
        return 1 / 256, -128
    return (high - low) / 255, round(-128 - low * 255 / (high - low))


def samples(kind: str, count: int = SAMPLES) -> np.ndarray:
    """[count,1,8,9,3] as the model takes them."""
    x = rng().normal(0, 0.7, (count, 1, 8, 9, 3)).clip(-2, 2)
    if kind not in ("int8", "int16"):
        return x.astype(np.float32)
    scale, zero = grid(kind, -2, 2)
    ends = np.iinfo(kind)
    return np.clip(np.rint(x / scale) + zero, ends.min, ends.max).astype(kind)
