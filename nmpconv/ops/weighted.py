"""What the ops with weights share: sums of products, with a bias on the output's grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.op import Op, with_constants
from nmpconv.ops.traits import Limit, Origins, weighted_limits


class Weighted(Op):
    """Inputs are x, weights (the first axis: output channels), bias [O], and perhaps a padding value per input channel.

    All but x are constants, which the passes quantize.
    """

    clamps = True

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        return weighted_limits(node, graph)

    def exact_exponent(self, exponents: Sequence[int]) -> int:
        """Of the sums, from the exponents of x and of a channel's weights."""
        return sum(exponents)

    def origins(self, params: Any, inputs: Sequence[Value], output: Value) -> Origins:
        return Origins.ANY

    def with_origins(self, node: Node, graph: Graph, x: float, y: float) -> tuple[Node, list[Value]]:
        """The bias takes up both; what padding stands for is less x, as are the elements."""
        weights, bias = (value.data for value in graph.ins(node)[1:3])
        assert weights is not None
        assert bias is not None
        moved = {2: ("bias", bias + x * weights.astype(np.float64).reshape(len(weights), -1).sum(axis=1) - y)}
        padding = self.padding(node.params, graph.ins(node))
        if x and padding is not None:
            moved[3] = ("pad", padding.astype(np.float64) - x)
        return with_constants(node, graph, moved if x or y else {})

    def padding(self, params: Any, inputs: Sequence[Value]) -> np.ndarray | None:
        """What factors beside the elements of x are, per input channel [C]; None: there are none beside them."""
        return None

    def as_convolution(
        self, params: Any, x: np.ndarray, weights: Sequence[int]
    ) -> tuple[np.ndarray, tuple[int, ...], Any]:
        """The conv2d with the same sums, outputs in the same order: its x [N,H,W,C], shape of weights and parameters.

        x: of any number type and of any number of samples along axis 0. weights: their shape here.
        """
        raise NotImplementedError


def groups_of(node: Node) -> int:
    """Of a weighted node."""
    return int(getattr(node.params, "groups", 1))
