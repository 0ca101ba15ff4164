"""The portable kernels: each element is computed from the elements at its own place, by rsh and sat, without a wrap.

rsh and sat stand for what statements.rounding proves of them, where their arguments are in the ranges of those proofs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import z3

from proofs.execute import Cut
from proofs.memory import Buffer
from proofs.numbers import INT8, INT16, INT32, INT64, UINT64, IntType, Number
from proofs.statement import Proof, statement
from proofs.translate import Translation

PORTABLE = "kernels/kernels_portable.c"
INTEGERS = z3.IntSort()
RSH = z3.Function("rsh", INTEGERS, INTEGERS, INTEGERS)
SAT = z3.Function("sat", INTEGERS, INTEGERS, INTEGERS, INTEGERS)
SHIFT_MIN, SHIFT_MAX = -15, 47


def rsh(c: Translation, a: Number, shift: Number) -> Number:
    value, by = c.theory.raw(c.theory.convert(a, INT64)), c.theory.raw(shift)
    c.run.demand(z3.And(by >= -31, by <= 62), "shift of rsh")
    most = z3.If(by >= 0, z3.IntVal(2**62), z3.IntVal(2**47))
    c.run.demand(z3.And(value < most, value > -most, by >= SHIFT_MIN), "argument of rsh")
    term = RSH(value, by)
    c.run.assume(term > -(2**62), term < 2**62)
    return Number(INT64, term, -(2**62) + 1, 2**62 - 1)


def sat(c: Translation, a: Number, lo: Number, hi: Number) -> Number:
    value = [c.theory.raw(number) for number in (c.theory.convert(a, INT64), lo, hi)]
    term = SAT(*value)
    c.run.assume(term >= value[1], term <= value[2])
    return Number(INT32, term, INT32.lo, INT32.hi)


def array(
    c: Translation, name: str, type_: IntType, count: Any = None, lo: int | None = None, hi: int | None = None
) -> Buffer:
    """An array of any elements."""
    values = z3.Function(name, INTEGERS, INTEGERS)
    lo, hi = type_.lo if lo is None else lo, type_.hi if hi is None else hi

    def element(index: Number) -> Number:
        term = values(c.theory.raw(index))
        c.run.assume(term >= lo, term <= hi)
        return Number(type_, term, lo, hi)

    buffer = Buffer(type_, count, element, name)
    buffer.values = values  # type: ignore[attr-defined]
    return buffer


class Rows:
    """A kernel's call for n elements, and the induction over its loop.

    In iteration i nothing is written but y[i], and nothing is read but the element i of each operand (or its only
    one): so y may lie on an operand of its width.
    """

    def __init__(self, c: Translation, y: IntType, wanted: Callable[[Any], Any], saturated: Any = SAT) -> None:
        self.c, self.wanted, self.saturated = c, wanted, saturated
        self.n = c.run.symbol(UINT64, "n", 0, 2**31 - 1)
        self.lo, self.hi = (c.run.symbol(INT32, name, y.lo, y.hi) for name in ("lo", "hi"))
        c.run.assume(self.lo.term <= self.hi.term)
        self.y = Buffer(y, self.n, None, "y")
        self.operands: list[tuple[Buffer, int]] = []
        c.run.contracts |= {"nmp_rsh": rsh, "nmp_sat": sat}

    def operand(self, name: str, type_: IntType, step: int = 1) -> Any:
        buffer = array(self.c, name, type_, self.n if step else None)
        self.operands.append((buffer, step))
        return self.c.pointer(buffer)

    def values(self, i: Any) -> list[Any]:
        return [buffer.values(i * step) for buffer, step in self.operands]  # type: ignore[attr-defined]

    def cut(self) -> Cut:
        def invariant(run: Any, v: dict[str, Any]) -> list[Any]:
            i = run.theory.raw(v["i"])
            conditions = [i <= self.n.term]
            if self.y.written:
                (at, value), *others = self.y.written
                conditions += [z3.BoolVal(not others), run.theory.raw(at) == i - 1]
                wanted = self.saturated(self.wanted(i - 1), self.lo.term, self.hi.term)
                conditions.append(run.theory.raw(value) == wanted)
                for buffer, step in self.operands:
                    conditions += [run.theory.raw(index) == (i - 1) * step for index in buffer.read]
            for buffer, _ in self.operands:
                buffer.read = []
            self.y.written = []
            return conditions

        return Cut(invariant)


WIDTHS = {"8": INT8, "16": INT16}


def rounded(value: Any, shift: int) -> Any:
    """Returns rsh of the value, as statements.rounding proves it; z3 divides down."""
    return value * 2**-shift if shift <= 0 else (value + 2 ** (shift - 1)) / 2**shift


def clipped(value: Any, lo: Any, hi: Any) -> Any:
    """Returns sat of the value, as statements.rounding proves it."""
    return z3.If(value < lo, lo, z3.If(value > hi, hi, value))


@statement(
    "requantize: y[i] = sat(rsh(x[i], shift)) for every shift in [-15, 47], range and length",
    PORTABLE,
    *(f"nmp_requantize_{x}to{y}" for x in WIDTHS for y in WIDTHS),
)
def requantize_kernels(proof: Proof) -> None:
    """rsh and sat are written out in them."""
    for x_bits, y_bits, shift in product(WIDTHS, WIDTHS, range(SHIFT_MIN, SHIFT_MAX + 1)):
        name, x, y = f"nmp_requantize_{x_bits}to{y_bits}", WIDTHS[x_bits], WIDTHS[y_bits]

        def body(c: Translation, name: str = name, x: IntType = x, y: IntType = y, shift: int = shift) -> None:
            rows = Rows(c, y, lambda i: rounded(rows.values(i)[0], shift), clipped)
            c.run.cuts[(name, 0)] = rows.cut()
            c.call(name, c.pointer(rows.y), rows.operand("x", x), rows.n, shift, rows.lo, rows.hi)

        proof.run(body)


SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda p, q: p + q,
    "sub": lambda p, q: p - q,
    "mul": lambda p, q: p * q,
}
ALL_WIDTHS = [(a, b, y) for a in WIDTHS for b in WIDTHS for y in WIDTHS]
ENDS = [(0, 0), (30, 0), (0, 30)]
ALL_SHIFTS = [(0, 0), *((p, 0) for p in range(1, 31)), (0, 1), (0, 15), (0, 30)]


def binary(proof: Proof, op: str) -> None:
    for a, b, y in ALL_WIDTHS:
        for a_step, b_step in ((1, 1), (0, 1)):
            name = f"nmp_{op}_{a}x{b}to{y}"

            def body(
                c: Translation,
                name: str = name,
                widths: tuple[str, str, str] = (a, b, y),
                steps: tuple[int, int] = (a_step, b_step),
            ) -> None:
                shifts = ALL_SHIFTS if (name, steps) == ("nmp_add_16x16to16", (1, 1)) else ENDS
                a_shift, b_shift = shifts[c.run.choose(1 if op == "mul" else len(shifts))]
                shift = c.run.symbol(INT32, "shift", SHIFT_MIN, SHIFT_MAX)
                rows = Rows(c, WIDTHS[widths[2]], lambda i: wanted(*rows.values(i)))

                def wanted(p: Any, q: Any) -> Any:
                    units = (1, 1) if op == "mul" else (2**a_shift, 2**b_shift)
                    return RSH(SIGNS[op](p * units[0], q * units[1]), shift.term)

                how = c.struct(
                    "nmp_binary",
                    a_step=steps[0],
                    b_step=steps[1],
                    a_shift=a_shift,
                    b_shift=b_shift,
                    shift=shift,
                    lo=rows.lo,
                    hi=rows.hi,
                    down=0,
                )
                c.run.cuts |= {(name, 0): rows.cut(), (name, 1): rows.cut()}
                operands = [
                    rows.operand("a", WIDTHS[widths[0]], steps[0]),
                    rows.operand("b", WIDTHS[widths[1]], steps[1]),
                ]
                c.call(name, c.pointer(rows.y), *operands, rows.n, c.pointer(how))

            proof.run(body)


def names(op: str) -> list[str]:
    return [f"nmp_{op}_{a}x{b}to{y}" for a, b, y in ALL_WIDTHS]


@statement(
    "add: y[i] = sat(rsh(a[i] * 2^p + b[i] * 2^q, shift)), of rows or one value, at the ends of p and q",
    PORTABLE,
    *names("add"),
)
def add_kernels(proof: Proof) -> None:
    binary(proof, "add")


@statement("sub: the same with a minus, at the ends of p and q", PORTABLE, *names("sub"))
def sub_kernels(proof: Proof) -> None:
    binary(proof, "sub")


@statement("mul: y[i] = sat(rsh(a[i] * b[i], shift)), of rows or one value", PORTABLE, *names("mul"))
def mul_kernels(proof: Proof) -> None:
    binary(proof, "mul")
