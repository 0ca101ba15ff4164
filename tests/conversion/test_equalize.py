"""Equalization: the float function stays, ranges come closer, grids fit better, Relu6 becomes the type's own end."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from float_nets import RELU, RELU6, closeness, feeds, in_bits, names, observed, residual
from nets import Net
from onnx import TensorProto, helper, numpy_helper

import nmpconv
from nmpconv.calib.exponent_search import choose, expected_sqnr_db, span
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph
from nmpconv.passes.quantize import balance, equalize, exponents, headroom
from nmpconv.passes.quantize.channel_groups import Channels
from nmpconv.passes.quantize.exponents import Method

SAME_DB = 90


@pytest.fixture(scope="module")
def net() -> Graph:
    return residual()


def test_vector_keeps_the_function(net: Graph) -> None:
    images = feeds(net)
    after, _ = equalize.vector(net, observed(net, images), in_bits(net, 8))
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
        reached = math.log2(max(map(abs, span(observed(after, images)["t"], bits))))
        assert math.ceil(reached) - reached < 0.1


def test_scale_without_factors_changes_nothing(net: Graph) -> None:
    after = equalize.scale(net, {name: np.ones(net[name].shape[-1]) for name in names(net)})
    assert after == net


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


@pytest.mark.parametrize("seed", [4, 5])
def test_slices_have_the_grid_of_what_they_are_cut_from(seed: int) -> None:
    """A tensor gets the same factor with slices of channels that reach less far as without."""

    def factor(sliced: bool) -> float:
        net = Net(seed)
        net.input("x", 1, 8, 8, 3)
        reach = np.repeat([1.0, 0.7, 0.4], 4).reshape(12, 1, 1, 1)
        net.conv("x", "a", 12, w=net.rng.normal(0, 0.3, (12, 1, 1, 3)) * reach)
        for i in range(3 * sliced):
            net.op("slice", "a", f"s{i}", starts=(0, 0, 0, 4 * i), steps=(1, 1, 1, 1), sizes=(1, 8, 8, 4))
            net.conv(f"s{i}", f"z{i}", 2)
        net.conv("a", "y", 2)
        graph = net.graph("y", *(f"z{i}" for i in range(3 * sliced)))
        return equalize.fill(graph, observed(graph, feeds(graph)), in_bits(graph, 8))[1]["a"]

    assert factor(sliced=True) == factor(sliced=False)


def test_a_pad_reaches_beyond_what_it_pads() -> None:
    """The grid of both holds the constant: a factor that would coarsen it to fit the rest is not chosen."""
    net = Net(0)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 4, w=net.rng.normal(0, 0.4, (4, 1, 1, 3)))
    net.const("k", np.float32([50.0]))
    net.op("pad", "a k", "p", pads=(0, 0, 1, 1, 1, 1, 0, 0))
    net.conv("p", "y", 2)
    graph = net.graph("y")
    factor = equalize.fill(graph, observed(graph, feeds(graph)), in_bits(graph, 8))[1]["a"]
    step = 2.0 ** math.ceil(math.log2(50.0 * factor / 127)) / factor
    assert step < 1.05 * 50 / 127


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
        expected = headroom.expected(graph, seen, in_bits(graph, 8), seen, ())
        for members in ("abs", "c"):
            before = sum(expected_sqnr_db(expected[name], choose(expected[name], 8), 8) for name in members)
            scaled = [expected[name].scaled(factors[name]) for name in members]
            after = sum(expected_sqnr_db(seen, choose(seen, 8), 8) for seen in scaled)
            gains.append(after - before)
    assert min(gains) > -1e-6
    assert np.mean(gains) > 0.3


def with_dead_channels(dead: float) -> bytes:
    """Three convolutions with a depthwise one in the middle; 5 of 8 channels have weights of this size."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(0, 0.2, (8, 3, 3, 3)),
        "b": rng.normal(0, 0.1, 8),
        "v": rng.normal(0, 0.3, (8, 1, 3, 3)),
        "c": rng.normal(0, 0.1, 8),
        "u": rng.normal(0, 0.3, (4, 8, 1, 1)),
    }
    for name, x in constants.items():
        (x[:, 3:] if name == "u" else x[3:])[...] = dead
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["p"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "v", "c"], ["r"], group=8),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("Conv", ["s", "u"], ["y"]),
    ]
    ports = [("x", [1, 3, 12, 12]), ("y", [1, 4, 10, 10])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports)
    initializers = [numpy_helper.from_array(x.astype(np.float32), name) for name, x in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def images() -> np.ndarray:
    return np.random.default_rng(1).random((32, 3, 12, 12), dtype=np.float32)


@cache
def made_of_dead_channels(size: float, bits: str) -> nmpconv.Converted:
    return nmpconv.convert(with_dead_channels(size), images(), bits=bits)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bits", ["8", "16"])
@pytest.mark.parametrize("dead", [1e-41, 1e-38, 1e-20])
def test_dead_channels_count_nowhere(dead: float, bits: str) -> None:
    """Weight decay leaves such weights: the integers are as good as where they are 0, and nothing is left out."""
    found, zeros = (made_of_dead_channels(size, bits) for size in (dead, 0.0))
    assert not any("left out" in note for note in found.report.notes)
    assert found.report.sqnr_by_head["y"] > zeros.report.sqnr_by_head["y"] - 1


@pytest.mark.filterwarnings("error")
def test_an_equalization_beyond_float32_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "alive", lambda peaks: peaks > 0)
    notes = nmpconv.convert(with_dead_channels(1e-41), images(), bits="8").report.notes
    assert any("equalize vector left out" in note for note in notes), notes
