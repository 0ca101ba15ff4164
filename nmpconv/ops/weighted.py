"""What the ops with weights share: sums of products, with a bias on the output's grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.op import Op
from nmpconv.ops.traits import Limit, weighted_limits


class Weighted(Op):
    """Inputs are x, weights (the first axis: output channels), bias [O], and perhaps a padding value per input channel.

    All but x are constants, which the passes quantize.
    """

    clamps = True

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        return weighted_limits(node, graph)

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
