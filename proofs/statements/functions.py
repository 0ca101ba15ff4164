"""Roots, reciprocals and tables: normalize, softmax, lookup."""

from __future__ import annotations

from typing import Any

import z3

from proofs.execute import Cut
from proofs.memory import Buffer, Record
from proofs.numbers import INT8, INT16, INT32, INT64, UINT64, Number, constant
from proofs.statement import Proof, statement
from proofs.statements.rounding import floor_of
from proofs.translate import Translation


@statement(
    "square_root(a) = floor(sqrt(a)) bit by bit, as microcontrollers do it, for every 64-bit a; its loop ends",
    "ops/normalize.c",
    "square_root",
)
def root_is_floor(proof: Proof) -> None:
    bits = [4**k for k in range(32)]

    def body(c: Translation) -> None:
        whole = c.run.symbol(UINT64, "whole")

        def partial(run: Any, v: dict[str, Any]) -> list[Any]:
            """The root so far is p, a multiple of 2 * sqrt(bit): root = 2 p sqrt(bit), a = whole - p^2."""
            bit, root, a = v["bit"].term, run.theory.raw(v["root"]), run.theory.raw(v["a"])
            step = 2 * int(bit**0.5) if bit else 1
            p = run.integer("p")
            run.assume(p == root / step)
            low = [root == p * step, p >= 0, a >= 0, a == whole.term - p * p, a < 2 * p * step + step * step]
            return low if not bit else [*low, p % step == 0, p < 2**32]

        cases = ({"bit": 0}, *({"bit": bit} for bit in bits))
        c.run.cuts[("square_root", 0)] = Cut(partial, cases=cases)
        y = c.theory.raw(c.call("square_root", whole))
        c.run.demand(z3.And(y >= 0, y * y <= whole.term, whole.term < (y + 1) * (y + 1)), "root")

    proof.run(body, machine="small")


@statement(
    "softmax's quotient by a reciprocal is div(part, sum) for 0 <= part <= 2^46 and 2^30 <= sum <= 2^46",
    "ops/softmax.c",
    "divisor_of",
    "divide",
)
def reciprocal_divides(proof: Proof) -> None:
    def body(c: Translation) -> None:
        part, total = c.run.symbol(INT64, "part", 0, 2**46), c.run.symbol(INT64, "sum", 2**30, 2**46)
        divisor = c.call("divisor_of", total)
        inverse, d = c.theory.raw(divisor.fields["inverse"].value), 2 * total.term
        c.run.demand(z3.And(inverse * d <= 2**62, inverse * d + d > 2**62, inverse >= 0, inverse < 2**32), "inverse")
        # n / d by hand: q = floor(m * inverse / 2^46), m = floor(n / 2^16), is floor(n / d) or 1 less.
        n = 2 * part.term + total.term
        m = n / 2**16
        q = m * inverse / 2**46
        rest = 2**62 - inverse * d
        c.run.lemma([m >= 0, rest >= 0, rest < d, m <= 2**32], m * rest <= m * d, "m times what the inverse lacks")
        c.run.lemma([q * 2**46 <= m * inverse, d > 0], q * d * 2**46 <= m * inverse * d, "q from above")
        c.run.lemma([m * inverse < (q + 1) * 2**46, d > 0], m * inverse * d < (q + 1) * d * 2**46, "q from below")
        c.run.lemma([m * rest >= 0, q * d * 2**46 <= m * inverse * d], q * d * 2**46 <= m * 2**62, "q")
        c.run.demand(z3.And(q * d <= n, n < q * d + 2 * d), "q is at most 1 below")
        y = c.theory.raw(c.call("divide", part, divisor))
        c.run.demand(floor_of(y, n, d), "div")

    proof.run(body)


def interpolates(proof: Proof, y_type: Any, name: str) -> None:
    samples = z3.Function("t", z3.IntSort(), z3.IntSort())
    inputs = z3.Function("x", z3.IntSort(), z3.IntSort())
    for k in range(8):

        def body(c: Translation, k: int = k) -> None:
            def sample(index: Number) -> Number:
                term = samples(c.theory.raw(index))
                c.run.assume(term >= INT32.lo, term <= INT32.hi)
                return Number(INT32, term, INT32.lo, INT32.hi)

            def element(index: Number) -> Number:
                term = inputs(c.theory.raw(index))
                c.run.assume(term >= INT16.lo, term <= INT16.hi)
                return Number(INT16, term, INT16.lo, INT16.hi)

            n = c.run.symbol(UINT64, "n", 0, 2**31 - 1)
            lo, hi = c.run.symbol(INT32, "lo", y_type.lo, y_type.hi), c.run.symbol(INT32, "hi", y_type.lo, y_type.hi)
            x, t = Buffer(INT16, n, element, "x"), Buffer(INT32, constant(INT64, 2 ** (16 - k) + 1), sample, "t")
            y = Buffer(y_type, n, None, "y")

            def written(run: Any, v: dict[str, Any]) -> list[Any]:
                i = run.theory.raw(v["i"])
                conditions = [i <= n.term]
                if y.written:
                    at, value = y.written[-1]
                    place = inputs(i - 1) + 32768
                    first, f = samples(place / 2**k), place % 2**k
                    line = first * 2**k + (samples(place / 2**k + 1) - first) * f
                    rounded = (line + 2 ** (k + 7)) / 2 ** (k + 8)
                    clipped = z3.If(rounded < lo.term, lo.term, z3.If(rounded > hi.term, hi.term, rounded))
                    conditions += [run.theory.raw(at) == i - 1, run.theory.raw(value) == clipped]
                    y.written = []
                return conditions

            c.run.assume(lo.term <= hi.term)
            c.run.cuts[(name, 0)] = Cut(written)
            c.call(name, c.pointer(y), c.pointer(x), c.pointer(t), n, k, lo, hi)

        proof.run(body)


@statement(
    "every element of an interpolated table is FORMAT.md's, for k = 0..7, any samples, x and length; reads stay in "
    "the 2^(16-k) + 1 samples",
    "kernels/kernels_portable.c",
    "nmp_interpolate_16to8",
    "nmp_interpolate_16to16",
)
def tables_interpolate(proof: Proof) -> None:
    interpolates(proof, INT8, "nmp_interpolate_16to8")
    interpolates(proof, INT16, "nmp_interpolate_16to16")


__all__ = ["Record"]
