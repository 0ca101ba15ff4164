"""Generalized means, (mean of x^p)^(1/p) for p > 1 and x >= 0, of x over its largest value in each channel.

On one grid, powers of small elements round to 0 beside powers of large ones. A channel of small elements then has the
mean 0, although its root would be large enough. With m > 0, the largest value of the channel, the mean is
m * (mean of (x / m)^p)^(1/p): now only elements that are small in their own channel are lost.

1. A power, an average pool and the inverse power.
2. A product of x with itself, an average pool and a square root.
"""

from __future__ import annotations

from nmpconv.ir import Graph, Node
from nmpconv.ops.max_pool import MaxPoolParams
from nmpconv.passes.rewrite import Editor, apply

TINY = 1e-30  # the least m, so that a channel of zeros is not divided by 0
TOLERANCE = 1e-6


def run(graph: Graph) -> Graph:
    return apply(graph, _scale)


def _scale(editor: Editor, node: Node) -> bool:
    root = _exponent(editor, node)
    pool = _only(editor, node.inputs[0])
    power = _only(editor, pool.inputs[0]) if pool is not None and pool.op == "average_pool" else None
    moved = power if power is not None and power.op == "transpose" else None
    power = power if moved is None else _only(editor, moved.inputs[0])
    if root is None or pool is None or power is None:
        return False
    p, x = _exponent(editor, power), power.inputs[0]
    if p is None or p <= 1 or abs(p * root - 1) > TOLERANCE or _is_quotient(editor, x):
        return False
    clamp = editor[x].clamp
    if clamp is None or clamp[0] < 0:
        return False
    out = editor[node.outputs[0]]
    for gone in (node, pool, power, *([moved] if moved else [])):
        editor.remove(gone)
    if moved:
        x = editor.emit("transpose", (x,), moved.params, at=moved, name=moved.name)
    _, height, width, _ = editor[x].shape
    m = editor.emit("max_pool", (x,), MaxPoolParams(height, width), at=power)
    m = editor.emit("requantize", (m,), at=power, clamp=(TINY, float("inf")))
    y = editor.emit("divide", (x, m), at=power, clamp=(0.0, 1.0))
    inputs = (y, y) if power.op == "mul" else (y,)
    y = editor.emit(power.op, inputs, power.params, at=power, name=power.name)
    y = editor.emit("average_pool", (y,), pool.params, at=pool, name=pool.name)
    y = editor.emit("lookup", (y,), node.params, at=node, name=node.name)
    editor.emit("mul", (y, m), at=node, out=out.name, clamp=out.clamp)
    return True


def _only(editor: Editor, name: str) -> Node | None:
    """The node that computes a value for one reader only, unsaturated."""
    node = editor.producer(name)
    return node if node is not None and editor[name].clamp is None and editor.only_user(name) is not None else None


def _exponent(editor: Editor, node: Node) -> float | None:
    """p where the node computes x^p of an [N,H,W,C]."""
    if len(editor[node.outputs[0]].shape) != 4:
        return None
    if node.op == "mul":
        return 2.0 if node.inputs[0] == node.inputs[1] else None
    p = node.params
    if node.op != "lookup" or (p.before, p.after) != (1.0, 1.0):
        return None
    return {"sqrt": 0.5, "power": p.alpha}.get(p.function)


def _is_quotient(editor: Editor, name: str) -> bool:
    """Checks that the pass itself made this."""
    node = editor.producer(name)
    return node is not None and node.op == "divide" and editor[name].clamp == (0.0, 1.0)
