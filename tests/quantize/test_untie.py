"""What is small in a Concat of 16 bits keeps its own grid where something else is computed from it."""

from __future__ import annotations

import numpy as np
import pytest
from float_nets import Net, feeds, in_bits, observed

from nmpconv.calib.engine import FloatEngine
from nmpconv.fit import Fitter, integer_outputs
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.metrics import sqnr_db
from nmpconv.passes.quantize import untie
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.rounding import Rounding


def scaled(factor: float, *, moved: bool = False, other_reader: bool = True) -> Graph:
    """y = Concat(a, z), z = factor * a; without another reader of a, z = factor * x."""
    net = Net()
    net.input("x", 1, 2, 2, 3)
    net.conv("x", "a", 3)
    net.const("k", [factor])
    net.op("mul", "a k" if other_reader else "x k", "z")
    part = net.op("reshape", "a", "r", shape=(1, 2, 2, 3)) if moved else "a"
    net.op("concat", f"{part} z", "y", axis=3)
    return net.graph("y")


def ops(graph: Graph, bits: int) -> list[str]:
    found, stats, widths = untie.run(graph, observed(graph, feeds(graph)), in_bits(graph, bits))
    assert stats.keys() == widths.keys() == {value.name for value in found.activations()}
    return [node.op for node in found.nodes]


@pytest.mark.parametrize("moved", [False, True])
def test_only_where_bits_are_lost(moved: bool) -> None:
    for factor, bits, requantizes in ((1000.0, 16, 1), (1000.0, 8, 0), (40.0, 16, 1), (7.0, 16, 0)):
        assert ops(scaled(factor, moved=moved), bits).count("requantize") == requantizes, (factor, bits)
    assert "requantize" not in ops(scaled(1000.0, moved=moved, other_reader=False), 16)


def test_a_concat_of_a_concat() -> None:
    net = Net()
    net.input("x", 1, 2, 2, 3)
    net.conv("x", "a", 3)
    net.const("k", [1000.0])
    net.op("concat", "a a", "c", axis=3)
    net.op("mul", "c k", "z")
    net.op("concat", "c z", "y", axis=3)
    assert ops(net.graph("y"), 16) == ["conv2d", "concat", "mul", "requantize", "concat"]


def test_what_is_computed_from_it_is_as_good_as_16_bits() -> None:
    graph = scaled(1000.0)
    images = feeds(graph)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 16), Method("max"), Rounding(16), images)
    integer = fitter.quantize(fitter.prepare("none", images, Trace()), False, Trace())
    wanted = np.stack([FloatEngine(graph, ["z"]).run(image)["z"] for image in images])
    assert sqnr_db(wanted, integer_outputs(integer, images, ["z"])["z"]) > 58
    requantize = next(node for node in integer.nodes if node.op == "requantize")
    assert integer[requantize.inputs[0]].quant.exponent + 9 <= integer[requantize.outputs[0]].quant.exponent
