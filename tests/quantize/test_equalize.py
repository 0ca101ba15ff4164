"""Equalization: the float function stays, ranges come closer, grids fit better, Relu6 becomes the type's own end."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from float_nets import RELU, RELU6, Net, closeness, feeds, in_bits, names, observed, residual

from nmpconv.calib.exponent import choose
from nmpconv.ir import Graph
from nmpconv.passes import equalize, exponents
from nmpconv.passes.channels import Channels
from nmpconv.passes.exponents import Method
from nmpconv.verify import verify

SAME_DB = 90


@pytest.fixture(scope="module")
def net() -> Graph:
    return residual()


def test_vector_keeps_the_function(net: Graph) -> None:
    images = feeds(net)
    after = equalize.vector(net, observed(net, images), in_bits(net, 8))
    verify(after, "FLOAT", "vector")
    assert closeness(net, after, images) > SAME_DB
    assert not np.array_equal(after[after.nodes[0].inputs[1]].data, net["a.w"].data)


def test_fill_keeps_the_function(net: Graph) -> None:
    images = feeds(net)
    stats = observed(net, images)
    after, factors = equalize.fill(net, stats, in_bits(net, 8))
    verify(after, "FLOAT", "fill")
    assert closeness(net, after, images) > SAME_DB
    assert sum(factor != 1 for factor in factors.values()) >= 5
    assert factors["x"] == factors["y"] == 1
    for name, seen in observed(after, images).items():
        assert seen.peak == pytest.approx(stats[name].peak * factors[name], rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_scale_keeps_the_function(net: Graph, seed: int) -> None:
    """Any factors that channels.py allows; powers of two change no bit."""
    rng = np.random.default_rng(seed)
    channels = Channels(net)
    factor = np.where(channels.frozen, 1.0, 2.0 ** rng.integers(-5, 6, channels.total))
    after = equalize.scale(net, {name: factor[ids] for name, ids in channels.ids.items()})
    verify(after, "FLOAT", "scale")
    assert closeness(net, after, feeds(net)) > SAME_DB


@pytest.mark.parametrize("bits", [8, 16])
def test_fill_goes_through_tables(bits: int) -> None:
    """Both sides of a table get a factor of their own, which the table absorbs; at 16 bits the range is used up."""
    net = Net(6)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 4, 3)
    net.op("lookup", "a", "t", function="silu")
    net.conv("t", "b", 4)
    net.op("lookup", "b", "s", function="tanh")
    net.conv("s", "y", 2)
    graph = net.graph("y")
    images = feeds(graph)
    stats = observed(graph, images)
    after, factors = equalize.fill(graph, stats, in_bits(graph, bits))
    assert closeness(graph, after, images) > SAME_DB
    assert len({factors[name] for name in "ats"}) == 3
    assert after.nodes[1].params.before == 1 / factors["a"]
    assert after.nodes[1].params.after == factors["t"]
    if bits == 16:
        reached = math.log2(2 * observed(after, images)["t"].peak)
        assert math.ceil(reached) - reached < 0.1


def test_scale_without_factors_changes_nothing(net: Graph) -> None:
    after = equalize.scale(net, {name: np.ones(net[name].shape[-1]) for name in names(net)})
    assert after == net


def test_shared_constants_are_scaled_for_each_reader() -> None:
    net = Net(1)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 3)
    net.conv("a", "b", 3)
    net.conv("b", "y", 3)
    graph = net.graph("y")
    nodes = [replace(node, inputs=(node.inputs[0], "a.w", "a.b")) for node in graph.nodes]
    graph = replace(graph, nodes=tuple(nodes))
    factors = {"x": np.ones(3), "a": np.array([2.0, 3, 4]), "b": np.array([0.5, 7, 1]), "y": np.ones(3)}
    assert closeness(graph, equalize.scale(graph, factors), feeds(graph)) > SAME_DB


def chain(kind: str) -> Graph:
    """Channels of very different ranges, read by one layer."""
    net = Net(2)
    net.input("x", 1, 8, 8, 3)
    uneven = 2.0 ** np.array([-2, -1, 0, 1, 2, 0.5]).reshape(6, 1, 1, 1)
    net.conv("x", "a", 6, clamp=RELU, w=net.rng.normal(0, 1, (6, 1, 1, 3)) * uneven, b=np.zeros(6))
    net.conv("a", "b", 6, 3, groups=6 if kind == "depthwise" else 1, clamp=RELU)
    net.conv("b", "y", 2)
    return net.graph("y")


def channel_peaks(graph: Graph, name: str, images: list) -> np.ndarray:
    found = observed(graph, images)[name]
    return np.maximum(np.abs(found.channel_min), np.abs(found.channel_max))


def test_before_a_depthwise_layer_every_channel_fills_the_range() -> None:
    graph = chain("depthwise")
    images = feeds(graph)
    after = equalize.vector(graph, observed(graph, images), in_bits(graph, 8))
    peaks = channel_peaks(after, "a", images)
    np.testing.assert_allclose(peaks / peaks[0], 1, rtol=1e-3)


def test_before_a_dense_layer_activation_and_weights_share_the_spread() -> None:
    """With factor sqrt(demand / reach) a channel's range becomes the geometric mean of its own and its demand."""
    graph = chain("dense")
    images = feeds(graph)
    before = channel_peaks(graph, "a", images)
    weights = np.abs(graph["b.w"].data)
    share = weights.max(axis=(1, 2)) / weights.max(axis=(1, 2, 3))[:, None]
    after = equalize.vector(graph, observed(graph, images), in_bits(graph, 8))
    np.testing.assert_allclose(channel_peaks(after, "a", images), np.sqrt(before * share.max(axis=0)), rtol=1e-3)


def test_dead_channels_do_not_end_the_world() -> None:
    graph = chain("dense")
    dead, bias = graph["a.w"].data.copy(), graph["a.b"].data.copy()
    dead[1], bias[1] = 0, -1
    graph = graph.with_values(replace(graph["a.w"], data=dead), replace(graph["a.b"], data=bias))
    images = feeds(graph)
    after = equalize.vector(graph, observed(graph, images), in_bits(graph, 8))
    assert closeness(graph, after, images) > SAME_DB
    assert all(np.isfinite(v.data).all() for v in after.values.values() if v.data is not None)


def test_factors_of_a_tensor_stay_close_to_each_other() -> None:
    """A channel that is next to nothing is not blown up until it is all that its layer's weights are made of."""
    graph = chain("dense")
    weights = graph["a.w"].data.copy()
    weights[2] *= 1e-7
    graph = graph.with_values(replace(graph["a.w"], data=weights))
    images = feeds(graph)
    after = equalize.vector(graph, observed(graph, images), in_bits(graph, 8))
    factors = channel_peaks(after, "a", images) / channel_peaks(graph, "a", images)
    assert factors.max() / np.median(factors) == pytest.approx(64, rel=0.5)


def test_wide_tensors_stay_beside_narrow_ones(net: Graph) -> None:
    images = feeds(net)
    stats = observed(net, images)
    bits = in_bits(net, 8) | dict.fromkeys("adspmefctgv", 16)
    assert equalize.vector(net, stats, bits) == net
    after, factors = equalize.fill(net, stats, bits)
    assert after == net
    assert set(factors.values()) == {1.0}


@pytest.mark.parametrize("limit", [6.0, 1.0, 5.0])
def test_relu6_becomes_the_end_of_the_type(limit: float) -> None:
    net = Net(4)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 8, 3, clamp=(0.0, limit), b=np.full(8, limit))
    net.conv("a", "b", 8, 3, groups=8, clamp=(0.0, limit), b=np.full(8, limit))
    net.conv("b", "y", 4)
    graph = net.graph("y")
    images, bits = feeds(graph), in_bits(graph, 8)
    after, factors = equalize.fill(graph, observed(graph, images), bits)
    stats = {name: seen.scaled(factors[name]) for name, seen in observed(graph, images).items()}
    ranged = exponents.run(after, stats, bits, Method())
    for name in "ab":
        quant, clamp = ranged[name].quant, ranged[name].clamp
        assert (quant.lo, quant.hi) == (0, 127)
        assert math.ldexp(127, quant.exponent) == pytest.approx(clamp[1], rel=1e-12)
        assert 0.98 * limit < clamp[1] <= 2.02 * limit
    assert closeness(graph, after, images) > SAME_DB


def test_relu6_that_is_not_reached_is_only_a_tensor() -> None:
    net = Net(5)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 8, w=net.rng.normal(0, 0.2, (8, 1, 1, 3)), clamp=RELU6)
    net.conv("a", "y", 4)
    graph = net.graph("y")
    seen = observed(graph, feeds(graph))
    assert seen["a"].max < 5
    after, factors = equalize.fill(graph, seen, in_bits(graph, 8))
    assert after["a"].clamp == (0.0, 6.0 * factors["a"])
    assert 1 <= factors["a"] < 2


def test_fill_never_costs_anything() -> None:
    """The sum over what hangs together of each tensor's best SQNR; without Relu6, which has another goal."""
    gains = []
    for seed in range(12):
        net = Net(seed)
        net.input("x", 1, 8, 8, 3)
        net.conv("x", "a", 4, w=net.rng.normal(0, 2.0 ** net.rng.uniform(-1, 1), (4, 1, 1, 3)), clamp=RELU)
        net.conv("a", "b", 4)
        net.op("add", "a b", "s")
        net.conv("s", "c", 4, 3)
        net.conv("c", "y", 2)
        graph = net.graph("y")
        seen = observed(graph, feeds(graph))
        _, factors = equalize.fill(graph, seen, in_bits(graph, 8))
        assert factors["a"] == factors["b"] == factors["s"]
        for members in ("abs", "c"):
            before = sum(choose(seen[name], 8).sqnr_db for name in members)
            after = sum(choose(seen[name].scaled(factors[name]), 8).sqnr_db for name in members)
            gains.append(after - before)
    assert min(gains) > -1e-6
    assert np.mean(gains) > 0.3
