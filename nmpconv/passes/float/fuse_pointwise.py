"""Recognise what exporters write out: a function of one tensor, made of several ops, becomes one table by its name.

A cone (`cones`) is compared with

1. SiLU: x * sigmoid(x);
2. HardSwish: x * clip(x + 3, 0, 6) / 6;
3. Mish: x * tanh(softplus(x));
4. Gelu, with erf or with tanh;
5. HardSigmoid: clip(alpha * x + beta, 0, 1), with a slope other than 1.

Values are compared, so the order of factors and the place of a division do not matter. Only case 5 is recognised by
its structure. The other functions are smooth but for a few points, where they or the cone may bend. They are compared
on both sides of each of these points, and from 2^-40 to 2^60 with both signs. A cone that differs anywhere stays;
`fuse_table` may make a table of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.common.function import COMBINE, Step, evaluate
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.float.pointwise_subgraphs import cones, replace_cone, steps_of
from nmpconv.passes.rewrite import Editor, apply

NAMED = ("silu", "hard_swish", "mish", "gelu", "gelu_tanh")  # cases 1 to 4
_FAR = np.ldexp(1 + np.arange(16) / 16, np.arange(-40, 60)[:, np.newaxis]).ravel()
PROBES = np.unique([*-_FAR, *np.linspace(-16, 16, 2049), *_FAR])
SCREEN = PROBES[::64]
# The float32 constants of a cone leave it this far from the function: relative to it, and to x where it has a zero.
RELATIVE, NEAR_ZERO = 1e-5, 1e-6
NEAR = 10.0
BISECTIONS = 64
BESIDE = (0.5, 0.97, 0.999, 1 - 1e-6, 1.0, 1 + 1e-6, 1.001, 1.03, 2.0)  # of a bend: where both functions are compared
BENDS = {"hard_swish": (-3.0, 3.0)}  # where a function bends, other than at 0


def run(graph: Graph) -> Graph:
    return apply(graph, _fuse)


def _fuse(editor: Editor, node: Node) -> bool:
    for cone in cones(editor, node):
        params = recognise(steps_of(editor, cone))
        if params is not None:
            replace_cone(editor, cone, params)
            return True
    return False


def recognise(steps: Sequence[Step]) -> LookupParams | None:
    """The named function that the last of the steps is."""
    if not steps:
        return None
    function = _hard_sigmoid(steps)
    if function is not None:
        return function
    screened = evaluate(steps, SCREEN)[-1]
    for name in NAMED:
        if _close(screened, _values(name)[::64], SCREEN) and _equal(steps, name):
            return LookupParams(name)
    return None


@lru_cache
def _values(name: str) -> np.ndarray:
    return LookupParams(name)(PROBES)


def _close(y: np.ndarray, wanted: np.ndarray, x: np.ndarray) -> bool:
    allowed = RELATIVE * np.abs(wanted) + NEAR_ZERO * np.minimum(np.abs(x), NEAR)
    return bool(np.all(np.abs(y - wanted) <= allowed))


def _equal(steps: Sequence[Step], name: str) -> bool:  # cases 1 to 4
    bends = np.unique([0.0, *BENDS.get(name, ()), *_bends(steps)])
    between = (bends[1:] + bends[:-1]) / 2
    x = np.concatenate([*(bends * factor for factor in BESIDE), between])
    return all(_close(evaluate(steps, points)[-1], LookupParams(name)(points), points) for points in (PROBES, x))


def _bends(steps: Sequence[Step]) -> np.ndarray:
    """The x at which a minimum, a maximum, a saturation or a function of the steps may bend."""
    sign = np.signbit(_margins(steps, PROBES))
    row, at = np.nonzero(sign[:, 1:] != sign[:, :-1])
    low, high = PROBES[at], PROBES[at + 1]
    first, each = sign[row, at], np.arange(len(row))
    for _ in range(BISECTIONS if len(row) else 0):
        middle = (low + high) / 2
        before = np.signbit(_margins(steps, middle)[row, each]) == first
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    return high


def _margins(steps: Sequence[Step], x: np.ndarray) -> np.ndarray:
    """Quantities that change their sign where a step bends, [margins, points]."""
    results = evaluate(steps, x)

    def value(operand: object) -> np.ndarray:
        number = x if operand == "x" else results[operand] if isinstance(operand, int) else operand
        return np.broadcast_to(np.asarray(number, np.float64), x.shape)

    rows = [x]
    for name, first, *rest in steps:
        if name == "clip":
            rows += [value(first) - bound for bound in rest if math.isfinite(bound)]
        elif name in ("minimum", "maximum"):
            rows.append(value(first) - value(rest[0]))
        elif name == "hard_sigmoid":
            alpha, beta = (*rest, 0.0, 0.0)[:2]
            rows += [alpha * value(first) + beta - bound for bound in (0.0, 1.0)]
        elif name == "divide":
            rows.append(value(rest[0]))
        elif name not in COMBINE:
            rows += [value(first) - bend for bend in (0.0, *BENDS.get(name, ()))]
    return np.stack(rows)


def _hard_sigmoid(steps: Sequence[Step]) -> LookupParams | None:  # case 5
    affine_maps: list[tuple[float, float, float, float]] = []  # clip(scale * x + shift, lo, hi)
    for name, *operands in steps:
        maps = [
            (1.0, 0.0, -math.inf, math.inf) if o == "x" else affine_maps[o]
            for o in operands
            if not isinstance(o, float)
        ]
        numbers = [o for o in operands if isinstance(o, float)]
        if len(maps) != 1 or name == "divide" or name not in ("clip", *COMBINE):
            return None
        scale, shift, lo, hi = maps[0]
        if name in ("clip", "minimum", "maximum"):
            low, high = {"clip": numbers, "minimum": [-math.inf, *numbers], "maximum": [*numbers, math.inf]}[name]
            lo, hi = (min(max(end, low), high) for end in (lo, hi))
        elif name == "mul":
            (factor,) = numbers
            if factor == 0:
                return None
            scale, shift, lo, hi = scale * factor, shift * factor, *sorted((lo * factor, hi * factor))
        else:
            (number,) = numbers
            if name == "sub" and isinstance(operands[0], float):
                scale, shift, lo, hi = -scale, -shift, -hi, -lo
            number = -number if name == "sub" and not isinstance(operands[0], float) else number
            shift, lo, hi = shift + number, lo + number, hi + number
        affine_maps.append((scale, shift, lo, hi))
    scale, shift, lo, hi = affine_maps[-1]
    if abs(lo) > NEAR_ZERO or abs(hi - 1) > NEAR_ZERO or scale <= 0 or abs(scale - 1) <= RELATIVE:
        return None
    return LookupParams("hard_sigmoid", scale, shift)
