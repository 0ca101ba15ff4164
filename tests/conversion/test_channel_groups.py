"""Channels that are scaled together, op by op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from float_nets import RELU, RELU6
from nets import Net

from nmpconv.ir import Graph
from nmpconv.passes.quantize.channel_groups import Channels


def between(clamp: Any = None, channels: int = 4) -> Net:
    """x -> conv -> a, to grow what lies before a last convolution."""
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", channels, clamp=clamp)
    return net


def frozen(channels: Channels, name: str) -> bool:
    found = channels.frozen[channels.ids[name]]
    assert found.all() or not found.any()
    return bool(found.all())


def last(net: Net, name: str) -> Graph:
    net.conv(name, "y", 2)
    return net.graph("y")


def test_convolutions_join_nothing_and_ends_are_frozen() -> None:
    found = Channels(last(between(), "a"))
    assert [frozen(found, name) for name in "xay"] == [True, False, True]
    assert len(set(found.ids["a"])) == 4
    assert not set(found.ids["a"]) & {*found.ids["x"], *found.ids["y"]}
    assert found.total == 3 + 4 + 2


def test_add() -> None:
    net = between()
    net.conv("a", "b", 4)
    net.op("add", "a b", "s", RELU)
    found = Channels(last(net, "s"))
    assert np.array_equal(found.ids["a"], found.ids["s"])
    assert np.array_equal(found.ids["b"], found.ids["s"])
    assert len(set(found.ids["s"])) == 4
    assert not frozen(found, "s")


def test_concat_by_offset() -> None:
    net = between(channels=2)
    net.conv("a", "b", 3)
    net.op("concat", "b a", "c", axis=3)
    found = Channels(last(net, "c"))
    assert found.ids["c"].tolist() == [*found.ids["b"], *found.ids["a"]]
    assert len(set(found.ids["c"])) == 5
    assert not frozen(found, "c")


def test_concat_freezes_the_channels_of_a_constant() -> None:
    net = between(channels=2)
    net.const("k", np.ones((1, 4, 4, 3)))
    net.conv("a", "b", 1)
    net.op("concat", "a k b", "c", axis=3)
    found = Channels(last(net, "c"))
    assert found.ids["c"].tolist()[:2] == found.ids["a"].tolist()
    assert found.ids["c"].tolist()[5:] == found.ids["b"].tolist()
    assert found.frozen[found.ids["c"]].tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize(("clamp", "classes"), [(RELU, 4), (RELU6, 1), ((-1.0, np.inf), 1), (None, 4)])
def test_a_bound_that_is_one_number_for_all_joins_all(clamp: Any, classes: int) -> None:
    assert len(set(Channels(last(between(clamp), "a")).ids["a"])) == classes


@pytest.mark.parametrize(("start", "step", "taken"), [(1, 2, [1, 3]), (3, -1, [3, 2]), (0, 1, [0, 1])])
def test_slice(start: int, step: int, taken: list[int]) -> None:
    net = between()
    net.op("slice", "a", "s", starts=(0, 1, 0, start), steps=(1, 2, 1, step), sizes=(1, 2, 4, 2))
    found = Channels(last(net, "s"))
    assert found.ids["s"].tolist() == found.ids["a"][taken].tolist()
    assert not frozen(found, "a")


def test_flatten_repeats_the_channels() -> None:
    net = between()
    net.op("reshape", "a", "f", shape=(1, 64))
    net.dense("f", "y", 2)
    found = Channels(net.graph("y"))
    assert found.ids["f"].tolist() == found.ids["a"].tolist() * 16
    assert not frozen(found, "f")


@pytest.mark.parametrize(("shape", "held"), [((1, 2, 8, 4), False), ((1, 4, 8, 2), True), ((1, 2, 4, 8), True)])
def test_reshape_that_mixes_channels(shape: tuple[int, ...], held: bool) -> None:
    net = between()
    net.op("reshape", "a", "r", shape=shape)
    found = Channels(last(net, "r"))
    assert frozen(found, "a") == frozen(found, "r") == held


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("max_pool", {"kernel_h": 2, "kernel_w": 2}),
        ("average_pool", {"kernel_h": 4, "kernel_w": 4}),
        ("requantize", {}),
        ("pad", {"pads": (0, 0, 1, 1, 0, 2, 0, 0)}),
    ],
)
def test_ops_that_pass_channels_on(kind: str, params: dict[str, Any]) -> None:
    net = between()
    inputs = f"a {net.const('zero', [0.0])}" if kind == "pad" else "a"
    net.op(kind, inputs, "p", **params)
    found = Channels(last(net, "p"))
    assert np.array_equal(found.ids["a"], found.ids["p"])
    assert len(set(found.ids["a"])) == 4
    assert not frozen(found, "a")


@pytest.mark.parametrize(
    ("kind", "other", "params"),
    [
        ("mul", "a", {}),
        ("add", [1.0, 2.0, 3.0, 4.0], {}),
        ("lookup", None, {"function": "tanh"}),
        ("softmax", None, {"axis": 3}),
        ("transpose", None, {"perm": (0, 3, 1, 2)}),
        ("pad", [1.0], {"pads": (0, 0, 1, 1, 0, 0, 0, 0)}),
        ("pad", [0.0], {"pads": (0, 0, 0, 0, 0, 0, 0, 1)}),
        ("concat", "a", {"axis": 1}),
    ],
)
def test_other_ops_freeze(kind: str, other: Any, params: dict[str, Any]) -> None:
    net = between()
    second = "" if other is None else " a" if other == "a" else f" {net.const('k', other)}"
    net.op(kind, f"a{second}", "o", **params)
    found = Channels(last(net, "o"))
    assert frozen(found, "a")
    assert frozen(found, "o")


@pytest.mark.parametrize("other", [[2.0], [1.0, 2.0, 3.0, 4.0]])
def test_a_product_with_constants_passes_channels_on(other: list[float]) -> None:
    net = between()
    net.op("mul", f"a {net.const('k', other)}", "o")
    found = Channels(last(net, "o"))
    assert found.ids["o"].tolist() == found.ids["a"].tolist()
    assert not frozen(found, "a")


@pytest.mark.parametrize("order", ["a g", "g a"])
@pytest.mark.parametrize("plane", [True, False])
def test_a_product_has_the_channels_of_what_is_gated(order: str, plane: bool) -> None:
    """The gate is frozen, be it as large as the other operand or one number per channel."""
    net = between()
    if plane:
        net.conv("a", "b", 4)
    else:
        net.op("average_pool", "a", "p", kernel_h=4, kernel_w=4)
        net.conv("p", "b", 4)
    net.op("lookup", "b", "g", function="sigmoid")
    net.op("mul", order, "o")
    found = Channels(last(net, "o"))
    assert found.ids["o"].tolist() == found.ids["a"].tolist()
    assert [frozen(found, name) for name in "aog"] == [False, False, True]


def test_broadcasting_freezes() -> None:
    net = between()
    net.op("average_pool", "a", "g", kernel_h=4, kernel_w=4)
    net.op("add", "a g", "s")
    assert frozen(Channels(last(net, "s")), "g")


def test_what_is_joined_to_an_output_is_frozen() -> None:
    net = between()
    net.op("requantize", "a", "r", RELU)
    net.conv("a", "b", 4)
    net.op("add", "a b", "s")
    net.conv("s", "y", 2)
    found = Channels(net.graph("r", "y"))
    assert all(frozen(found, name) for name in "arbs")


def test_a_normalization_takes_up_channels_of_its_result() -> None:
    net = between()
    constants = [net.const(name, np.ones((1, 1, 1, 4))) for name in "gc"]
    net.op("normalize", " ".join(["a", *constants]), "n", axes=(3,))
    found = Channels(last(net, "n"))
    assert len(set(found.ids["n"])) == 4
    assert [frozen(found, name) for name in "an"] == [True, False]
