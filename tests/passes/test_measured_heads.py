"""Tensors that accuracy is measured on."""

from __future__ import annotations

import numpy as np
import pytest
from float_nets import ends
from nets import Net

from nmpconv.passes.quantize import tensor_factors
from nmpconv.passes.quantize.heads import heads


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ("a", ["a"]),
        ("p", ["a"]),
        ("q", ["a"]),
        ("r", ["r"]),
        ("l", ["l"]),
        ("s", ["k"]),
        ("u", ["k"]),
        ("u a", ["k", "a"]),
        ("p q t", ["a", "k"]),
        ("j u i a", ["k", "a"]),
        ("j", ["l"]),
        ("j i", ["l"]),
    ],
)
def test_heads(outputs: str, expected: list[str]) -> None:
    assert heads(ends(*outputs.split())) == expected


def test_heads_of_comparisons() -> None:
    """Both operands that ops make, neither constants nor inputs, but for a comparison of these alone."""
    net = Net()
    net.input("x", 1, 4)
    for name in "ab":
        net.dense("x", name, 4)
    net.const("c", np.ones(4, np.float32))
    for name, operands in (("both", "a b"), ("one_side", "c b"), ("inputs", "c x")):
        net.op("greater", operands, name)
    expected = {"both": ["a", "b"], "one_side": ["b"], "inputs": ["inputs"], "one_side a": ["a"]}
    assert {names: heads(net.graph(*names.split())) for names in expected} == expected


def test_the_scores_of_an_index_keep_their_factor() -> None:
    """A Softmax in front of the ArgMax takes any factor of its input, which accuracy is measured on."""
    net = Net(2)
    net.input("x", 1, 16)
    net.dense("x", "c", 8)
    net.op("softmax", "c", "s", axis=1)
    net.op("arg_max", "s", "i", axis=1)
    graph = net.graph("i")
    assert heads(graph) == ["c"]
    assert tensor_factors.rows(graph).rows["c"] == {}
