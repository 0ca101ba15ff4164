"""Who gets 16 bits: every rule once, and next to it what the rule does not reach."""

from __future__ import annotations

import pytest
from float_nets import RELU, Net, names

from nmpconv.ir import Graph
from nmpconv.passes.widths import activation_bits, weight_bits


def wide(graph: Graph, widths: str = "default", bits: str = "8") -> set[str]:
    found = activation_bits(graph, bits, widths)
    assert list(found) == names(graph)
    assert set(found.values()) <= {8, 16}
    return {name for name, width in found.items() if width == 16}


def body(*, pixels: bool = True) -> tuple[Net, tuple[str, ...]]:
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 4, 3, clamp=RELU)
    return net, ("x",) if pixels else ()


def test_an_image_has_8_bits_another_input_16() -> None:
    for pixels, expected in ((True, {"y"}), (False, {"x", "y"})):
        net, images = body(pixels=pixels)
        net.conv("a", "y", 2)
        assert wide(net.graph("y", pixels=images)) == expected


def test_what_only_moves_an_input() -> None:
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.op("transpose", "x", "t", perm=(0, 2, 1, 3))
    net.op("slice", "t", "s", starts=(0, 0, 0, 0), steps=(1, 1, 1, 1), sizes=(1, 2, 4, 3))
    net.conv("s", "a", 4)
    net.conv("a", "y", 2)
    assert wide(net.graph("y")) == {"x", "t", "s", "y"}
    assert wide(net.graph("y", pixels=("x",))) == {"y"}


def test_a_head_back_to_the_convolutions() -> None:
    net, images = body()
    net.conv("a", "h", 6)
    net.conv("a", "k", 2)
    net.op("concat", "h k", "c", axis=3)
    net.op("slice", "c", "u", starts=(0, 0, 0, 0), steps=(1, 1, 1, 1), sizes=(1, 4, 4, 6))
    net.op("transpose", "u", "t", perm=(0, 3, 1, 2))
    net.op("reshape", "t", "r", shape=(1, 6, 16))
    net.op("softmax", "r", "y", axis=1)
    net.conv("a", "g", 2)
    net.op("lookup", "g", "z", function="sigmoid")
    assert wide(net.graph("y", "z", pixels=images)) == set("hkcutryzg")


def test_another_table_is_no_head() -> None:
    net, images = body()
    net.conv("a", "g", 2)
    net.op("lookup", "g", "z", function="tanh")
    assert wide(net.graph("z", pixels=images)) == {"z"}


def test_what_another_layer_also_reads_is_no_head() -> None:
    net, images = body()
    net.conv("a", "h", 3)
    net.op("softmax", "h", "y", axis=3)
    net.conv("h", "b", 3)
    net.conv("b", "z", 3)
    assert wide(net.graph("y", "z", pixels=images)) == {"y", "z"}


def test_one_position() -> None:
    net, images = body()
    net.op("average_pool", "a", "g", kernel_h=4, kernel_w=4)
    net.conv("g", "e", 4, clamp=RELU)
    net.op("mul", "a e", "m")
    net.op("average_pool", "m", "p", kernel_h=4, kernel_w=4)
    net.op("reshape", "p", "f", shape=(1, 4))
    net.dense("f", "h", 8, RELU)
    net.dense("h", "y", 2)
    assert wide(net.graph("y", pixels=images)) == set("gepfhy")


def test_one_position_that_shares_its_grid_with_many() -> None:
    """A global max pool keeps its input's width."""
    net, images = body()
    net.op("max_pool", "a", "g", kernel_h=4, kernel_w=4)
    net.conv("g", "y", 2)
    assert wide(net.graph("y", pixels=images)) == {"y"}


def test_precise() -> None:
    net, images = body()
    net.conv("a", "b", 4)  # only an Add reads it
    net.conv("a", "t", 4)  # only a table
    net.op("lookup", "t", "l", function="tanh")
    net.op("add", "b l", "s")
    net.conv("s", "c", 4)  # an Add and a convolution
    net.op("add", "c s", "u")
    net.conv("c", "v", 4)
    net.op("add", "u v", "w")
    net.conv("w", "y", 2)
    graph = net.graph("y", pixels=images)
    assert wide(graph) == {"y"}
    assert wide(graph, "precise") == {"y", "b", "t", "v"}


@pytest.mark.parametrize("bits", ["16", "a16w8"])
def test_16_bits_but_for_pixels(bits: str) -> None:
    net, images = body()
    net.op("max_pool", "a", "m", kernel_h=2, kernel_w=2)
    net.conv("m", "y", 2)
    for widths in ("default", "strict", "precise"):
        assert wide(net.graph("y", pixels=images), widths, bits) == {"a", "m", "y"}
        assert wide(net.graph("y"), widths, bits) == {"x", "a", "m", "y"}


def test_strict_is_8_everywhere() -> None:
    net, _ = body(pixels=False)
    net.op("average_pool", "a", "g", kernel_h=4, kernel_w=4)
    net.conv("g", "y", 2)
    assert wide(net.graph("y"), "strict") == set()


def test_weights() -> None:
    assert [weight_bits(bits) for bits in ("8", "16", "a16w8")] == [8, 16, 8]


def test_indices_that_8_bits_do_not_hold() -> None:
    net, images = body()
    for name, channels in (("near", 128), ("far", 129)):
        net.conv("a", f"{name}.c", channels)
        net.op("arg_max", f"{name}.c", name, axis=3)
    graph = net.graph("near", "far", pixels=images)
    assert wide(graph, "strict") == {"far"}
    assert wide(graph) == {"near", "far", "near.c", "far.c"}
