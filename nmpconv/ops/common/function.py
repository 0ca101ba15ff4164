"""The pointwise functions of lookup, in float64: FUNCTIONS[name](x, alpha, beta), and what is composed of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Operand = str | int | float  # "x", the index of a step, or a number
Step = tuple[Any, ...]  # (name, operand, ...)

COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "divide": lambda a, b: a / np.where(b == 0, 2.0**-80, b),
    "minimum": np.minimum,
    "maximum": np.maximum,
}
HUGE = 2.0**500  # a step's largest magnitude: a product of two is finite, so no difference is NaN
_ABOVE_MINUS_1 = np.nextafter(-1.0, 0.0)  # so that no atanh is infinite


def _erf(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


def _exp(x: Array) -> Array:
    """exp without overflow to infinity; nothing of interest is lost, every grid ends below 2^80."""
    return np.exp(np.minimum(x, 700.0))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def _power(x: Array, alpha: float) -> Array:
    """Negative numbers have no power of a fraction; theirs is that of 0, and that of 0 is finite."""
    sign = np.where(x < 0, (-1.0) ** alpha, 1.0) if alpha == int(alpha) else np.asarray(x > 0, np.float64)
    return np.power(np.maximum(np.abs(x), 2.0**-40), alpha) * sign


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


FUNCTIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "sigmoid": lambda x, alpha, beta: _sigmoid(x),
    "tanh": lambda x, alpha, beta: np.tanh(x),
    "hard_sigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0.0, 1.0),
    "hard_swish": lambda x, alpha, beta: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "leaky_relu": lambda x, alpha, beta: np.where(x >= 0, x, alpha * x),
    "elu": lambda x, alpha, beta: _elu(x, alpha),
    "selu": lambda x, alpha, beta: beta * _elu(x, alpha),
    "silu": lambda x, alpha, beta: x * _sigmoid(x),
    "gelu": lambda x, alpha, beta: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))),
    "gelu_tanh": lambda x, alpha, beta: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "mish": lambda x, alpha, beta: x * np.tanh(_softplus(x)),
    "softplus": lambda x, alpha, beta: _softplus(x),
    "softsign": lambda x, alpha, beta: x / (1.0 + np.abs(x)),
    "erf": lambda x, alpha, beta: _erf(x),
    "exp": lambda x, alpha, beta: _exp(x),
    "abs": lambda x, alpha, beta: np.abs(x),
    "log": lambda x, alpha, beta: np.log(np.maximum(x, 2.0**-80)),
    "reciprocal": lambda x, alpha, beta: 1.0 / np.where(x == 0, 2.0**-80, x),
    "power": lambda x, alpha, beta: _power(x, alpha),
    "sqrt": lambda x, alpha, beta: np.sqrt(np.maximum(x, 0.0)),
    "sin": lambda x, alpha, beta: np.sin(x),
    "cos": lambda x, alpha, beta: np.cos(x),
    "tan": lambda x, alpha, beta: np.tan(x),
    "asin": lambda x, alpha, beta: np.arcsin(np.clip(x, -1.0, 1.0)),
    "acos": lambda x, alpha, beta: np.arccos(np.clip(x, -1.0, 1.0)),
    "atan": lambda x, alpha, beta: np.arctan(x),
    "sinh": lambda x, alpha, beta: (_exp(x) - _exp(-x)) / 2.0,
    "cosh": lambda x, alpha, beta: (_exp(x) + _exp(-x)) / 2.0,
    "asinh": lambda x, alpha, beta: np.arcsinh(x),
    "acosh": lambda x, alpha, beta: np.arccosh(np.maximum(x, 1.0)),
    "atanh": lambda x, alpha, beta: np.arctanh(np.clip(x, _ABOVE_MINUS_1, -_ABOVE_MINUS_1)),
    "celu": lambda x, alpha, beta: np.maximum(x, 0.0) + alpha * np.expm1(np.minimum(x / alpha, 0.0)),
    "ceil": lambda x, alpha, beta: np.ceil(x),
    "floor": lambda x, alpha, beta: np.floor(x),
    "round": lambda x, alpha, beta: np.round(x),
    "fmod": lambda x, alpha, beta: np.fmod(x, alpha),
}


def is_steep(step: Step) -> bool:
    """Checks that a step of a table is a function that is steep near 0. A power of 0, which is left out, is not."""
    name, _, *numbers = step
    return name in ("sqrt", "log", "reciprocal", "divide") or (name == "power" and bool(numbers) and numbers[0] < 1)


def evaluate(steps: Sequence[Step], x: Array) -> list[Array]:
    """Evaluates each step at x, in float64.

    A step is (name, a, b) with a name of COMBINE, ("clip", a, lo, hi), or (name, a, alpha, beta) with one of FUNCTIONS,
    whose numbers are 0 where they are left out.
    """
    results: list[Array] = []
    for name, *operands in steps:
        a, *rest = (x if o == "x" else results[o] if isinstance(o, int) else np.float64(o) for o in operands)
        with np.errstate(over="ignore"):
            if name in COMBINE:
                y = COMBINE[name](a, rest[0])
            elif name == "clip":
                y = np.clip(a, *rest)
            else:
                alpha, beta = (*rest, 0.0, 0.0)[:2]
                y = FUNCTIONS[name](a, float(alpha), float(beta))
        results.append(np.clip(y, -HUGE, HUGE))
    return results
