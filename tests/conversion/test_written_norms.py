"""Norms, generalized means and linear attention, written out as exporters do, on samples of any contrast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.engine import FloatEngine, OnnxEngine
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.frontend.onnx import load
from nmpconv.passes.float import FLOAT
from nmpconv.runtime.interpreter import load as load_file

SHAPE = (1, 3, 12, 12)
CHANNELS, PIXELS = 16, 36
LEAST_DB = 45.0
SUMS_OF_PRODUCTS_DB = 36.0  # weighted moments: the weighted squares are tensors of 16 bits
FLOAT_DB = 100.0


def images(count: int, seed: int) -> np.ndarray:
    """Noise whose standard deviation differs from sample to sample by a factor of ten."""
    rng = np.random.default_rng(seed)
    contrast = np.exp(0.75 * rng.normal(size=(count, 1, 1, 1)))
    return (rng.normal(size=(count, *SHAPE[1:])) * contrast).astype(np.float32)


def number(net: Net, value: float) -> str:
    return net.const(np.float32(value))


def features(net: Net) -> str:
    return net.add("Relu", net.conv("x", CHANNELS, strides=[2, 2]))


def tokens(net: Net) -> str:
    """[1, pixels, channels]."""
    flat = net.add("Reshape", features(net), net.const([1, CHANNELS, PIXELS]))
    return net.add("Transpose", flat, perm=[0, 2, 1])


def normalize(net: Net) -> str:
    """torch.nn.functional.normalize of two maps, and their product summed up."""

    def unit(x: str) -> str:
        length = net.add("Clip", net.add("ReduceL2", x, net.const([1]), keepdims=1), number(net, 1e-12))
        return net.add("Div", x, net.add("Expand", length, net.const(list(net.shape(x)))))

    b = features(net)
    product = net.add("Mul", unit(net.conv(b, CHANNELS, 1)), unit(net.conv(b, CHANNELS, 1)))
    return net.add("ReduceSum", product, net.const([1]), keepdims=0)


def cosine_similarity(net: Net) -> str:
    """As PyTorch's older exporter writes it: one root of the product of two sums of squares."""

    def dot(a: str, b: str) -> str:
        return net.add("ReduceSum", net.add("Mul", a, b), net.const([1]), keepdims=0)

    b = features(net)
    p, q = net.conv(b, CHANNELS, 1), net.conv(b, CHANNELS, 1)
    lengths = net.add("Max", net.add("Sqrt", net.add("Mul", dot(p, p), dot(q, q))), number(net, 1e-8))
    return net.add("Div", dot(p, q), lengths)


def simam(net: Net) -> str:
    """Its map of attention."""
    x = features(net)
    square = net.add("Pow", net.add("Sub", x, net.add("ReduceMean", x, net.const([2, 3]))), number(net, 2))
    variance = net.add("Div", net.add("ReduceSum", square, net.const([2, 3]), keepdims=1), number(net, PIXELS - 1))
    below = net.add("Mul", net.add("Add", variance, number(net, 1e-4)), number(net, 4))
    energy = net.add("Add", net.add("Div", square, below), number(net, 0.5))
    return net.add("Sigmoid", energy)


def generalized_mean(net: Net) -> str:
    x = net.add("Clip", net.conv("x", CHANNELS), number(net, 1e-6))
    mean = net.add("GlobalAveragePool", net.add("Pow", x, number(net, 3)))
    return net.add("Flatten", net.add("Pow", mean, number(net, 1 / 3)))


def unbiased_layer_norm(net: Net) -> str:
    """a * (x - mean) / (std + eps) + b, as it is in many a transformer."""
    x = tokens(net)
    d = net.add("Sub", x, net.add("ReduceMean", x, net.const([-1])))
    total = net.add("ReduceSum", net.add("Mul", d, d), net.const([-1]), keepdims=1)
    deviation = net.add("Sqrt", net.add("Div", total, number(net, CHANNELS - 1)))
    scaled = net.add("Mul", net.weights(CHANNELS, spread=0.3, middle=1.0), d)
    y = net.add("Div", scaled, net.add("Add", deviation, number(net, 1e-6)))
    return net.add("Add", y, net.weights(CHANNELS))


def root_mean_square(net: Net) -> str:
    x = tokens(net)
    mean = net.add("ReduceMean", net.add("Pow", x, number(net, 2)), net.const([-1]))
    inverse = net.add("Div", number(net, 1), net.add("Sqrt", net.add("Add", mean, number(net, 1e-6))))
    return net.add("Mul", net.add("Mul", x, inverse), net.weights(CHANNELS, spread=0.3, middle=1.0))


def lengths(net: Net) -> str:
    """Pixels, which nothing is divided by."""
    return net.add("ReduceL2", features(net), net.const([1]), keepdims=1)


def roots(net: Net) -> str:
    """Numbers of which most are small, as x^0.4."""
    return net.add("Pow", features(net), number(net, 0.4))


def global_response(net: Net) -> str:
    """ConvNeXt V2's, with more pixels than one sum of squares has room for."""
    x = net.conv("x", CHANNELS, strides=[2, 2])
    x = net.add("Resize", x, "", net.const(np.array([1, 1, 8, 8], np.float32)))
    length = net.add("ReduceL2", x, net.const([2, 3]), keepdims=1)
    mean = net.add("Add", net.add("ReduceMean", length, net.const([1]), keepdims=1), number(net, 1e-6))
    y = net.add("Mul", net.add("Mul", x, net.add("Div", length, mean)), net.weights(1, CHANNELS, 1, 1))
    return net.add("GlobalAveragePool", net.add("Add", y, x))


def queries_keys_values(net: Net) -> list[str]:
    """[1, heads, pixels, channels] each, two heads of eight channels."""
    heads, width = 2, 8
    qkv = net.add("Reshape", net.conv(features(net), 3 * heads * width, 1), net.const([1, heads, 3 * width, PIXELS]))
    rows = net.add("Transpose", qkv, perm=[0, 1, 3, 2])
    q, k, v = (part(net, rows, i * width, (i + 1) * width) for i in range(3))
    return [net.add("Relu", q), net.add("Relu", k), v]


def part(net: Net, x: str, first: int, last: int) -> str:
    return net.add("Slice", x, net.const([first]), net.const([last]), net.const([3]))


def linear_attention(net: Net) -> str:
    """EfficientViT's: values have a column of ones."""
    q, k, v = queries_keys_values(net)
    v = net.add("Pad", v, net.const([0] * 7 + [1]), number(net, 1))
    y = net.add("MatMul", q, net.add("MatMul", net.add("Transpose", k, perm=[0, 1, 3, 2]), v))
    divisor = net.add("Add", part(net, y, 8, 9), number(net, 1e-5))
    return net.add("Div", part(net, y, 0, 8), divisor)


def linear_attention_over_sums(net: Net) -> str:
    """As formulas have it: over the sums of q K^T."""
    q, k, v = queries_keys_values(net)
    turned = net.add("Transpose", k, perm=[0, 1, 3, 2])
    top = net.add("MatMul", q, net.add("MatMul", turned, v))
    total = net.add("ReduceSum", net.add("MatMul", q, turned), net.const([3]), keepdims=1)
    return net.add("Div", top, net.add("Add", total, number(net, 1e-3)))


def raised_tokens(net: Net) -> str:
    """Tokens far from 0: squares of them are large beside the variance."""
    return net.add("Add", tokens(net), number(net, 3.0))


def moments(net: Net, x: str, axis: int, keepdims: int) -> tuple[str, str]:
    """Mean, and E[x^2] - E[x]^2."""
    mean = net.add("ReduceMean", x, net.const([axis]), keepdims=keepdims)
    squares = net.add("ReduceMean", net.add("Mul", x, x), net.const([axis]), keepdims=keepdims)
    return mean, net.add("Max", net.add("Sub", squares, net.add("Mul", mean, mean)), number(net, 0.0))


def inverse_deviation(net: Net, variance: str) -> str:
    inverse = net.add("Reciprocal", net.add("Sqrt", net.add("Add", variance, number(net, 1e-4))))
    return net.add("Mul", inverse, net.weights(1, 1, CHANNELS, spread=0.2, middle=1.0))


def flax_layer_norm(net: Net) -> str:
    x = raised_tokens(net)
    mean, variance = moments(net, x, -1, 1)
    y = net.add("Mul", net.add("Sub", x, mean), inverse_deviation(net, variance))
    return net.add("Add", y, net.weights(CHANNELS))


def moments_as_scale_and_shift(net: Net) -> str:
    x = raised_tokens(net)
    mean, variance = moments(net, x, -1, 1)
    scale = inverse_deviation(net, variance)
    shift = net.add("Sub", net.weights(CHANNELS), net.add("Mul", mean, scale))
    return net.add("Add", net.add("Mul", x, scale), shift)


def statistics_pooling(net: Net) -> str:
    mean, variance = moments(net, raised_tokens(net), 1, 0)
    return net.add("Concat", mean, net.add("Sqrt", net.add("Add", variance, number(net, 1e-7))), axis=1)


def attentive_statistics(net: Net) -> str:
    """ECAPA's: moments are weighted by a softmax over time."""
    x = raised_tokens(net)
    weights = net.add("Softmax", net.add("Mul", x, net.weights(1, 1, CHANNELS, spread=0.3)), axis=1)

    def total(y: str) -> str:
        return net.add("ReduceSum", net.add("Mul", weights, y), net.const([1]), keepdims=0)

    mean, squares = total(x), total(net.add("Pow", x, number(net, 2.0)))
    variance = net.add("Sub", squares, net.add("Pow", mean, number(net, 2.0)))
    return net.add("Sqrt", net.add("Clip", variance, number(net, 1e-7)))


BLOCKS = (
    normalize,
    cosine_similarity,
    simam,
    generalized_mean,
    unbiased_layer_norm,
    root_mean_square,
    lengths,
    roots,
    global_response,
    linear_attention,
    linear_attention_over_sums,
    flax_layer_norm,
    moments_as_scale_and_shift,
    statistics_pooling,
    attentive_statistics,
)


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_sixteen_bits(block: Callable[[Net], str], tmp_path: Path) -> None:
    """On samples that did not calibrate; the C code computes them."""
    net, path = Net(SHAPE), tmp_path / "m.onnx"
    net.save(path, block(net))
    np.save(tmp_path / "x.npy", images(32, 1))
    unseen = images(16, 2)
    engine = OnnxEngine(path, {"x": SHAPE})
    wanted = np.stack([engine.run({"x": x[np.newaxis]})[engine.fetch[0]] for x in unseen])

    graph = load(path)
    for _, function in FLOAT:
        graph = function(graph)
    float_engine = FloatEngine(graph, graph.outputs)
    same = np.stack([float_engine.run({"x": x[np.newaxis]})[graph.outputs[0]] for x in unseen])
    assert sqnr_db(wanted, same.reshape(wanted.shape)) >= FLOAT_DB

    result = convert(path, {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
    model, quant = load_file(result.data), result.graph["x"].quant
    assert quant is not None
    got = []
    for x in unseen:
        q = np.clip(np.floor(np.ldexp(x[np.newaxis], -quant.exponent) + 0.5), quant.lo, quant.hi).astype(np.int16)
        grid = result.graph[result.graph.outputs[0]].quant
        assert grid is not None
        got.append(np.ldexp(model.run(q)[0].astype(np.float64), grid.exponent).reshape(wanted.shape[1:]))
    least = SUMS_OF_PRODUCTS_DB if block is attentive_statistics else LEAST_DB
    assert sqnr_db(wanted, np.stack(got)) >= least
