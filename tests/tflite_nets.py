"""Networks as TFLite files: of reals, with dynamic ranges, of int8 and of int16 by int8; small ones with constants
without their zeros, and with subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tflite_files import Op, Part, Tensor, constant, tflite

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


# -- constants without their zeros -------------------------------------------------------------------------------------

VECTORS = {"Int32Vector": 1, "Uint16Vector": 2, "Uint8Vector": 3}


def axis(size: int) -> dict[str, Any]:
    return {"format": 0, "dense_size": size}


def listed(segments: Sequence[int], indices: Sequence[int], kind: str = "Uint8Vector") -> dict[str, Any]:
    row: dict[str, Any] = {"format": 1}
    for name, values in (("array_segments", segments), ("array_indices", indices)):
        row |= {f"{name}_type": VECTORS[kind], name: (kind, {"values": values})}
    return row


def with_sparse(shape: Sequence[int], values: np.ndarray, sparsity: Mapping[str, Any]) -> bytes:
    """y = x + DENSIFY(w)."""
    w = Tensor(shape, "float32", values, more={"sparsity": sparsity})
    tensors = {"x": Tensor(shape), "w": w, "d": Tensor(shape), "y": Tensor(shape)}
    ops = [Op("DENSIFY", ("w",), ("d",)), Op("ADD", ("x", "d"), ("y",), "AddOptions", {})]
    return tflite(tensors, ops, ["x"], ["y"])


def by_rows(kind: str) -> tuple[np.ndarray, dict[str, Any]]:
    """The last axis is listed, an empty row among them."""
    dense = np.zeros((3, 2, 4), np.float32)
    dense[0, 0, [1, 3]], dense[0, 1, 2], dense[2, 1, [0, 1, 2]] = (1, 2), 3, (4, 5, 6)
    levels = [axis(3), axis(2), listed([0, 2, 3, 3, 3, 3, 6], [1, 3, 2, 0, 1, 2], kind)]
    return dense, {"traversal_order": [0, 1, 2], "dim_metadata": levels}


def by_columns() -> tuple[np.ndarray, dict[str, Any]]:
    """The second axis before the first."""
    dense = np.array([[0, 3, 0], [1, 0, 0], [2, 4, 0], [0, 0, 5]], np.float32)
    levels = [axis(3), listed([0, 2, 4, 5], [1, 2, 0, 2, 3])]
    return dense, {"traversal_order": [1, 0], "dim_metadata": levels}


def by_blocks() -> tuple[np.ndarray, dict[str, Any]]:
    """Blocks of 2 x 2, of which one in a row of two is there."""
    dense = np.zeros((4, 4), np.float32)
    dense[:2, 2:], dense[2:, :2] = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    levels = [axis(2), listed([0, 1, 2], [1, 0]), axis(2), axis(2)]
    return dense, {"traversal_order": [0, 1, 2, 3], "block_map": [0, 1], "dim_metadata": levels}


# -- subgraphs ---------------------------------------------------------------------------------------------------------

WEIGHTS = constant(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))
TENSORS = {
    **{name: Tensor((1, 8)) for name in "xyabc"},
    **{"w": WEIGHTS, "zero": constant(np.float32(0)), "axes": constant(np.int32([0, 1]))},
    **{"mean": Tensor(()), "p": Tensor((), "bool"), "yes": constant(np.array(True))},
}
IF = ("IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 2})
THEN = Part([Op("FULLY_CONNECTED", ("a", "w", ""), ("b",), "FullyConnectedOptions", {})], ["a"], ["b"])
ELSE = Part([Op("TANH", ("a",), ("b",))], ["a"], ["b"])
CHOOSE = [
    Op("MEAN", ("x", "axes"), ("mean",), "ReducerOptions", {}),
    Op("GREATER", ("mean", "zero"), ("p",)),
    Op("IF", ("p", "x"), ("y",), *IF),
]


def choice() -> bytes:
    """y = THEN(x) where the mean of x is positive, else ELSE(x)."""
    return tflite(TENSORS, CHOOSE, ["x"], ["y"], parts=[THEN, ELSE])


def loop(body: Part, start: object = 0, steps: int = 5, tensors: Mapping[str, Tensor] | None = None) -> bytes:
    """y = body(x), so many times; a step is counted by i. tensors: more of the body's."""
    kinds = {"i": Tensor((), "int32"), "j": Tensor((), "int32"), "end": Tensor((), "int32"), "goes": Tensor((), "bool")}
    kinds |= {"start": constant(np.int32(start)) if isinstance(start, int) else Tensor((), "int32")}
    kinds |= {"one": constant(np.int32(1)), "steps": constant(np.int32(steps))}
    options = ("WhileOptions", {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    count = Op("ADD", ("i", "one"), ("j",), "AddOptions", {})
    parts = [
        Part([Op("LESS", ("i", "steps"), ("goes",))], ["i", "a"], ["goes"]),
        Part([count, *body.ops], ["i", *body.inputs], ["j", *body.outputs]),
    ]
    main = [Op("WHILE", ("start", "x"), ("end", "y"), *options)]
    inputs = ["x"] if isinstance(start, int) else ["x", "start"]
    return tflite(TENSORS | kinds | dict(tensors or {}), main, inputs, ["y"], parts=parts)
