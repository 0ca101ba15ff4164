"""Compute only what a slice takes.

1. Where the one reader of a tensor is a slice that takes half of an axis or less, the op that makes the tensor makes
   these indices alone (`Op.part`): the slice goes before it. Transformers for classes read one token of the last block.
2. On the way, slices of slices, slices of Concats and equal slices are dealt with as in `prune`. What is left of a
   Concat need not share a grid with the rest.
"""

from __future__ import annotations

from functools import partial

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.ops.slice import SliceParams
from nmpconv.passes.float import prune
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    return apply(graph, partial(_earlier, graph), *prune.SLICES)


def _earlier(graph: Graph, editor: Editor, node: Node) -> bool:  # case 1
    x = node.inputs[0]
    maker = editor.producer(x)
    if node.op != "slice" or maker is None or editor.only_user(x) is None:
        return False
    if x in graph.given or any(name in graph.given and editor[name].is_const for name in maker.inputs):
        return False  # new names would have no grids
    values, out = [editor[name] for name in maker.inputs], editor[x]
    for axis, (dim, size) in enumerate(zip(out.shape, node.params.sizes, strict=True)):
        found = OPS[maker.op].part(maker.params, values, out, axis, size) if 2 * size <= dim else None
        if found is not None:
            _swap(editor, node, maker, axis, *found)
            return True
    return False


def _swap(editor: Editor, node: Node, maker: Node, axis: int, params: object, axes: list[int | None]) -> None:
    """Along one axis the slice is done by slices of the maker's inputs; along the others it stays where it is."""
    p, whole, result = node.params, editor[node.inputs[0]], node.outputs[0]
    editor.remove(node)
    editor.remove(maker)
    inputs = [
        name if of is None else _taken(editor, maker, name, of, p.starts[axis], p.steps[axis], p.sizes[axis])
        for name, of in zip(maker.inputs, axes, strict=True)
    ]
    starts = (*p.starts[:axis], 0, *p.starts[axis + 1 :])
    steps = (*p.steps[:axis], 1, *p.steps[axis + 1 :])
    shape = (*whole.shape[:axis], p.sizes[axis], *whole.shape[axis + 1 :])
    rest = SliceParams(starts, steps, p.sizes)
    done = shape == p.sizes and set(steps) == {1}
    made = editor.emit(
        maker.op, inputs, params, at=maker, name=maker.name, out=result if done else "", clamp=whole.clamp
    )
    if not done:
        editor.emit("slice", (made,), rest, at=node, name=node.name, out=result)


def _taken(editor: Editor, maker: Node, name: str, axis: int, start: int, step: int, size: int) -> str:
    """These indices of an axis of an input."""
    shape = editor[name].shape
    if editor[name].is_const:
        return editor.const(name, editor.data(name).take([start + step * i for i in range(size)], axis))
    starts, steps, sizes = [0] * len(shape), [1] * len(shape), list(shape)
    starts[axis], steps[axis], sizes[axis] = start, step, size
    params = SliceParams(tuple(starts), tuple(steps), tuple(sizes))
    return editor.emit("slice", (name,), params, at=maker, out=editor.fresh(name))
