"""Factors of whole tensors: which are free, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from float_nets import closeness, feeds, in_bits, observed
from nets import Net, grid

from nmpconv.graph.verify import verify
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.passes.quantize import equalize, tensor_factors

SAME_DB = 90


def rows(graph: Graph) -> dict[str, dict[str, float]]:
    return tensor_factors.rows(graph).rows


def attention(seed: int = 5) -> Graph:
    """Tokens x -> a sum with constants -> a normalization -> attention -> y."""
    net = Net(seed)
    net.input("x", 6, 8)
    net.dense("x", "a", 8)
    net.op("add", f"a {net.const('p', net.rng.normal(0, 1, (6, 8)))}", "s")
    constants = [net.const(name, net.rng.normal(1, 1, (1, 8))) for name in "gc"]
    net.op("normalize", " ".join(["s", *constants]), "n", axes=(1,))
    for name in "qkv":
        net.dense("n", name, 8)
    net.op("batch_matmul", "q k", "d")
    net.op("softmax", "d", "w", axis=1)
    net.op("transpose", "v", "t", perm=(1, 0))
    net.op("batch_matmul", "w t", "o")
    net.dense("o", "y", 2)
    return net.graph("y")


def test_attention_has_factors_throughout() -> None:
    """Scores have those of queries and keys, results those of values; weights of 0 to 1 have none."""
    found = rows(attention())
    assert found["x"] == found["y"] == found["w"] == {}
    assert found["a"] == found["s"] == {"a": 1.0}
    assert found["n"] == {"n": 1.0}
    assert found["d"] == {"q": 1.0, "k": 1.0}
    assert found["o"] == found["t"] == {"v": 1.0}


@pytest.mark.parametrize("seed", range(3))
def test_fill_of_attention_keeps_the_function(seed: int) -> None:
    graph = attention(seed)
    images = feeds(graph)
    stats = observed(graph, images)
    after, factors = equalize.fill(graph, stats, in_bits(graph, 8))
    verify(after, "FLOAT", "fill")
    assert closeness(graph, after, images) > SAME_DB
    assert sum(factor != 1 for factor in factors.values()) >= 6
    assert factors["d"] == pytest.approx(factors["q"] * factors["k"])
    for name, seen in observed(after, images).items():
        assert seen.peak == pytest.approx(stats[name].peak * factors[name], rel=1e-4)


def test_scores_of_an_output_have_none() -> None:
    net = Net(1)
    net.input("x", 6, 8)
    net.dense("x", "q", 8)
    net.dense("x", "k", 8)
    net.op("batch_matmul", "q k", "d")
    net.op("softmax", "d", "y", axis=1)
    found = rows(net.graph("y"))
    assert found["d"] == {}
    assert found["k"] == {"q": -1.0}


def test_factors_of_quotients_roots_and_tables() -> None:
    net = Net(2)
    net.input("x", 1, 4, 4, 3)
    for name in "ab":
        net.conv("x", name, 4)
    net.op("lookup", "b", "e", function="exp")
    net.op("divide", "a e", "r")
    net.op("lrn", "r", "l", size=7, alpha=1.0, beta=0.5, bias=0.1)
    net.op("lookup", "l", "g", function="sigmoid")
    net.op("mul", "l g", "m")
    net.op("sub", f"{net.const('k', [2.0])} m", "u")
    net.conv("u", "y", 2)
    graph = net.graph("y")
    found = rows(graph)
    assert found["r"] == {"a": 1.0, "e": -1.0}
    assert found["g"] == {}
    assert found["u"] == found["m"] == found["l"] == {"l": 1.0}
    images = feeds(graph)
    after, factors = equalize.fill(graph, observed(graph, images), in_bits(graph, 8))
    assert closeness(graph, after, images) > SAME_DB
    assert min(abs(factors[name] - 1) for name in "abelu") > 0


def test_whole_tensors() -> None:
    net = Net(3)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 4)
    net.const("k", np.ones((1, 4, 4, 3)))
    net.op("concat", "a k", "c", axis=3)
    net.conv("c", "b", 4)
    net.conv("b", "y", 2)
    graph = net.graph("y")
    found = rows(graph)
    assert found["a"] == found["c"] == {"a": 1.0}
    assert found["b"] == {"b": 1.0}
    assert tensor_factors.rows(graph, ["c"]).rows["a"] == {}


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("before", [1.0, 0.625])
def test_a_table_of_exponentials_tells_its_factor(bits: int, before: float) -> None:
    net = Net(4, grid(bits, -4))
    net.input("x", 1, 6)
    net.op("softmax", "x", "y", axis=1, before=before)
    graph = net.graph("y")
    node, (table,) = OPS["softmax"].quantize(graph.nodes[0], graph)
    assert table.data is not None
    known = graph.with_values(replace(table, data=np.ldexp(table.data.astype(np.float64), -30)))
    found = OPS["softmax"].restored(node, known)
    assert found is not None
    assert found.params.before == pytest.approx(before, rel=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_moved_counts_once(seed: int) -> None:
    """Queries and what is made of them have the factor that they would have without moves in between."""
    chosen = []
    for moves in ("", "tuvz"):
        net = Net(seed)
        net.input("x", 1, 6, 8)
        net.dense("x", "k", 8)
        net.op("softmax", "k", "w", axis=2)
        net.dense("x", "a", 8)
        moved = "a"
        for name in moves:
            net.op("transpose", moved, name, perm=(0, 2, 1))
            moved = name
        net.op("batch_matmul", f"w {moved}", "o")
        net.dense("o", "y", 2)
        graph = net.graph("y")
        found = equalize.fill(graph, observed(graph, feeds(graph)), in_bits(graph, 8))[1]
        chosen.append((found["a"], found["o"]))
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("seed", range(3))
def test_channels_beside_constants_of_a_concat_keep_the_function(seed: int) -> None:
    """The constant is in the middle; its channels have no factor."""
    net = Net(seed)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 2)
    net.conv("x", "b", 1)
    net.op("concat", f"a {net.const('k', np.ones((1, 4, 4, 3)))} b", "c", axis=3)
    net.conv("c", "d", 4)
    net.conv("d", "y", 2)
    graph = net.graph("y")
    images = feeds(graph)
    after, factors = equalize.vector(graph, observed(graph, images), in_bits(graph, 8))
    assert np.any(factors["a"] != 1)
    assert closeness(graph, after, images) > SAME_DB


@pytest.mark.parametrize("seed", range(3))
def test_a_reached_clip_of_a_product_is_the_end_of_the_grid(seed: int) -> None:
    """The product has the factors of both operands, one of which has a clip of its own."""
    net = Net(seed)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 4)
    net.conv("x", "h", 4)
    net.op("mul", "h a", "m")
    net.conv("m", "y", 2)
    graph = net.graph("y")
    graph = graph.with_values(replace(graph["h"], clamp=(0.0, 6.0)), replace(graph["m"], clamp=(0.0, 0.5)))
    after, _ = equalize.fill(graph, observed(graph, feeds(graph)), in_bits(graph, 8))
    clip = after["m"].clamp
    assert clip is not None
    steps = math.log2(clip[1] / 127)
    assert steps == pytest.approx(round(steps), abs=1e-6)


def test_a_product_with_numbers_has_a_factor_of_its_own() -> None:
    """The numbers take it up: an angle fills its grid, whatever the input is."""
    net = Net(6)
    net.input("x", 1, 6, 8)
    net.op("mul", f"x {net.const('k', [25.0])}", "m")
    net.op("lookup", "m", "s", function="sin")
    net.dense("s", "y", 4)
    graph = net.graph("y")
    assert rows(graph)["m"] == {"m": 1.0}
    images = feeds(graph)
    stats = observed(graph, images)
    stats["m"] = stats["m"].scaled(65 / stats["m"].peak)  # a grid of powers of two is half empty
    after, factors = equalize.fill(graph, stats, in_bits(graph, 8, x=16, y=16))
    assert closeness(graph, after, images) > SAME_DB
    assert factors["m"] > 1.5
