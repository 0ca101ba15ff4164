"""Sequences of tensors, of which the length and all positions are known: lists of names, and nothing is computed."""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode

LENGTH_MAX = 4096


def _items(body: Body, name: str) -> list[str]:
    """Names of the tensors in a sequence."""
    if name not in body.to.sequences:
        body.to.value(name)  # after an unsupported node: no complaint of its own
        raise Unsupported(f"the sequence '{name}' is computed", hint="a sequence that is made of known tensors")
    return body.to.sequences[name]


def _define(body: Body, items: list[str]) -> None:
    name = body.node.outputs[0]
    body.to.sequences[name] = items
    body.to.alias(name, "")


def split(node: OnnxNode, body: Body) -> None:
    x, sizes = node.input(0), body.array(1, "split")
    shape = body.shape(x)
    axis = node.axis(node.integer("axis", 0), len(shape))
    size = shape[axis]
    if sizes is None or sizes.ndim == 0:
        step = 1 if sizes is None else int(sizes.item())
        if step < 1 or size > step * LENGTH_MAX:
            raise Unsupported(f"pieces of {step} of {size} elements", hint=f"at most {LENGTH_MAX} pieces")
        ends = [*range(step, size, step), size]
    else:
        ends = np.cumsum(sizes).tolist()
        if (sizes < 1).any() or ends[-1:] != [size]:
            raise Invalid(f"split {sizes.tolist()} of {size} elements", hint="sizes from 1 on that add up to it")
    items = [
        body("Slice", x, np.array([start]), np.array([end]), np.array([axis]))
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    if sizes is None and not node.integer("keepdims", 1):
        items = [body("Squeeze", item, np.array([axis])) for item in items]
    _define(body, items)


def construct(node: OnnxNode, body: Body) -> None:
    """SequenceConstruct, and SequenceEmpty, which has no inputs."""
    _define(body, list(node.inputs))


def insert(node: OnnxNode, body: Body) -> None:
    items = list(_items(body, node.input(0)))
    position = body.array(2, "position")
    place = len(items) if position is None else int(position.item())
    if place != len(items):  # which is behind the last; -1 is before it
        place = node.axis(place, len(items), "position")
    _define(body, [*items[:place], node.input(1), *items[place:]])


def erase(node: OnnxNode, body: Body) -> None:
    items = list(_items(body, node.input(0)))
    position = body.array(1, "position")
    items.pop(-1 if position is None else node.axis(int(position.item()), len(items), "position"))
    _define(body, items)


def at(node: OnnxNode, body: Body) -> None:
    items = _items(body, node.input(0))
    position = int(body.to.array(node.input(1), "position").item())
    body.rename(items[node.axis(position, len(items), "position")])


def length(node: OnnxNode, body: Body) -> None:
    body.to.define({node.outputs[0]: np.array(len(_items(body, node.input(0))))})


def concat(node: OnnxNode, body: Body) -> None:
    items, new = _items(body, node.input(0)), bool(node.integer("new_axis", 0))
    if not items:
        raise Unsupported("a Concat of no tensors")
    axis = node.axis(node.integer("axis", 0), len(body.shape(items[0])) + new)
    parts = [body("Unsqueeze", item, np.array([axis])) for item in items] if new else items
    if len(parts) == 1:
        body.rename(parts[0])
    else:
        body("Concat", *parts, axis=axis, output=node.outputs[0])


ALWAYS = {
    "ConcatFromSequence": concat,
    "SequenceAt": at,
    "SequenceConstruct": construct,
    "SequenceEmpty": construct,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SplitToSequence": split,
}
