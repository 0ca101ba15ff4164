"""Legal exponents are for weights that the runtime can shift to where they belong."""

from __future__ import annotations

import numpy as np
import pytest
from float_nets import integer, on_grids
from nets import Net

from nmpconv.errors import VerifyError
from nmpconv.ir import Graph
from nmpconv.passes.quantize import legalize
from nmpconv.passes.quantize.rounding import Rounding

PLAIN = Rounding(gptq=False)


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


@pytest.mark.parametrize("kind", ["conv2d", "fully_connected"])
def test_the_largest_weight_fits_afterwards(kind: str) -> None:
    """Before, it would need a grid that the left shift cannot reach, and would be clipped."""
    ranged = on_grids(layer(kind), a=(8, 0), y=(8, -40))

    def weights(graph: Graph) -> np.ndarray:
        found = integer(graph, PLAIN)["n_y.weight"]
        return found.data.reshape(2, 2) * 2.0 ** np.array(found.quant.exponents)[:, None]

    assert weights(ranged).max() < 0.01
    np.testing.assert_allclose(weights(legalize.run(ranged)), [[1.0, 0.25], [0.01, 0.02]], rtol=0.01)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(
    ("kind", "operands", "found", "allowed"),
    [
        ("add", "a k", (6, -44), (6, -9)),
        ("sub", "k a", (-14, 63), (34, 63)),
        ("mul", "a k", (30, -64), (30, -49)),
        ("mul", "k a", (-50, 63), (-47, 63)),
        ("divide", "a k", (40, -64), (40, -53)),
        ("divide", "a k", (-60, 40), (-54, 40)),
        ("divide", "k a", (-60, -50), (-60, -34)),
    ],
)
def test_a_constant_gets_an_exponent_later(
    kind: str, operands: str, found: tuple[int, int], allowed: tuple[int, int], bits: int
) -> None:
    """One that no constant could make up for is raised."""
    net = Net()
    net.input("a", 1, 2, 2, 3)
    net.const("k", np.array([1.0, 0.5, 1e25]))
    net.op(kind, operands, "y")
    ranged = on_grids(net.graph("y"), a=(bits, found[0]), y=(bits, found[1]))
    with pytest.raises(VerifyError, match="exponent"):
        integer(ranged, PLAIN)
    legal = legalize.run(ranged)
    assert (legal["a"].quant.exponent, legal["y"].quant.exponent) == allowed
    integer(legal, PLAIN)


def test_a_table_has_bits_below_the_finest_grid() -> None:
    net = Net()
    net.input("a", 1, 2, 2, 3)
    net.op("lookup", "a", "y", function="tanh")
    ranged = on_grids(net.graph("y"), a=(16, -10), y=(16, -64))
    with pytest.raises(VerifyError, match="are not all in"):
        integer(ranged, PLAIN)
    legal = legalize.run(ranged)
    assert legal["y"].quant.exponent == -56
    integer(legal, PLAIN)


def test_grids_that_one_shift_does_not_connect() -> None:
    """Truth is 1, its neighbour in the Concat reaches 2^70."""
    net = Net()
    net.input("a", 1, 2, 2, 3)
    net.input("b", 1, 2, 2, 3)
    net.op("greater", "a b", "i")
    net.op("concat", "i b", "y", axis=3)
    ranged = on_grids(net.graph("y"), a=(8, 63), b=(8, 63), i=(8, 63), y=(8, 63))
    legal = legalize.run(ranged)
    assert [node.op for node in legal.nodes] == ["greater", "requantize", "requantize", "concat"]
    assert [legal[node.outputs[0]].quant.exponent for node in legal.nodes] == [-6, 41, 63, 63]
    integer(legal, PLAIN)
