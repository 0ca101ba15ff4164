"""Illegal exponents become legal: each limit is broken once, by the grids, and holds in the integer graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from float_nets import RELU, Net, integer, on_grids

from nmpconv.errors import VerifyError
from nmpconv.ir import Graph
from nmpconv.passes import legalize
from nmpconv.passes.quantize import Rounding
from nmpconv.verify import verify

PLAIN = Rounding(gptq=False)


def binary(kind: str) -> Graph:
    net = Net()
    net.input("a", 1, 2, 2, 3)
    net.input("b", 1, 2, 2, 3)
    net.op(kind, "a b", "y")
    return net.graph("y")


def unary(kind: str, **params: Any) -> Graph:
    net = Net()
    net.input("a", 1, 2, 2, 3)
    net.op(kind, "a", "y", **params)
    return net.graph("y")


def layer(kind: str) -> Graph:
    net = Net()
    net.input("a", 1, 2, 2, 2)
    w = [[1.0, 0.25], [0.01, 0.02]]
    if kind == "conv2d":
        net.conv("a", "y", 2, w=w, b=[0, 0])
    else:
        net.dense("a", "y", 2)
        net.const("y.w", w)
        net.const("y.b", [0, 0])
    return net.graph("y")


POOL = {"kernel_h": 2, "kernel_w": 2}
# what, graph, exponents, exponents afterwards
CASES = [
    ("add: operands apart", binary("add"), {"a": 0, "b": -40, "y": -20}, {"a": 0, "b": -30, "y": -20}),
    ("add: operands apart, other way", binary("add"), {"a": -35, "b": 0, "y": 0}, {"a": -30, "b": 0, "y": 0}),
    ("add: left shift too far", binary("add"), {"a": 0, "b": 3, "y": -20}, {"a": 0, "b": 3, "y": -15}),
    ("add: right shift too far", binary("add"), {"a": 0, "b": 1, "y": 50}, {"a": 3, "b": 3, "y": 50}),
    ("mul: left shift too far", binary("mul"), {"a": -2, "b": 2, "y": -40}, {"a": -2, "b": 2, "y": -15}),
    ("mul: right shift too far", binary("mul"), {"a": -1, "b": 1, "y": 60}, {"a": 12, "b": 1, "y": 60}),
    ("divide: quotient too fine", binary("divide"), {"a": 0, "b": -8, "y": -40}, {"a": 0, "b": -8, "y": -22}),
    ("divide: quotient too coarse", binary("divide"), {"a": -20, "b": 5, "y": 20}, {"a": -5, "b": 5, "y": 20}),
    ("greater: operands apart", binary("greater"), {"a": 0, "b": -40, "y": -6}, {"a": 0, "b": -30, "y": -6}),
    ("requantize: left shift too far", unary("requantize"), {"a": 2, "y": -40}, {"a": 2, "y": -13}),
    ("requantize: right shift too far", unary("requantize"), {"a": -10, "y": 40}, {"a": -7, "y": 40}),
    ("pool: up too far", unary("average_pool", **POOL), {"a": 1, "y": -40}, {"a": 1, "y": -29}),
    ("pool: down too far", unary("average_pool", **POOL), {"a": -40, "y": 1}, {"a": -29, "y": 1}),
    ("conv2d: left shift too far", layer("conv2d"), {"a": 0, "y": -40}, {"a": 0, "y": -21}),
    ("fully_connected: left shift too far", layer("fully_connected"), {"a": 3, "y": -40}, {"a": 3, "y": -18}),
]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(("graph", "found", "allowed"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_limits(graph: Graph, found: dict[str, int], allowed: dict[str, int], bits: int) -> None:
    ranged = on_grids(graph, **{name: (bits, exponent) for name, exponent in found.items()})
    if graph.nodes[0].op not in ("conv2d", "fully_connected"):
        with pytest.raises(VerifyError, match="shift or exponent difference"):
            integer(ranged, PLAIN)
    legal = legalize.run(ranged)
    verify(legal, "RANGED", "legalize")
    assert {name: legal[name].quant.exponent for name in allowed} == allowed
    integer(legal, PLAIN)
    assert legalize.run(legal) == legal


@pytest.mark.parametrize("kind", ["conv2d", "fully_connected"])
def test_the_largest_weight_fits_afterwards(kind: str) -> None:
    """Before, it would need a grid that the left shift cannot reach, and would be clipped."""
    ranged = on_grids(layer(kind), a=(8, 0), y=(8, -40))

    def weights(graph: Graph) -> np.ndarray:
        found = integer(graph, PLAIN)["n_y.weight"]
        return found.data.reshape(2, 2) * 2.0 ** np.array(found.quant.exponents)[:, None]

    assert weights(ranged).max() < 0.01
    np.testing.assert_allclose(weights(legalize.run(ranged)), [[1.0, 0.25], [0.01, 0.02]], rtol=0.01)


def test_a_group_is_raised_together_and_clamps_follow() -> None:
    net = Net()
    net.input("x", 1, 4, 4, 1)
    net.conv("x", "r", 1, w=1.0, clamp=(0.0, 2.0**-20))
    net.op("max_pool", "r", "m", kernel_h=2, kernel_w=2)
    net.conv("m", "y", 1, w=1.0)
    ranged = on_grids(net.graph("y"), x=(8, 0), r=(8, -60), m=(8, -60), y=(8, -30))
    assert ranged["r"].quant.hi == 127
    legal = legalize.run(ranged)
    assert {name: legal[name].quant.exponent for name in "xrmy"} == {"x": 0, "r": -21, "m": -21, "y": -30}
    assert (legal["r"].quant.lo, legal["r"].quant.hi) == (0, 2)
    integer(legal, PLAIN)


def test_a_change_that_breaks_the_next_limit() -> None:
    """Raising b for the Add breaks the shift of what reads b, which is raised then."""
    net = Net()
    net.input("a", 1, 2, 2, 3)
    net.input("b", 1, 2, 2, 3)
    net.op("requantize", "b", "c")
    net.op("add", "a b", "s")
    ranged = on_grids(net.graph("c", "s"), a=(8, 10), b=(8, -40), c=(8, -50), s=(8, 10))
    legal = legalize.run(ranged)
    assert {name: legal[name].quant.exponent for name in "abcs"} == {"a": 10, "b": -20, "c": -35, "s": 10}
    integer(legal, PLAIN)


def test_concat_with_pixels_gets_a_requantize() -> None:
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 3, clamp=RELU)
    net.op("concat", "x a", "c", axis=3)
    net.conv("c", "y", 2)
    ranged = on_grids(net.graph("y", pixels=("x",)), x=(8, 0), a=(8, 2), c=(8, 2), y=(16, -3))
    with pytest.raises(VerifyError, match="data movement keeps the grid"):
        integer(ranged, PLAIN)
    legal = legalize.run(ranged)
    verify(legal, "RANGED", "legalize")
    assert [node.op for node in legal.nodes] == ["conv2d", "requantize", "concat", "conv2d"]
    fresh = legal.nodes[1].outputs[0]
    assert legal.nodes[1].inputs == ("x",)
    assert legal.nodes[2].inputs == (fresh, "a")
    assert legal[fresh].quant == legal["c"].quant
    assert (legal["x"].quant.exponent, legal["a"].quant.lo) == (0, 0)
    integer(legal, PLAIN)


@pytest.mark.parametrize("exponent", [2, -20])
def test_a_softmax_on_the_grid_of_its_neighbours(exponent: int) -> None:
    """Its output has an exponent from -16 to 0; a requantize takes it to where the Concat is."""
    net = Net()
    net.input("a", 1, 2, 2, 3)
    net.op("softmax", "a", "s", axis=3)
    net.op("concat", "s a", "y", axis=3)
    ranged = on_grids(net.graph("y"), a=(16, exponent), s=(16, exponent), y=(16, exponent))
    with pytest.raises(VerifyError, match="shift or exponent difference"):
        integer(ranged, PLAIN)
    legal = legalize.run(ranged)
    verify(legal, "RANGED", "legalize")
    assert [node.op for node in legal.nodes] == ["softmax", "requantize", "concat"]
    own = legal.nodes[0].outputs[0]
    assert legal.nodes[1].inputs == (own,)
    assert legal.nodes[1].outputs == ("s",)
    assert (legal[own].quant.exponent, legal["s"].quant.exponent) == (-15, exponent)
    integer(legal, PLAIN)
    assert legalize.run(legal) == legal


def test_an_index_on_the_grid_of_its_neighbours() -> None:
    """Indices and truth have grids of their own, as a Softmax has."""
    for kind, params, own in (("arg_max", {"axis": 3}, 0), ("greater", {}, -6)):
        net = Net()
        net.input("a", 1, 2, 2, 3)
        net.input("b", 1, 2, 2, 3)
        net.op(kind, "a" if params else "a b", "i", **params)
        net.op("concat", "i b", "y", axis=3)
        ranged = on_grids(net.graph("y"), a=(8, 2), b=(8, 2), i=(8, 2), y=(8, 2))
        legal = legalize.run(ranged)
        verify(legal, "RANGED", "legalize")
        assert [node.op for node in legal.nodes] == [kind, "requantize", "concat"]
        assert legal[legal.nodes[0].outputs[0]].quant.exponent == own
        integer(legal, PLAIN)


def test_legal_grids_stay() -> None:
    for graph in (binary("add"), binary("mul")):
        ranged = on_grids(graph, a=(8, -3), b=(16, -9), y=(8, -2))
        assert legalize.run(ranged) == ranged
