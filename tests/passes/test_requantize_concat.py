"""A small part of a Concat of 16 bits keeps its own grid where something else is computed from it."""

from __future__ import annotations

import numpy as np
import pytest
from float_nets import feeds, in_bits, observed
from nets import Net

from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.engine import FloatEngine
from nmpconv.conversion.quantizer import Fitter
from nmpconv.conversion.validation import integer_outputs
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.passes.quantize import requantize_concat
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
    found, stats, widths = requantize_concat.run(graph, observed(graph, feeds(graph)), in_bits(graph, bits))
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


def joined(*factors: float, result: str) -> Graph:
    """Concats one after the other: of a, or of the last one, and a times a factor."""
    net = Net()
    net.input("x", 1, 2, 2, 3)
    net.conv("x", "a", 3)
    last = "a"
    for i, factor in enumerate(factors):
        net.const(f"k{i}", [factor])
        net.op("mul", f"a k{i}", f"z{i}")
        last = net.op("concat", f"{last} z{i}", f"c{i}", axis=3)
    return net.graph(result)


def test_nothing_loses_bits_step_by_step() -> None:
    """Each Concat is 3 bits coarser than the one before. The second one would take 6 from a."""
    made = ops(joined(8.0, 64.0, 512.0, result="c2"), 16)
    assert made == ["conv2d", "mul", "concat", "mul", "requantize", "concat", "mul", "concat"]


def test_a_tensor_of_two_concats() -> None:
    """The result of the smaller one keeps its grid, though a larger one has an operand of it."""
    net = Net()
    net.input("x", 1, 2, 2, 3)
    net.input("big", 1, 2, 2, 3)
    net.const("k", [1000.0])
    net.op("mul", "big k", "z")
    net.op("concat", "x z", "c", axis=3)
    net.op("concat", "x big", "y", axis=3)
    assert ops(net.graph("c", "y"), 16) == ["mul", "requantize", "concat", "concat"]


def test_what_is_computed_from_it_is_as_good_as_16_bits() -> None:
    graph = scaled(1000.0)
    images = feeds(graph)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 16), Method("max"), Rounding(16), images)
    integer = fitter.quantize(fitter.prepare("none", images, Trace()), False, Trace())
    wanted = np.stack([FloatEngine(graph, ["z"]).run(image)["z"] for image in images])
    assert sqnr_db(wanted, integer_outputs(integer, images, ["z"])["z"]) > 58
    requantize = next(node for node in integer.nodes if node.op == "requantize")
    assert integer[requantize.inputs[0]].quant.exponent + 9 <= integer[requantize.outputs[0]].quant.exponent
