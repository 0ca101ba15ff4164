"""Layer, instance and group normalization: (x - mean) / sqrt(variance + eps) * scale + bias, integers only.

Mean and variance are of the elements along ``axes``, for each position along the others; scale and bias broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MIN, INT_MAX, INT_MIN, SHIFT_MAX, quantize, rsh, sat
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.common.case import FILLS, WIDTHS, Operand, by, fed, grid, single
from nmpconv.ops.common.rules import within
from nmpconv.ops.common.traits import Factors, Limit, Rule, computed, unfit
from nmpconv.ops.op import Case, Op, QArray, quant_of, with_constants

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

COUNT_MAX = 65536  # legal elements of a group
WEIGHT_BITS = 24  # of scale, in int32
FRACTION_BITS = 8  # of bias, below the grid of y
NORMALIZED_BITS = 22  # after the binary point of a normalized element
MANTISSA_BITS = 31  # of epsilon


@dataclass(frozen=True)
class NormalizeParams:
    """axes: ascending. epsilon * 2^epsilon_shift is eps in the units of the variance; see `Normalize.quantize`."""

    axes: tuple[int, ...] = ()
    epsilon: int = 1
    epsilon_shift: int = 0
    eps: float = 1e-5


class Normalize(Op):
    name = "normalize"
    Params = NormalizeParams
    float_only = ("eps",)
    clamps = True
    in_place = True
    constants = (2, 2)
    restrictions = f"groups of at most {COUNT_MAX} elements"
    onnx = ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization")

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        x = to.value(node.input(0))
        shape = to[x].shape
        if node.op_type == "GroupNormalization":
            return _lower_groups(node, to, x)
        eps = node.number("epsilon", 1e-18 if node.op_type == "MeanVarianceNormalization" else 1e-5)
        if node.op_type == "LayerNormalization":
            axes = tuple(range(node.axis(node.integer("axis", -1), len(shape)), len(shape)))
            scaled = axes
        elif node.op_type == "InstanceNormalization":
            axes, scaled = tuple(range(2, len(shape))), (1,)
        else:
            axes, scaled = tuple(sorted(node.axes(node.integers("axes") or (0, 2, 3), len(shape), once=False))), ()
        constants = []
        for index, role, default in ((1, "scale", 1.0), (2, "bias", 0.0)):
            data = to.array(node.input(index), role) if node.input(index) else np.full((), default)
            sizes = [shape[axis] for axis in scaled]
            if node.op_type == "InstanceNormalization" and list(data.shape) != sizes:
                raise Invalid(f"a {role} of shape {list(data.shape)}", hint=f"{sizes}")
            while data.ndim > len(sizes) and data.shape[0] == 1:
                data = data[0]
            if data.ndim > len(sizes) or any(
                d not in (1, s) for d, s in zip(data.shape[::-1], sizes[::-1], strict=False)
            ):
                raise Unsupported(f"a {role} of shape {list(data.shape)}", hint=f"one that broadcasts to {sizes}")
            data = np.broadcast_to(data, sizes)
            along = [size if axis in scaled else 1 for axis, size in enumerate(shape)]
            constants.append(to.const(data.reshape(along), node.input(index)))
        to.emit("normalize", (x, *constants), NormalizeParams(axes, eps=eps), node.outputs[0])

    def infer(self, params: NormalizeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        shape = inputs[0].shape
        if params.eps <= 0:
            raise Unsupported(f"epsilon {params.eps:g}", hint="a positive number")
        if not params.axes:
            raise Unsupported("there is nothing to take the mean of", hint="an axis")
        if (count := prod(shape[axis] for axis in params.axes)) > COUNT_MAX:
            raise Unsupported(f"{count} elements with one mean", hint=f"at most {COUNT_MAX}")
        return [shape]

    def misfit(self, params: NormalizeParams, inputs: Sequence[Value]) -> str:
        shapes = [x.shape for x in inputs]
        fits = len(shapes) == 3 and shapes[1] == shapes[2] and len(shapes[0]) == len(shapes[1])
        fits = fits and all(n in (1, size) for n, size in zip(shapes[1], shapes[0], strict=True))
        return computed(inputs) if fits else unfit(self.name, inputs)

    def rules(self, params: NormalizeParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        p, (x, scale, bias), y = params, inputs, quant_of(output)
        yield f"axes {p.axes}", p.axes == tuple(sorted({axis for axis in p.axes if 0 <= axis < len(x.shape)}))
        yield f"epsilon {p.epsilon} * 2^{p.epsilon_shift}", p.epsilon >= 1 and 0 <= p.epsilon_shift <= MANTISSA_BITS
        for value in (scale, bias):
            quant = quant_of(value)
            yield "scale or bias is no int32 with one exponent", (quant.bits, len(quant.exponents)) == (32, 1)
        yield "the bias has another grid than the output", quant_of(bias).exponent == y.exponent - FRACTION_BITS
        yield "scale is no constant", scale.is_const
        most = (1 << (WEIGHT_BITS - 1)) - 1
        yield within(scale.data, -most, most)

    def work(self, params: NormalizeParams, inputs: Sequence[Value], output: Value) -> int:
        x = inputs[0]
        return x.size * 16 + x.size // prod(x.shape[axis] for axis in params.axes) * 128

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        """eps in the units of the variance is below the largest variance of the type; scale has a legal shift, and
        neither scale nor bias saturates, however fine the grid of y."""
        x, y, scale = (graph[name].quant for name in (node.inputs[0], node.outputs[0], node.inputs[1]))
        assert x is not None
        assert y is not None
        if scale is None:
            least = math.ceil(math.log2(node.params.eps) / 2) + 1 - x.bits
            yield Limit(x.exponent, least, math.inf, below=node.inputs[:1])
            wide = zip(node.inputs[1:], (WEIGHT_BITS - 1 + NORMALIZED_BITS, 31), strict=True)
            least = FRACTION_BITS + max(_magnitude(graph[name].data) - bits for name, bits in wide)
            yield Limit(y.exponent, least, math.inf, below=node.outputs)
        else:
            yield Limit(y.exponent + NORMALIZED_BITS - FRACTION_BITS - scale.exponent, 0, SHIFT_MAX)

    def keeps_batch(self, params: NormalizeParams, inputs: Sequence[Value], output: Value) -> bool:
        return 0 not in params.axes

    def renamed(self, params: NormalizeParams, axes: Sequence[int]) -> NormalizeParams:
        return replace(params, axes=tuple(sorted(axes[axis] for axis in params.axes)))

    def part(
        self, params: NormalizeParams, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[NormalizeParams, list[int | None]] | None:
        if axis in params.axes:
            return None
        return params, [axis if x.shape[axis : axis + 1] == output.shape[axis : axis + 1] else None for x in inputs]

    def tensor_factors(self, params: NormalizeParams, inputs: Sequence[Value], output: Value) -> Factors:
        return Factors.ANY

    def takes_up(self, params: NormalizeParams, inputs: Sequence[Value], output: Value) -> tuple[bool, bool]:
        return False, inputs[1].shape[-1:] == output.shape[-1:]

    def with_factors(self, node: Node, graph: Graph, x: np.ndarray, y: np.ndarray) -> tuple[Node, list[Value]]:
        """Has those of the result in scale and bias, that of the operand in eps."""
        ins = graph.ins(node)
        y = y if ins[1].shape[-1:] == y.shape else y[:1]
        constants = {i: (role, ins[i].data * y) for i, role in ((1, "scale"), (2, "bias"))}
        node, values = with_constants(node, graph, constants)
        return replace(node, params=replace(node.params, eps=node.params.eps * float(x[0]) ** 2)), values

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """Scale in 24 bits, bias 8 bits below the grid of y, eps as n^2 * eps * 2^(f - 2*e_x) with 31 bits.

        Before it saturates, a result is off by at most

            0.51 + max|scale| * (|z| + 1) * 2^-22 / 2^e_y    steps of y

        for a normalized element z of exact arithmetic with that eps: half a step by the last rounding, 2^-8 by the bias
        and the step before; the reciprocal square root is good to 2^-28, z has 22 bits after the point, scale 23.
        """
        x, y = quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]])
        scale, bias = (graph[name].data for name in node.inputs[1:])
        assert scale is not None
        assert bias is not None
        count = prod(graph[node.inputs[0]].shape[axis] for axis in node.params.axes)
        eps = math.ldexp(count * count * node.params.eps, spare_bits(count, x.bits) - 2 * x.exponent)
        mantissa, exponent = math.frexp(eps)
        up = max(0, min(exponent, 2 * MANTISSA_BITS) - MANTISSA_BITS)
        epsilon = min(max(1, round(math.ldexp(mantissa, exponent - up))), 2**MANTISSA_BITS - 1)
        params = replace(node.params, epsilon=epsilon, epsilon_shift=up)
        top = y.exponent - FRACTION_BITS + NORMALIZED_BITS
        wanted = _magnitude(scale) - (WEIGHT_BITS - 1)
        least = 1 - (1 << (WEIGHT_BITS - 1))
        grids = (
            Quant(32, (min(max(wanted, top - SHIFT_MAX, EXPONENT_MIN), top),), least, -least),
            Quant(32, (y.exponent - FRACTION_BITS,), INT_MIN[32], INT_MAX[32]),
        )
        constants = []
        for role, data, how in zip(("scale", "bias"), (scale, bias), grids, strict=True):
            q = quantize(data, how.exponent, how.lo, how.hi).astype(how.dtype)
            constants.append(Value(f"{node.outputs[0]}.{role}", data.shape, how.dtype, q, quant=how))
        return replace(node, inputs=(node.inputs[0], *(value.name for value in constants)), params=params), constants

    def restored(self, node: Node, graph: Graph) -> Node:
        p, x = node.params, graph[node.inputs[0]]
        count = prod(x.shape[axis] for axis in p.axes)
        quant = quant_of(x)
        eps = math.ldexp(p.epsilon, p.epsilon_shift + 2 * quant.exponent - spare_bits(count, quant.bits))
        return replace(node, params=replace(p, eps=eps / count**2))

    def reference(
        self, params: NormalizeParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """For each group of n: S = sum q, Q = sum q^2, V = (n*Q - S^2) * 2^f + epsilon * 2^epsilon_shift with
        f = 2 * (32 - bits of x - ceil(log2 n)); V = v * 2^(2t) with 2^30 <= v < 2^32, rounded down;
        R = floor(2^60 / floor(sqrt(v * 2^30))); z = rsh((n*q - S) * R, 23 + t - f/2);
        y = sat(rsh(rsh(z * w, s) + b, 8)), s = e_y + 14 - e_w in [0, 47].
        """
        x, w, b = inputs
        quant = quant_of(outputs[0])
        q = x.q.astype(np.int64)
        n = prod(q.shape[axis] for axis in params.axes)
        total = q.sum(axis=params.axes, keepdims=True)
        spread = n * (q * q).sum(axis=params.axes, keepdims=True) - total * total
        f = spare_bits(n, x.quant.bits)
        v, t = _mantissa((spread << f) + (params.epsilon << params.epsilon_shift))
        inverse = (1 << 60) // _square_root(v << 30)
        z = rsh((n * q - total) * inverse, 45 - NORMALIZED_BITS + t - f // 2)
        shift = quant.exponent - FRACTION_BITS + NORMALIZED_BITS - w.quant.exponent
        assert 0 <= shift <= SHIFT_MAX
        return [sat(rsh(rsh(z * w.q, shift) + b.q, FRACTION_BITS), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        for (x, axes, scale), bits in product(_SHAPES, product(WIDTHS, repeat=2)):
            yield _case(self, f"{by(x)}/{by(axes)}/{by(bits)}", x, axes, scale, bits)
        for (x, axes, scale), bits, fill in product(_SHAPES[1:3], product(WIDTHS, repeat=2), FILLS[1:]):
            yield _case(self, f"{by(x)}/{by(axes)}/{by(bits)}/{fill}", x, axes, scale, bits, fill=fill)
        for width, e_x, eps in product(WIDTHS, (-20, -7, 6), (1e-18, 1e-5, 1e-2)):
            name = f"exponents/int{width}/{e_x}/{eps}"
            yield _case(self, name, (3, 50), (1,), (1, 50), (width, width), e_x=e_x, eps=eps)
        for width, fill in product(WIDTHS, FILLS):
            yield _case(self, f"long/int{width}/{fill}", (2, COUNT_MAX), (1,), (1, 1), (width, 16), e_y=-7, fill=fill)
        for width in WIDTHS:  # V of int16 is below 2^30
            name = f"nearly constant/int{width}"
            yield _case(self, name, (2, 50), (1,), (1, 50), (width, width), fill="step", e_x=6, eps=1e-18)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        x, w, b = node.inputs
        axes = to.const(node.params.axes)
        wide = to.node("Cast", (x,), to=11)  # double: the mean of equal elements is that element
        d = to.node("Cast", (to.node("Sub", (wide, to.node("ReduceMean", (wide, axes)))),), to=1)
        variance = to.node("ReduceMean", (to.node("Mul", (d, d)), axes))
        deviation = to.node("Sqrt", (to.node("Add", (variance, to.const(np.float32(node.params.eps)))),))
        to.node("Add", (to.node("Mul", (to.node("Div", (d, deviation)), w)), b), node.outputs[0])


def spare_bits(count: int, bits: int) -> int:
    """Number of bits by which the spread of a group may be shifted up: even, so that half of it is what the root
    gains."""
    return 2 * (32 - bits - (count - 1).bit_length())


def _mantissa(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """v, t with a = v * 2^(2t), 2^30 <= v < 2^32, rounded down; 0 < a < 2^63."""
    powers = 4 ** np.arange(32, dtype=np.int64)
    t = np.searchsorted(powers, a, side="right") - 16
    return (a >> 2 * np.maximum(t, 0)) << 2 * np.maximum(-t, 0), t


def _square_root(a: np.ndarray) -> np.ndarray:
    """floor(sqrt(a)) of integers below 2^62."""
    root = np.sqrt(a.astype(np.float64)).astype(np.int64)
    root -= root * root > a
    return root + ((root + 1) ** 2 <= a)


# x, axes, shape of scale and bias
_SHAPES = (
    ((1, 64), (1,), (1, 64)),
    ((2, 5, 7), (2,), (1, 1, 7)),
    ((1, 4, 3, 6), (1, 2), (1, 1, 1, 6)),
    ((1, 3, 4, 5), (2, 3), (1, 3, 1, 1)),
    ((1, 4, 2, 3, 5), (1, 2, 4), (1, 1, 1, 3, 5)),
    ((2, 2, 3, 2, 2, 3), (1, 3, 5), (1, 2, 3, 1, 2, 1)),
    ((3, 1), (1,), (1, 1)),
    ((2, 2), (1,), (1, 2)),
    ((9,), (0,), (9,)),
)


def _case(
    op: Op,
    name: str,
    x: tuple[int, ...],
    axes: tuple[int, ...],
    scale: tuple[int, ...],
    bits: tuple[int, ...],
    *,
    fill: str = "random",
    e_x: int = -5,
    e_y: int | None = None,
    eps: float = 1e-5,
) -> Case:
    """bits of x and y."""
    noise = np.random.default_rng(len(name))
    y = grid(bits[1], 4 - bits[1] if e_y is None else e_y)
    constants = [Operand(noise.normal(mean, 1.0, scale), grid(32, 0), const=True) for mean in (1.0, 0.0)]
    operands = [fed(name, x, bits[0], e_x, fill), *constants]
    return single(op, name, NormalizeParams(axes, eps=eps), operands, y, quantize=True)


def _lower_groups(node: OnnxNode, to: GraphBuilder, x: str) -> None:
    """Groups are an axis of their own; before opset 21 scale and bias have a number per group."""
    shape, groups = to[x].shape, node.integer("num_groups", 1)
    if groups < 1 or shape[1] % groups:
        raise Unsupported(f"{shape[1]} channels do not divide into {groups} groups")
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    constants = []
    for index, role in ((1, "scale"), (2, "bias")):
        data = to.array(node.input(index), role)
        per_channel = np.repeat(data, split[2]) if node.opset < 21 else data
        along = (1, *split[1:3], *(1 for _ in shape[2:]))
        constants.append(to.const(per_channel.reshape(along), node.input(index)))
    params = NormalizeParams(tuple(range(2, len(split))), eps=node.number("epsilon", 1e-5))
    y = to.emit("normalize", (to.reshape(x, split), *constants), params)
    to.reshape(y, shape, node.outputs[0])


def _magnitude(constant: np.ndarray | None) -> int:
    """log2 of the power of two above the largest absolute value; 0 of zeros."""
    assert constant is not None
    return math.frexp(float(np.abs(constant).max(initial=0.0)))[1]
