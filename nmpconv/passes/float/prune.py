"""Remove what does nothing, and what can be had with less.

1. An op that leaves every element in its place (`Op.idle`), without a clamp and on one grid, also of a model that was
   quantized before; a sum with 0 and a product with 1 are such.
2. A slice of a slice is one slice.
3. A slice or a gather that lies within one tensor of a Concat is one of that tensor, which need not share a grid then.
4. A sum of multiples of one tensor is a multiple: x + x is 2 * x, and c * x + x is (c + 1) * x. In a chain of sums each
   is rounded in the same way, and the errors add up.
5. A node that repeats an earlier one: same op, inputs, params and clamp.
6. Nodes and values that no output of the graph needs (what `Editor.finish` leaves out).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, _identity, _neutral, *SLICES, _multiple, moves=True)


def _identity(editor: Editor, node: Node) -> bool:  # case 1
    source, out = editor[node.inputs[0]], editor[node.outputs[0]]
    same = (
        out.clamp is None
        and not editor.regrids(node)
        and source.quant == out.quant
        and OPS[node.op].idle(node.params, source, out)
    )
    return same and editor.bypass(node)


def _neutral(editor: Editor, node: Node) -> bool:  # case 1
    out = editor[node.outputs[0]]
    if len(node.inputs) != 2 or out.clamp is not None or out.quant is not None or editor.keeps_integers(out.name):
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


def _part(editor: Editor, node: Node) -> bool:  # case 3
    above = editor.producer(node.inputs[0]) if node.op in ("slice", "gather") else None
    if above is None or above.op != "concat" or editor[node.inputs[0]].clamp:
        return False
    p, axis = node.params, above.params.axis
    if node.op == "gather" and p.axis != axis:
        return False
    places = p.index if node.op == "gather" else [p.starts[axis] + p.steps[axis] * i for i in (0, p.sizes[axis] - 1)]
    start = 0
    for name in above.inputs:
        stop = start + editor[name].shape[axis]
        if start <= min(places) and max(places) < stop and not editor[name].is_const:
            if not editor.shares_grid(name, node.inputs[0]):
                return False
            if node.op == "gather":
                p = replace(p, index=tuple(i - start for i in p.index))
            else:
                p = replace(p, starts=tuple(s - start if i == axis else s for i, s in enumerate(p.starts)))
            editor.set(replace(node, inputs=(name,), params=p))
            return True
        start = stop
    return False


def _multiple(editor: Editor, node: Node) -> bool:  # case 4
    if node.op not in ("add", "sub"):
        return False
    first, second = (_factors(editor, name) for name in node.inputs)
    out = editor[node.outputs[0]]
    for x in [name for name in first if name in second]:
        factor = first[x] + second[x] if node.op == "add" else first[x] - second[x]
        if factor.any() and not editor[x].is_const and editor[x].shape == out.shape:
            constant = editor.const(f"{node.name}.factor", factor)
            editor.remove(node)
            editor.emit("mul", (x, constant), at=node, name=node.name, out=out.name, clamp=out.clamp)
            return True
    return False


def _factors(editor: Editor, name: str) -> dict[str, np.ndarray]:
    """The tensors of which this one is a multiple, itself included, and the factors."""
    factors = {name: np.ones((1,) * len(editor[name].shape))}
    node = editor.producer(name)
    if node is not None and node.op == "mul" and editor[name].clamp is None and not editor.keeps_integers(name):
        for x, constant in (node.inputs, node.inputs[::-1]):
            if editor[constant].is_const and editor[x].shape == editor[name].shape:
                factors[x] = editor.data(constant)
    return factors


def _duplicate(editor: Editor, node: Node) -> bool:  # case 5
    out = editor[node.outputs[0]]
    least = min(node.inputs, key=editor.user_count)
    for other in () if out.name in editor.outputs else editor.users(least):
        if other is node or (other.op, other.inputs, other.params) != (node.op, node.inputs, node.params):
            continue
        twin = editor[other.outputs[0]]
        if (twin.clamp, twin.quant) != (out.clamp, out.quant) or not editor.shares_grid(out.name, twin.name):
            continue
        editor.remove(node)
        editor.rename_uses(out.name, twin.name)
        return True
    return False


SLICES = (_slice, _part, _duplicate)
