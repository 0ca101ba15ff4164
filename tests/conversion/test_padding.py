"""Padding that an affine map in front of a convolution was folded into: it lies on the grid of what it surrounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from float_nets import RELU, closeness, feeds, in_bits, observed
from nets import Net
from onnx_net import Net as OnnxNet

from nmpconv.base.sqnr import sqnr_db
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.graph.text import parse
from nmpconv.ir import Graph
from nmpconv.passes.float import fold_affine
from nmpconv.passes.quantize import equalize, exponents
from nmpconv.passes.quantize.exponents import Method
from nmpconv.runtime import interpreter

SHAPE = (1, 3, 12, 12)


def normalized(path: Path, gain: float) -> None:
    """Conv, Relu, MaxPool, BatchNormalization and a padded Conv; one channel has this gain and a shift of 0.8."""
    net = OnnxNet(SHAPE)
    x = net.add("MaxPool", net.add("Relu", net.conv("x", 8)), kernel_shape=[2, 2], strides=[2, 2])
    scale, shift = net.noise.uniform(0.5, 1.5, 8), net.noise.normal(0, 0.5, 8)
    scale[2], shift[2] = gain, 0.8
    params = [net.const(a.astype(np.float32)) for a in (scale, shift, np.full(8, 0.5), np.ones(8))]
    net.save(path, net.conv(net.add("BatchNormalization", x, *params), 6))


@pytest.mark.parametrize("mode", ["none", "vector"])
@pytest.mark.parametrize(("gain", "nodes"), [(1e-6, 4), (1e-3, 4), (0.3, 3)])
def test_a_map_stays_where_its_padding_would_be_wide(gain: float, nodes: int, mode: str, tmp_path: Path) -> None:
    """Images that were not seen, borders and all, against onnxruntime on the model itself."""
    normalized(tmp_path / "m.onnx", gain)
    rng = np.random.default_rng(3)
    np.save(tmp_path / "x.npy", rng.normal(size=(24, *SHAPE[1:])).astype(np.float32))
    images = rng.normal(size=(8, *SHAPE)).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    wanted = np.stack([session.run(None, {"x": x})[0] for x in images])
    for bits, floor in (("8", 30), ("16", 65)):
        options = Options(bits=bits, widths="strict", equalize=mode)
        result = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, options, lambda *_: None)
        assert sum(node.op != "transpose" for node in result.graph.nodes) == nodes
        net = interpreter.load(result.data)
        assert sqnr_db(wanted, np.stack([net.run_float(x)[0] for x in images])) > floor


def chain() -> Graph:
    """A map in front of a padded convolution; padding stands for -4 and 1 in `a`."""
    net = Net()
    net.input("x", 1, 6, 6, 2)
    net.conv("x", "a", 2, clamp=RELU)
    net.conv("a", "m", 2, groups=2, w=[0.25, 2.0], b=[1.0, -2.0])
    net.conv("m", "y", 2, 3)
    return net.graph("y")


@pytest.mark.parametrize(("peak", "folded"), [(3.99, False), (4.0, True)])
def test_a_padding_is_no_larger_than_what_it_surrounds(peak: float, folded: bool) -> None:
    found = fold_affine.run(chain(), {"a": peak})
    assert [node.name for node in found.nodes] == (["n_a", "n_y"] if folded else ["n_a", "n_m", "n_y"])
    assert fold_affine.run(chain()) == chain()
    if folded:
        assert found[found.nodes[-1].inputs[3]].data.tolist() == [-4.0, 1.0]
        assert closeness(chain(), found, feeds(chain())) > 100


def test_nothing_goes_past_a_move_once_there_are_statistics() -> None:
    """Those of what lies between would be of other numbers."""
    text = (Path(__file__).parents[1] / "passes/float/fold_affine/saturated_through_a_move.txt").read_text()
    graph = parse(text.split("---")[0])
    assert fold_affine.run(graph) != graph == fold_affine.run(graph, {"c": 1.0})


@pytest.mark.parametrize("bits", [8, 16])
def test_the_grid_holds_the_padding(bits: int) -> None:
    """Eight times what the activation reaches, as a Pad of its own may have it."""
    net = Net()
    net.input("x", 1, 6, 6, 2)
    net.conv("x", "a", 2, clamp=(0.0, 1.0))
    net.conv("a", "y", 2, 3, pad=[-8.0, 0.5])
    graph = net.graph("y")
    ranged = exponents.run(graph, observed(graph, feeds(graph)), in_bits(graph, bits), Method())
    assert ranged["a"].quant is not None
    assert -(2 ** (bits - 1)) * 2.0 ** ranged["a"].quant.exponent <= -8.0


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", ["pad", "concat"])
def test_constants_beyond_a_grid_of_its_own(bits: int, kind: str) -> None:
    """A sigmoid's grid ends at 1. A 5 that a Pad or a Concat brings onto it is to be held."""
    net = Net()
    net.input("x", 1, 6, 6, 2)
    net.op("lookup", "x", "s", function="sigmoid")
    if kind == "pad":
        net.op("pad", f"s {net.const('five', [5.0])}", "y", pads=(0, 0, 1, 1, 1, 1, 0, 0))
    else:
        net.op("concat", f"s {net.const('five', np.full((1, 6, 6, 1), 5.0))}", "y", axis=3)
    graph = net.graph("y")
    ranged = exponents.run(graph, observed(graph, feeds(graph)), in_bits(graph, bits), Method())
    for name in "sy":
        quant = ranged[name].quant
        assert quant is not None
        assert quant.hi * 2.0**quant.exponent >= 5.0


def test_equalization_counts_padding_as_a_value() -> None:
    """The padding of a channel that a factor makes as large as the others is no larger."""
    net = Net()
    net.input("x", 1, 6, 6, 4)
    net.conv("x", "a", 4, w=np.diag([1.0, 1.0, 1.0, 0.01]))
    net.conv("a", "y", 4, 3, groups=4, pad=[0.0, 0.0, 0.0, 1.0])
    graph = net.graph("y")
    stats = observed(graph, feeds(graph))
    found, _ = equalize.vector(graph, stats, in_bits(graph, 8))
    pad = found[found.nodes[-1].inputs[3]].data
    reach = observed(found, feeds(graph))["a"].peak
    assert pad is not None
    assert np.abs(pad).max() <= 1.01 * reach
