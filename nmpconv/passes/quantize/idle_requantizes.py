"""Requantizes that do nothing are left out: from a grid to the same one, without a saturation.

`joined_inputs` and `requantize_concat` place theirs before grids are known, and two tensors may come to have one grid.

1. The readers of such a requantize read its input.
2. An output of the model stays a tensor of its own, and so does what a faithful graph has a grid for.
"""

from __future__ import annotations

from nmpconv.ir import Graph, Value
from nmpconv.ops.op import quant_of
from nmpconv.passes.rewrite import Editor


def run(graph: Graph) -> Graph:
    """graph: RANGED."""
    editor = Editor(graph)
    for plain in graph.nodes:
        if plain.op != "requantize":
            continue
        node, out = editor.now(plain), plain.outputs[0]
        if out not in editor.outputs and not editor.keeps_grid(out) and _is_idle(editor[node.inputs[0]], editor[out]):
            editor.bypass(node)
    return editor.finish()


def _is_idle(x: Value, y: Value) -> bool:
    a, b = quant_of(x), quant_of(y)
    on_one_grid = (a.bits, a.exponents, x.origin, x.shifts) == (b.bits, b.exponents, y.origin, y.shifts)
    return on_one_grid and b.lo <= a.lo and a.hi <= b.hi and y.clamp in (None, x.clamp)
