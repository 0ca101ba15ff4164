"""Rounding, saturation, quotients: base/fixed.h is the arithmetic of FORMAT.md."""

from __future__ import annotations

import z3

from proofs.execute import Cut, Run
from proofs.numbers import INT32, INT64
from proofs.statement import Proof, statement
from proofs.translate import Translation


def floor_of(y, numerator, denominator):  # type: ignore[no-untyped-def]
    """y is the largest integer with y * denominator <= numerator."""
    return z3.And(y * denominator <= numerator, numerator < (y + 1) * denominator)


@statement(
    "rsh(a, s) = floor((a + 2^(s-1)) / 2^s) for s = 1..62 and |a| < 2^62, a * 2^-s for s = -31..0 where it fits",
    "base/fixed.h",
    "nmp_rsh",
)
def shift_rounds_half_up(proof: Proof) -> None:
    for shift in range(-31, 63):

        def body(c: Translation, shift: int = shift) -> None:
            most = (1 << (62 if shift >= 0 else 62 + shift)) - 1
            a = c.run.symbol(INT64, "a", -most, most)
            y = c.theory.raw(c.call("nmp_rsh", a, shift))
            if shift > 0:
                c.run.demand(floor_of(y, a.term + (1 << (shift - 1)), 1 << shift), "rsh")
            else:
                c.run.demand(y == a.term * (1 << -shift), "rsh")

        proof.run(body)


@statement("sat(a) = min(max(a, lo), hi) for every 64-bit a and lo <= hi", "base/fixed.h", "nmp_sat")
def saturation(proof: Proof) -> None:
    def body(c: Translation) -> None:
        a, lo, hi = c.run.symbol(INT64, "a"), c.run.symbol(INT32, "lo"), c.run.symbol(INT32, "hi")
        c.run.assume(lo.term <= hi.term)
        y = c.theory.raw(c.call("nmp_sat", a, lo, hi))
        larger = z3.If(a.term > lo.term, a.term, lo.term)
        c.run.demand(y == z3.If(larger < hi.term, larger, hi.term), "sat")

    proof.run(body)


def quotient_by_division(proof: Proof) -> None:
    def body(c: Translation) -> None:
        a, b = c.run.symbol(INT64, "a", -(2**63) + 1), c.run.symbol(INT64, "b", 1)
        y = c.theory.raw(c.call("nmp_quotient", a, b))
        c.run.demand(floor_of(y, a.term, b.term), "quotient")

    proof.run(body)


@statement(
    "floor(a / b) by the processor's division, for every 64-bit a but the least one, and b > 0",
    "base/fixed.h",
    "nmp_quotient",
)
def quotient_is_floor(proof: Proof) -> None:
    quotient_by_division(proof)


@statement(
    "floor(a / b) bit by bit, as microcontrollers do it, for the same a and b; its loops end",
    "base/fixed.h",
    "nmp_quotient",
)
def quotient_bit_by_bit(proof: Proof) -> None:
    for negative in (False, True):
        ghost: dict[str, z3.ArithRef] = {}

        def up(run: Run, v: dict, ghost: dict = ghost) -> list:  # type: ignore[type-arg]
            bit = v["bit"].term
            return [v["part"].term == ghost["b"] * bit, z3.Or(bit == 1, ghost["b"] * bit <= v["rest"].term)]

        def down(run: Run, v: dict, ghost: dict = ghost) -> list:  # type: ignore[type-arg]
            """The quotient so far is a multiple of 2 * bit, and what is left is less than 2 * bit * b."""
            bit, quotient, rest = v["bit"].term, run.theory.raw(v["quotient"]), run.theory.raw(v["rest"])
            part, b = run.theory.raw(v["part"]), ghost["b"]
            next_one = 2 * bit if bit else 1
            return [
                quotient == next_one * (quotient / next_one),
                quotient >= 0,
                rest >= 0,
                quotient * b + rest == ghost["size"],
                rest < next_one * b,
                part == b * bit if bit else part >= 0,
            ]

        def body(c: Translation, negative: bool = negative, ghost: dict = ghost) -> None:  # type: ignore[type-arg]
            lo, hi = (-(2**63) + 1, -1) if negative else (0, 2**63 - 1)
            a, b = c.run.symbol(INT64, "a", lo, hi), c.run.symbol(INT64, "b", 1)
            ghost["b"], ghost["size"] = b.term, -a.term if negative else a.term
            y = c.theory.raw(c.call("nmp_quotient", a, b))
            c.run.demand(floor_of(y, a.term, b.term), "quotient")

        bits = tuple({"bit": 1 << k} for k in range(63))
        cuts = {
            ("nmp_quotient", 0): Cut(up, cases=bits, kept=("rest",)),
            ("nmp_quotient", 1): Cut(down, cases=({"bit": 0}, *bits), joins=("nmp_quotient", 0)),
        }
        proof.run(body, machine="small", cuts=cuts)


@statement(
    "div(num, den) = floor(num / den + 1/2) for |num| < 2^61 and 0 < den < 2^61, in 32 bits where they hold it",
    "base/fixed.h",
    "nmp_div",
)
def division_rounds_half_up(proof: Proof) -> None:
    def quotient(c: Translation, a, b):  # type: ignore[no-untyped-def]
        """By the proofs before."""
        c.run.demand(c.theory.raw(b) > 0, "divisor")
        y = c.run.symbol(INT64, "floor")
        c.run.assume(floor_of(y.term, c.theory.raw(a), c.theory.raw(b)))
        return y

    def body(c: Translation) -> None:
        num, den = c.run.symbol(INT64, "num", -(2**61) + 1, 2**61 - 1), c.run.symbol(INT64, "den", 1, 2**61 - 1)
        y = c.theory.raw(c.call("nmp_div", num, den))
        c.run.demand(floor_of(y, 2 * num.term + den.term, 2 * den.term), "div")

    proof.run(body, contracts={"nmp_quotient": quotient})
