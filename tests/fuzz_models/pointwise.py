"""Steps of any rank that work element by element: functions, arithmetic, comparisons. A step is (net, x) -> tensor."""

from __future__ import annotations

import numpy as np

from fuzz_models.net import Net, Reject

# (operator, attributes, first opset, where its input has to lie)
FUNCTIONS = (
    *((kind, {}, 7, "any") for kind in ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu", "Elu", "Selu")),
    *((kind, {}, 7, "any") for kind in ("Softplus", "Softsign", "Abs", "Neg", "Identity")),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, 7, "any"),
    ("HardSigmoid", {"alpha": 0.01, "beta": -0.25}, 7, "any"),
    ("LeakyRelu", {"alpha": 0.2}, 7, "any"),
    ("LeakyRelu", {"alpha": -0.5}, 7, "any"),
    ("Elu", {"alpha": 0.3}, 7, "any"),
    ("Selu", {"alpha": 1.0, "gamma": 2.0}, 7, "any"),
    ("Erf", {}, 9, "any"),
    ("HardSwish", {}, 14, "any"),
    ("Mish", {}, 18, "any"),
    ("Gelu", {}, 20, "any"),
    ("Gelu", {"approximate": "tanh"}, 20, "any"),
    *((kind, {}, 7, "any") for kind in ("Sin", "Cos", "Atan")),
    *((kind, {}, 9, "any") for kind in ("Asinh", "Sign")),
    *((kind, {}, 9, "small") for kind in ("Sinh", "Cosh")),
    *((kind, {}, 7, "unit") for kind in ("Tan", "Asin", "Acos")),
    *((kind, {}, 11, "any") for kind in ("Ceil", "Floor", "Round")),
    ("Atanh", {}, 9, "unit"),
    ("Acosh", {}, 9, "above one"),
    ("Celu", {"alpha": 0.7}, 12, "any"),
    ("Shrink", {"lambd": 0.5, "bias": 0.5}, 9, "any"),
    ("Shrink", {"lambd": 0.5}, 9, "any"),
    ("ThresholdedRelu", {"alpha": 0.5}, 10, "any"),
    ("Exp", {}, 7, "small"),
    ("Sqrt", {}, 7, "positive"),
    ("Log", {}, 7, "positive"),
    ("Reciprocal", {}, 7, "positive"),
)
NUMBERS = (0.0, 0.0, 1.0, -1.0, 6.0, 0.5, -0.5, 3.0, 20.0, 1e-3, 100.0)


def number(net: Net, x: str) -> float:
    """One that matters to x: a usual bound, or one within its range."""
    if net.chance(0.6):
        return net.among(*NUMBERS)
    return float(np.float32(net.dice.uniform(-1, 1) * net.largest(x)))


def operand(net: Net, x: str, spread: float = 1.0, middle: float = 0.0) -> str:
    """A constant: one number, one per index of an axis, one per element; of the rank of x, or of fewer."""
    shape = net.shape(x)
    if not shape or net.chance(0.35):
        value = number(net, x) if net.chance(0.5) else net.dice.gauss(middle, spread)
        return net.const(np.full(net.among((), (), (1,), (1,) * len(shape)), value, np.float32), x)
    axis = net.dice.randrange(len(shape))
    along = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    return net.weights(*net.among(along, along[axis:], along[axis:], shape), like=x, spread=spread, middle=middle)


def positive(net: Net, x: str) -> str:
    """x made positive, away from 0."""
    way = net.dice.randrange(4)
    if way == 0:
        y = net.add("Abs", x)
    elif way == 1:
        y = net.add("Mul", x, x)
    elif way == 2:
        y = net.add("Softplus", x)
    else:
        y = net.add("Relu", x)
    return net.add("Add", y, net.const(np.float32(net.among(0.05, 1.0, 1e-3)), x))


def function(net: Net, x: str) -> str:
    kind, attributes, first, domain = net.among(*FUNCTIONS)
    net.since(first)
    if domain == "positive":
        x = x if net.values[x].min() > 1e-4 * net.largest(x) > 0 else positive(net, x)
    if domain == "small" and net.values[x].max() > 6:
        x = net.add("Neg", positive(net, x)) if net.chance(0.5) else net.add("Tanh", x)
    if domain == "unit":
        x = net.add("Mul", net.add("Tanh", x), net.const(np.float32(0.9), x))
    if domain == "above one":
        x = net.add("Add", net.add("Abs", x), net.const(np.float32(1.1), x))
    return net.add(kind, x, **attributes)


def remainder(net: Net, x: str) -> str:
    net.since(10)
    return net.add("Mod", x, net.const(np.float32(net.among(1.5, -2.0, 0.25)), x), fmod=1)


def power(net: Net, x: str) -> str:
    p = net.among(2.0, 3.0, 0.5, -0.5, -1.0, 1.5, 1.0)
    whole = p in (1.0, 2.0, 3.0)
    return net.add("Pow", x if whole else positive(net, x), net.const(np.float32(p), x))


def slopes(net: Net, x: str) -> str:
    shape = net.shape(x)
    if net.chance(0.4) or len(shape) < 2:
        return net.add("PRelu", x, net.const(np.array([net.among(0.25, -0.1, 1.5)], np.float32), x))
    spread, middle = net.among((0.3, 0.25), (1.0, 0.5))
    along = (shape[1], *(1,) * (len(shape) - 2))
    return net.add("PRelu", x, net.weights(*along, like=x, spread=spread, middle=middle))


def clip(net: Net, x: str) -> str:
    low, high = sorted((number(net, x), number(net, x)))
    bounds = net.among((low, high), (low, high), (low, None), (None, high))
    if net.opset < 11:
        return net.add("Clip", x, **{k: v for k, v in zip(("min", "max"), bounds, strict=True) if v is not None})
    names = ["" if bound is None else net.const(np.float32(bound), x) for bound in bounds]
    return net.add("Clip", x, *(names if names[1] else names[:1]))


def arithmetic(net: Net, x: str) -> str:
    """With a constant, on either side."""
    kind = net.among("Add", "Add", "Sub", "Sub", "Mul", "Mul", "Div", "Min", "Max")
    scale = net.scale()
    if kind in ("Min", "Max"):
        net.since(8)
    if kind == "Div":
        other = net.const(np.float32(scale * net.among(1, -1)), x) if net.chance(0.5) else ""
        other = other or net.const(np.exp(net.noise.normal(0, 0.5, net.shape(x)[-1:])).astype(np.float32), x)
        if net.chance(0.75):
            return net.add(kind, x, other)
        return net.add(kind, other, positive(net, x))
    other = operand(net, x, scale, net.among(0.0, 0.0, 1.0) * scale)
    return net.add(kind, *((x, other) if net.chance(0.6) else (other, x)))


def affine(net: Net, x: str) -> str:
    """A normalization inside of a graph: (x * a) + b, (x - b) / a, and the other ways to write it."""
    a, b = net.const(np.float32(net.scale()), x), net.const(np.float32(net.among(0.5, -1.0, 1.0, 127.5, 0.1)), x)
    first, second = net.among(("Mul", "Add"), ("Sub", "Div"), ("Div", "Sub"), ("Mul", "Sub"), ("Add", "Mul"))
    y = net.add(first, x, a if first in ("Mul", "Div") else b)
    other = a if second in ("Mul", "Div") else b
    return net.add(second, *((other, y) if second in ("Add", "Mul", "Sub") and net.chance(0.4) else (y, other)))


def pair(net: Net, x: str) -> str:
    """With another tensor that broadcasts with it, or itself."""
    shape = net.shape(x)

    def fits(other: tuple[int, ...]) -> bool:
        try:
            return len(np.broadcast_shapes(shape, other)) <= 5
        except ValueError:
            return False

    others = net.computed(fits)
    same = [name for name in others if net.shape(name) == shape]
    other = net.dice.choice(same if net.chance(0.7) else others)
    kind = net.among("Add", "Add", "Sub", "Mul", "Mul", "Min", "Max", "Div", "Sum")
    if kind in ("Min", "Max", "Sum"):
        net.since(8)
    if kind == "Div":
        return net.add(kind, x, positive(net, other))
    names = [x, other, *([net.dice.choice(same)] if kind in ("Min", "Max", "Sum") and net.chance(0.3) else [])]
    net.dice.shuffle(names)
    return net.add(kind, *names)


def compare(net: Net, x: str) -> str:
    """A mask of x, used: as a factor, or by Where."""
    kind = net.among("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
    net.since({"Greater": 9, "Less": 9}.get(kind, 12))
    like = net.computed(lambda shape: shape == net.shape(x))
    other = operand(net, x) if net.chance(0.6) else net.dice.choice(like)
    mask = net.add(kind, *((x, other) if net.chance(0.7) else (other, x)))
    if net.shape(mask) != net.shape(x):
        raise Reject("the mask is larger")
    if net.chance(0.2):
        mask = net.add("Not", mask)
    if net.chance(0.2):
        second = net.add("Greater", x, net.const(np.float32(number(net, x)), x))
        mask = net.add(net.among("And", "Or", "Xor"), mask, second)
    if net.chance(0.5):
        a, b = (net.dice.choice(like) if net.chance(0.5) else operand(net, x) for _ in range(2))
        return net.add("Where", mask, a, b)
    to = 10 if net.dtype(x) == np.float16 else 1
    return net.add("Mul", net.dice.choice(like), net.add("Cast", mask, to=to))


def masked(net: Net, x: str) -> str:
    """By a constant: Where with a mask of its own, a causal one for square matrices."""
    net.since(9)
    shape = net.shape(x)
    mask = net.noise.random(shape[-1:] if net.chance(0.5) else shape) < 0.6
    if len(shape) > 1 and shape[-1] == shape[-2]:
        mask = np.tri(shape[-1], dtype=bool)
    other = operand(net, x) if net.chance(0.6) else net.dice.choice(net.computed(lambda s: s == shape))
    return net.add("Where", net.const(mask), *((x, other) if net.chance(0.6) else (other, x)))


def round_trip(net: Net, x: str) -> str:
    """Through another float type and back: nothing, apart from rounding."""
    here, there = (10, 1) if net.dtype(x) == np.float16 else (1, net.among(10, 11))
    if there == 10 and net.largest(x) > 6e4:
        raise Reject("too large for float16")
    return net.add("Cast", net.add("Cast", x, to=there), to=here)


STEPS = (
    *(function,) * 6,
    *(arithmetic,) * 6,
    *(pair,) * 4,
    *(clip, clip, affine, affine, slopes, power, compare, masked, round_trip, remainder),
)
