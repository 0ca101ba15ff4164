"""Let the reader of a padded tensor do the padding. Only pads of H and W, none of them negative, of [N,H,W,C].

1. pad after a pad of the same value: one pad (any axes).
2. An op that can take the border (`Op.take_border`): conv2d where both paddings mean the same value per channel, or it
   had none; average_pool with zeros that it counts; max_pool where no element is below the border's value, so that
   padding never wins either. Pools keep less padding than their kernel, so that every window sees an element.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.common.traits import Border, Bounds
from nmpconv.passes.bounds import known
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, _merge, partial(_into_reader, known(graph, {})), moves=True)


def _merge(editor: Editor, node: Node) -> bool:  # case 1
    above = editor.producer(node.inputs[0])
    if node.op != "pad" or above is None or above.op != "pad" or _value(editor, node) != _value(editor, above):
        return False
    if min(*node.params.pads, *above.params.pads) < 0:
        return False
    pads = tuple(a + b for a, b in zip(node.params.pads, above.params.pads, strict=True))
    editor.set(replace(node, inputs=(above.inputs[0], node.inputs[1]), params=replace(node.params, pads=pads)))
    return True


def _into_reader(ranges: dict[str, Bounds], editor: Editor, node: Node) -> bool:  # case 2
    pad = editor.producer(node.inputs[0])
    border = None if pad is None else _border(editor, pad)
    if pad is None or border is None:
        return False
    inputs = (pad.inputs[0], *node.inputs[1:])
    change = OPS[node.op].take_border(node.params, [editor[n] for n in inputs], border, ranges[inputs[0]][0])
    if change is None:
        return False
    params, values = change
    at = OPS[node.op].border
    if values is None:
        inputs = inputs[:at]
    elif not any(editor[name].data is values for name in inputs[at:]):
        inputs = (*inputs[:at], editor.const(f"{node.name}.pad", values))
    editor.set(replace(node, inputs=inputs, params=params))
    return True


def _value(editor: Editor, pad: Node) -> float:
    return float(editor.data(pad.inputs[1])[0])


def _border(editor: Editor, node: Node) -> Border | None:
    """Border that a pad of H and W puts around its input."""
    if node.op != "pad" or len(node.params.pads) != 8:
        return None
    top, bottom, left, right = node.params.pads[2:6]
    if min(top, bottom, left, right) < 0 or any(node.params.pads[:2] + node.params.pads[6:]):
        return None
    return Border(top, bottom, left, right, _value(editor, node))
