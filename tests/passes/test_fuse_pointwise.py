"""A composition of steps is recognised as the named function, proved everywhere, or as none."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from nmpconv.ops.common.function import Step
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.float.fuse_pointwise import recognise

INF = float("inf")
K, ROOT = float(np.float32(0.044715)), float(np.float32(0.7978845608))
SILU: tuple[Step, ...] = (("sigmoid", "x"), ("mul", 0, "x"))
SWISH: tuple[Step, ...] = (("hard_sigmoid", "x", 1 / 6, 0.5), ("mul", 0, "x"))


def gelu_tanh(half: str, cube: str, add_first: bool) -> list[Step]:
    """As exporters write it: the half first, in the middle or last; the cube as products or a power."""
    steps: list[Step] = []

    def add(*step: object) -> int:
        steps.append(step)
        return len(steps) - 1

    x = add("mul", "x", 0.5) if half == "first" else "x"
    third = add("mul", add("mul", "x", "x"), "x") if cube == "products" else add("power", "x", 3.0)
    inner = add("add", "x", add("mul", K, third)) if add_first else add("add", add("mul", third, K), "x")
    one = add("add", add("tanh", add("mul", inner, ROOT)), 1.0)
    one = add("mul", one, 0.5) if half == "middle" else one
    y = add("mul", x, one)
    if half == "last":
        add("mul", 0.5, y)
    return steps


@pytest.mark.parametrize(
    ("half", "cube", "add_first"), [*product(["first", "middle", "last"], ["products", "power"], [True, False])]
)
def test_gelu_by_tanh_however_it_is_written(half: str, cube: str, add_first: bool) -> None:
    assert recognise(gelu_tanh(half, cube, add_first)) == LookupParams("gelu_tanh")


@pytest.mark.parametrize(
    ("steps", "function"),
    [
        (SILU, "silu"),
        ((("clip", "x", -INF, 3e38), ("sigmoid", 0), ("mul", 0, 1)), "silu"),
        ((("mul", "x", -1.0), ("exp", 0), ("add", 1, 1.0), ("reciprocal", 2), ("mul", 3, "x")), "silu"),
        (SWISH, "hard_swish"),
        ((("add", "x", 3.0), ("clip", 0, 0.0, 6.0), ("mul", "x", 1), ("mul", 2, 0.1666666716337204)), "hard_swish"),
        ((("softplus", "x"), ("tanh", 0), ("mul", 1, "x")), "mish"),
        ((("mul", "x", 0.70710677), ("erf", 0), ("add", 1, 1.0), ("mul", 2, "x"), ("mul", 3, 0.5)), "gelu"),
    ],
)
def test_named_functions(steps: tuple[Step, ...], function: str) -> None:
    assert recognise(steps) == LookupParams(function)


@pytest.mark.parametrize(
    "steps",
    [
        (),
        *[(*SILU, ("clip", 1, low, high)) for low, high in ((-1, 20.0), (-INF, 1e3), (-INF, 1e12), (-0.27, INF))],
        *[(("clip", "x", low, INF), ("sigmoid", 0), ("mul", 1, "x")) for low in (-9.5, -5.0)],
        *[(*SWISH, ("minimum", 1, high)) for high in (9.5, 20.0, 1e6)],
        (*SWISH, ("maximum", 1, -0.374)),
        (("clip", "x", -INF, 100.0), ("sigmoid", "x"), ("mul", 0, 1)),
        (("mul", "x", 1.702), ("sigmoid", 0), ("mul", "x", 1)),
        (*SILU, ("add", 1, 1e-4)),
        (("add", "x", 3.0), ("clip", 0, 0.0, 6.0), ("mul", "x", 1), ("mul", 2, 0.1667)),
        # Steps at zero of all that looks at few points.
        (("mul", "x", 1000.0), ("sigmoid", 0)),
        (("mul", "x", 1000.0), ("clip", 0, -1.0, 1.0), ("mul", 1, 0.5), ("add", 2, 0.5), ("mul", 3, "x")),
    ],
)
def test_another_function_somewhere_is_another_function(steps: tuple[Step, ...]) -> None:
    assert recognise(steps) is None


@pytest.mark.parametrize(
    ("steps", "alpha", "beta"),
    [
        ((("mul", "x", 0.2), ("add", 0, 0.5), ("clip", 1, 0.0, 1.0)), 0.2, 0.5),
        ((("add", "x", 3.0), ("clip", 0, 0.0, 6.0), ("mul", 1, 0.1666666716337204)), 0.1666666716337204, 0.5),
        ((("sub", 3.0, "x"), ("clip", 0, 0.0, 6.0), ("mul", 1, -0.125), ("add", 2, 0.75)), None, None),
        ((("sub", 4.0, "x"), ("clip", 0, 0.0, 8.0), ("mul", 1, -0.125), ("add", 2, 1.0)), 0.125, 0.5),
        ((("mul", "x", 1e-4), ("maximum", 0, -0.5), ("minimum", 0.5, 1), ("add", 2, 0.5)), 1e-4, 0.5),
        ((("mul", "x", 0.01), ("add", 0, 0.5)), None, None),
        ((("mul", "x", 0.00392156862), ("clip", 0, 0.0, INF)), None, None),
        ((("mul", "x", 0.01), ("add", 0, 0.5), ("clip", 1, 0.0, 1.1)), None, None),
        ((("add", "x", 0.5), ("clip", 0, 0.0, 1.0)), None, None),
    ],
)
def test_a_hard_sigmoid_has_its_saturation(steps: tuple[Step, ...], alpha: float | None, beta: float) -> None:
    found = recognise(steps)
    if alpha is None:
        assert found is None
    else:
        assert found is not None
        assert found.function == "hard_sigmoid"
        assert np.allclose((found.alpha, found.beta), (alpha, beta), rtol=1e-7)
