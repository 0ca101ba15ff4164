"""Recognise what exporters write out: a function of one tensor, made of several ops, becomes one table.

A cone is a node with the nodes above it that only it needs, all pointwise (add, sub, mul with numbers or with each
other, saturations, tables), and all functions of one tensor. Its values at some points are compared with those of

1. SiLU: x * sigmoid(x);
2. HardSwish: x * clip(x + 3, 0, 6) / 6;
3. Mish: x * tanh(softplus(x));
4. Gelu, with erf or with tanh;
5. HardSigmoid: clip(alpha * x + beta, 0, 1), with a slope other than 1.

So the order of factors, and where a division is written, do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.rewrite import Editor, apply

POINTS = np.linspace(-9.0, 9.0, 145)
SLOPE = 0.125  # the distance of points, in which a slope is measured
TOLERANCE = 1e-5
DEPTH = 8  # nodes of a cone: Gelu by tanh has eight
NAMED = ("silu", "hard_swish", "mish", "gelu", "gelu_tanh")  # cases 1 to 4

_COMBINE: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
}


class Cone(NamedTuple):
    """Nodes from the last one upwards, and the tensor that they are a function of."""

    nodes: tuple[Node, ...]
    x: str


def run(graph: Graph) -> Graph:
    return apply(graph, _fuse)


def _fuse(editor: Editor, node: Node) -> bool:
    if not _pointwise(editor, node):
        return False
    for cone in _cones(editor, node):
        params = _recognise(_evaluate(editor, cone))
        if params is not None:
            out = editor[node.outputs[0]]
            for one in cone.nodes:
                editor.remove(one)
            editor.put(replace(out, clamp=None))
            editor.emit("lookup", (cone.x,), params, at=node, name=node.name, out=out.name)
            return True
    return False


def _pointwise(editor: Editor, node: Node) -> bool:
    """A function of its computed operands, element by element, in which constants are single numbers."""
    if node.op not in (*_COMBINE, "requantize", "lookup"):
        return False
    shape = editor[node.outputs[0]].shape
    return all(editor[name].size == 1 if editor[name].is_const else editor[name].shape == shape for name in node.inputs)


def _cones(editor: Editor, last: Node) -> list[Cone]:
    """All cones of at least two nodes under ``last``, the smallest first."""
    nodes, found = [last], []
    while len(nodes) <= DEPTH:
        inside = {node.name for node in nodes}
        made = {node.outputs[0] for node in nodes}
        leaves = {n for node in nodes for n in node.inputs if n not in made and not editor[n].is_const}
        if len(leaves) == 1 and len(nodes) > 1:
            found.append(Cone(tuple(nodes), *leaves))
        above = [node for name in sorted(leaves) if (node := editor.producer(name)) is not None]
        ready = [
            node
            for node in above
            if _pointwise(editor, node)
            and node.outputs[0] not in editor.outputs
            and all(user.name in inside for user in editor.users(node.outputs[0]))
        ]
        if not ready:
            break
        nodes.append(ready[0])
    return found


def _evaluate(editor: Editor, cone: Cone) -> np.ndarray:
    """The cone's values where its tensor has those of POINTS."""
    env = {cone.x: POINTS}

    def at(name: str) -> np.ndarray:
        return np.asarray(editor.data(name).reshape(()) if editor[name].is_const else env[name])

    waiting = list(cone.nodes)
    while waiting:
        node = next(n for n in waiting if all(editor[i].is_const or i in env for i in n.inputs))
        waiting.remove(node)
        if node.op in _COMBINE:
            y = _COMBINE[node.op](at(node.inputs[0]), at(node.inputs[1]))
        elif node.op == "lookup":
            y = node.params(at(node.inputs[0]))
        else:
            y = at(node.inputs[0])
        low, high = editor[node.outputs[0]].clamp or (-np.inf, np.inf)
        env[node.outputs[0]] = np.clip(y, low, high)
    return env[cone.nodes[0].outputs[0]]


def _recognise(y: np.ndarray) -> LookupParams | None:
    candidates = [LookupParams(name) for name in NAMED]
    middle = len(POINTS) // 2
    slope = float(y[middle + 1] - y[middle - 1]) / (2 * SLOPE)
    if slope > 0 and abs(slope - 1) > TOLERANCE:
        candidates.append(LookupParams("hard_sigmoid", slope, float(y[middle])))
    for params in candidates:
        if np.allclose(y, params(POINTS), rtol=TOLERANCE, atol=TOLERANCE):
            return params
    return None
