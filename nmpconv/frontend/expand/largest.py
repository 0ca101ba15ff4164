"""TopK with a small constant k: one maximum after the other."""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.body import Body
from nmpconv.frontend.node import OnnxNode

K_MAX = 16  # each takes a few ops over the whole tensor


def top_k(node: OnnxNode, body: Body) -> None:
    """Values and indices, the largest (or smallest) first. What was taken becomes less than all others.

    In a row of equal elements nothing is less; so the index is that of the first one as large that was not taken.
    """
    x = node.input(0)
    shape = body.shape(x)
    k = node.integer("k", 0) or int(body.to.array(node.input(1), "k").item())
    axis = node.axis(node.integer("axis", -1), len(shape))
    if not 1 <= k <= shape[axis]:
        raise Invalid(f"k = {k} of {shape[axis]}")
    if k > K_MAX:
        raise Unsupported(f"k = {k}", hint=f"at most {K_MAX}")
    largest = bool(node.integer("largest", 1))
    values, indices = _one_after_the_other(body, x if largest else body("Neg", x), k, axis)
    if node.outputs[0]:
        found = body("Concat", *values, axis=axis, output=node.outputs[0] if largest else "")
        if not largest:
            body("Neg", found, output=node.outputs[0])
    if len(node.outputs) > 1 and node.outputs[1]:
        body("Concat", *indices, axis=axis, output=node.outputs[1])


def _one_after_the_other(body: Body, left: str, k: int, axis: int) -> tuple[list[str], list[str]]:
    """The k largest values along an axis, and where they are."""
    shape, element, along = body.shape(left), body.element(left), np.array([axis])
    places = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    values: list[str] = []
    indices: list[str] = []
    floor = free = ""
    for turn in range(k):
        values.append(body("ReduceMax", left, along, keepdims=1))
        best = left
        if free:
            equal = body("Cast", body("Equal", left, values[-1]), to=element)
            best = body("Mul", equal, free)
        indices.append(body("ArgMax", best, axis=axis, keepdims=1))
        if turn == k - 1:
            break
        if not floor:  # as far below the smallest as the largest is above
            lowest = body("ReduceMin", left, along, keepdims=1)
            floor = body("Sub", body("Mul", lowest, 2.0), values[0])
        taken = body("Cast", body("Equal", indices[-1], places), to=element)
        free = body("Sub", free or 1.0, taken)
        left = body("Sub", left, body("Mul", taken, body("Sub", values[-1], floor)))
    return values, indices


ALWAYS = {"TopK": top_k}
