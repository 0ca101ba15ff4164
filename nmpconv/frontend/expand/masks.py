"""Masks of attention: -inf, or a large negative number, where a Softmax is to give 0.

Such a number would take the range of the scores' tensor for itself. What a mask hides becomes the smaller one of the
score and MASKED instead: e^MASKED is nothing beside scores of usual size. Calibration decides how deep it is to be
(`passes.quantize.constant_masks`), and where sums with computed masks are cut off (`passes.quantize.attention_masks`).
The logarithm of a mask of 0 and 1 is a computed one. A border of -inf is a border of 0 that is hidden.

Where -inf hides a whole row, its Softmax is NaN, so the model replaces that row later, as ONNX's Attention does by 0.
Such a row is not masked at all, unless it is a border.
"""

from __future__ import annotations

import numpy as np

from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.expand.pads import axes_of, pads_of
from nmpconv.frontend.importer import Importer
from nmpconv.frontend.to_float32 import REALS
from nmpconv.ops.onnx_node import OnnxNode
from nmpconv.ops.softmax import HIDES, MASKED, OPEN

_MOVES = ("Cast", "Expand", "Reshape", "Identity", "Transpose", "Squeeze", "Unsqueeze")


def _hides(to: Importer, name: str) -> bool:
    if not to.is_const(name) or to.tensor(name).element not in REALS:
        return False
    array = to.constants[name].astype(np.float32)
    return bool(array.size and (array <= HIDES).any() and not np.isnan(array).any() and not (array == np.inf).any())


def _for_softmax(node: OnnxNode, to: Importer) -> bool:
    """Checks that it has a mask as an operand, and that all that is made of the result is a Softmax.

    But not the last one with finite numbers: what that reads is measured, and there they count.
    """
    masks = [name for name in node.inputs[-2:] if _hides(to, name)]
    if not masks or all(map(to.is_const, node.inputs)):
        return False
    arrays = [to.constants[name].astype(np.float32) for name in masks]
    if any(array.ndim and (_whole_rows(array) & np.isfinite(array)).any() for array in arrays):
        return False  # where all is hidden, the Softmax is that of the scores
    finite = all(np.isfinite(array).all() for array in arrays)
    (y,) = node.outputs
    while not finite and node.op_type == "Add" and (total := to.only_reader(y, "Add")):  # biases of masked scores
        y = total
    through = _MOVES if finite or node.op_type == "Add" else (*_MOVES, "Add")  # Where makes a term of scores
    return to.only_read_by(y, "Softmax", through) and not (finite and to.feeds_last(y, "Softmax", through))


def add(node: OnnxNode, body: Body) -> None:
    """x + mask: what the mask adds besides, and then the mask."""
    mask, x = sorted(node.inputs, key=lambda name: not _hides(body.to, name))
    data = body.to.constants[mask].astype(np.float32)
    hidden = (data <= HIDES) & ~_whole_rows(data)
    rest = np.where(data <= HIDES, 0, data)
    if rest.any() or len(np.broadcast_shapes(rest.shape, body.shape(x))) > len(body.shape(x)):
        x = body("Add", x, rest)
    _hide(body, x, hidden, node.outputs[0])


def where(node: OnnxNode, body: Body) -> None:
    """A constant condition is a mask itself; another one chooses between the score and MASKED."""
    condition, *sides = node.inputs
    hiding = [_hides(body.to, name) for name in sides]
    if body.to.is_const(condition) and hiding[0] != hiding[1] and _is_mask(body, sides[hiding.index(True)]):
        chosen = body.to.constants[condition].astype(bool)
        _hide(body, sides[hiding.index(False)], chosen if hiding[0] else ~chosen, node.outputs[0])
        return
    operands = [
        np.maximum(body.to.constants[name].astype(np.float32), np.float32(MASKED)) if hides else name
        for name, hides in zip(sides, hiding, strict=True)
    ]
    body("Where", condition, *operands, output=node.outputs[0])


def _is_mask(body: Body, name: str) -> bool:
    return bool((body.to.constants[name] <= HIDES).all())


def _whole_rows(mask: np.ndarray) -> np.ndarray:
    """Rows along the last axis of which nothing is left, [..., 1]; none in a single number."""
    return np.asarray((mask <= HIDES).all(axis=-1, keepdims=True) if mask.ndim else False)


def _hide(body: Body, x: str, hidden: np.ndarray, output: str) -> None:
    body("Min", x, np.where(hidden, MASKED, OPEN).astype(np.float32), output=output)


def _of_truth(node: OnnxNode, to: Importer) -> bool:
    """Checks for a number that is 0 or 1, whose logarithm is a term of scores."""
    x, (y,) = node.input(0), node.outputs
    if to.is_const(x) or not to.only_read_by(y, "Softmax", (*_MOVES, "Add")):
        return False
    return to.is_whole(to.value(x)) and to.reach(to.value(x)) == (0, 1)


def logarithm(node: OnnxNode, body: Body) -> None:
    """The logarithm of truth hides what is false."""
    body("Mul", body("Sub", 1.0, node.input(0)), MASKED, output=node.outputs[0])


def _hides_border(node: OnnxNode, to: Importer) -> bool:
    """Checks for a border of -inf around scores, which may be chosen from by computed places first."""
    if node.text("mode", "constant") != "constant" or not to.only_read_by(
        node.outputs[0], "Softmax", (*_MOVES, "GatherElements")
    ):
        return False
    if node.opset < 11:
        return node.number("value", 0.0, finite=False) == -np.inf
    value = node.input(2)
    return to.is_const(value) and bool((to.constants[value] == -np.inf).all())


def border(node: OnnxNode, body: Body) -> None:
    """A border of 0, which a mask hides."""
    x, pads, axes = node.inputs[0], pads_of(node, body.to), axes_of(node, body.to)
    sides = np.zeros((len(body.shape(x)), 2), np.int64)
    sides[list(axes)] = pads.reshape(2, -1).T
    alike = [size if side.any() else 1 for size, side in zip(body.shape(x), sides, strict=True)]
    hidden = np.pad(np.zeros(alike, bool), sides, constant_values=True)
    _hide(body, body("Pad", x, sides.T.ravel()), hidden, node.outputs[0])


FORMS = {
    "Add": ((_for_softmax, add),),
    "Log": ((_of_truth, logarithm),),
    "Pad": ((_hides_border, border),),
    "Where": ((_for_softmax, where),),
}
