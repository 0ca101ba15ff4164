"""Merge sums with constants that follow each other, and products with constants.

1. x + a + b, with differences among them, is one sum x + (a + b), or a difference.
2. x * a * b is one product x * (a * b).

Constants that would be beyond the range of float32 stay apart.

What lies between must have no other reader, no saturation and no grid of the model's own. Constants that are joined are
no larger together than the larger one of them. Sums that a Softmax reads stay, as their constants may be masks, but for
a constant that is added again: Swin V2 of transformers adds its mask twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.float.masked_sums import is_for_softmax
from nmpconv.passes.rewrite import Editor

SMALLEST, LARGEST = (float(end) for end in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


class _Chain(NamedTuple):
    """Nodes that compute scale * x + shift one after another; either all shifts are 0, or all scales are 1 or -1."""

    x: str
    scale: np.ndarray
    shift: np.ndarray
    nodes: tuple[Node, ...]

    @property
    def is_sum(self) -> bool:
        return abs(self.scale.flat[0]) == 1 and bool((self.scale == self.scale.flat[0]).all())


def run(graph: Graph) -> Graph:
    editor = Editor(graph)
    chains = dict[str, _Chain]()
    for node in graph.nodes:
        if (last := _alone(editor, node)) is None:
            continue
        before = chains.get(last.x)
        joined = None if before is None or not _is_private(editor, last.x, graph) else _joined(before, last)
        if joined is not None:
            del chains[last.x]
        chains[node.outputs[0]] = joined or last
    for out, merged in chains.items():
        if len(merged.nodes) > 1 and (not merged.is_sum or _repeats(editor, merged) or not is_for_softmax(editor, out)):
            _write(editor, out, merged)
    return editor.finish()


def _alone(editor: Editor, node: Node) -> _Chain | None:
    """Returns the chain of one node; None where it is none."""
    if len(node.inputs) != 2 or editor[node.inputs[0]].is_const == editor[node.inputs[1]].is_const:
        return None
    place = int(editor[node.inputs[0]].is_const)
    maps = OPS[node.op].affine(place, editor.data(node.inputs[1 - place]))
    if maps is None or not maps[0].size:
        return None
    alone = _Chain(node.inputs[place], *maps, (node,))
    return alone if alone.is_sum or not alone.shift.any() else None


def _is_private(editor: Editor, name: str, graph: Graph) -> bool:
    return editor.only_user(name) is not None and editor[name].clamp is None and name not in graph.given


def _repeats(editor: Editor, chain: _Chain) -> bool:
    """Checks that all nodes have the same constant."""
    first, *others = (editor.data(name) for node in chain.nodes for name in node.inputs if editor[name].is_const)
    return all(np.array_equal(first, other) for other in others)


def _joined(first: _Chain, then: _Chain) -> _Chain | None:
    """Returns both as one; None where they are of two kinds, or cannot be."""
    size = np.broadcast(first.scale, then.scale).size
    if first.is_sum != then.is_sum or size > max(first.scale.size, then.scale.size):
        return None
    scale, shift = first.scale * then.scale, first.shift * then.scale + then.shift
    numbers = abs(shift if first.is_sum else scale)
    if (numbers > LARGEST).any() or (not first.is_sum and ((numbers > 0) & (numbers < SMALLEST)).any()):
        return None
    return _Chain(first.x, scale, shift, first.nodes + then.nodes)


def _write(editor: Editor, out: str, merged: _Chain) -> None:
    for node in merged.nodes:
        editor.remove(node)
    last = merged.nodes[-1]
    constant = editor.const(last.name, merged.shift if merged.is_sum else merged.scale)
    op = "mul" if not merged.is_sum else "add" if merged.scale.flat[0] == 1 else "sub"
    inputs = (constant, merged.x) if op == "sub" else (merged.x, constant)
    editor.emit(op, inputs, at=last, name=last.name, out=out, clamp=editor[out].clamp)
