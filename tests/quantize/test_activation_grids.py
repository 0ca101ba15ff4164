"""Exponents of activations: fixed, shared, chosen; clamps as ranges of integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from float_nets import RELU, RELU6, Net, feeds, in_bits, integer, names, observed, residual

from nmpconv.calib.exponent import choose
from nmpconv.ir import Graph
from nmpconv.ops.function import FUNCTIONS
from nmpconv.passes import exponents, legalize
from nmpconv.passes.exponents import Method, provisional, saturating
from nmpconv.passes.quantize import Rounding
from nmpconv.verify import verify


def ranged(graph: Graph, bits: int = 8, method: str = "mse", percentile: float = 99.99) -> tuple[Graph, dict]:
    stats = observed(graph, feeds(graph))
    result = exponents.run(graph, stats, in_bits(graph, bits), Method(method, percentile))
    verify(result, "RANGED", "exponents")
    for name in names(graph):
        seen = result[name].observed
        assert (seen.min, seen.max) == (stats[name].min, stats[name].max)
        assert result[name].quant.bits == bits
    return result, stats


def head() -> Graph:
    net = Net(1)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 4, w=0.01 * net.rng.normal(0, 1, (4, 1, 1, 3)), clamp=RELU)
    net.conv("a", "h", 3)
    net.op("softmax", "h", "y", axis=3)
    net.conv("a", "g", 3)
    net.op("lookup", "g", "z", function="sigmoid")
    net.conv("a", "k", 3)
    net.op("lookup", "k", "t", function="tanh")
    return net.graph("y", "z", "t", pixels=("x",))


@pytest.mark.parametrize("bits", [8, 16])
def test_fixed(bits: int) -> None:
    graph, stats = ranged(head(), bits)
    expected = {"x": 0, "y": 1 - bits, "z": 1 - bits}
    assert {name: graph[name].quant.exponent for name in expected} == expected
    assert {name for name in names(graph) if graph[name].observed.method == "fixed"} == set(expected)
    assert graph["t"].quant.exponent == choose(stats["t"], bits).exponent


def test_groups_take_what_is_best_for_all() -> None:
    net = Net(2)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 4, clamp=RELU)
    net.conv("x", "b", 4, w=8 * net.rng.normal(0, 1, (4, 1, 1, 3)))
    net.op("concat", "a b", "c", axis=3)
    net.op("max_pool", "c", "m", kernel_h=2, kernel_w=2)
    net.conv("m", "y", 2)
    graph, stats = ranged(net.graph("y"))
    group = "abcm"
    assert len({graph[name].quant.exponent for name in group}) == 1
    for name in group[1:]:
        stats["a"].merge(stats[name])
    assert graph["a"].quant.exponent == choose(stats["a"], 8).exponent
    alone = observed(net.graph("y"), feeds(net.graph("y")))["a"]
    assert choose(alone, 8).exponent < graph["a"].quant.exponent
    assert (graph["a"].quant.lo, graph["b"].quant.lo) == (0, -128)


def test_pixels_fix_the_grid_of_what_moves_them_only() -> None:
    net = Net(3)
    net.input("x", 1, 4, 4, 3)
    net.op("slice", "x", "s", starts=(0, 0, 0, 0), steps=(1, 2, 2, 1), sizes=(1, 2, 2, 3))
    net.conv("s", "a", 3, w=0.01 * net.rng.normal(0, 1, (3, 1, 1, 3)))
    net.op("concat", "s a", "c", axis=3)
    net.conv("c", "y", 2)
    graph, _ = ranged(net.graph("y", pixels=("x",)))
    assert (graph["x"].quant.exponent, graph["s"].quant.exponent) == (0, 0)
    assert graph["a"].quant.exponent == graph["c"].quant.exponent


@pytest.mark.parametrize("kind", ["softmax", "lookup"])
@pytest.mark.parametrize("first", [True, False])
def test_a_probability_next_to_something_large(kind: str, first: bool) -> None:
    """As in the head of a detector: scores and boxes in one Concat, in whatever order they are computed."""
    net = Net(7)
    net.input("x", 1, 4, 4, 3)

    def score() -> None:
        net.conv("x", "g", 3)
        net.op(kind, "g", "s", **({"axis": 3} if kind == "softmax" else {"function": "sigmoid"}))

    if first:
        score()
    net.conv("x", "a", 3, w=100 * net.rng.normal(0, 1, (3, 1, 1, 3)))
    if not first:
        score()
    net.op("concat", "s a", "c", axis=3)
    net.op("reshape", "c", "y", shape=(1, 16, 6))
    graph, stats = ranged(net.graph("y"))
    assert {graph[name].quant.exponent for name in "sacy"} == {graph["a"].quant.exponent}
    assert 128 * 2.0 ** graph["a"].quant.exponent > 0.5 * stats["a"].peak
    integer(legalize.run(graph), Rounding(gptq=False))


def test_probabilities_next_to_each_other() -> None:
    net = Net(8)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "g", 3)
    net.op("lookup", "g", "s", function="sigmoid")
    net.op("softmax", "g", "p", axis=3)
    net.op("concat", "s p", "c", axis=3)
    net.op("reshape", "c", "y", shape=(1, 16, 6))
    graph, _ = ranged(net.graph("y"))
    assert {graph[name].quant.exponent for name in "spcy"} == {-7}
    assert {graph[name].observed.method for name in "spcy"} == {"fixed"}


def before_a_table(**more: str) -> Graph:
    net = Net(4)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 4, w=12 * net.rng.normal(0, 1, (4, 1, 1, 3)))
    net.op("lookup", "a", "t", function="sigmoid")
    outputs = ["y"]
    net.conv("t", "y", 2)
    if more.get("reader"):
        net.conv("a", "z", 2)
        outputs.append("z")
    return net.graph(*outputs, *more.get("outputs", ""))


def test_measured_after_the_table() -> None:
    graph, stats = ranged(before_a_table())
    after = choose(stats["a"], 8, function=lambda x: FUNCTIONS["sigmoid"](x, 0.0, 0.0)).exponent
    assert graph["a"].quant.exponent == after < choose(stats["a"], 8).exponent


@pytest.mark.parametrize("more", [{"reader": "z"}, {"outputs": "a"}])
def test_measured_itself_where_others_read_it(more: dict[str, str]) -> None:
    graph, stats = ranged(before_a_table(**more))
    assert graph["a"].quant.exponent == choose(stats["a"], 8).exponent


@pytest.mark.parametrize("method", ["max", "mse", "kl", "percentile"])
def test_method(method: str) -> None:
    net = Net(5)
    net.input("x", 1, 16, 16, 3)
    net.conv("x", "y", 4)
    graph = net.graph("y")
    spiky = feeds(graph)
    spiky[0]["x"][0, 0, 0, 0] = 400
    stats = observed(graph, spiky)
    found = exponents.run(graph, stats, in_bits(graph, 8), Method(method, 99.0))["x"]
    assert found.observed.method == method
    assert found.quant.exponent == choose(stats["x"], 8, method, percentile=99.0).exponent
    assert (found.quant.exponent == 2) == (method in ("max", "mse"))  # others give the spike up


def test_clamps() -> None:
    net = Net(6)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 4, 3, clamp=RELU6, b=[6, 6, 0, 0])
    net.conv("a", "b", 4, clamp=RELU)
    net.conv("b", "y", 4, clamp=(-0.3, 0.7))
    graph, _ = ranged(net.graph("y"))
    a, b, y = (graph[name].quant for name in "aby")
    assert (a.lo, a.hi) == (0, min(127, round(6 / 2.0**a.exponent)))
    assert (b.lo, b.hi) == (0, 127)
    assert (y.lo, y.hi) == tuple(math.floor(c / 2.0**y.exponent + 0.5) for c in (-0.3, 0.7))


@pytest.mark.parametrize(
    ("bits", "exponent", "clamp", "expected"),
    [
        (8, -4, None, (-128, 127)),
        (8, -4, (0.0, 6.0), (0, 96)),
        (8, -5, (0.0, 6.0), (0, 127)),
        (16, -5, (0.0, 6.0), (0, 192)),
        (8, 0, (-math.inf, 2.5), (-128, 3)),
        (8, 0, (-2.5, math.inf), (-2, 127)),
        (8, 0, (300.0, 400.0), (127, 127)),
        (8, 0, (-math.inf, -400.0), (-128, -128)),
    ],
)
def test_saturating(bits: int, exponent: int, clamp: tuple, expected: tuple[int, int]) -> None:
    quant = saturating(bits, exponent, clamp)
    assert (quant.bits, quant.exponents, quant.lo, quant.hi) == (bits, (exponent,), *expected)


def test_provisional() -> None:
    graph = provisional(head(), {"h": 16})
    assert {v.name for v in graph.activations() if v.dtype == "int16"} == {"h"}
    assert all(v.dtype == "int8" for v in graph.activations() if v.name != "h")
    assert sum(v.nbytes for v in graph.activations()) == sum(
        v.size * (2 if v.name == "h" else 1) for v in graph.activations()
    )


def test_statistics_are_left_alone() -> None:
    graph = residual()
    stats = observed(graph, feeds(graph))
    before = {name: (s.count, s.max, s.histogram.counts.copy()) for name, s in stats.items()}
    exponents.run(graph, stats, in_bits(graph, 8), Method())
    for name, (count, top, counts) in before.items():
        assert (stats[name].count, stats[name].max) == (count, top)
        assert np.array_equal(stats[name].histogram.counts, counts)
