"""Random small ONNX models of the operators that are supported, drawn by hypothesis.

A step is a function (net, x, draw) that adds nodes which read the tensor x and returns a new one; it is tried where its
shape condition holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx_net import Net

Draw = Callable[[st.SearchStrategy[Any]], Any]
Step = Callable[[Net, str, Draw], str]
ELEMENTS = 3000  # most elements of a tensor
STEPS = 7

POINTWISE = (
    ("Relu", {}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("HardSwish", {}),
    ("HardSigmoid", {"alpha": 0.2}),
    ("LeakyRelu", {"alpha": 0.1}),
    ("Elu", {}),
    ("Selu", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("Mish", {}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("Erf", {}),
    ("Abs", {}),
    ("Neg", {}),
    ("Identity", {}),
)


def among(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


# -- any rank ---------------------------------------------------------------------------------------------------------


def pointwise(net: Net, x: str, draw: Draw) -> str:
    kind, attributes = draw(among(*POINTWISE))
    return net.add(kind, x, **attributes)


def clip(net: Net, x: str, draw: Draw) -> str:
    low, high = draw(among((0.0, 6.0), (-1.0, 1.0), (0.25, 0.5), (0.0, 0.0)))
    return net.add("Clip", x, net.const(low), net.const(high))


def arithmetic(net: Net, x: str, draw: Draw) -> str:
    """With a constant: one number, one per index of an axis, or one per element; on either side."""
    shape = net.shape(x)
    axis = draw(st.integers(0, len(shape) - 1))
    along = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    other = net.weights(*draw(among((), (1,), along, along[axis:], shape)), middle=0.5)
    kind = draw(among("Add", "Sub", "Mul", "Min", "Max"))
    return net.add(kind, *(draw(st.permutations([x, other]))))


def divide(net: Net, x: str, draw: Draw) -> str:
    return net.add("Div", x, net.const(draw(among(0.5, -3.0, 255.0))))


def pair(net: Net, x: str, draw: Draw) -> str:
    """With another tensor of its shape, or itself."""
    same = [name for name in tensors(net) if net.shape(name) == net.shape(x)]
    return net.add(draw(among("Add", "Sub", "Mul", "Min", "Max")), x, draw(among(*same)))


def silu(net: Net, x: str, draw: Draw) -> str:
    return net.add("Mul", x, net.add("Sigmoid", x))


def square_root(net: Net, x: str, draw: Draw) -> str:
    return net.add("Sqrt", net.add("Abs", x))


def reduce(net: Net, x: str, draw: Draw) -> str:
    rank = len(net.shape(x))
    axes = draw(st.lists(st.integers(1 - rank, -1), min_size=1, max_size=rank - 1, unique=True)) if rank > 1 else [-1]
    kind = draw(among("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"))
    return net.add(kind, x, net.const(axes), keepdims=draw(among(0, 1)))


def softmax(net: Net, x: str, draw: Draw) -> str:
    return net.add("Softmax", x, axis=draw(st.integers(0, len(net.shape(x)) - 1)))


def transpose(net: Net, x: str, draw: Draw) -> str:
    rank = len(net.shape(x))
    return net.add("Transpose", x, perm=[0, *draw(st.permutations(range(1, rank)))])


def reshape(net: Net, x: str, draw: Draw) -> str:
    size = math.prod(net.shape(x)[1:])
    dims = []
    while size > 1 and len(dims) < 3:
        dims.append(draw(among(*(d for d in range(1, size + 1) if size % d == 0))))
        size //= dims[-1]
    return net.add("Reshape", x, net.const([net.shape(x)[0], *dims, size]))


def flatten(net: Net, x: str, draw: Draw) -> str:
    return net.add("Flatten", x)


def slice_(net: Net, x: str, draw: Draw) -> str:
    shape = net.shape(x)
    axis = draw(st.integers(0, len(shape) - 1))
    start, step = draw(st.integers(0, shape[axis] - 1)), draw(among(1, 2, -1))
    end = shape[axis] if step > 0 else -shape[axis] - 1
    return net.add("Slice", x, *(net.const([n]) for n in (start, end, axis, step)))


def gather(net: Net, x: str, draw: Draw) -> str:
    shape = net.shape(x)
    axis = draw(st.integers(0, len(shape) - 1))
    return net.add(
        "Gather", x, net.const(draw(st.lists(st.integers(0, shape[axis] - 1), min_size=1, max_size=4))), axis=axis
    )


def split(net: Net, x: str, draw: Draw) -> str:
    shape = net.shape(x)
    axes = [i for i, n in enumerate(shape) if n > 1]
    return net.add("Split", x, outputs=2, axis=draw(among(*axes)), num_outputs=2) if axes else net.add("Neg", x)


def concat(net: Net, x: str, draw: Draw) -> str:
    shape = net.shape(x)
    axis = draw(st.integers(min(1, len(shape) - 1), len(shape) - 1))

    def others(name: str) -> list[int]:
        return [n for i, n in enumerate(net.shape(name)) if i != axis]

    fits = [n for n in tensors(net) if len(net.shape(n)) == len(shape) and others(n) == others(x)]
    return net.add("Concat", *(draw(st.permutations([x, draw(among(*fits))]))), axis=axis)


def pad(net: Net, x: str, draw: Draw) -> str:
    shape = net.shape(x)
    mode = draw(among("constant", "reflect", "edge"))
    most = [0 if i == 0 else min(n - 1, 2) if mode == "reflect" else 2 for i, n in enumerate(shape)]
    pads = [draw(st.integers(0, m)) for m in most * 2]
    return net.add("Pad", x, net.const(pads), net.const(draw(among(0.0, 1.5))), mode=mode)


def layer_norm(net: Net, x: str, draw: Draw) -> str:
    n = net.shape(x)[-1]
    return net.add("LayerNormalization", x, net.weights(n, middle=1.0, spread=0.3), net.weights(n), epsilon=1e-3)


def dense(net: Net, x: str, draw: Draw) -> str:
    n = net.shape(x)[-1]
    y = net.add("MatMul", x, net.weights(n, draw(among(1, 5)), spread=n**-0.5))
    return net.add("Add", y, net.weights(net.shape(y)[-1])) if draw(st.booleans()) else y


def products(net: Net, x: str, draw: Draw) -> str:
    """x @ x^T."""
    rank = len(net.shape(x))
    return net.add("MatMul", x, net.add("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2]))


# -- rank 4 -----------------------------------------------------------------------------------------------------------


def conv(net: Net, x: str, draw: Draw) -> str:
    _, channels, *plane = net.shape(x)
    group = draw(among(*(g for g in (1, 2, channels) if channels % g == 0)))
    kernel, outputs = draw(st.integers(1, min(3, *plane))), group * draw(among(1, 2, 3))
    attributes = {"strides": [draw(among(1, 2)), draw(among(1, 2))], "group": group}
    pads = [draw(st.integers(0, kernel // 2)) for _ in range(4)]
    y = net.conv(x, outputs, kernel, bias=draw(st.booleans()), pads=pads, **attributes)
    if draw(st.booleans()):
        parameters = [net.weights(outputs, middle=middle, spread=0.2) for middle in (1.0, 0.0, 0.0)]
        y = net.add("BatchNormalization", y, *parameters, net.const(np.full(outputs, 0.7, np.float32)))
    return y


def conv_transpose(net: Net, x: str, draw: Draw) -> str:
    weights = net.weights(net.shape(x)[1], draw(among(1, 3)), 2, 3, spread=0.4)
    return net.add("ConvTranspose", x, weights, strides=[draw(among(1, 2)), 2], pads=[0, 1, 0, 1])


def pool(net: Net, x: str, draw: Draw) -> str:
    attributes = {
        "kernel_shape": [2, draw(among(1, 2, 3))],
        "strides": [draw(among(1, 2)), 1],
        "ceil_mode": draw(among(0, 1)),
    }
    if draw(st.booleans()):
        attributes["pads"] = [1, 0, 1, 0]
    return net.add(draw(among("MaxPool", "AveragePool")), x, **attributes)


def squeeze_and_excite(net: Net, x: str, draw: Draw) -> str:
    gate = net.conv(net.add(draw(among("GlobalAveragePool", "GlobalMaxPool")), x), net.shape(x)[1], 1)
    return net.add("Mul", x, net.add(draw(among("Sigmoid", "HardSigmoid")), gate))


def instance_norm(net: Net, x: str, draw: Draw) -> str:
    c = net.shape(x)[1]
    return net.add("InstanceNormalization", x, net.weights(c, middle=1.0, spread=0.3), net.weights(c), epsilon=1e-3)


def resize(net: Net, x: str, draw: Draw) -> str:
    scales = net.const(np.array([1, 1, draw(among(1.0, 2.0)), 2], np.float32))
    return net.add("Resize", x, "", scales, mode=draw(among("nearest", "linear")))


def shuffle(net: Net, x: str, draw: Draw) -> str:
    _, c, h, w = net.shape(x)
    if c % 4 == 0 and draw(st.booleans()):
        return net.add("DepthToSpace", x, blocksize=2, mode=draw(among("DCR", "CRD")))
    return net.add("SpaceToDepth", x, blocksize=2) if h % 2 == w % 2 == 0 else net.add("Neg", x)


def lrn(net: Net, x: str, draw: Draw) -> str:
    return net.add("LRN", x, size=draw(among(3, 5)), alpha=draw(among(1e-4, 1e-2)), bias=draw(among(1.0, 2.0)))


ANY: tuple[Step, ...] = (
    *(pointwise, pointwise, clip, arithmetic, arithmetic, divide, pair, silu, square_root, reduce, softmax, transpose),
    *(reshape, flatten, slice_, gather, split, concat, pad, layer_norm, dense),
)
IMAGES: tuple[Step, ...] = (
    *(conv, conv, conv, conv_transpose, pool, squeeze_and_excite, instance_norm, resize, shuffle, lrn),
)


def tensors(net: Net) -> list[str]:
    return ["x", *(node.output[0] for node in net.nodes)]


@st.composite
def models(draw: Any) -> tuple[Net, str]:
    """A chain of steps with branches, and its last tensor."""
    shape = (1, draw(among(1, 3, 4, 8)), draw(st.integers(2, 7)), draw(st.integers(2, 7)))
    net = Net(shape, seed=draw(st.integers(0, 99)))
    x = "x"
    for _ in range(draw(st.integers(1, STEPS))):
        rank = len(net.shape(x))
        steps = ANY + IMAGES * 2 * (rank == 4) + (products,) * (rank > 1)
        nodes, arrays = len(net.nodes), dict(net.arrays)
        y = draw(among(*steps))(net, x, draw)
        try:
            fits = math.prod(net.shape(y)) <= ELEMENTS and len(net.shape(y)) > 0
        except Exception:  # a shape that ONNX does not allow, such as an empty one
            fits = False
        if fits:
            x = y if draw(among(True, True, True, False)) else draw(among(*tensors(net)))
        else:
            net.cut(nodes, arrays)
    if x == "x":
        x = net.add("Relu", "x")
    return net, x
