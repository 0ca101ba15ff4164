"""Operators on single elements, on pairs of them, and along axes: activations, sums, comparisons, reductions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.onnx_writer import OperatorCall
from nmpconv.frontend.tflite.rows import Write, chain, passed, same

LAST = np.array([-1], np.int64)  # axis
_TINY = 1e-30  # a divisor of 0
L2_LEAST = 1e-6  # of a length that is divided by; source: LiteRT, reference L2Normalization


def _clamped(kind: str) -> Write:
    def write(call: OperatorCall) -> str:
        return call.clamp(call.input(0), kind)

    return write


def leaky_relu(call: OperatorCall) -> str:
    return call("LeakyRelu", call.input(0), alpha=float(call.options.get("alpha", 0.0)))


def gelu(call: OperatorCall) -> str:
    return call("Gelu", call.input(0), approximate="tanh" if call.options.get("approximate") else "none")


def softmax(call: OperatorCall) -> str:
    x, beta = call.input(0), float(call.options.get("beta", 1.0))
    return call("Softmax", x if beta == 1.0 else call("Mul", x, beta), axis=-1)


def square(call: OperatorCall) -> str:
    return call("Mul", call.input(0), call.input(0))


def squared_difference(call: OperatorCall) -> str:
    difference = call("Sub", call.input(0), call.input(1))
    return call("Mul", difference, difference)


def not_equal(call: OperatorCall) -> str:
    return call("Not", call("Equal", call.input(0), call.input(1)))


def floor_div(call: OperatorCall) -> str:
    """Floor of the quotient; ONNX's Div of integers rounds to 0."""
    if call.tensor(0).type != "float32":
        return call.cast(
            call("Floor", call("Div", *(call.cast(x, "float32") for x in call.inputs()))), call.tensor(0).type
        )
    return call("Floor", call("Div", call.input(0), call.input(1)))


def floor_mod(call: OperatorCall) -> str:
    """Remainder with the sign of the divisor."""
    if call.tensor(0).type != "float32":
        return call("Mod", call.input(0), call.input(1))
    whole = call("Floor", call("Div", call.input(0), call.input(1)))
    return call("Sub", call.input(0), call("Mul", whole, call.input(1)))


def cast(call: OperatorCall) -> str:
    """Takes the real part of complex numbers, as LiteRT does."""
    x = call.input(0)
    return call.cast(call("Gather", x, np.array(0, np.int64), axis=-1) if call.is_complex(0) else x, call.output().type)


def zeros_like(call: OperatorCall) -> str:
    return call("Mul", call.input(0), call.constant(np.zeros((), call.tensor(0).type)))


def add_n(call: OperatorCall) -> str:
    return call("Sum", *call.inputs())


def select(call: OperatorCall) -> str:
    """SELECT takes one condition for each row, too."""
    condition = call.input(0)
    ranks = [len(call.shape(place)) for place in range(3)]
    if call.operator.kind == "SELECT" and ranks[0] == 1 and ranks[1] > 1:
        condition = call("Reshape", condition, np.array([-1, *(1,) * (ranks[1] - 1)], np.int64))
    return call("Where", condition, call.input(1), call.input(2))


def fake_quant(call: OperatorCall) -> str:
    """Clip to a range that is moved so that 0 is on the grid. Source: LiteRT, NudgeQuantizationRange."""
    bits, narrow = int(call.options.get("num_bits", 8)), bool(call.options.get("narrow_range"))
    low, high = (float(call.options.get(name, 0.0)) for name in ("min", "max"))
    first, last = (1.0 if narrow else 0.0), 2.0**bits - 1
    if not 2 <= bits <= 16 or not low <= 0 <= high or not low < high:
        raise ValueError(f"a range from {low:g} to {high:g} in {bits} bits")
    scale = (high - low) / (last - first)
    zero = np.clip(np.floor(first - low / scale + 0.5), first, last)
    return call("Clip", call.input(0), float((first - zero) * scale), float((last - zero) * scale))


def _reduced(kind: str) -> Write:
    def write(call: OperatorCall) -> str:
        axes = np.array(call.integers(1, "axes"), np.int64)
        keep = int(call.options.get("keep_dims", 0))
        if not len(axes) and len(call.shape(0)):
            raise Unsupported("no axes", hint="at least one")
        return call(kind, call.input(0), axes, keepdims=keep)

    return write


def _logical(kind: str) -> Write:
    """Reduction of booleans, by that of the numbers 0 and 1."""

    def write(call: OperatorCall) -> str:
        axes, keep = np.array(call.integers(1, "axes"), np.int64), int(call.options.get("keep_dims", 0))
        if not len(axes) and len(call.shape(0)):
            raise Unsupported("no axes", hint="at least one")
        return call.cast(call(kind, call.cast(call.input(0), "float32"), axes, keepdims=keep), "bool")

    return write


def atan2(call: OperatorCall) -> str:
    """Angle of (x, y), from the quotient of the shorter leg by the longer one; 0 for (0, 0)."""
    y, x = call.input(0), call.input(1)
    legs = call("Abs", y), call("Abs", x)
    angle = call("Atan", call("Div", call("Min", *legs), call("Max", *legs, _TINY)))
    angle = call("Where", call("Greater", *legs), call("Sub", np.pi / 2, angle), angle)
    angle = call("Where", call("Less", x, 0.0), call("Sub", np.pi, angle), angle)
    return call("Where", call("Less", y, 0.0), call("Neg", angle), angle)


def bucketize(call: OperatorCall) -> str:
    """Number of boundaries that are not above an element."""
    x = call.cast(call.input(0), "float32")
    above = call("GreaterOrEqual", call("Unsqueeze", x, LAST), call.options["boundaries"].astype(np.float32))
    return call.cast(call("ReduceSum", call.cast(above, "float32"), LAST, keepdims=0), call.output().type)


def _index(kind: str) -> Write:
    """Index of the largest or smallest element along an axis."""

    def write(call: OperatorCall) -> str:
        [axis] = call.integers(1, "axis")
        return _as_declared(call, call(kind, call.input(0), axis=axis, keepdims=0))

    return write


def _as_declared(call: OperatorCall, name: str, place: int = 0) -> str:
    """ONNX's indices are int64."""
    kind = call.output(place).type
    return name if kind == "int64" else call.cast(name, kind)


def top_k(call: OperatorCall) -> list[str]:
    k = np.array(call.integers(1, "count"), np.int64).reshape(1)
    values, indices = call.several("TopK", (call.input(0), k), 2, axis=-1)
    return [values, _as_declared(call, indices, 1)]


def l2_normalization(call: OperatorCall) -> str:
    """Quotient by the length along the last axis."""
    x = call.input(0)
    length = call("ReduceL2", x, LAST, keepdims=1)
    return call("Div", x, call("Max", length, L2_LEAST))


def cumsum(call: OperatorCall) -> str:
    flags = {name: int(call.options.get(name, 0)) for name in ("exclusive", "reverse")}
    [axis] = call.integers(1, "axis")
    return call("CumSum", call.input(0), np.array(axis, np.int64), **flags)


ROWS: Mapping[str, Write] = {
    "ABS": same("Abs"),
    "ADD": same("Add", 2),
    "ADD_N": add_n,
    "ARG_MAX": _index("ArgMax"),
    "ARG_MIN": _index("ArgMin"),
    "ATAN2": atan2,
    "BUCKETIZE": bucketize,
    "CAST": cast,
    "CEIL": same("Ceil"),
    "COS": same("Cos"),
    "CUMSUM": cumsum,
    "DENSIFY": passed,
    "DEQUANTIZE": passed,
    "DIV": same("Div", 2),
    "ELU": same("Elu"),
    "EQUAL": same("Equal", 2),
    "EXP": same("Exp"),
    "FAKE_QUANT": fake_quant,
    "FLOOR": same("Floor"),
    "FLOOR_DIV": floor_div,
    "FLOOR_MOD": floor_mod,
    "GELU": gelu,
    "GREATER": same("Greater", 2),
    "GREATER_EQUAL": same("GreaterOrEqual", 2),
    "HARD_SWISH": same("HardSwish"),
    "L2_NORMALIZATION": l2_normalization,
    "LEAKY_RELU": leaky_relu,
    "LESS": same("Less", 2),
    "LESS_EQUAL": same("LessOrEqual", 2),
    "LOG": same("Log"),
    "LOGICAL_AND": same("And", 2),
    "LOGICAL_NOT": same("Not"),
    "LOGICAL_OR": same("Or", 2),
    "LOGISTIC": same("Sigmoid"),
    "LOG_SOFTMAX": same("LogSoftmax", axis=-1),
    "MAXIMUM": same("Max", 2),
    "MEAN": _reduced("ReduceMean"),
    "MINIMUM": same("Min", 2),
    "MUL": same("Mul", 2),
    "NEG": same("Neg"),
    "NOT_EQUAL": not_equal,
    "POW": same("Pow", 2),
    "PRELU": same("PRelu", 2),
    "QUANTIZE": passed,
    "REDUCE_ALL": _logical("ReduceMin"),
    "REDUCE_ANY": _logical("ReduceMax"),
    "REDUCE_MAX": _reduced("ReduceMax"),
    "REDUCE_MIN": _reduced("ReduceMin"),
    "REDUCE_PROD": _reduced("ReduceProd"),
    "RELU": _clamped("RELU"),
    "RELU6": _clamped("RELU6"),
    "RELU_0_TO_1": _clamped("RELU_0_TO_1"),
    "RELU_N1_TO_1": _clamped("RELU_N1_TO_1"),
    "ROUND": same("Round"),
    "RSQRT": chain("Sqrt", "Reciprocal"),
    "SELECT": select,
    "SELECT_V2": select,
    "SIGN": same("Sign"),
    "SIN": same("Sin"),
    "SOFTMAX": softmax,
    "SQRT": same("Sqrt"),
    "SQUARE": square,
    "SQUARED_DIFFERENCE": squared_difference,
    "SUB": same("Sub", 2),
    "SUM": _reduced("ReduceSum"),
    "TANH": same("Tanh"),
    "TOPK_V2": top_k,
    "ZEROS_LIKE": zeros_like,
}
