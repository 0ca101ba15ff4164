"""x * g(x): which tables become products, that the function stays, and what it is worth."""

from __future__ import annotations

import numpy as np
import pytest
from float_nets import closeness, feeds, in_bits, observed
from nets import Net

from nmpconv.calib.observers import TensorStats
from nmpconv.conversion.quantizer import Fitter, Recipe
from nmpconv.conversion.validation import tried
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph
from nmpconv.passes.quantize import equalize, split_activations
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.rounding import Rounding

UNEVEN = 2.0 ** np.array([-6.0, 3, 5, -5, 4, -7, 6, 0])


def gated(function: str, spread: np.ndarray = UNEVEN) -> Graph:
    """Channels of very different ranges through one table into a depthwise layer that makes them alike."""
    net = Net(7)
    net.input("x", 1, 8, 8, 3)
    weights = np.sign(net.rng.normal(0, 1, (8, 1, 1, 3))) * spread[:, None, None, None]
    net.conv("x", "a", 8, w=weights, b=np.zeros(8))
    net.op("lookup", "a", "t", function=function)
    net.conv("t", "d", 8, 3, groups=8, w=net.rng.normal(0, 1, (8, 3, 3, 1)) / spread[:, None, None, None])
    net.conv("d", "y", 4)
    return net.graph("y")


@pytest.mark.parametrize("function", split_activations.GATES)
@pytest.mark.parametrize("bits", [8, 16])
def test_the_function_stays(function: str, bits: int) -> None:
    graph = gated(function)
    images = feeds(graph)
    after = split_activations.run(graph, observed(graph, images), in_bits(graph, bits))
    verify(after, "FLOAT", "gates")
    assert [node.op for node in after.nodes] == ["conv2d", "conv2d", "lookup", "mul", "conv2d", "conv2d"]
    assert closeness(graph, after, images) > 90
    even, _ = equalize.vector(after, observed(after, images), in_bits(after, bits))
    assert closeness(graph, even, images) > 90
    for name in "at":
        # At 16 bits small channels are lifted less, so that they do not saturate together.
        assert _spread(observed(even, images)[name]) < (64 if bits == 8 else _spread(observed(graph, images)[name]) / 4)


def _spread(seen: TensorStats) -> float:
    peaks = np.maximum(np.abs(seen.channel_min), np.abs(seen.channel_max))
    return float(peaks.max() / peaks.min())


@pytest.mark.parametrize("function", split_activations.GATES)
@pytest.mark.parametrize(("bits", "gain"), [(8, 6), (16, 12)])
def test_small_channels_survive(function: str, bits: int, gain: float) -> None:
    graph = gated(function)
    images = feeds(graph, 6)
    how = Rounding(weight_bits=bits, gptq=False)
    made = Fitter(graph, observed(graph, images), in_bits(graph, bits, x=16, y=16), Method(), how, images)
    recipes = [Recipe(mode, False) for mode in ("scalar", "vector")]
    scores = list(tried(made, recipes, lambda done, total: None)[0].values())
    assert scores[1].db > scores[0].db + gain
