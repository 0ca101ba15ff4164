"""Booleans that are known although they are computed: exporters ask of indices whether they are negative, and of reals
whether they are infinite."""

from __future__ import annotations

import numpy as np

from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops.common.traits import Bounds
from nmpconv.ops.lookup import LookupParams
from nmpconv.ops.onnx_node import OnnxNode

POLES = {"log", "power", "reciprocal"}  # functions that are infinite at 0
Truth = bool | None  # None: it depends on the data


def _less(a: Bounds, b: Bounds) -> Truth:
    return True if a[1] < b[0] else False if a[0] >= b[1] else None


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _compared(node: OnnxNode, to: Importer) -> Truth:
    a, b = (_reach(to, name) for name in node.inputs)
    if node.op_type in ("Less", "GreaterOrEqual"):
        return _less(a, b) if node.op_type == "Less" else _not(_less(a, b))
    return _less(b, a) if node.op_type == "Greater" else _not(_less(b, a))


def _reach(to: Importer, name: str) -> Bounds:
    if to.is_const(name):
        data = to.constants[name]
        return float(data.min()), float(data.max())
    return to.reach(to.value(name))


def _is_decided(node: OnnxNode, to: Importer) -> bool:
    return to.is_integer(node.input(0)) and _compared(node, to) is not None


def compare(node: OnnxNode, body: Body) -> None:
    _decide(node, body, bool(_compared(node, body.to)))


def _is_false(node: OnnxNode, to: Importer) -> bool:
    return any(to.is_const(name) and not to.constants[name].any() for name in node.inputs)


def logical_and(node: OnnxNode, body: Body) -> None:
    _decide(node, body, False)


def _decide(node: OnnxNode, body: Body, truth: bool) -> None:
    shape = np.broadcast_shapes(*(body.shape(name) for name in node.inputs))
    body.to.define({node.outputs[0]: np.full(shape, truth)})


def _is_one_side(node: OnnxNode, to: Importer) -> bool:
    return to.is_const(node.input(0)) and len(np.unique(to.constants[node.input(0)])) == 1


def where(node: OnnxNode, body: Body) -> None:
    """All of one side."""
    condition, *sides = node.inputs
    shape = np.broadcast_shapes(*(body.shape(name) for name in node.inputs))
    side = sides[0] if body.to.constants[condition].all() else sides[1]
    body("Expand", side, np.array(shape, np.int64), output=node.outputs[0])


def _number_sides(node: OnnxNode, to: Importer) -> list[str]:
    return [name for name in node.inputs[1:] if not (to.is_const(name) and _is_nan(to.constants[name]))]


def _is_nan(array: np.ndarray) -> bool:
    return bool(array.dtype.kind == "f" and array.size and np.isnan(array).all())


def _has_one_side_of_numbers(node: OnnxNode, to: Importer) -> bool:
    return len(_number_sides(node, to)) == 1


def number(node: OnnxNode, body: Body) -> None:
    """The side that is no NaN: exporters write functions so beyond the ends of their domain."""
    shape = np.broadcast_shapes(*(body.shape(name) for name in node.inputs))
    [side] = _number_sides(node, body.to)
    body("Expand", side, np.array(shape, np.int64), output=node.outputs[0])


def _is_with_infinity(node: OnnxNode, to: Importer) -> bool:
    infinite = [name for name in node.inputs if to.is_const(name) and _is_infinity(to.constants[name])]
    return bool(infinite) and all(_is_finite(name, to) for name in node.inputs if name not in infinite)


def _is_infinity(array: np.ndarray) -> bool:
    return bool(array.dtype.kind == "f" and array.size and np.isinf(array).all())


def _is_finite(name: str, to: Importer) -> bool:
    """Checks that neither a quotient nor a function of `POLES` makes a tensor, or what it is the absolute value of."""
    maker = to.maker(to.value(name))
    while maker is not None and isinstance(maker.params, LookupParams) and maker.params.function == "abs":
        maker = to.maker(maker.inputs[0])
    if maker is not None and isinstance(maker.params, LookupParams):
        return maker.params.function not in POLES
    return maker is None or maker.op != "divide"


def equal(node: OnnxNode, body: Body) -> None:
    """False: sums of exponentials ask whether their maximum is infinite."""
    _decide(node, body, False)


FORMS = {
    "And": ((_is_false, logical_and),),
    "Equal": ((_is_with_infinity, equal),),
    "Where": ((_is_one_side, where), (_has_one_side_of_numbers, number)),
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual"), ((_is_decided, compare),)),
}
