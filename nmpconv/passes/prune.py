"""Remove what does nothing.

1. A reshape to the same shape, a transpose that moves nothing, a requantize without a clamp on one grid.
2. A node that repeats an earlier one: same op, inputs, params and clamp.
3. Nodes and values that no output of the graph needs (what `Editor.finish` leaves out).
"""

from __future__ import annotations

from nmpconv.ir import Graph, Node
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, _identity, _duplicate)


def _identity(editor: Editor, node: Node) -> bool:
    if node.op not in ("reshape", "transpose", "requantize"):
        return False
    source, out = editor[node.inputs[0]], editor[node.outputs[0]]
    if out.clamp is not None or source.quant != out.quant or source.shape != out.shape:
        return False
    if node.op == "transpose" and node.params.perm != tuple(range(len(out.shape))):
        return False
    return editor.bypass(node)


def _duplicate(editor: Editor, node: Node) -> bool:
    out = editor[node.outputs[0]]
    for other in editor.users(node.inputs[0]):
        if other is node or (other.op, other.inputs, other.params) != (node.op, node.inputs, node.params):
            continue
        twin = editor[other.outputs[0]]
        if out.name in editor.outputs or (twin.clamp, twin.quant) != (out.clamp, out.quant):
            continue
        editor.remove(node)
        editor.rename_uses(out.name, twin.name)
        return True
    return False
