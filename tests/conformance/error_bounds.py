"""Bounds the distance of an integer graph from the real numbers that it stands for, by element, given its input.

A running error analysis. Every tensor has a bound on |q * 2^e - r|, r being what the float graph computes without any
rounding. A rule per op says what its inputs' errors, and those of its weights, bias and table, become at its output;
every output then adds its own rounding: half a step of its grid, or up to one where the grid ends before its largest
value. Rules only bound: they cannot make a wrong result right, as it is compared with a result from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN, dequantize, quantize
from nmpconv.graph.reference import step
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS, QArray
from nmpconv.ops.common.interpolation import WEIGHT_BITS
from nmpconv.ops.grid_sample import PLACE_BITS
from nmpconv.ops.op import quant_of
from nmpconv.passes.quantize.matrix_form import gather, matrix, out_positions

FLOAT_NOISE = 2.0**-21  # of a value: what float32 weights and results of a case may be off
INTERVAL = np.linspace(-1.0, 1.0, 65)  # where a function is looked at between x - error and x + error

Array = np.ndarray[Any, Any]


class Context:
    """Facts about a node for its rule: real inputs, their errors, and the float graph's constants and parameters."""

    def __init__(
        self, integer: Graph, node: Node, source: Node | None, floats: Graph, env: Mapping[str, Array]
    ) -> None:
        self.graph, self.node, self.source, self.floats = integer, node, source, floats
        self.inputs = integer.ins(node)
        self.output = integer.outs(node)[0]
        data = [env[v.name] if v.data is None else v.data for v in self.inputs]
        self.x = [_reals(q, v) for q, v in zip(data, self.inputs, strict=True)]
        self.result = env[self.output.name]
        self.step = 2.0 ** quant_of(self.output).exponent

    def constant(self, i: int) -> Array:
        """Constant i of the node as the float graph has it."""
        assert self.source is not None
        data = self.floats[self.source.inputs[i]].data
        assert data is not None
        return data.astype(np.float64)

    def pushed(self, error: Array, params: Any = None, others: Array | None = None) -> Array:
        """The error behind a linear op with weights of at least 0, or behind one that only moves or picks.

        It is the op's own reference, on integers fine enough that their rounding is added here without being felt.
        """
        peak = max(float(np.max(error, initial=0.0)), 0.0 if others is None else float(others.max()))
        if peak == 0:
            return np.zeros(self.output.shape)
        e = int(np.ceil(np.log2(peak))) - 24
        grid = Quant(32, (e,), INT_MIN[32], INT_MAX[32])
        fine = [np.ceil(np.ldexp(a, -e)).astype(np.int32) for a in (error, others) if a is not None]
        out = replace(self.output, quant=grid, dtype="int32")
        params = self.node.params if params is None else params
        [q] = OPS[self.node.op].reference(params, [QArray(a, grid) for a in fine], [out])
        return dequantize(q.astype(np.int64) + 1, e)


def bounds(integer: Graph, floats: Graph, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """(integers, bounds) of the graph's outputs by name. floats: the graph that was quantized; feeds: real inputs."""
    source = {node.name: node for node in floats.nodes}
    consumers = integer.consumers()
    env: dict[str, Array] = {}
    errors: dict[str, Array] = {}
    for name in integer.inputs:
        quant = quant_of(integer[name])
        env[name] = quantize(feeds[name], quant.exponent, quant.lo, quant.hi).astype(quant.dtype)
        errors[name] = np.abs(_reals(env[name], integer[name]) - feeds[name])
    for node in integer.nodes:
        env.update(step(integer, node, env))
        if node.op not in RULES:
            raise NotImplementedError(f"op {node.op} has no rule in tests/conformance/error_bounds.py")
        at = Context(integer, node, source.get(node.name), floats, env)
        operand_errors = [errors[v.name] if v.data is None else _constant_error(at, i) for i, v in enumerate(at.inputs)]
        [out] = node.outputs
        error = RULES[node.op](at, operand_errors)
        if OPS[node.op].grid != "same":
            error = error + _rounding(integer[out], env[out], consumers[out])
        result = _reals(env[out], integer[out])
        errors[out] = np.minimum(error, _farthest(result, integer[out])) + FLOAT_NOISE * np.abs(result)
    return {n: env[n] for n in integer.outputs}, {n: errors[n] for n in integer.outputs}


def _reals(q: Array, value: Value) -> Array:
    quant = quant_of(value)
    exponents = np.asarray(quant.exponents)
    if quant.axis is None:
        return dequantize(q, int(exponents[0]))
    shape = [1] * q.ndim
    shape[quant.axis] = -1
    return dequantize(q, exponents.reshape(shape))


def _rounding(value: Value, q: Array, users: list[Node]) -> Array:
    """Half a step, or at the end of the grid what lies beyond it: at most one step, unless only tables read it, which
    may be flat there.
    """
    quant = quant_of(value)
    step = 2.0**quant.exponent
    seen = value.observed
    assert seen is not None, value.name
    least, most = seen.min - value.origin, seen.max - value.origin
    above, below = most - INT_MAX[quant.bits] * step, INT_MIN[quant.bits] * step - least
    if {node.op for node in users} != {"lookup"}:
        assert max(above, below) <= step * (1 + 1e-6), f"{value.name}: [{seen.min}, {seen.max}] on 2^{quant.exponent}"
    beyond = np.where(q == INT_MAX[quant.bits], above, np.where(q == INT_MIN[quant.bits], below, 0.0))
    return np.maximum(beyond, step / 2)


def _farthest(result: Array, value: Value) -> Array:
    """The largest distance to the real number, which lies in the range that calibration saw on the same data."""
    seen = value.observed
    assert seen is not None
    result = result + value.origin
    return np.maximum(np.abs(result - seen.min), np.abs(result - seen.max))


def _constant_error(at: Context, i: int) -> Array:
    """The error of an operand that the op itself put on a grid; tables are their rules' business."""
    if at.source is None or i >= len(at.source.inputs) or not at.floats[at.source.inputs[i]].is_const:
        return np.zeros(())
    exact = at.constant(i)
    return np.abs(at.x[i] - exact) if exact.shape == at.x[i].shape else np.zeros(())


# -- rules: (context, errors of the inputs) -> error of the output before its own rounding ----------------------------

Rule = Callable[[Context, list[Array]], Array]


def _linear(at: Context, errors: list[Array]) -> Array:
    """conv2d, conv_transpose, fully_connected: |error| * |w| + |x| * |error of w| + error of the bias."""
    shape = matrix(at.graph, at.node)
    wanted = at.constant(1)
    pads = [at.x[3], errors[3]] if len(at.x) == 4 else [None, None]

    def product(x: Array, w: Array, pad: Array | None) -> Array:
        positions = np.arange(out_positions(at.graph, at.node))
        rows = gather(at.graph, at.node, x, pad, np.zeros_like(positions), positions)
        return np.einsum("rgk,gok->rgo", rows, shape.split(w), optimize=True).reshape(at.output.shape)

    spread = product(errors[0], np.abs(wanted), pads[1])
    return spread + product(np.abs(at.x[0]), errors[1], None if pads[0] is None else np.abs(pads[0])) + errors[2]


def _mul(at: Context, errors: list[Array]) -> Array:
    ea, eb = errors
    return np.abs(at.x[0]) * eb + np.abs(at.x[1]) * ea + ea * eb


def _mul_offset(at: Context, errors: list[Array]) -> Array:
    """The offsets are origins, to half of a 64th of a step each, and so is the product before it has its own."""
    ea, eb = errors
    step = 2.0 ** quant_of(at.inputs[0]).exponent
    a, ea = np.abs(at.x[0] + at.node.params.offset_a * step / 64), ea + step / 128
    return a * eb + np.abs(at.x[1]) * ea + ea * eb + at.step / 64


def _matmul(at: Context, errors: list[Array]) -> Array:
    """The same for sums of products, both operands with their last axis."""
    a, b = (np.abs(x) for x in at.x)
    ea, eb = (np.broadcast_to(error, x.shape) for error, x in zip(errors, at.x, strict=True))
    return np.matmul(a + ea, np.swapaxes(eb, -1, -2)) + np.matmul(ea, np.swapaxes(b, -1, -2))


def _normalize(at: Context, errors: list[Array]) -> Array:
    """z = d / D, d = x - mean, D = sqrt(mean(d^2) + eps): d is off by e + mean(e), D by at most r, the root mean square
    of e; and what the op itself loses (`Normalize.quantize`).
    """
    assert at.source is not None
    axes, eps = at.source.params.axes, at.source.params.eps
    scale, bias = at.constant(1), at.constant(2)
    e = errors[0]
    d = at.x[0] - at.x[0].mean(axis=axes, keepdims=True)
    deviation = np.sqrt((d * d).mean(axis=axes, keepdims=True) + eps)
    r = np.sqrt((e * e).mean(axis=axes, keepdims=True))
    z = np.abs(d) / deviation
    off = (e + e.mean(axis=axes, keepdims=True) + z * r) / np.maximum(deviation - r, np.sqrt(eps))
    stored = np.abs(at.x[1] - scale) * z + np.abs(at.x[2] - bias)
    return np.abs(scale) * off + stored + np.abs(scale).max() * (z + 1) * 2.0**-22 + 0.01 * at.step


def _lrn(at: Context, errors: list[Array]) -> Array:
    """x * B^-beta, B between what the smallest and the largest squares of its channels give; and `Lrn.quantize`."""
    assert at.source is not None
    p, x, e = at.source.params, np.abs(at.x[0]), errors[0]

    def factor(a: Array) -> Array:
        before = (p.size - 1) // 2
        total = np.cumsum(np.pad(a * a, [(0, 0)] * (a.ndim - 1) + [(before + 1, p.size // 2)]), axis=-1)
        base = p.bias + p.alpha / p.size * (total[..., p.size :] - total[..., : -p.size])
        return np.maximum(base, 2.0**-80) ** -p.beta

    most, least = factor(np.maximum(x - e, 0.0)), factor(x + e)
    own = p.beta * (p.beta + 1) * 2.0**-19 + p.beta * 2.0**-28 + 2.0 ** (p.beta - 28)
    return e * most + x * (most - least) + (x + e) * most * own


def _sum_lookup(at: Context, errors: list[Array]) -> Array:
    """The function's largest change over what the sum may be, and what the pieces of the table are off."""
    assert at.source is not None
    function, x, e, w = at.source.params, np.abs(at.x[0]), errors[0], at.constant(1)
    power = 2 if function.squared else 1
    more = (x + e) ** power - x**power

    def sums(a: Array, weights: Array) -> Array:
        of_group = len(w) // function.groups
        return np.stack([a[..., o // of_group :: function.groups] @ weights[o] for o in range(len(w))], axis=-1)

    off = sums(more, np.abs(w)) + sums((x + e) ** power, np.broadcast_to(errors[1], w.shape))
    total = sums(at.x[0] ** power, w)
    around = function(np.maximum(total[..., None] + off[..., None] * INTERVAL, 0.0))
    spread = np.abs(around - function(np.maximum(total, 0.0))[..., None]).max(axis=-1)
    return np.asarray(spread + (0.25 + 2.0**-8) * at.step)


def _divide(at: Context, errors: list[Array]) -> Array:
    """|a/b - a'/b'| <= (ea + |a/b| * eb) / (|b| - eb), unbounded where b may be 0.

    Rounded down, it is the distance to the farthest whole number between.
    """
    (ea, eb), (a, b) = errors, at.x
    least = np.abs(b) - eb
    safe = np.where(least > 0, least, 1.0)
    nonzero = np.where(b == 0, 1.0, b)
    off = np.where(least > 0, (ea + np.abs(a / nonzero) * eb) / safe, np.inf)
    if not at.node.params.down:
        return off
    whole = np.floor(a / nonzero)
    return np.maximum(np.floor(a / nonzero + off) - whole, whole - np.floor(a / nonzero - off))


def _compare(at: Context, errors: list[Array]) -> Array:
    """Wrong by 1 only where the operands are closer to each other than their errors."""
    off = errors[0] + errors[1]
    return np.where((np.abs(at.x[0] - at.x[1]) <= off) & (off > 0), 1.0, 0.0)


def _arg_max(at: Context, errors: list[Array]) -> Array:
    """The largest distance to an element that may be there in the order, too."""
    axis = at.node.params.axis
    x = -at.x[0] if at.node.params.smallest else at.x[0]
    count, length = at.node.params.count, x.shape[axis]
    low, high = (np.moveaxis(x + side * errors[0], axis, -1) for side in (-1, 1))
    # The j-th largest number lies between the j-th largest bounds.
    least, most = (-np.sort(-bound, axis=-1)[..., :count, None] for bound in (low, high))
    possible = (high[..., None, :] >= least) & (low[..., None, :] <= most)
    index = np.arange(length)
    first = np.where(possible, index, length).min(axis=-1)
    last = np.where(possible, index, -1).max(axis=-1)
    indices = np.moveaxis(_reals(at.result, at.output), axis, -1)
    return np.moveaxis(np.maximum(last - indices, indices - first), -1, axis)


def _lookup(at: Context, errors: list[Array]) -> Array:
    """The function's largest change over x +- error, and what the pieces of an int16 table are off."""
    assert at.source is not None
    function, x, table = at.source.params, at.x[0], at.x[1]
    around = function(x[..., None] + errors[0][..., None] * INTERVAL)
    spread = np.abs(around - function(x)[..., None]).max(axis=-1)
    quant = quant_of(at.inputs[0])
    if quant.bits == 8:
        return spread
    points = np.ldexp(np.arange(-32768.0, 32769.0), quant.exponent)
    y = quant_of(at.output)
    exact = np.clip(function(points), y.lo * at.step, y.hi * at.step)
    samples = function(points[:: 65536 // (len(table) - 1)])
    lines = np.interp(points, points[:: 65536 // (len(table) - 1)], samples)
    off = np.abs(np.clip(lines, y.lo * at.step, y.hi * at.step) - exact)
    return spread + np.interp(x, points, off) + at.step * 2.0**-9


def _softmax(at: Context, errors: list[Array]) -> Array:
    """With all inputs of an axis off by at most d, the odds of one change by a factor of exp(2d) at most."""
    axis = at.node.params.axis
    a = np.exp(2 * errors[0].max(axis=axis, keepdims=True))
    e = np.exp(at.x[0] - at.x[0].max(axis=axis, keepdims=True))
    p = e / e.sum(axis=axis, keepdims=True)
    spread = np.maximum(p * a / (1 + p * (a - 1)) - p, p - p / (p + (1 - p) * a))
    return spread + (at.x[0].shape[axis] + 1) * 2.0**-29


def _resize(at: Context, errors: list[Array]) -> Array:
    """Weights of an axis are off by 2^-15 a tap in all: half for their rounding, half for making their sum 1."""
    p = at.node.params
    positive = replace(
        p,
        row_weights=tuple(map(abs, p.row_weights)),
        column_weights=tuple(map(abs, p.column_weights)),
    )
    off = 2 * (p.taps_h + p.taps_w) * 2.0**-WEIGHT_BITS * np.abs(at.x[0]).max(initial=0.0)
    return at.pushed(errors[0], positive) + off


def _grid_sample(at: Context, errors: list[Array]) -> Array:
    """The largest change over the places that the grid's error reaches, and the largest error of a pixel there.

    Results are linear between whole pixels and jump half way, so that their extremes are at these or at the ends.
    """
    p, (x, g) = at.node.params, at.x
    image = np.concatenate([x, np.broadcast_to(errors[0], x.shape)], axis=-1)
    e = int(np.ceil(np.log2(np.abs(image).max() + FLOAT_NOISE))) - 24
    fine, unit = (Quant(32, (exponent,), INT_MIN[32], INT_MAX[32]) for exponent in (e, -24))
    pixels = QArray(np.rint(np.ldexp(image, -e)).astype(np.int64), fine)

    def sampled(right: Array, down: Array) -> list[Array]:
        places = QArray(np.rint(np.ldexp(np.stack([right, down], -1), 24)).astype(np.int64), unit)
        out = replace(at.output, quant=fine, dtype="int32")
        return np.split(dequantize(OPS[at.node.op].reference(p, [pixels, places], [out])[0], e), 2, axis=-1)

    reached = []
    for axis, n in enumerate(x.shape[2:0:-1]):
        span = max(n - p.align_corners, 1)
        half = g[..., axis] * span + n - 1  # in halves of a pixel
        off = np.broadcast_to(errors[1], g.shape)[..., axis] * span + 2.0**-PLACE_BITS
        lines = [np.floor(half - off) + k + side for k in range(int(2 * off.max()) + 3) for side in (-1e-5, 1e-5)]
        around = [half - off, half + off, *(np.clip(line, half - off, half + off) for line in lines)]
        reached.append([(place - (n - 1)) / span for place in around])
    centre, _ = sampled(g[..., 0], g[..., 1])
    samples = [sampled(*places) for places in product(*reached)]
    return np.max([np.abs(y - centre) + np.abs(e) for y, e in samples], axis=0) + 2.0**e


def _gather_elements(at: Context, errors: list[Array]) -> Array:
    """The largest distance to an element that the error of the index reaches, and the error of that one."""
    axis, (x, index) = at.node.params.axis, at.x
    n = x.shape[axis]
    line = np.moveaxis(x, axis, -1)[..., None, :]
    off = np.moveaxis(np.broadcast_to(errors[0], x.shape), axis, -1)[..., None, :]
    index = np.where(index < 0, index + n, index).clip(0, n - 1)
    k, reach = (np.moveaxis(a, axis, -1)[..., None] for a in (index, np.broadcast_to(errors[1], index.shape)))
    chosen = np.take_along_axis(x, np.rint(index).astype(np.int64), axis)
    reached = np.abs(np.arange(n) - k) <= reach + FLOAT_NOISE * n
    distances = np.where(reached, np.abs(line - np.moveaxis(chosen, axis, -1)[..., None]) + off, 0.0)
    return np.moveaxis(distances.max(axis=-1), -1, axis)


def _pad(at: Context, errors: list[Array]) -> Array:
    return at.pushed(errors[0], others=np.full((1,), np.max(errors[1])))


def _concat(at: Context, errors: list[Array]) -> Array:
    return np.concatenate(
        [np.broadcast_to(e, x.shape) for e, x in zip(errors, at.x, strict=True)], axis=at.node.params.axis
    )


def _layer_and_sum(at: Context, errors: list[Array]) -> Array:
    """conv_add: that of the operand, and that of the convolution."""
    layer = copy(at)
    layer.node = replace(at.node, op="conv2d", inputs=at.node.inputs[1:])
    layer.source = at.source and replace(at.source, op="conv2d", inputs=at.source.inputs[1:])
    layer.inputs, layer.x = at.inputs[1:], at.x[1:]
    return errors[0] + _linear(layer, errors[1:])


def _sum(at: Context, errors: list[Array]) -> Array:
    return errors[0] + errors[1]


def _larger(at: Context, errors: list[Array]) -> Array:
    return np.maximum(errors[0], errors[1])


def _moved(at: Context, errors: list[Array]) -> Array:
    return at.pushed(errors[0])


RULES: dict[str, Rule] = {
    **dict.fromkeys(("conv2d", "conv_transpose", "fully_connected"), _linear),
    "conv_add": _layer_and_sum,
    **dict.fromkeys(("add", "sub"), _sum),
    **dict.fromkeys(("minimum", "maximum"), _larger),
    **dict.fromkeys(("average_pool", "max_pool", "slice", "reshape", "transpose", "gather", "cum_sum"), _moved),
    "divide": _divide,
    **dict.fromkeys(("greater", "equal"), _compare),
    "arg_max": _arg_max,
    "requantize": lambda at, errors: errors[0],
    "lrn": _lrn,
    "sum_lookup": _sum_lookup,
    "mul": _mul,
    "mul_offset": _mul_offset,
    "batch_matmul": _matmul,
    "normalize": _normalize,
    "lookup": _lookup,
    "softmax": _softmax,
    "resize": _resize,
    "grid_sample": _grid_sample,
    "gather_elements": _gather_elements,
    "pad": _pad,
    "concat": _concat,
}
