"""Tables that round as a quantized model does: ties to even, where those of integers go upwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nmpconv.ir import Node
from nmpconv.ops.common.function import Step
from nmpconv.ops.lookup import Lookup, LookupParams

TOWARDS = 2.0**-12  # of the way to an even step: ends ties, and keeps the float function
TOWARDS_16 = 2.0**-7  # moves a tie by one step of the samples of an int16 table
NEAR_TIES = 14  # bits below a step that a tie is exact to


def ties_to_even(
    name: str, x: str, y: str, step: float, ends: tuple[float, float], towards: float = TOWARDS, **more: float
) -> Node:
    """The node that puts x, of 8 bits, on a grid of this step, a power of two, and saturates it at these ends. What is
    half-way between two steps goes to the even one. more: parameters of the table."""
    even = (("mul", "x", 1 / step), ("round", 0), ("mul", 1, step), ("sub", 2, "x"))
    steps = (*even, ("mul", 3, towards), ("add", "x", 4), ("clip", 5, *ends))
    return Node(Lookup.name, name, (x,), (y,), LookupParams(composed=steps, **more))  # type: ignore[arg-type]


def is_odd(name: str, x: str, y: str, step: float, amount: float, origin: float, less: float) -> Node:
    """The node that gives the amount where x, on a grid of this step, is an odd number of steps, and 0 elsewhere.
    origin: of x. less: what the result is stored less."""
    steps = (("mul", "x", 0.5 / step), ("round", 0), ("sub", 0, 1), ("abs", 2), ("mul", 3, 2.0 * amount))
    return Node(Lookup.name, name, (x,), (y,), LookupParams(composed=steps, origin_x=origin, origin_y=less))


def even_params(params: LookupParams, step: float) -> LookupParams:
    """The function, with ties between two steps, a power of two, moved to the even one."""
    steps = params.steps()
    y = len(steps) - 1
    steps += _rounded(y, step)
    last = len(steps) - 1
    steps += (("sub", last, y), ("mul", last + 1, TOWARDS), ("add", y, last + 2))
    return _composed(params, steps)


def product_params(
    params: LookupParams, step: float, ends: tuple[float, float], clamp: tuple[float, float] | None
) -> LookupParams:
    """x times the function, which is rounded to this step, a power of two, and saturates at these ends. clamp: of the
    product."""
    steps = params.steps()
    steps += _rounded(len(steps) - 1, step)
    steps.append(("clip", len(steps) - 1, *ends))
    steps.append(("mul", "x", len(steps) - 1))
    if clamp is not None:
        steps.append(("clip", len(steps) - 1, *clamp))
    return _composed(params, steps)


def _composed(params: LookupParams, steps: Sequence[Step]) -> LookupParams:
    return replace(params, function="", alpha=0.0, beta=0.0, before=1.0, after=1.0, composed=tuple(steps))


def _rounded(y: int, step: float) -> Sequence[Step]:
    """Steps that round the result y, ties to even; what is a tie but for NEAR_TIES is one in float32."""
    n = y + 1
    near: Sequence[Step] = (("mul", y, 2**NEAR_TIES / step), ("round", n), ("mul", n + 1, 2.0**-NEAR_TIES))
    return (*near, ("round", n + 2), ("mul", n + 3, step))
