"""Compute only what a slice takes.

1. Where the one reader of a tensor is a slice that takes half of an axis or less, the op that makes the tensor makes
   these indices alone (`Op.part`): the slice goes before it. Transformers for classes read one token of the last block.
2. Where only slices read a sum, and take no more of an axis together than there is, each of them goes before it. They
   need not share a grid then: a class token is small beside those of patches.
3. On the way, slices of slices, slices of Concats and equal slices are dealt with as in `prune`. What is left of a
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
    return apply(graph, partial(_earlier, graph), *prune.SLICES, moves=True)


def _earlier(graph: Graph, editor: Editor, node: Node) -> bool:  # cases 1 and 2
    x = node.inputs[0]
    maker = editor.producer(x)
    if node.op != "slice" or maker is None or x in editor.outputs:
        return False
    readers, values, out = editor.users(x), [editor[name] for name in maker.inputs], editor[x]
    if len(readers) > 1 and not (maker.op == "add" and all(reader.op == "slice" for reader in readers)):
        return False
    if x in graph.given or any(name in graph.given and editor[name].is_const for name in maker.inputs):
        return False  # new names would have no grids
    for axis, dim in enumerate(out.shape):
        sizes = [reader.params.sizes[axis] for reader in readers]
        if max(sizes) == dim or sum(sizes) > (dim if readers[1:] else dim // 2):
            continue
        attempts = (OPS[maker.op].part(maker.params, values, out, axis, size) for size in sizes)
        parts = [part for part in attempts if part is not None]
        if len(parts) == len(readers):
            for reader, part in zip(readers, parts, strict=True):
                _swap(editor, reader, maker, axis, *part)
            return True
    return False


def _swap(editor: Editor, node: Node, maker: Node, axis: int, params: object, axes: list[int | None]) -> None:
    """Along one axis the slice is done by slices of the maker's inputs; along the others it stays where it is."""
    p, whole, result = node.params, editor[node.inputs[0]], node.outputs[0]
    editor.remove(node)
    if not editor.users(node.inputs[0]):
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
    out = result if done else ""
    smaller = editor.emit(maker.op, inputs, params, at=maker, name=maker.name, out=out, clamp=whole.clamp)
    if not done:
        editor.emit("slice", (smaller,), rest, at=node, name=node.name, out=result)


def _taken(editor: Editor, maker: Node, name: str, axis: int, start: int, step: int, size: int) -> str:
    """These indices of an axis of an input."""
    shape = editor[name].shape
    if editor[name].is_const:
        return editor.const(name, editor.data(name).take([start + step * i for i in range(size)], axis))
    starts, steps, sizes = [0] * len(shape), [1] * len(shape), list(shape)
    starts[axis], steps[axis], sizes[axis] = start, step, size
    params = SliceParams(tuple(starts), tuple(steps), tuple(sizes))
    return editor.emit("slice", (name,), params, at=maker, out=editor.fresh(name))
