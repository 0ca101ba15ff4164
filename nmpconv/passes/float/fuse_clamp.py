"""Make standalone saturations (Relu, Relu6, Clip) part of the op before them.

1. A requantize with a clamp, after an op that can saturate whose result nobody else reads: that op writes the
   requantize's output, with both clamps as one.
2. The same with max_pool, slice, gather, reshape or transpose in between, or a pad whose value the clamp keeps:
   saturation commutes with them, so the requantize first moves above them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.rewrite import Clamp, Editor, apply, intersect


def run(graph: Graph) -> Graph:
    return apply(graph, _fuse, _raise, moves=True)


def _fuse(editor: Editor, node: Node) -> bool:  # case 1
    source = editor[node.inputs[0]]
    producer = editor.producer(source.name)
    if node.op != "requantize" or producer is None or not OPS[producer.op].clamps or editor.regrids(node):
        return False
    if editor.only_user(source.name) is None:
        return False
    out = editor[node.outputs[0]]
    editor.remove(node)
    editor.put(replace(out, clamp=intersect(source.clamp, out.clamp)))
    editor.set(replace(producer, outputs=node.outputs))
    return True


def _selects(node: Node) -> bool:
    """Checks that every element of the result is one of the first input, or a padding value."""
    op = OPS[node.op]
    return op.grid == "same" and not op.joins


def _keeps(clamp: Clamp, x: np.ndarray) -> bool:
    return bool(((x >= clamp[0]) & (x <= clamp[1])).all())


def _raise(editor: Editor, node: Node) -> bool:  # case 2
    out = editor[node.outputs[0]]
    if node.op != "requantize" or out.clamp is None:
        return False
    chain: list[Node] = []
    producer = editor.producer(node.inputs[0])
    while producer is not None and _selects(producer) and editor.only_user(producer.outputs[0]) is not None:
        if not all(_keeps(out.clamp, editor.data(name)) for name in OPS[producer.op].moved(producer.inputs)[1:]):
            return False
        chain.append(producer)
        producer = editor.producer(producer.inputs[0])
    if not chain or producer is None or not OPS[producer.op].clamps:
        return False
    if editor.only_user(producer.outputs[0]) is None:
        return False
    editor.remove(node)
    value = editor.emit(
        "requantize", producer.outputs, at=chain[-1], name=node.name, out=editor.fresh(out.name), clamp=out.clamp
    )
    for moved in reversed(chain):
        editor.remove(moved)
        inputs = (value, *moved.inputs[1:])
        name = out.name if moved is chain[0] else editor.fresh(out.name)
        value = editor.emit(moved.op, inputs, moved.params, at=moved, name=moved.name, out=name)
    return True
