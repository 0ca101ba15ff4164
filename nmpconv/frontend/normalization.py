"""Layer and instance normalizations that exporters write out become one node each of our own, with eps.

With d = x - ReduceMean(x), m = ReduceMean(d * d) over the same axes, and r one of 1 / Sqrt(m + eps), (m + eps)^-0.5:

1. d / Sqrt(m + eps), d * r;
2. x * w + (b - ReduceMean(x) * w) with w = r or r * scale, as TensorFlow has it.

What follows (a product with scale, a sum with bias) stays; the pass fold_norm merges it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nmpconv.frontend.read import DEFAULT_DOMAINS

DOMAIN = "nmpconv"  # of nodes that ONNX does not have
NORMALIZE = "MeanVarianceNormalization"


class Deviation(NamedTuple):
    """Sqrt(ReduceMean((x - ReduceMean(x))^2) + eps)."""

    x: str
    d: str
    mean: str
    axes: tuple[int, ...]
    eps: float


def fuse(graph: onnx.GraphProto) -> None:
    """Rewrites the nodes in place; those that nothing needs any more are left."""
    finder = _Finder(graph)
    nodes = []
    for node in graph.node:
        nodes += finder.replacement(node) or [node]
    del graph.node[:]
    graph.node.extend(nodes)


class _Finder:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._makers = {name: node for node in graph.node if node.domain in DEFAULT_DOMAINS for name in node.output}
        self._arrays = {tensor.name: tensor for tensor in graph.initializer}

    def replacement(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        for a, b in self._pairs(node):
            if node.op_type == "Div":
                deviation = self._deviation(b) if (a, b) == tuple(node.input) else None
            elif node.op_type == "Mul":
                deviation = self._inverse(b)
            elif node.op_type == "Add":
                if (nodes := self._tensorflow(node, a, b)) is not None:
                    return nodes
                continue
            else:
                return None
            if deviation is not None and self._same(deviation.d, a):
                return [self._normalize(deviation, node.output[0], node.name)]
        return None

    def _tensorflow(self, node: onnx.NodeProto, product: str, rest: str) -> list[onnx.NodeProto] | None:  # case 2
        subtract = self._maker(rest, "Sub")
        if subtract is None:
            return None
        bias, offset = subtract.input
        for (x, w), (mean, v) in (
            (p, q) for p in self._pairs(self._maker(product, "Mul")) for q in self._pairs(self._maker(offset, "Mul"))
        ):
            scales = [("", w), *((s, r) for r, s in self._pairs(self._maker(w, "Mul")))]
            for scale, inverse in scales:
                deviation = self._inverse(inverse)
                if (
                    deviation is not None
                    and self._same(w, v)
                    and self._same(deviation.x, x)
                    and self._same(deviation.mean, mean)
                ):
                    out = node.output[0]
                    last = f"{out}/normalized"
                    nodes = [self._normalize(deviation, last, f"{node.name}/normalized")]
                    if scale:
                        nodes.append(helper.make_node("Mul", [last, scale], [f"{out}/scaled"], f"{node.name}/scaled"))
                        last = f"{out}/scaled"
                    return [*nodes, helper.make_node("Add", [last, bias], [out], node.name)]
        return None

    def _normalize(self, deviation: Deviation, out: str, name: str) -> onnx.NodeProto:
        axes, epsilon = deviation.axes, deviation.eps
        return helper.make_node(NORMALIZE, [deviation.x], [out], name, domain=DOMAIN, axes=axes, epsilon=epsilon)

    def _inverse(self, name: str) -> Deviation | None:
        """1 / deviation."""
        if (node := self._maker(name, "Reciprocal")) is not None:
            return self._deviation(node.input[0])
        if (node := self._maker(name, "Div")) is not None and self._number(node.input[0]) == 1.0:
            return self._deviation(node.input[1])
        if (node := self._maker(name, "Pow")) is not None and self._number(node.input[1]) == -0.5:
            return self._variance(node.input[0])
        return None

    def _deviation(self, name: str) -> Deviation | None:
        if (node := self._maker(name, "Sqrt")) is not None:
            return self._variance(node.input[0])
        if (node := self._maker(name, "Pow")) is not None and self._number(node.input[1]) == 0.5:
            return self._variance(node.input[0])
        return None

    def _variance(self, name: str) -> Deviation | None:
        """m + eps."""
        for mean, number in self._pairs(self._maker(name, "Add")):
            eps, reduced = self._number(number), self._mean(mean)
            if eps is None or eps <= 0 or reduced is None:
                continue
            square, axes = reduced
            if (power := self._maker(square, "Pow")) is not None and self._number(power.input[1]) == 2.0:
                d = power.input[0]
            elif (product := self._maker(square, "Mul")) is not None and self._same(*product.input):
                d = product.input[0]
            else:
                continue
            difference = self._maker(d, "Sub")
            centre = self._mean(difference.input[1]) if difference is not None else None
            if (
                difference is None
                or centre is None
                or centre[1] != axes
                or not self._same(centre[0], difference.input[0])
            ):
                continue
            x = difference.input[0]
            if x not in self._arrays:
                return Deviation(x, d, difference.input[1], axes, eps)
        return None

    def _mean(self, name: str) -> tuple[str, tuple[int, ...]] | None:
        """Returns the operand of a ReduceMean that keeps its axes, and the axes."""
        node = self._maker(name, "ReduceMean")
        if node is None:
            return None
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axes = attributes.get("axes")
        if axes is None and len(node.input) > 1:
            array = self._array(node.input[1])
            axes = None if array is None else array.ravel().tolist()
        if not axes or not attributes.get("keepdims", 1):
            return None
        return node.input[0], tuple(int(axis) for axis in axes)

    def _maker(self, name: str, kind: str) -> onnx.NodeProto | None:
        node = self._makers.get(name)
        return node if node is not None and node.op_type == kind else None

    def _pairs(self, node: onnx.NodeProto | None) -> Iterator[tuple[str, str]]:
        """The two inputs in either order."""
        if node is not None and len(node.input) == 2:
            a, b = node.input
            yield a, b
            yield b, a

    def _same(self, a: str, b: str) -> bool:
        """Checks that two tensors are one, or computed alike from the same."""
        first, second = self._makers.get(a), self._makers.get(b)
        if a == b or first is None or second is None:
            return a == b
        if first.op_type != second.op_type or len(first.input) != len(second.input):
            return False
        if list(first.attribute) != list(second.attribute) or len(first.output) != 1 or len(second.output) != 1:
            return False
        return all(self._same(i, j) for i, j in zip(first.input, second.input, strict=True))

    def _array(self, name: str) -> np.ndarray | None:
        tensor = self._arrays.get(name)
        node = self._maker(name, "Constant")
        if tensor is None and node is not None and len(node.attribute) == 1:
            value = helper.get_attribute_value(node.attribute[0])
            if not isinstance(value, onnx.TensorProto):
                return np.asarray(value) if isinstance(value, (int, float, list)) else None
            tensor = value
        try:
            return None if tensor is None else numpy_helper.to_array(tensor)
        except Exception:  # damaged data is reported where it is read
            return None

    def _number(self, name: str) -> float | None:
        array = self._array(name)
        return float(array.item()) if array is not None and array.size == 1 and array.dtype.kind in "fiu" else None
