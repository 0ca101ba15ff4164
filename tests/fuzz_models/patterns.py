"""Steps of several nodes, as exporters write them."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from fuzz_models.arrange import some_axes
from fuzz_models.images import act, batch_norm, conv, conv_block, pool
from fuzz_models.net import Net, Reject

SCAN_STEPS = 12


def _times(net: Net, a: str, b: str) -> str:
    return net.add("Mul", *((a, b) if net.chance(0.5) else (b, a)))


def _number(net: Net, value: float, x: str) -> str:
    return net.const(np.float32(value), x)


def _clip(net: Net, x: str, low: float, high: float) -> str:
    if net.opset < 11:
        return net.add("Clip", x, min=low, max=high)
    return net.add("Clip", x, _number(net, low, x), _number(net, high, x))


def silu(net: Net, x: str) -> str:
    return _times(net, x, net.add("Sigmoid", x))


def clipped_silu(net: Net, x: str) -> str:
    """Functions with a saturation of their own behind them."""
    y = net.among(silu, hard_swish, gelu, mish)(net, x)
    return _clip(net, y, *net.among((-1.0, 20.0), (0.0, 6.0), (-10.0, 10.0), (-1e6, 20.0)))


def hard_swish(net: Net, x: str) -> str:
    if net.chance(0.4):
        return _times(net, x, net.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    gate = _clip(net, net.add("Add", x, _number(net, 3.0, x)), 0.0, 6.0)
    six = net.among(("Div", 6.0), ("Mul", 1 / 6))
    if net.chance(0.5):
        return net.add(six[0], _times(net, x, gate), _number(net, six[1], x))
    return _times(net, x, net.add(six[0], gate, _number(net, six[1], x)))


def hard_sigmoid(net: Net, x: str) -> str:
    y = net.add("Add", net.add("Mul", x, _number(net, net.among(0.2, 1 / 6, 0.01), x)), _number(net, 0.5, x))
    return _clip(net, y, 0.0, 1.0)


def mish(net: Net, x: str) -> str:
    return _times(net, x, net.add("Tanh", net.add("Softplus", x)))


def gelu(net: Net, x: str) -> str:
    """By erf or by tanh, factors in any order."""
    if net.chance(0.5):
        net.since(9)
        scaled = net.add("Div", x, _number(net, 2**0.5, x))
        y = net.add("Add", net.add("Erf", scaled), _number(net, 1.0, x))
    else:
        cube = net.add("Pow", x, _number(net, 3.0, x)) if net.chance(0.5) else _times(net, _times(net, x, x), x)
        inner = net.add("Add", x, _times(net, cube, _number(net, 0.044715, x)))
        y = net.add("Tanh", _times(net, inner, _number(net, (2 / np.pi) ** 0.5, x)))
        y = net.add("Add", y, _number(net, 1.0, x))
    half = _number(net, 0.5, x)
    return _times(net, _times(net, x, y), half) if net.chance(0.5) else _times(net, x, _times(net, y, half))


def layer_norm(net: Net, x: str) -> str:
    """LayerNormalization, or written out."""
    n = net.shape(x)[-1]
    if n < 2:
        raise Reject("one element has no variance")
    scale, bias = net.weights(n, like=x, spread=0.3, middle=1.0), net.weights(n, like=x, spread=0.5)
    eps = net.among(1e-5, 1e-6, 1e-3)
    if net.opset >= 17 and net.chance(0.5):
        return net.add("LayerNormalization", x, scale, *([bias] if net.chance(0.8) else []), epsilon=eps)
    d = net.add("Sub", x, net.with_axes("ReduceMean", x, [-1], 18))
    square = net.add("Pow", d, _number(net, 2.0, x)) if net.chance(0.7) else net.add("Mul", d, d)
    root = net.add("Sqrt", net.add("Add", net.with_axes("ReduceMean", square, [-1], 18), _number(net, eps, x)))
    y = net.add("Div", d, root) if net.chance(0.7) else _times(net, d, net.add("Reciprocal", root))
    y = _times(net, y, scale) if net.chance(0.8) else y
    return net.add("Add", y, bias) if net.chance(0.8) else y


def rms_norm(net: Net, x: str) -> str:
    mean = net.with_axes("ReduceMean", net.add("Mul", x, x), [-1], 18)
    root = net.add("Sqrt", net.add("Add", mean, _number(net, 1e-5, x)))
    return net.add("Div", x, root)


def unit_length(net: Net, x: str) -> str:
    """As cosine similarity and Normalize have it."""
    axes = some_axes(net, x)
    length = net.with_axes("ReduceL2", x, axes, 18, keepdims=1)
    least = _number(net, 1e-6, x)
    if net.opset >= 11 and net.chance(0.5):
        return net.add("Div", x, net.add("Clip", length, least))
    return net.add("Div", x, net.add("Add", length, least))


def squeeze_excite(net: Net, x: str) -> str:
    c, rank = net.shape(x)[1], len(net.shape(x))
    y = net.add("GlobalAveragePool", x) if net.chance(0.6) else net.with_axes("ReduceMean", x, [*range(2, rank)], 18)
    ones = (1,) * (rank - 2)
    for outputs, inputs, kind in ((2, c, "Relu"), (c, 2, net.among("Sigmoid", "HardSigmoid"))):
        w = net.weights(outputs, inputs, *ones, like=x, spread=inputs**-0.5)
        y = net.add(kind, net.add("Conv", y, w, net.weights(outputs, like=x, spread=0.2)))
    return _times(net, x, y)


def channel_shuffle(net: Net, x: str) -> str:
    n, c, *plane = net.shape(x)
    groups = [g for g in range(2, c) if c % g == 0]
    if not groups:
        raise Reject("too few channels")
    g = net.dice.choice(groups)
    y = net.add("Reshape", x, net.const([n, g, c // g, *plane]))
    y = net.add("Transpose", y, perm=[0, 2, 1, *range(3, 3 + len(plane))])
    return net.add("Reshape", y, net.const([n, c if net.chance(0.5) else -1, *plane]))


def residual(net: Net, x: str) -> str:
    c, rank = net.shape(x)[1], len(net.shape(x))
    y = net.attempt(conv_block, x) or x
    w = net.weights(c, net.shape(y)[1], *(3,) * (rank - 2), like=x, spread=0.3)
    y = net.add("Conv", y, w, pads=[1] * (2 * rank - 4))
    return act(net, net.add("Add", *((x, y) if net.chance(0.5) else (y, x))))


def normalized_first(net: Net, x: str) -> str:
    """A pool or an activation, then BatchNormalization, then a convolution with pads: DenseNet and its kin."""
    y = net.among(pool, act, act)(net, x)
    return conv(net, batch_norm(net, y))


def differences(net: Net, x: str) -> str:
    """A convolution that only sees differences (its weights sum to 0) of values that are large: edges of an image."""
    channels, rank = net.shape(x)[1], len(net.shape(x))
    w = net.noise.normal(0, 1, (4, channels, *(1,) * (rank - 2)))
    bias = net.const(np.full(4, net.among(1.0, 10.0, 100.0), np.float32), x)
    y = net.add("Conv", x, net.const(w.astype(np.float32), x), bias)
    v = net.noise.normal(0, 1, (2, 4, *(net.among(1, 3),) * (rank - 2)))
    v -= v.mean(axis=tuple(range(1, rank)), keepdims=True)
    return net.add("Conv", y, net.const(v.astype(np.float32), x))


def saturated(net: Net, x: str) -> str:
    """A function far beyond where it bends: a learned temperature, a step made soft, a cube."""
    if net.chance(0.7):
        y = net.add("Mul", x, _number(net, net.among(10.0, 100.0, 1000.0), x))
    else:
        y = net.add("Mul", net.add("Mul", x, x), x)
    return net.add(net.among("Tanh", "Sigmoid", "Softsign", "Softplus", "HardSigmoid"), y)


def branches(net: Net, x: str) -> str:
    """Two or three ways that are concatenated."""
    ways = [net.attempt(net.among(conv, conv_block), x) for _ in range(net.among(2, 3))]
    ways += [x] if net.chance(0.3) else []
    last = next((y for y in reversed(ways) if y), x)
    same = [y for y in ways if y and net.shape(y)[2:] == net.shape(last)[2:]]
    return net.add("Concat", *same, axis=1)


def pyramid(net: Net, x: str) -> str:
    """Pools of pools side by side: SPPF."""
    parts = [x]
    for _ in range(net.among(1, 2)):
        parts.append(net.add("MaxPool", parts[-1], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    return net.add("Concat", *parts, axis=1)


def attention(net: Net, x: str) -> str:
    """Softmax(q k^T / sqrt(d)) v over the last two axes."""
    shape = net.shape(x)
    if not 2 <= len(shape) <= 4:
        raise Reject("other ranks")
    d = net.among(2, 4)
    q, k, v = (net.add("MatMul", x, net.weights(shape[-1], d, like=x, spread=shape[-1] ** -0.5)) for _ in range(3))
    k = net.add("Transpose", k, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])
    if net.chance(0.5):
        scores = net.add("Div", net.add("MatMul", q, k), _number(net, d**0.5, x))
    else:
        scores = net.add("MatMul", _times(net, q, _number(net, d**-0.5, x)), k)
    return net.add("MatMul", net.add("Softmax", scores, axis=-1 if net.opset >= 13 else len(shape) - 1), v)


def linear_attention(net: Net, x: str) -> str:
    """Relu features and a division by their sum."""
    shape = net.shape(x)
    if not 2 <= len(shape) <= 4:
        raise Reject("other ranks")
    q, k, v = (net.add("MatMul", x, net.weights(shape[-1], 3, like=x, spread=shape[-1] ** -0.5)) for _ in range(3))
    q, k = net.add("Relu", q), net.add("Relu", k)
    turned = net.add("Transpose", k, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])
    top = net.add("MatMul", q, net.add("MatMul", turned, v))
    total = net.with_axes("ReduceSum", net.add("MatMul", q, turned), [-1], 13, keepdims=1)
    return net.add("Div", top, net.add("Add", total, _number(net, net.among(1e-3, 0.1), x)))


def general_mean(net: Net, x: str) -> str:
    """Generalized mean pooling."""
    low = net.add("Clip", x, min=1e-6) if net.opset < 11 else net.add("Clip", x, _number(net, 1e-6, x))
    y = net.add("GlobalAveragePool", net.add("Pow", low, _number(net, 3.0, x)))
    return net.add("Pow", y, _number(net, 1 / 3, x))


def standardized(net: Net, x: str) -> str:
    """A convolution whose weights a BatchNormalization in training mode standardizes: NFNet, BiT."""
    net.since(15)
    c, o = net.shape(x)[1], net.among(2, 4)
    w = net.weights(o, c, 1, 1, like=x)
    if w not in net.constants:
        raise Reject("computed")
    flat = net.fold("Reshape", w, net.const([1, o, -1]))
    ones, zeros = (net.const(np.full(o, v, np.float32), x) for v in (1.0, 0.0))
    normal = net.fold("BatchNormalization", flat, ones, zeros, zeros, ones, training_mode=1)
    return net.add("Conv", x, net.fold("Reshape", normal, net.const([o, c, 1, 1])))


def rare(net: Net, x: str) -> str:
    """Logits far below 0, as of a wake word that the samples do not have."""
    y = net.add("Sub", net.add("Tanh", x), net.const(np.float32(net.among(8.0, 11.0, 14.0)), x))
    return net.add(net.among("Sigmoid", "Exp", "Softplus"), y)


def wake_word(net: Net, x: str) -> str:
    """One score a sample, of a word that the samples do not have: a layer, a normalization of it, a Sigmoid."""
    rows = net.add("Flatten", x)
    size = net.shape(rows)[1]
    spread = net.among(0.5, 1.0, 2.0) / max(net.largest(x), 1e-3) / size**0.5
    score = net.add("MatMul", rows, net.const(np.float32(net.noise.normal(0, spread, (size, 1))), x))
    for kind, number in (("Sub", 0.1), ("Mul", net.among(0.7, 1.3)), ("Sub", net.among(8.0, 9.5, 11.0))):
        score = net.add(kind, score, _number(net, number, x))
    return net.add("Sigmoid", score)


def steady(net: Net, x: str) -> str:
    """A layer of many features that hardly vary, as of nets with a wide last layer."""
    rows, wide = net.add("Flatten", x), 1280
    size = net.shape(rows)[1]
    spread = 1e-3 / max(net.largest(x), 1e-3) / size**0.5
    rows = net.add("MatMul", rows, net.const(np.float32(net.noise.normal(0, spread, (size, wide))), x))
    rows = net.add("Add", rows, net.const(np.float32(1), x))
    return net.add("MatMul", rows, net.weights(wide, 10, like=x, spread=0.03))


def loop(net: Net, x: str) -> str:
    """A known number of steps of a state, some of which choose by an If; the last state, or all of them."""
    net.since(13)
    if net.half:
        raise Reject("float32 only")
    number, truth, state = ("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("s", TensorProto.FLOAT)
    factor = numpy_helper.from_array(np.float32(net.among(0.5, -0.9)), "factor")
    zero = numpy_helper.from_array(np.float32(0), "zero")
    chosen = _positive_part() if net.chance(0.5) else [helper.make_node("Identity", ["s"], ["b"])]
    nodes = [
        helper.make_node("Identity", ["c"], ["co"]),
        *chosen,
        helper.make_node("Mul", ["b", "factor"], ["a"]),
        helper.make_node("Tanh", ["a"], ["so"]),
        helper.make_node("Identity", ["so"], ["scan"]),
    ]
    inputs = [helper.make_tensor_value_info(*port, shape) for port, shape in ((number, []), (truth, []), (state, None))]
    ends = (("co", TensorProto.BOOL, []), ("so", TensorProto.FLOAT, None), ("scan", TensorProto.FLOAT, None))
    body = helper.make_graph(
        nodes, "body", inputs, [helper.make_tensor_value_info(*port) for port in ends], initializer=[factor, zero]
    )
    steps, true = net.const(np.array(net.among(1, 3), np.int64)), net.const(np.array(True))
    last = net.add("Loop", steps, true, x, outputs=2, body=body)
    return net.among(*net.outputs_of(last))


def scan(net: Net, x: str) -> str:
    """A state that takes a slice of x each step, from either end; the last state, or all of them along any axis."""
    net.since(9)
    axes = [axis for axis, size in enumerate(net.shape(x)) if 1 < size <= SCAN_STEPS]
    if net.half or len(net.shape(x)) < 2 or not axes:
        raise Reject("float32 only, of some steps")
    axis = net.dice.choice(axes)
    shape = tuple(size for i, size in enumerate(net.shape(x)) if i != axis)
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("s", "x", "so", "y")}
    factor = numpy_helper.from_array(np.float32(net.among(0.5, -0.9)), "factor")
    nodes = [
        helper.make_node("Mul", ["s", "factor"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node(net.among("Tanh", "Sigmoid"), ["b"], ["so"]),
        helper.make_node("Sub", ["so", "x"] if net.chance(0.5) else ["x", "s"], ["y"]),
    ]
    body = helper.make_graph(nodes, "body", [ends["s"], ends["x"]], [ends["so"], ends["y"]], initializer=[factor])
    first = net.weights(*shape, like=x) if net.chance(0.7) else net.with_axes("ReduceMax", x, [axis], 18, keepdims=0)
    places = {"scan_input_axes": [axis], "scan_output_axes": [net.dice.randint(0, len(shape))]}
    places |= {"scan_input_directions": [net.among(0, 1)], "scan_output_directions": [net.among(0, 1)]}
    last = net.add("Scan", first, x, outputs=2, body=body, num_scan_inputs=1, **places)
    return net.among(*net.outputs_of(last))


def _positive_part() -> list[NodeProto]:
    """b is s times its largest element if that is positive, else 0; continuous, so noise moves it little."""

    def branch(name: str, by: str) -> GraphProto:
        end = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node("Mul", ["s", by], [name])], name, [], [end])

    return [
        helper.make_node("ReduceMax", ["s"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["p"]),
        helper.make_node("If", ["p"], ["b"], then_branch=branch("then", "m"), else_branch=branch("else", "zero")),
    ]


def bounded(net: Net, x: str) -> str:
    """Clip at a bound that is computed."""
    net.since(12)
    bound = net.add("ReduceMax", net.add("Mul", x, net.const(np.float32(0.5), x)), keepdims=0)
    return net.add("Clip", x, *net.among((bound,), ("", bound)))


ANY = (
    rare,
    bounded,
    wake_word,
    steady,
    loop,
    scan,
    silu,
    silu,
    clipped_silu,
    hard_swish,
    hard_sigmoid,
    mish,
    gelu,
    gelu,
    layer_norm,
    layer_norm,
    rms_norm,
    unit_length,
)
ANY += (attention, attention, linear_attention, saturated)
PLANES = (squeeze_excite, channel_shuffle, residual, branches, normalized_first, differences)
IMAGES = (
    squeeze_excite,
    channel_shuffle,
    residual,
    residual,
    branches,
    branches,
    normalized_first,
    normalized_first,
    pyramid,
    general_mean,
    standardized,
)
