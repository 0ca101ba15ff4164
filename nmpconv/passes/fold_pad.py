"""Let the reader of a padded tensor do the padding. Only pads of H and W, none of them negative, of [N,H,W,C].

1. pad after a pad of the same value: one pad (any axes).
2. conv2d: its padding grows; both must mean the same value per channel, or the convolution had no padding.
3. average_pool that counts padding, or has none: with value 0 it counts the new padding.
4. max_pool without dilation, where no element of the tensor is below the value: padding that never wins.

Pools keep less padding than their kernel, so that every window sees an element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, _merge, _into_conv, _into_average_pool, _into_max_pool)


def _pad_above(editor: Editor, node: Node, op: str) -> Node | None:
    """The spatial pad that makes the input of a node of this op."""
    pad = editor.producer(node.inputs[0])
    if node.op != op or pad is None or pad.op != "pad" or len(pad.params.pads) != 8:
        return None
    top_to_right = pad.params.pads[2:6]
    outside = pad.params.pads[:2] + pad.params.pads[6:]
    return pad if min(top_to_right) >= 0 and not any(outside) else None


def _value(editor: Editor, pad: Node) -> float:
    return float(editor.data(pad.inputs[1])[0])


def _grown(params: Any, pad: Node) -> Any:
    """Params with the pad's borders added."""
    top, bottom, left, right = pad.params.pads[2:6]
    return replace(
        params,
        pad_top=params.pad_top + top,
        pad_bottom=params.pad_bottom + bottom,
        pad_left=params.pad_left + left,
        pad_right=params.pad_right + right,
    )


def _sides(params: Any) -> tuple[int, int, int, int]:
    return params.pad_top, params.pad_left, params.pad_bottom, params.pad_right


def _sees_elements(params: Any) -> bool:
    top, left, bottom, right = _sides(params)
    return max(top, bottom) < params.kernel_h and max(left, right) < params.kernel_w


def _merge(editor: Editor, node: Node) -> bool:  # case 1
    above = editor.producer(node.inputs[0])
    if node.op != "pad" or above is None or above.op != "pad" or _value(editor, node) != _value(editor, above):
        return False
    if min(*node.params.pads, *above.params.pads) < 0:
        return False
    pads = tuple(a + b for a, b in zip(node.params.pads, above.params.pads, strict=True))
    editor.set(replace(node, inputs=(above.inputs[0], node.inputs[1]), params=replace(node.params, pads=pads)))
    return True


def _into_conv(editor: Editor, node: Node) -> bool:  # case 2
    pad = _pad_above(editor, node, "conv2d")
    if pad is None:
        return False
    value, inputs = _value(editor, pad), (pad.inputs[0], *node.inputs[1:])
    if any(_sides(node.params)):
        own = editor.data(node.inputs[3]) if len(node.inputs) == 4 else np.zeros(1)
        if (own != value).any():
            return False
    else:
        inputs = inputs[:3]
        if value != 0:
            channels = editor[pad.inputs[0]].shape[-1]
            inputs = (*inputs, editor.const(f"{node.name}.pad", np.full(channels, value)))
    editor.set(replace(node, inputs=inputs, params=_grown(node.params, pad)))
    return True


def _into_average_pool(editor: Editor, node: Node) -> bool:  # case 3
    pad = _pad_above(editor, node, "average_pool")
    if pad is None or _value(editor, pad) != 0:
        return False
    params = replace(_grown(node.params, pad), count_include_pad=True)
    if not _sees_elements(params) or (any(_sides(node.params)) and not node.params.count_include_pad):
        return False
    editor.set(replace(node, inputs=(pad.inputs[0],), params=params))
    return True


def _into_max_pool(editor: Editor, node: Node) -> bool:  # case 4
    pad = _pad_above(editor, node, "max_pool")
    if pad is None or node.params.dilation_h != 1 or node.params.dilation_w != 1:
        return False
    params = _grown(node.params, pad)
    if not _sees_elements(params) or _least(editor, pad.inputs[0]) < _value(editor, pad):
        return False
    editor.set(replace(node, inputs=(pad.inputs[0],), params=params))
    return True


def _least(editor: Editor, name: str) -> float:
    """A bound that no element is below."""
    clamp, producer = editor[name].clamp, editor.producer(name)
    if clamp is not None:
        return clamp[0]
    if producer is None or producer.op not in ("max_pool", "average_pool", "reshape", "transpose", "slice", "concat"):
        return -np.inf
    if producer.op == "average_pool" and producer.params.count_include_pad:
        return min(0.0, _least(editor, producer.inputs[0]))
    return min(_least(editor, source) for source in producer.inputs)
