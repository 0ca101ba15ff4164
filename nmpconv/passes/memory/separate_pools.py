"""Computes a large max pool over the columns of its windows first, and then over their rows.

1. A window of kh x kw elements takes kh + kw readings in place of kh * kw. The same integers come out, as padding never
   wins in either.
2. Strides, dilations and padding go with their axis. Where that halves the readings at least, for two ops write twice.

What lies between takes memory, so `schedule` keeps it where the arena does not grow.
"""

from __future__ import annotations

from dataclasses import replace

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.rewrite import Editor

GAIN = 2  # case 2


def run(graph: Graph) -> Graph:
    """The graph itself where no pool is large enough."""
    editor = Editor(graph)
    pools = [node for node in graph.nodes if node.op == "max_pool" and _separated(editor, node)]
    return editor.finish() if pools else graph


def _separated(editor: Editor, node: Node) -> bool:
    p, x, y = node.params, editor[node.inputs[0]], editor[node.outputs[0]]
    columns = replace(p, kernel_w=1, stride_w=1, dilation_w=1, pad_left=0, pad_right=0)
    rows = replace(p, kernel_h=1, stride_h=1, dilation_h=1, pad_top=0, pad_bottom=0)
    op = OPS[node.op]
    [shape] = op.infer(columns, [x])
    between = replace(y, name=editor.fresh(y.name), shape=shape, clamp=None)
    if GAIN * (op.work(columns, [x], between) + op.work(rows, [between], y)) > op.work(p, [x], y):
        return False
    editor.emit(node.op, (x.name,), columns, at=node, out=between.name)
    editor.put(between)
    editor.set(replace(node, inputs=(between.name,), params=rows))
    return True
