"""The budget of what the import computes of constants."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from nmpconv.errors import Unsupported
from nmpconv.frontend.budget import Budget
from nmpconv.frontend.node_check import TensorType
from nmpconv.ops.onnx_node import OnnxNode

PIECE = 2**20
MOST = 2**24 // PIECE  # results of this size, whatever the file holds


def take(budget: Budget, count: int, kind: str = "Neg", shape: tuple[int, ...] = (PIECE,)) -> None:
    node = OnnxNode.of(helper.make_node(kind, ["a"], ["b"]), 21)
    known = TensorType(TensorProto.FLOAT, shape)
    for _ in range(count):
        budget.take(node, {"a": known}, {"b": known})


@pytest.mark.parametrize(("held", "most"), [(0, MOST), (PIECE, MOST + 8), (2 * PIECE, MOST + 16)])
def test_results_are_a_multiple_of_the_file(held: int, most: int) -> None:
    budget = Budget(held)
    take(budget, most)
    with pytest.raises(Unsupported, match="takes too much"):
        take(budget, 1, shape=(1,))


def test_views_take_nothing_but_work() -> None:
    """2^30 numbers may be read or written, and 8 more for each of the file's."""
    budget = Budget(PIECE // 4)
    take(budget, 2**9 + 1, "Identity")
    with pytest.raises(Unsupported, match="takes too much"):
        take(budget, 1, "Identity", (1,))


@pytest.mark.parametrize(("shape", "most"), [((), MOST * PIECE), ((PIECE,), MOST), ((4, PIECE // 4), MOST // 2)])
def test_a_result_of_unknown_size_counts_as_its_longest(shape: tuple[int, ...], most: int) -> None:
    """NonZero names a place, as many numbers as there are axes, of each element at most."""
    node = OnnxNode.of(helper.make_node("NonZero", ["a"], ["b"]), 21)
    known = {"a": TensorType(TensorProto.FLOAT, shape)}
    budget = Budget(0)
    for _ in range(min(most, 40)):
        budget.take(node, known, {"b": TensorType(TensorProto.INT64, None)})
    if most < 40:
        with pytest.raises(Unsupported, match="takes too much"):
            budget.take(node, known, {"b": TensorType(TensorProto.INT64, None)})
