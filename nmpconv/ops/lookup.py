"""A pointwise function as a table: 256 entries for int8, interpolated for int16."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MIN, INT_MAX, INT_MIN, quantize, rsh, sat
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.add import AddParams
from nmpconv.ops.common.aligned import AlignedParams
from nmpconv.ops.common.case import WIDTHS, Operand, fed, grid, single
from nmpconv.ops.common.constant import with_constant
from nmpconv.ops.common.function import COMBINE, FUNCTIONS, Step, evaluate
from nmpconv.ops.common.rules import vector, within
from nmpconv.ops.common.traits import ANY, Bounds, Factors, Limit, Origins, Rule
from nmpconv.ops.mul import MulParams
from nmpconv.ops.op import Case, Op, QArray, quant_of
from nmpconv.ops.requantize import RequantizeParams

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

_NONE = ("", 0.0)
# ONNX op: function, attribute and default of alpha, the same of beta.
_OF_ONNX = {
    "Sigmoid": ("sigmoid", _NONE, _NONE),
    "Tanh": ("tanh", _NONE, _NONE),
    "HardSigmoid": ("hard_sigmoid", ("alpha", 0.2), ("beta", 0.5)),
    "HardSwish": ("hard_swish", _NONE, _NONE),
    "LeakyRelu": ("leaky_relu", ("alpha", 0.01), _NONE),
    "Elu": ("elu", ("alpha", 1.0), _NONE),
    "Selu": ("selu", ("alpha", 1.6732632423543772), ("gamma", 1.0507009873554805)),
    "Gelu": ("gelu", _NONE, _NONE),
    "Mish": ("mish", _NONE, _NONE),
    "Softplus": ("softplus", _NONE, _NONE),
    "Softsign": ("softsign", _NONE, _NONE),
    "Erf": ("erf", _NONE, _NONE),
    "Exp": ("exp", _NONE, _NONE),
    "Abs": ("abs", _NONE, _NONE),
    "Sqrt": ("sqrt", _NONE, _NONE),
    "Log": ("log", _NONE, _NONE),
    "Reciprocal": ("reciprocal", _NONE, _NONE),
    "Sin": ("sin", _NONE, _NONE),
    "Cos": ("cos", _NONE, _NONE),
    "Tan": ("tan", _NONE, _NONE),
    "Asin": ("asin", _NONE, _NONE),
    "Acos": ("acos", _NONE, _NONE),
    "Atan": ("atan", _NONE, _NONE),
    "Sinh": ("sinh", _NONE, _NONE),
    "Cosh": ("cosh", _NONE, _NONE),
    "Asinh": ("asinh", _NONE, _NONE),
    "Acosh": ("acosh", _NONE, _NONE),
    "Atanh": ("atanh", _NONE, _NONE),
    "Celu": ("celu", ("alpha", 1.0), _NONE),
    "Ceil": ("ceil", _NONE, _NONE),
    "Floor": ("floor", _NONE, _NONE),
    "Round": ("round", _NONE, _NONE),
}

_OF_COMBINE = {"add": "Add", "sub": "Sub", "mul": "Mul", "divide": "Div", "minimum": "Min", "maximum": "Max"}
UNIT_RANGE = ("sigmoid", "hard_sigmoid")

# Where the bounds of a function are taken.
FAR = float(np.finfo(np.float32).max)  # stands for infinity; what a function makes of it is infinite from HUGE on
HUGE = 1e3
NEAR = np.linspace(-16.0, 16.0, 4097)
BOUNDS_KEPT = 4096  # of functions and ranges: a graph and its copies have many in common
PERIODIC = {"sin": (-1.0, 1.0), "cos": (-1.0, 1.0), "tan": ANY}  # bounds of functions that have extremes everywhere

COARSEST, FINEST = 9, 12  # log2 of the number of pieces of an int16 table
EXACT = 16  # that of one with a sample at every integer
PIECE_MAX = 0.25  # steps of the output that a piece may be off
TABLE_BITS = 8  # bits that an int16 table has below the grid of the output


@dataclass(frozen=True)
class LookupParams:
    """after * function(before * (x + origin_x)) - origin_y.

    Composed of steps, the last one is the function (`function.evaluate`). coarsest, finest: log2 of the fewest and the
    most pieces that an int16 table may have.
    """

    function: str = ""
    alpha: float = 0.0
    beta: float = 0.0
    before: float = 1.0
    after: float = 1.0
    composed: tuple[Step, ...] = ()
    origin_x: float = 0.0
    origin_y: float = 0.0
    coarsest: int = COARSEST
    finest: int = FINEST

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """In float64."""
        x = self.before * (x + self.origin_x)
        y = evaluate(self.composed, x)[-1] if self.composed else FUNCTIONS[self.function](x, self.alpha, self.beta)
        return np.asarray(self.after * y - self.origin_y)

    def steps(self, x: str | int | float = "x", start: int = 0) -> list[Step]:
        """Results of the steps at the operand x, one by one, as of `function.evaluate`, where the first step has the
        index ``start``; without origins."""
        steps: list[Step] = []
        if self.before != 1:
            steps.append(("mul", x, float(self.before)))
            x = start
        if self.composed:
            first = start + len(steps)
            for name, *operands in self.composed:
                moved = (o + first if isinstance(o, int) else x if o == "x" else o for o in operands)
                steps.append((name, *moved))
        else:
            numbers = (float(self.alpha), float(self.beta)) if self.beta else (float(self.alpha),) if self.alpha else ()
            steps.append((self.function, x, *numbers))
        if self.after != 1:
            steps.append(("mul", start + len(steps) - 1, float(self.after)))
        return steps

    @property
    def last(self) -> str:
        """The name of what is computed last."""
        return self.composed[-1][0] if self.composed else self.function


class Lookup(Op):
    name = "lookup"
    Params = LookupParams
    float_only = (
        *("function", "alpha", "beta", "before", "after", "composed", "origin_x", "origin_y"),
        *("coarsest", "finest"),
    )
    in_place = True
    constants = (1, 1)
    onnx = (*_OF_ONNX, "PRelu", "Pow", "Mod")
    elementwise = True

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """PRelu with one slope is a LeakyRelu; the tanh form of Gelu is a function of its own."""
        x = to.value(node.input(0))
        if node.op_type in ("Ceil", "Floor", "Round") and to.is_whole(x):
            return to.rename(node.outputs[0], x)
        if node.op_type == "Pow":
            return _lower_power(node, to, x)
        if node.op_type == "Mod":
            return _lower_mod(node, to, x)
        if node.op_type == "PRelu":
            slope = to.array(node.input(1), "slope")
            if slope.size != 1:
                return _lower_slopes(node, to, x, slope)
            function, alpha, beta = "leaky_relu", float(slope.item()), 0.0
        else:
            function, (first, alpha), (second, beta) = _OF_ONNX[node.op_type]
            alpha, beta = node.number(first, alpha), node.number(second, beta)
            form = node.text("approximate", "none")
            if form not in ("none", "tanh"):
                raise Invalid(f"approximate {form!r}", hint="none or tanh")
            if form == "tanh":
                function = "gelu_tanh"
        to.emit("lookup", (x,), LookupParams(function, alpha, beta), node.outputs[0])

    def infer(self, params: LookupParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [inputs[0].shape]

    def rules(self, params: LookupParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        (x, table), y = inputs, quant_of(output)
        if x.dtype == "int8":
            yield vector(table, 256, y.bits, y.exponent)
            yield within(table.data, y.lo, y.hi)
        else:
            yield f"a table of {table.size}", table.size in {2**bits + 1 for bits in range(COARSEST, EXACT + 1)}
            yield vector(table, table.size, 32, y.exponent - TABLE_BITS)

    def own_exponent(self, node: Node, bits: int) -> int | None:
        return 1 - bits if node.params.last in UNIT_RANGE else None

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        """Those of the function at many points: the others than PERIODIC have no extremes far from 0."""
        if (ends := PERIODIC.get(node.params.last)) and node.params == LookupParams(node.params.last):
            return ends
        return _bounds(node.params, *inputs[0])

    def origins(self, params: LookupParams, inputs: Sequence[Value], output: Value) -> Origins:
        return Origins.ANY

    def tensor_factors(self, params: LookupParams, inputs: Sequence[Value], output: Value) -> Factors:
        """Results with a grid of their own have none."""
        return Factors.OPERAND if self.in_head(params) else Factors.ANY

    def with_factors(self, node: Node, graph: Graph, x: np.ndarray, y: np.ndarray) -> tuple[Node, list[Value]]:
        p = node.params
        return replace(node, params=replace(p, before=p.before / float(x[0]), after=p.after * float(y[0]))), []

    def with_origins(self, node: Node, graph: Graph, x: float, y: float) -> tuple[Node, list[Value]]:
        """The table takes up both."""
        p = node.params
        return replace(node, params=replace(p, origin_x=p.origin_x + x, origin_y=p.origin_y + y)), []

    def in_head(self, params: LookupParams) -> bool:
        return params.last in UNIT_RANGE

    def squares(self, node: Node, inputs: Sequence[bool]) -> bool:
        return inputs[0]

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        """The samples of an int16 table have a grid below that of the output."""
        if quant_of(graph[node.inputs[0]]).bits == 16:
            y = quant_of(graph[node.outputs[0]]).exponent
            yield Limit(y, EXPONENT_MIN + TABLE_BITS, math.inf, below=node.outputs)

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """The table: 256 results for int8; for int16, 513 or more samples with 8 bits below the output's grid.

        Between two samples, d apart, the function is a line: off by at most max|f''| * d^2 / 8, plus half a step of
        the output and 2^-9 of a step for the samples' own rounding. There are as many samples as it takes to keep the
        pieces within PIECE_MAX steps of the output, but at most 2^finest + 1.
        """
        x, y = quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]])
        points = np.arange(-128, 128) if x.bits == 8 else np.arange(-32768, 32769)
        exact = node.params(np.ldexp(points.astype(np.float64), x.exponent))
        if x.bits == 16:
            exact = _samples(exact, y, node.params)
        if x.bits == 8:
            grid = Quant(y.bits, (y.exponent,), y.lo, y.hi)
        else:
            grid = Quant(32, (y.exponent - TABLE_BITS,), INT_MIN[32], INT_MAX[32])
        return with_constant(node, "table", quantize(exact, grid.exponent, grid.lo, grid.hi), grid)

    def reference(self, params: LookupParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """int8: y = t[x + 128]. int16, t of 2^(16-k) + 1: i = (x + 32768) >> k, f = (x + 32768) & (2^k - 1),
        y = sat(rsh(t[i] * 2^k + (t[i+1] - t[i]) * f, k + 8)).
        """
        x, table = inputs
        quant = quant_of(outputs[0])
        if x.quant.bits == 8:
            return [table.q[x.q.astype(np.int64) + 128]]
        t = table.q.astype(np.int64)
        position = x.q.astype(np.int64) + 32768
        k = 17 - len(t).bit_length()
        i, f = position >> k, position & ((1 << k) - 1)
        between = (t[i] << k) + (t[i + 1] - t[i]) * f
        return [sat(rsh(between, k + TABLE_BITS), quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        """Every integer of the type through every function."""
        for function, source, target in product(FUNCTIONS, WIDTHS, WIDTHS):
            q = np.arange(INT_MIN[source], INT_MAX[source] + 1).reshape(1, 16, -1).astype(f"int{source}")
            x = Operand(q, grid(source, 4 - source))
            params = LookupParams(function, 0.25, 0.5)
            yield single(self, f"{function}/{source}to{target}", params, [x], grid(target, 4 - target), quantize=True)
        steps = (("mul", "x", "x"), ("tanh", 0), ("sub", 1.0, 1), ("leaky_relu", 2, 0.1), ("mul", 3, "x"))
        for source, target in product(WIDTHS, WIDTHS):
            x = fed("composed", (1, 999), source, 4 - source)
            composed = LookupParams(composed=(*steps, ("clip", 4, -0.25, math.inf), ("maximum", 5, -0.125)))
            yield single(self, f"composed/{source}to{target}", composed, [x], grid(target, 2 - target), quantize=True)
        steep = LookupParams("leaky_relu", -3000.0, 0.0)
        for e in (-12, 5):
            yield single(self, f"steep/{e}", steep, [fed("steep", (1, 999), 16, e)], grid(16, -6), quantize=True)
        for finest in range(FINEST + 1, EXACT + 1):
            x, params = fed("bent", (1, 1 << 15), 16, 0), LookupParams("fmod", 1.5, finest=finest)
            yield single(self, f"fine/{finest}", params, [x], grid(16, -13), quantize=True)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        """The function with the steps before and after it that do something."""
        p, x, y = node.params, node.inputs[0], node.outputs[0]
        for kind, number, idle in (("Add", p.origin_x, 0.0), ("Mul", p.before, 1.0)):
            if number != idle:
                x = to.node(kind, (x, to.const(np.float32(number))))
        then = [(k, n) for k, n, idle in (("Mul", p.after, 1.0), ("Sub", p.origin_y, 0.0)) if n != idle]
        x = _export(p, x, "" if then else y, to)
        for i, (kind, number) in enumerate(then, start=1):
            x = to.node(kind, (x, to.const(np.float32(number))), y if i == len(then) else "")


def _export(p: LookupParams, x: str, y: str, to: OnnxBuilder) -> str:
    """The function itself, or what it is composed of."""
    if not p.composed:
        return _export_function(p.function, p.alpha, p.beta, x, y, to)
    outputs: list[str] = []

    def name(operand: str | int | float) -> str:
        if isinstance(operand, str):
            return x
        return outputs[operand] if isinstance(operand, int) else to.const(np.float32(operand))

    for i, (kind, first, *rest) in enumerate(p.composed):
        out = y if i == len(p.composed) - 1 else ""
        if kind in COMBINE:
            outputs.append(to.node(_OF_COMBINE[kind], (name(first), name(rest[0])), out))
        elif kind == "clip":
            outputs.append(to.node("Clip", (name(first), *(name(o) if math.isfinite(o) else "" for o in rest)), out))
        else:
            alpha, beta = (*rest, 0.0, 0.0)[:2]
            outputs.append(_export_function(kind, alpha, beta, name(first), out, to))
    return outputs[-1]


def _export_function(function: str, alpha: float, beta: float, x: str, y: str, to: OnnxBuilder) -> str:
    if function == "silu":
        return to.node("Mul", (x, to.node("Sigmoid", (x,))), y)
    if function == "gelu_tanh":
        return to.node("Gelu", (x,), y, approximate="tanh")
    if function == "fmod":
        return to.node("Mod", (x, to.const(np.float32(alpha))), y, fmod=1)
    if function == "power":
        return to.node("Pow", (x, to.const(np.float32(alpha))), y)
    kind = next(kind for kind, (name, *_) in _OF_ONNX.items() if name == function)
    _, (first, _), (second, _) = _OF_ONNX[kind]
    attributes = {name: value for name, value in ((first, alpha), (second, beta)) if name}
    return to.node(kind, (x,), y, **attributes)


def lines(exact: np.ndarray, bits: int) -> np.ndarray:
    """A function known at all 65537 points by 2^bits straight lines."""
    step = 1 << (EXACT - bits)
    places = np.arange(len(exact))
    return np.interp(places, places[::step], exact[::step])


def _samples(exact: np.ndarray, y: Quant, params: LookupParams) -> np.ndarray:
    """The samples of an int16 table, from the function at all 65537 points."""
    low, high = np.ldexp(float(y.lo), y.exponent), np.ldexp(float(y.hi), y.exponent)
    for bits in range(params.coarsest, params.finest + 1):
        off = np.clip(lines(exact, bits), low, high) - np.clip(exact, low, high)
        if np.abs(off).max() <= np.ldexp(PIECE_MAX, y.exponent):
            break
    return exact[:: 1 << (EXACT - bits)]


def _lower_slopes(node: OnnxNode, to: GraphBuilder, x: str, slope: np.ndarray) -> None:
    """max(x, slope * x) where no slope is above 1, else x + (slope - 1) * min(x, 0)."""
    shape = to[x].shape
    try:
        fits = np.broadcast_shapes(shape, slope.shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise Unsupported(f"slopes of shape {list(slope.shape)} do not broadcast to {list(shape)}", hint="[C,1,1]")
    if (slope <= 1).all():
        product = to.emit("mul", to.aligned(x, to.const(slope, node.input(1))), MulParams())
        to.emit("maximum", (x, product), AlignedParams(), node.outputs[0])
    else:
        negative = to.emit("requantize", (x,), RequantizeParams(), clamp=(-math.inf, 0.0))
        product = to.emit("mul", to.aligned(negative, to.const(slope - 1, node.input(1))), MulParams())
        to.emit("add", (x, product), AddParams(), node.outputs[0])


def _lower_power(node: OnnxNode, to: GraphBuilder, x: str) -> None:
    """A constant exponent; a square is a product."""
    exponent = to.array(node.input(1), "exponent")
    if exponent.size != 1:
        raise Unsupported(f"{exponent.size} exponents", hint="one exponent")
    power = float(exponent.item())
    if not math.isfinite(power):
        raise Invalid(f"its exponent is {power}", hint="a finite number")
    if power == 2.0:
        to.emit("mul", (x, x), MulParams(), node.outputs[0])
    else:
        to.emit("lookup", (x,), LookupParams("power", power, 0.0), node.outputs[0])


def _lower_mod(node: OnnxNode, to: GraphBuilder, x: str) -> None:
    """Lowers the remainder of a division by one constant number, with the sign of x."""
    divisor = to.array(node.input(1), "divisor")
    if divisor.size != 1 or not divisor.item() or not math.isfinite(divisor.item()):
        raise Unsupported("a divisor that is not one number other than 0", hint="one number")
    to.emit("lookup", (x,), LookupParams("fmod", float(divisor.item())), node.outputs[0])


@lru_cache(maxsize=BOUNDS_KEPT)
def _bounds(function: LookupParams, low: float, high: float) -> Bounds:
    """Bounds at many points from low to high, which may be infinite."""
    first, last = (min(max(end, -FAR), FAR) for end in (low, high))
    y = function(np.concatenate([np.linspace(first, last, NEAR.size), np.clip(NEAR, first, last)]))
    known = math.isfinite(low) and math.isfinite(high)
    least, most = (
        end if known or abs(end) < HUGE else math.copysign(math.inf, end) for end in (float(y.min()), float(y.max()))
    )
    return least, most
