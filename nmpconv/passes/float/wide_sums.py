"""Logarithms and roots of sums of squares, or of sums that are not negative, as `sum_lookup`, which reads the wide sum.

A spectrum has a range that no tensor holds: energies of 1e-6 beside 1e3 are 0, and their logarithms those of 0. With f
a table that is steep near 0, whatever else it does:

1. f(W * p + b), p = a^2 + c^2 + ..., no weight negative and b one number: the squares side by side, W once for each.
   A factor of a square, or of what is squared, goes into W. Where squares are added along an axis, as those of real and
   imaginary parts, or are moved, it is what is squared that is taken apart and moved.
2. f(W * p + b) of other tensors that are not negative, likewise.
3. f(a^2 + c^2 + ...): the tensors side by side, each channel a group of its own.
4. f(mean of u^2 along some axes, times a number, plus one).
5. g(x), of a layer's x that is a spectrum: a table that squares x first, or takes its magnitude, so that it is a table
   of x^2, and is steep in x near 0, as powers and logarithms are. Features of images keep their tables, which are
   small.

Before, the square of a root of such a p, moved perhaps, becomes p, and moves between W and f go behind f.

A saturation of the sum is a step of the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import WEIGHTED, waves
from nmpconv.ops.common.accumulate import K_MAX
from nmpconv.ops.common.function import Step, evaluate, is_steep
from nmpconv.ops.common.traits import ANY, Bounds
from nmpconv.ops.concat import ConcatParams
from nmpconv.ops.lookup import LookupParams
from nmpconv.ops.slice import SliceParams
from nmpconv.ops.sum_lookup import SumLookupParams
from nmpconv.passes.bounds import known
from nmpconv.passes.float.squares import PARTS, is_square, power_of
from nmpconv.passes.rewrite import MOVES, Clamp, Editor, apply

Make = Callable[[], str]
Term = tuple[Make, np.ndarray]
"""Writes what is still to be written of a tensor whose square is a term of a sum, and returns its name; and the factor
of the square: a number, or one by channel [C]."""
TERMS = 64  # squares of a sum
CHANNELS = 512  # of a spectrum, a group each
NEAR, STEEP = 2.0**-8, 0.05  # of x; of the way from 0 to 1
MOVES_OR_PARTS = (*MOVES, "slice")


def run(graph: Graph) -> Graph:
    limits, spectra = known(graph, graph.given), _spectra(graph)
    return apply(apply(graph, _square_of_root, _moved_later), partial(_read_sum, limits, spectra))


def _spectra(graph: Graph) -> set[str]:
    """Names of what layers along one axis make of waves."""
    layers = [node for node in graph.nodes if node.op in WEIGHTED]
    flat = {name for node in layers if graph[node.inputs[1]].shape[1:-2] in ((), (1,)) for name in node.outputs}
    return flat & waves(graph) - graph.given.keys()


def _square_of_root(editor: Editor, node: Node) -> bool:
    if not is_square(node):
        return False
    moves, root = _moves(editor, editor.producer(node.inputs[0]))
    if root is None or root.params != LookupParams("sqrt") or editor[root.outputs[0]].clamp:
        return False
    x, out = root.inputs[0], node.outputs[0]
    if out in editor.outputs or editor[out].clamp or _terms(editor, node, x) is None:
        return False
    editor.remove(node)
    editor.rename_uses(out, _repeated(editor, node, moves, x))
    return True


def _moved_later(editor: Editor, node: Node) -> bool:
    moves, layer = _moves(editor, editor.producer(node.inputs[0]))
    if not _is_steep(node) or not moves or layer is None or layer.op != "fully_connected":
        return False
    if any(editor.only_user(move.inputs[0]) is None for move in moves) or editor.only_user(node.inputs[0]) is None:
        return False
    weights, out = editor.data(layer.inputs[1]), editor[node.outputs[0]]
    if weights.min() < 0 or any(move.op == "slice" for move in moves):
        return False
    editor.remove(node)
    y = editor.emit("lookup", (layer.outputs[0],), node.params, at=node, name=node.name, clamp=out.clamp)
    y = _repeated(editor, node, moves[:-1], y)
    editor.emit(moves[-1].op, (y,), moves[-1].params, at=node, out=out.name)
    return True


def _is_steep(node: Node) -> bool:
    return node.op == "lookup" and any(map(is_steep, node.params.steps()))


def _read_sum(limits: Mapping[str, Bounds], spectra: set[str], editor: Editor, node: Node) -> bool:
    if not _is_steep(node) or not editor[node.outputs[0]].shape:
        return False
    return (
        _bands(limits, editor, node) or _mean(editor, node) or _elements(editor, node) or _itself(spectra, editor, node)
    )


def _bands(limits: Mapping[str, Bounds], editor: Editor, node: Node) -> bool:  # cases 1 and 2
    source = node.inputs[0]
    layer = editor.producer(source)
    if layer is None or layer.op != "fully_connected" or len(editor[source].shape) < 2:
        return False
    x, weights, bias = layer.inputs[0], editor.data(layer.inputs[1]), editor.data(layer.inputs[2])
    if weights.min() < 0 or bias.min() < 0 or np.ptp(bias) > 1e-6 * np.abs(bias).max():
        return False
    terms = _terms(editor, node, x)
    if terms is None:
        if limits.get(x, ANY)[0] < 0:
            return False
        joined, matrix = x, weights
    else:
        if len(terms) * weights.shape[1] > K_MAX:
            return False
        joined = _side_by_side(editor, node, terms, len(editor[x].shape) - 1)
        matrix = np.concatenate([weights * factor for _, factor in terms], axis=1)
    _replace(editor, node, joined, matrix, float(bias[0]), editor[source].clamp, squared=terms is not None)
    return True


def _elements(editor: Editor, node: Node) -> bool:  # case 3
    source = node.inputs[0]
    added = _without_number(editor, source)
    terms = None if added is None else _terms(editor, node, added[0], saturated=added[0] == source)
    if added is None or terms is None:
        return False
    shape = editor[source].shape
    joined = _side_by_side(editor, node, terms, len(shape) - 1)
    matrix = np.stack([np.broadcast_to(factor, shape[-1]) for _, factor in terms], axis=1)
    _replace(editor, node, joined, matrix, added[1], editor[source].clamp, squared=True, groups=shape[-1])
    return True


def _mean(editor: Editor, node: Node) -> bool:  # case 4
    power = power_of(editor, node.inputs[0])
    if power is None or power.root != 1.0 or editor[node.inputs[0]].clamp:
        return False
    shape = editor[power.u].shape
    rest = [axis for axis in range(len(shape)) if axis not in power.axes]
    count = math.prod(shape[axis] for axis in power.axes)
    if count > K_MAX or math.prod(shape[axis] for axis in rest) != editor[node.outputs[0]].size:
        return False
    x = power.u
    perm = (*rest, *power.axes)
    if perm != tuple(range(len(shape))):
        x = editor.transpose(x, perm, at=node)
    x = editor.reshape(x, (1, editor[node.outputs[0]].size, count), at=node)
    _replace(editor, node, x, np.full((1, count), power.a / count), power.b, None, squared=True)
    return True


def _itself(spectra: set[str], editor: Editor, node: Node) -> bool:  # case 5
    x, channels = node.inputs[0], editor[node.outputs[0]].shape[-1]
    _, layer = _moves(editor, editor.producer(x))
    if layer is None or spectra.isdisjoint(layer.outputs) or editor[x].clamp or channels > CHANNELS:
        return False
    steps = _of_square(node.params.steps())
    if not steps or not _is_steep_of_square(steps):
        return False
    table = replace(node, params=LookupParams(composed=steps))
    _replace(editor, table, x, np.ones((channels, 1)), 0.0, None, squared=True, groups=channels)
    return True


def _of_square(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps from u = x^2 on of a table that begins with x^2 or |x|; none of another."""
    factor = 1.0
    if steps[0][:2] == ("mul", "x") and isinstance(steps[0][2], float):
        factor, steps = steps[0][2] ** 2, _earlier(steps)
    if len(steps) < 2 or any("x" in operands for _, *operands in steps[1:]):
        return ()
    if steps[0] == ("abs", "x"):
        steps = [("sqrt", "x"), *steps[1:]]
    elif steps[0] in (("mul", "x", "x"), ("power", "x", 2.0)):
        steps = _earlier(steps)
    else:
        return ()
    if factor == 1.0:
        return tuple(steps)
    later = ((name, *(0 if o == "x" else o + 1 if isinstance(o, int) else o for o in rest)) for name, *rest in steps)
    return (("mul", "x", factor), *later)


def _is_steep_of_square(steps: Sequence[Step]) -> bool:
    """Checks that a table of u = x^2 goes a part of its way from 0 to 1 before `NEAR`^2, and has no pole: a grid that
    holds what is divided by x is too coarse for the rest of it."""
    if any(
        name in ("reciprocal", "divide") or (name == "power" and min(rest[1:], default=0) < 0) for name, *rest in steps
    ):
        return False
    at_0, near, at_1 = evaluate(steps, np.array([0.0, NEAR**2, 1.0]))[-1]
    return bool(abs(near - at_0) > STEEP * abs(at_1 - at_0))


def _earlier(steps: Sequence[Step]) -> list[Step]:
    """All but the first of the steps, whose result is x."""
    return [
        (name, *("x" if o == 0 and isinstance(o, int) else o - 1 if isinstance(o, int) else o for o in operands))
        for name, *operands in steps[1:]
    ]


def _replace(
    editor: Editor,
    node: Node,
    x: str,
    weights: np.ndarray,
    number: float,
    clamp: Clamp | None,
    *,
    squared: bool,
    groups: int = 1,
) -> None:
    """Let the node's output be its table of the sums, plus a number and saturated."""
    out = editor[node.outputs[0]]
    before: list[tuple[str | int | float, ...]] = []
    operand: str | int = "x"
    if number:
        before.append(("add", operand, number))
        operand = len(before) - 1
    if clamp is not None:
        before.append(("clip", operand, *clamp))
        operand = len(before) - 1
    steps = (*before, *node.params.steps(operand, len(before)))
    matrix = editor.const(f"{node.name}.weight", weights)
    params = SumLookupParams(composed=steps, squared=squared, groups=groups)
    editor.remove(node)
    if (*editor[x].shape[:-1], len(weights)) == out.shape:  # all but means, whose axes may be gone
        editor.emit("sum_lookup", (x, matrix), params, at=node, name=node.name, out=out.name, clamp=out.clamp)
    else:
        y = editor.emit("sum_lookup", (x, matrix), params, at=node, name=node.name, clamp=out.clamp)
        editor.reshape(y, out.shape, at=node, out=out.name)


def _terms(editor: Editor, at: Node, name: str, *, saturated: bool = False) -> list[Term] | None:
    """The squares of which the tensor is the sum, before it is saturated; None where it is none. saturated: it may
    be."""
    node, clamp = editor.producer(name), None if saturated else editor[name].clamp
    if node is None or (clamp is not None and not (clamp[0] <= 0 and math.isinf(clamp[1]))):
        return None
    if is_square(node):
        x = node.inputs[0]
        of = editor.producer(x)
        scaled = _scaled(editor, of) if of is not None and editor[x].clamp is None else None
        x, factor = scaled or (x, np.ones(1))
        return [(lambda: x, factor**2)]
    if node.op == "add":
        terms: list[Term] = []
        for side in node.inputs:
            part = _terms(editor, at, side) if editor[side].shape == editor[name].shape else None
            if part is None or len(terms) + len(part) > TERMS:
                return None
            terms += part
        return terms
    if (scaled := _scaled(editor, node)) is not None:
        inner = None if scaled[1].min() < 0 else _terms(editor, at, scaled[0])
        return None if inner is None else [(make, factor * scaled[1]) for make, factor in inner]
    return _taken_apart(editor, at, node)


def _taken_apart(editor: Editor, at: Node, node: Node) -> list[Term] | None:
    """The terms of what a node moves, or adds up along an axis."""
    if not (node.op in MOVES_OR_PARTS or (weights := _along_an_axis(editor, node))):
        return None
    inner = _terms(editor, at, node.inputs[0])
    if inner is None or any(factor.size > 1 for _, factor in inner):
        return None
    if node.op in MOVES_OR_PARTS:
        return [(partial(_made, editor, at, make, node.op, node.params), factor) for make, factor in inner]
    return [
        (partial(_made, editor, at, make, "slice", take), factor * weight)
        for make, factor in inner
        for take, weight in weights
    ]


def _along_an_axis(editor: Editor, node: Node) -> list[tuple[SliceParams, float]]:
    """Slices that a layer of one row, or a mean of few, adds up, with their factors; none of other nodes."""
    shape = editor[node.inputs[0]].shape
    if node.op == "fully_connected":
        weights, bias = (editor.data(constant) for constant in node.inputs[1:])
        if len(weights) > 1 or weights.size > PARTS or weights.min() < 0 or bias.any():
            return []
        sizes, places = (*shape[:-1], 1), [(*(0,) * (len(shape) - 1), i) for i in range(shape[-1])]
        factors = weights[0].tolist()
    elif node.op == "average_pool":
        p, sizes = node.params, editor[node.outputs[0]].shape
        if any((p.pad_top, p.pad_left, p.pad_bottom, p.pad_right)):
            return []
        if (sizes[1], p.kernel_w, sizes[2]) != (shape[1], shape[2], 1) or p.kernel_h > 1 or p.kernel_w > PARTS:
            return []
        places = [(0, 0, i, 0) for i in range(p.kernel_w)]
        factors = [1 / p.kernel_w] * p.kernel_w
    else:
        return []
    steps = (1,) * len(shape)
    return [(SliceParams(starts, steps, sizes), factor) for starts, factor in zip(places, factors, strict=True)]


def _moves(editor: Editor, node: Node | None) -> tuple[list[Node], Node | None]:
    """The chain of moves and slices that ends with the node, downwards, and what makes the first one's input."""
    chain: list[Node] = []
    while node is not None and node.op in MOVES_OR_PARTS and not editor[node.outputs[0]].clamp:
        chain.insert(0, node)
        node = editor.producer(node.inputs[0])
    return chain, node


def _made(editor: Editor, at: Node, make: Make, op: str, params: object) -> str:
    return editor.emit(op, (make(),), params, at=at)


def _repeated(editor: Editor, at: Node, moves: list[Node], x: str) -> str:
    for move in moves:
        x = editor.emit(move.op, (x,), move.params, at=at)
    return x


def _scaled(editor: Editor, node: Node) -> tuple[str, np.ndarray] | None:
    """The tensor and the factor, a number or one by channel [C], whose product the node is."""
    shape = editor[node.outputs[0]].shape
    for x, constant in (node.inputs, node.inputs[::-1]) if node.op == "mul" else ():
        if editor[constant].is_const and editor[x].shape == shape:
            factor = editor.data(constant)
            by_channel = factor.size in (1, *factor.shape[-1:]) and factor.size in (1, *shape[-1:])
            return (x, factor.ravel()) if by_channel else None
    return None


def _without_number(editor: Editor, name: str) -> tuple[str, float] | None:
    """The tensor and the number that are added up, before that is saturated; None where what is added is no positive
    number."""
    node = editor.producer(name)
    if node is None or node.op != "add":
        return name, 0.0
    for x, constant in (node.inputs, node.inputs[::-1]):
        if editor[constant].is_const:
            data = editor.data(constant)
            fits = data.size == 1 and data.item() >= 0 and editor[x].shape == editor[name].shape
            return (x, float(data.item())) if fits else None
    return name, 0.0


def _side_by_side(editor: Editor, at: Node, terms: list[Term], axis: int) -> str:
    names = [make() for make, _ in terms]
    return names[0] if len(names) == 1 else editor.emit("concat", names, ConcatParams(axis), at=at)
