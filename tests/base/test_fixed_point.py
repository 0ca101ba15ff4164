"""fixed.py against unbounded integers, and fixed.h against fixed.py."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import floor
from pathlib import Path

import numpy as np
import pytest

from nmpconv.base import fixed_point

SHIFTS = range(fixed_point.SHIFT_MIN, fixed_point.SHIFT_MAX + 1)
ENDS = [s * (2**e + d) for e in (14, 15, 16, 22, 30, 31, 40, 46) for d in (-2, -1, 0, 1) for s in (-1, 1)]
WIDE = [s * (2**e + d) for e in (47, 53, 61) for d in (-2, -1, 0, 1) for s in (-1, 1)]  # for right shifts only


def half_up(x: Fraction) -> int:
    return floor(x + Fraction(1, 2))


def arguments(shift: int) -> list[int]:
    return [*range(-2100, 2101), *ENDS, *(WIDE if shift >= 0 else [])]


@cache
def quotients() -> list[tuple[int, int]]:
    rng = np.random.default_rng(1)
    some = [
        (int(a), int(b)) for a, b in zip(rng.integers(-(2**61), 2**61, 500), rng.integers(1, 2**61, 500), strict=True)
    ]
    return some + [(a, b) for a in (*range(-70, 71), *ENDS) for b in (1, 2, 3, 7, 49, 64, 1000, 65536)]


@pytest.mark.parametrize("shift", SHIFTS)
def test_rsh(shift: int) -> None:
    values = arguments(shift)
    exact = [half_up(Fraction(a) / Fraction(2) ** shift) for a in values]
    assert fixed_point.rsh(values, shift).tolist() == exact


def test_rsh_by_channel() -> None:
    a = np.arange(-300, 300)[:, None]
    np.testing.assert_array_equal(
        fixed_point.rsh(a, np.array(SHIFTS)), np.hstack([fixed_point.rsh(a, s) for s in SHIFTS])
    )


def test_div() -> None:
    num, den = zip(*quotients(), strict=True)
    assert fixed_point.div(np.array(num), np.array(den)).tolist() == [half_up(Fraction(a, b)) for a, b in quotients()]


def test_round_half_up() -> None:
    values = [-2.5, -1.5, -0.5, 0.5, 1.5, 0.49999999999999994, 2.0**52 + 1, -(2.0**40) - 0.5, 1e-300]
    assert fixed_point.round_half_up(values).tolist() == [half_up(Fraction(v)) for v in values]


def test_quantize_saturates_what_is_not_finite() -> None:
    assert fixed_point.quantize([np.inf, -np.inf, 3.5, -3.5], 0, -128, 127).tolist() == [127, -128, 4, -3]


@pytest.mark.parametrize("small_division", [0, 1])
def test_the_twin_in_c(small_division: int, root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """The limits, every rsh and sat and div of the tests above, by a small program of fixed.h."""
    program = tmp_path / "fixed"
    source = Path(__file__).with_name("fixed_lines.c")
    choice = f"-DNMP_SMALL_DIVISION={small_division}"
    compiler = [need_tool("cc", "gcc", "clang"), choice, "-I", root / "interpreter/src"]
    subprocess.run([*compiler, source, "-o", program], check=True)
    shifts = [(a, s) for s in SHIFTS for a in arguments(s)]
    lines = [f"r {a} {s}" for a, s in shifts] + [f"d {a} {b}" for a, b in quotients()] + [f"s {a} 9" for a in ENDS]
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    limits, *results = done.stdout.split("\n")[:-1]
    assert (
        limits
        == f"{fixed_point.EXPONENT_MIN} {fixed_point.EXPONENT_MAX} {fixed_point.SHIFT_MIN} {fixed_point.SHIFT_MAX}"
    )
    expected = [y for s in SHIFTS for y in fixed_point.rsh(arguments(s), s).tolist()]
    expected += fixed_point.div(*np.array(quotients()).T).tolist()
    expected += fixed_point.sat(np.array(ENDS), -9, 9).tolist()
    assert list(map(int, results)) == expected
