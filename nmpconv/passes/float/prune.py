"""Remove what does nothing.

1. An op that leaves every element in its place (`Op.idle`), without a clamp and on one grid; a sum with 0 and a product
   with 1 are such.
2. A slice of a slice is one slice.
3. A node that repeats an earlier one: same op, inputs, params and clamp.
4. Nodes and values that no output of the graph needs (what `Editor.finish` leaves out).
"""

from __future__ import annotations

from dataclasses import replace

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, _identity, _neutral, _slice, _duplicate)


def _identity(editor: Editor, node: Node) -> bool:  # case 1
    source, out = editor[node.inputs[0]], editor[node.outputs[0]]
    same = out.clamp is None and source.quant == out.quant and OPS[node.op].idle(node.params, source, out)
    return same and editor.bypass(node)


def _neutral(editor: Editor, node: Node) -> bool:  # case 1
    out = editor[node.outputs[0]]
    if len(node.inputs) != 2 or out.clamp is not None or out.quant is not None:
        return False
    for place, (x, other) in enumerate((node.inputs, node.inputs[::-1])):
        if not editor[other].is_const or editor[x].is_const or editor[x].shape != out.shape:
            continue
        affine = OPS[node.op].affine(place, editor.data(other))
        if affine is not None and (affine[0] == 1).all() and (affine[1] == 0).all():
            node = replace(node, inputs=(x, other))
            editor.set(node)
            return editor.bypass(node)
    return False


def _slice(editor: Editor, node: Node) -> bool:  # case 2
    if node.op != "slice":
        return False
    p, above = node.params, editor.producer(node.inputs[0])
    if above is None or above.op != "slice":
        return False
    first = above.params
    starts = tuple(a + b * step for a, b, step in zip(first.starts, p.starts, first.steps, strict=True))
    steps = tuple(a * b for a, b in zip(first.steps, p.steps, strict=True))
    editor.set(replace(node, inputs=above.inputs, params=replace(p, starts=starts, steps=steps)))
    return True


def _duplicate(editor: Editor, node: Node) -> bool:  # case 3
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
