"""Base of the ops with weights: sums of products, with a bias on the output's grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.effort import Axis, Sums
from nmpconv.ops.common.traits import ANY, Bounds, Factors, Limit, Origins, Rule, weighted_limits
from nmpconv.ops.op import Op, quant_of, with_constants

MANY_PIXELS = 32  # for them a copy of the weights takes at most 2 % of the instructions of a Cortex-M4


class Weighted(Op):
    """Inputs are x, weights (the first axis: output channels), bias [O], and perhaps a padding value per input channel.

    All but x are constants, which the passes quantize.
    spreads: it is computed with zeros between the pixels.
    """

    clamps = True
    layer = 0
    spreads: ClassVar[bool] = False
    constants = (2, 2)

    def rules(self, params: Any, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        weights, bias = map(quant_of, inputs[1:3])
        yield (
            "weights are no int8 or int16, or have exponents along another axis than the first",
            (weights.bits < 32 and weights.axis in (None, 0)),
        )
        yield "the bias is on another grid than the output", bias.exponents == quant_of(output).exponents

    def work(self, params: Any, inputs: Sequence[Value], output: Value) -> int:
        return output.size * (inputs[1].size // inputs[1].shape[0])

    def repeated_weights(self, params: Any, inputs: Sequence[Value], output: Value) -> Value | None:
        many = output.size // output.shape[-1] >= MANY_PIXELS
        return inputs[1] if many and not self.spreads and not self.by_channel(params, inputs, output) else None

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        return weighted_limits(node, graph)

    def reach(self, node: Node, inputs: Sequence[Value], bounds: Sequence[Bounds]) -> Bounds:
        """At least the least bias, where nothing that is summed up is negative. Inputs are floats."""
        x, weights, bias, *others = bounds
        return (bias[0], math.inf) if not others and x[0] >= 0 and weights[0] >= 0 else ANY

    def exact_exponent(self, exponents: Sequence[int]) -> int:
        """Exponent of the sums, from the exponents of x and of a channel's weights."""
        return sum(exponents)

    def tensor_factors(self, params: Any, inputs: Sequence[Value], output: Value) -> Factors:
        return Factors.ANY

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
        """Factors beside the elements of x, per input channel [C]; None: there are none beside them."""
        return None

    def as_convolution(
        self, params: Any, x: np.ndarray, weights: Sequence[int]
    ) -> tuple[np.ndarray, tuple[int, ...], Any]:
        """The conv2d with the same sums, outputs in the same order: its x [N,H,W,C], shape of weights and parameters.

        x: of any number type and of any number of samples along axis 0. weights: their shape here.
        """
        raise NotImplementedError

    def is_matrix(self, params: Any, weights: Value) -> bool:
        """Checks that weights [O, ..., I] multiply the last axis of x, at every place alike."""
        return False

    def sums(self, params: Any, inputs: Sequence[Value], output: Value) -> Sums:
        """The work of an integer node."""
        x, w = inputs[:2]
        conv_input, shape, conv = self.as_convolution(params, np.zeros(x.shape, np.int8), w.shape)
        images, height, width, _ = conv_input.shape
        k, out, kernel = math.prod(shape[1:]), shape[0], shape[1:3]

        def axis(size: int, i: int, side: str, before: int, after: int) -> Axis:
            stride, dilation = getattr(conv, f"stride_{side}"), getattr(conv, f"dilation_{side}")
            places = (size + before + after - (kernel[i] - 1) * dilation - 1) // stride + 1
            return Axis(size, places, kernel[i], stride, dilation, before)

        rows = axis(height, 0, "h", conv.pad_top, conv.pad_bottom)
        columns = axis(width, 1, "w", conv.pad_left, conv.pad_right)
        return Sums(images, (rows, columns), conv.groups, out // conv.groups, k, _light(w), self.spreads)


def _light(weights: Value) -> float:
    """See `Sums.light`."""
    if weights.data is None:
        return 1.0
    factors = weights.data.reshape(len(weights.data), -1)
    ends = factors.shape[1] // 4 * 4
    sizes = np.abs(factors[:, :ends]).view(f"u{factors.itemsize}")  # of -128: 128
    fours = sum(sizes[:, i::4].astype(np.uint32 if factors.itemsize > 1 else np.uint16) for i in range(4))
    light = fours.max(axis=1, initial=0) <= (255 if weights.data.dtype == np.int8 else 65533)
    pairs = np.append(light, light[-1:])[: (len(light) + 1) // 2 * 2].reshape(-1, 2).all(axis=1)
    return float(pairs.mean())


def groups_of(node: Node) -> int:
    """Groups of a weighted node."""
    return int(getattr(node.params, "groups", 1))
