"""Sums that convolutions take: which ones, with the same integers as two ops, on fewer bytes."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from float_nets import RELU, evidence, feeds, integer, on_grids
from nets import Net

from nmpconv.errors import Unsupported
from nmpconv.graph import reference
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph
from nmpconv.passes import residual_operands
from nmpconv.passes.memory import bands, plan_memory
from nmpconv.passes.quantize.rounding import Rounding

GRIDS = {"x": (8, -5), "r": (8, -4), "h": (8, -5), "z": (8, -4), "y": (8, -4)}


def block(groups: int = 1, clamp: tuple[float, float] | None = None) -> Net:
    """x -> r; r -> h -> z; y = relu(r + z)."""
    net = Net(5)
    net.input("x", 1, 6, 6, 3)
    net.conv("x", "r", 8, 3, clamp=RELU)
    net.conv("r", "h", 8, 3, clamp=RELU)
    net.conv("h", "z", 8, 3, groups=groups, clamp=clamp)
    net.op("add", "r z", "y", RELU)
    return net


def joined(graph: Graph, weight_bits: int = 8, **grids: tuple[int, int]) -> tuple[Graph, Graph]:
    """The integer graph, and that after the pass."""
    names = {value.name for value in graph.activations()}
    plain = on_grids(graph, **{name: grid for name, grid in {**GRIDS, **grids}.items() if name in names})
    chosen = residual_operands.grids(plain, lambda node: weight_bits)
    whole = integer(chosen, Rounding(weight_bits, gptq=False), evidence(chosen, feeds(graph)))
    after = residual_operands.run(whole)
    verify(after, "INT", "residual_operands")
    return whole, after


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def assert_same(before: Graph, after: Graph) -> None:
    rng = np.random.default_rng(2)
    for low in (-128, 100):  # ordinary ones, and those that saturate
        x = {name: rng.integers(low, 128, before[name].shape).astype(before[name].dtype) for name in before.inputs}
        wanted, got = reference.run(before, x), reference.run(after, x)
        for name in before.outputs:
            np.testing.assert_array_equal(got[name], wanted[name])


def test_a_block_is_rounded_once() -> None:
    whole, after = joined(block().graph("y"))
    assert ops(whole) == ["conv2d", "conv2d", "conv2d", "add"]
    assert ops(after) == ["conv2d", "conv2d", "conv_add"]
    node = after.nodes[-1]
    assert (node.name, node.inputs[:2], node.outputs) == ("n_z", ("r", "h"), ("y",))
    assert "z" not in after.values
    assert_same(whole, after)
    planned = plan_memory.run(after)
    assert planned["y"].offset == planned["r"].offset
    assert plan_memory.peak(planned) == 2 * after["y"].nbytes < plan_memory.peak(plan_memory.run(whole))


def test_a_grid_that_is_finer_by_a_bit_is_no_reason_for_two_ops() -> None:
    whole, after = joined(block().graph("y"), z=(8, -5))
    assert ops(after) == ["conv2d", "conv2d", "conv_add"]
    assert_same(whole, after)


def test_the_other_order_of_operands() -> None:
    net = block()
    net.nodes[-1] = replace(net.nodes[-1], inputs=("z", "r"))
    whole, after = joined(net.graph("y"))
    assert after.nodes[-1].inputs[:2] == ("r", "h")
    assert_same(whole, after)


def test_of_two_convolutions_the_later_one_takes_the_sum() -> None:
    net = Net(6)
    net.input("x", 1, 6, 6, 3)
    net.conv("x", "r", 8, 1)
    net.conv("x", "h", 8, 3, clamp=RELU)
    net.conv("h", "z", 8, 3)
    net.op("add", "z r", "y")
    whole, after = joined(net.graph("y"))
    assert [node.name for node in after.nodes] == ["n_r", "n_h", "n_z"]
    assert after.nodes[-1].inputs[0] == "r"
    assert_same(whole, after)


@pytest.mark.parametrize(
    "grids",
    [
        {"z": (8, -6)},  # biases would be rounded to a coarser grid
        {"r": (8, -5)},
        {"r": (8, -3)},
        {"y": (16, -12)},
        {"r": (16, -4)},
        {"h": (16, -12)},
        {"z": (16, -12)},
    ],
)
def test_other_grids_and_widths_stay_two_ops(grids: dict[str, tuple[int, int]]) -> None:
    whole, after = joined(block().graph("y"), **grids)
    assert after is whole
    assert ops(whole)[-2:] == ["conv2d", "add"]


def test_weights_of_16_bits_stay_two_ops() -> None:
    whole, after = joined(block().graph("y"), weight_bits=16)
    assert after is whole


@pytest.mark.parametrize("net", [block(groups=8), block(clamp=(0.0, math.inf))], ids=["depthwise", "activation"])
def test_other_layers_stay_two_ops(net: Net) -> None:
    whole, after = joined(net.graph("y"))
    assert after is whole


def test_a_result_that_others_read_stays() -> None:
    net = block()
    whole, after = joined(net.graph("y", "z"))
    assert after is whole


def test_weights_far_from_the_sum_s_grid_stay_two_ops() -> None:
    """The operand would have to be shifted to the right."""
    net = block()
    net.values["z.w"] = replace(net.values["z.w"], data=net.values["z.w"].data * np.float32(2**14))
    whole, after = joined(net.graph("y"))
    assert after is whole


def test_bands_are_planned_without_the_int16_results_that_go() -> None:
    net = block()
    net.conv("y", "t", 4, 3, stride_h=2, stride_w=2)
    whole, _ = joined(net.graph("t"), t=(8, -3))
    with pytest.raises(Unsupported) as refused:
        bands.run(whole, 10, residual_operands.run)
    least = int(re.findall(r"--max-ram (\d+)", refused.value.hint)[0])
    with pytest.raises(Unsupported):
        bands.run(whole, least)
    after = residual_operands.run(bands.run(whole, least, residual_operands.run))
    assert plan_memory.peak(plan_memory.run(after)) == least
    assert "conv_add" in ops(after)
    assert_same(whole, after)
