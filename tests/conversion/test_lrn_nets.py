"""Small nets in the manner of AlexNet and GoogLeNet: LRN, grouped convolutions, inception blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.conversion.pipeline import Options, convert
from nmpconv.graph.reference import run as run_reference
from nmpconv.runtime import interpreter

SHAPE = (1, 3, 33, 33)
LRN = {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}
SETTINGS = (("8", "default"), ("8", "strict"), ("16", "default"))


def relu(net: Net, x: str, outputs: int, kernel: int, **attributes: object) -> str:
    return net.add("Relu", net.conv(x, outputs, kernel, **attributes))


def alexnet(net: Net) -> str:
    """LRN behind each of the first two layers, the second of them in two groups; overlapping pools."""
    pool = {"kernel_shape": [3, 3], "strides": [2, 2]}
    y = net.add("LRN", relu(net, "x", 24, 5, strides=[2, 2]), **LRN)
    y = net.add("LRN", relu(net, net.add("MaxPool", y, **pool), 32, 5, group=2), **LRN)
    y = relu(net, net.add("MaxPool", y, **pool), 32, 3, group=2)
    y = net.add("Flatten", y)
    y = net.add("Relu", net.add("Gemm", y, net.weights(40, net.shape(y)[1], spread=0.08), net.weights(40), transB=1))
    return net.add("Gemm", y, net.weights(10, 40, spread=0.3), net.weights(10), transB=1)


def googlenet(net: Net) -> str:
    """Pool, LRN, two convolutions, LRN, pool; two inception blocks; a mean and a layer."""
    y = net.add("MaxPool", relu(net, "x", 16, 5), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    y = relu(net, relu(net, net.add("LRN", y, **LRN), 16, 1), 32, 3)
    y = net.add("MaxPool", net.add("LRN", y, **LRN), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    for _ in range(2):
        pooled = net.add("MaxPool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        branches = [relu(net, relu(net, y, 8, 1), 12, 3), relu(net, relu(net, y, 4, 1), 8, 5), relu(net, pooled, 8, 1)]
        y = net.add("Concat", relu(net, y, 8, 1), *branches, axis=1)
    y = net.add("Flatten", net.add("GlobalAveragePool", y))
    return net.add("Gemm", y, net.weights(10, net.shape(y)[1], spread=0.3), net.weights(10), transB=1)


NETS = {"alexnet": alexnet, "googlenet": googlenet}
# Least SQNR in dB of the logits at the three settings.
FLOORS = {"alexnet": (35, 33, 70), "googlenet": (40, 33, 70)}


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["small", "pixels"])
@pytest.mark.parametrize("kind", NETS)
def test_close_to_float(kind: str, scale: float, tmp_path: Path) -> None:
    """pixels: inputs of a standard deviation of 60, as Caffe's nets take them, so that LRN sees hundreds."""
    net = Net(SHAPE)
    net.save(tmp_path / "m.onnx", NETS[kind](net))
    source = tmp_path / "x.npy"
    np.save(source, np.random.default_rng(8).normal(0, scale, (18, *SHAPE[1:])).astype(np.float32))
    found = []
    for bits, widths in SETTINGS:
        result = convert(tmp_path / "m.onnx", {"": source}, Options(bits=bits, widths=widths), lambda *_: None)
        assert sum(node.op == "lrn" for node in result.graph.nodes) == 2
        found.append(next(iter(result.report.sqnr_by_head.values())))
        x = result.graph["x"]
        feed = np.random.default_rng(9).integers(-100, 100, x.shape).astype(x.dtype)
        wanted = run_reference(result.graph, {"x": feed})[result.graph.outputs[0]]
        np.testing.assert_array_equal(interpreter.load(result.data).run(feed)[0], wanted)
    assert all(a >= b for a, b in zip(found, FLOORS[kind], strict=True)), found
