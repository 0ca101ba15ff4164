"""Numbers of C as terms of the solver, in one of two theories.

Integers: values are mathematical integers, and what wraps is said by a remainder. For divisions, roots, bounds.
Bits: values are bit-vectors of their type's width. For packed instructions.

Both follow C99's integer promotions and conversions. They demand what C leaves undefined: that no signed sum or product
leaves its type, that shifts lie in the type's width, that no divisor is 0. An interval is kept with each number, so
that most of these demands need no solver. A shift of a negative number to the right is arithmetic, as every compiler
that is supported has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import z3


@dataclass(frozen=True)
class IntType:
    bits: int
    signed: bool

    @property
    def lo(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def hi(self) -> int:
        return (1 << (self.bits - self.signed)) - 1

    def holds(self, lo: int, hi: int) -> bool:
        return self.lo <= lo and hi <= self.hi


INT8, INT16, INT32, INT64 = (IntType(bits, True) for bits in (8, 16, 32, 64))
UINT8, UINT16, UINT32, UINT64 = (IntType(bits, False) for bits in (8, 16, 32, 64))


@dataclass(frozen=True)
class Number:
    """A value of an integer type.

    term: an int where it is known, else a term of the solver
    lo, hi: bounds of the value
    zeros: so many lowest bits are 0
    truth: the condition that it is 1 of, if it is one
    """

    type: IntType
    term: Any
    lo: int
    hi: int
    zeros: int = 0
    truth: Any = None

    @property
    def known(self) -> bool:
        return isinstance(self.term, int)


class UnsupportedError(Exception):
    """C that the translator does not know."""


def promoted(type_: IntType) -> IntType:
    return INT32 if type_.bits < 32 else type_


def common_type(a: IntType, b: IntType) -> IntType:
    """C99 6.3.1.8; long and long long have one width here."""
    a, b = promoted(a), promoted(b)
    if a.bits == b.bits:
        return IntType(a.bits, a.signed and b.signed)
    return max(a, b, key=lambda type_: type_.bits)


def constant(type_: IntType, value: int) -> Number:
    zeros = (value & -value).bit_length() - 1 if value else type_.bits
    return Number(type_, value, value, value, zeros)


def wrapped(type_: IntType, value: int) -> int:
    value &= (1 << type_.bits) - 1
    return value - (1 << type_.bits) if type_.signed and value > type_.hi else value


def interval(op: str, a: Number, b: Number) -> tuple[int, int]:
    if op == "+":
        return a.lo + b.lo, a.hi + b.hi
    if op == "-":
        return a.lo - b.hi, a.hi - b.lo
    ends = [p * q for p in (a.lo, a.hi) for q in (b.lo, b.hi)]
    return min(ends), max(ends)


EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def zeros_of(op: str, a: Number, b: Number) -> int:
    return a.zeros + b.zeros if op == "*" else min(a.zeros, b.zeros)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


class Theory:
    """Operations on numbers of one type. run: the path that demands are made of."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def convert(self, a: Number, type_: IntType) -> Number:
        if a.type == type_:
            return a
        if a.known:
            return constant(type_, wrapped(type_, a.term))
        if type_.holds(a.lo, a.hi):
            return Number(type_, self.extended(a, type_), a.lo, a.hi, a.zeros, a.truth)
        return self.narrowed(a, type_)

    def arithmetic(self, op: str, a: Number, b: Number) -> Number:
        type_ = common_type(a.type, b.type)
        a, b = self.convert(a, type_), self.convert(b, type_)
        if op in "+-*":
            return self.sum_or_product(op, a, b, type_)
        if op in "/%":
            return self.quotient(op, a, b, type_)
        if a.known and b.known:
            folded = {"&": a.term & b.term, "|": a.term | b.term, "^": a.term ^ b.term}[op]
            return constant(type_, folded)
        return self.bitwise(op, a, b, type_)

    def sum_or_product(self, op: str, a: Number, b: Number, type_: IntType) -> Number:
        lo, hi = interval(op, a, b)
        if a.known and b.known:
            if type_.signed:
                self.run.demand(type_.holds(lo, hi), f"{op} leaves its signed type")
            return constant(type_, wrapped(type_, lo))
        zeros = zeros_of(op, a, b)
        if type_.holds(lo, hi):
            return Number(type_, self.exact(op, a, b, type_), lo, hi, zeros)
        if type_.signed:
            self.run.demand(self.stays(op, a, b, type_), f"{op} leaves its signed type")
            return Number(type_, self.exact(op, a, b, type_), max(lo, type_.lo), min(hi, type_.hi), zeros)
        return self.modulo(op, a, b, type_)

    def quotient(self, op: str, a: Number, b: Number, type_: IntType) -> Number:
        self.run.demand(self.compare("!=", b, constant(type_, 0)).truth, "divisor is 0")
        if type_.signed and a.lo == type_.lo and b.lo <= -1 <= b.hi:
            overflow = z3.And(self.raw(a) == type_.lo, self.raw(b) == -1)
            self.run.demand(z3.Not(overflow), "quotient leaves its signed type")
        if a.known and b.known:
            whole = truncated(a.term, b.term)
            return constant(type_, whole if op == "/" else a.term - whole * b.term)
        return self.divided(op, a, b, type_)

    def shift(self, op: str, a: Number, b: Number) -> Number:
        type_ = promoted(a.type)
        a = self.convert(a, type_)
        if not 0 <= b.lo <= b.hi < type_.bits:
            within = z3.And(
                self.truth(self.compare(">=", b, constant(b.type, 0))),
                self.truth(self.compare("<", b, constant(INT32, type_.bits))),
            )
            self.run.demand(within, "shift is not within its type")
        if not b.known and isinstance(self, Bits) and op == ">>":
            count = self.raw(self.convert(b, type_))
            term = self.raw(a) >> count if type_.signed else z3.LShR(self.raw(a), count)
            return Number(type_, term, min(a.lo, 0), max(a.hi, 0))
        by = self.run.one_of(b, 0, type_.bits - 1)
        if op == "<<":
            if type_.signed:
                self.run.demand(self.compare(">=", a, constant(type_, 0)).truth, "a negative number is shifted up")
            return self.sum_or_product("*", a, Number(type_, 1 << by, 1 << by, 1 << by, by), type_)
        if a.known:
            return constant(type_, a.term >> by)
        return Number(type_, self.shifted_down(a, by), a.lo >> by, a.hi >> by, max(a.zeros - by, 0))

    def negated(self, a: Number) -> Number:
        type_ = promoted(a.type)
        return self.arithmetic("-", constant(type_, 0), self.convert(a, type_))

    def inverted(self, a: Number) -> Number:
        type_ = promoted(a.type)
        a = self.convert(a, type_)
        if a.known:
            return constant(type_, wrapped(type_, ~a.term))
        lo, hi = (~a.hi, ~a.lo) if type_.signed else (type_.hi - a.hi, type_.hi - a.lo)
        return Number(type_, self.complement(a), lo, hi)

    def compare(self, op: str, a: Number, b: Number) -> Number:
        type_ = common_type(a.type, b.type)
        a, b = self.convert(a, type_), self.convert(b, type_)
        always, never = {
            "<": (a.hi < b.lo, a.lo >= b.hi),
            "<=": (a.hi <= b.lo, a.lo > b.hi),
            ">": (a.lo > b.hi, a.hi <= b.lo),
            ">=": (a.lo >= b.hi, a.hi < b.lo),
            "==": (a.lo == a.hi == b.lo == b.hi, a.hi < b.lo or b.hi < a.lo),
            "!=": (a.hi < b.lo or b.hi < a.lo, a.lo == a.hi == b.lo == b.hi),
        }[op]
        if always or never:
            return Number(INT32, int(always), int(always), int(always), 0, z3.BoolVal(always))
        return self.boolean(self.compared(op, a, b, type_))

    def boolean(self, condition: Any) -> Number:
        return Number(INT32, self.choice(condition, 1, 0, INT32), 0, 1, 0, condition)

    def truth(self, a: Number) -> Any:
        if a.truth is not None:
            return a.truth
        return z3.BoolVal(a.term != 0) if a.known else self.compare("!=", a, constant(a.type, 0)).truth

    def select(self, condition: Any, a: Number, b: Number) -> Number:
        type_ = common_type(a.type, b.type)
        a, b = self.convert(a, type_), self.convert(b, type_)
        term = self.choice(condition, a.term, b.term, type_)
        return Number(type_, term, min(a.lo, b.lo), max(a.hi, b.hi), min(a.zeros, b.zeros))


class Integers(Theory):
    def symbol(self, type_: IntType, name: str, lo: int | None = None, hi: int | None = None) -> Number:
        lo, hi = type_.lo if lo is None else lo, type_.hi if hi is None else hi
        term = z3.Int(name)
        self.run.assume(z3.And(term >= lo, term <= hi))
        return Number(type_, term, lo, hi)

    def number(self, type_: IntType, term: Any) -> Number:
        """A term that is within its type."""
        return Number(type_, term, type_.lo, type_.hi)

    def raw(self, a: Number) -> Any:
        return z3.IntVal(a.term) if a.known else a.term

    def extended(self, a: Number, type_: IntType) -> Any:
        return a.term

    def remainder(self, term: Any, type_: IntType) -> Any:
        size = 1 << type_.bits
        return (term - type_.lo) % size + type_.lo

    def narrowed(self, a: Number, type_: IntType) -> Number:
        if self.run.implied(z3.And(a.term >= type_.lo, a.term <= type_.hi)):
            return Number(type_, a.term, max(a.lo, type_.lo), min(a.hi, type_.hi), a.zeros)
        return Number(type_, self.remainder(a.term, type_), type_.lo, type_.hi, a.zeros)

    def exact(self, op: str, a: Number, b: Number, type_: IntType) -> Any:
        return EXACT[op](a.term, b.term)

    def stays(self, op: str, a: Number, b: Number, type_: IntType) -> Any:
        term = EXACT[op](a.term, b.term)
        return z3.And(term >= type_.lo, term <= type_.hi)

    def modulo(self, op: str, a: Number, b: Number, type_: IntType) -> Number:
        lo, hi = interval(op, a, b)
        return self.narrowed(Number(type_, EXACT[op](a.term, b.term), lo, hi, zeros_of(op, a, b)), type_)

    def divided(self, op: str, a: Number, b: Number, type_: IntType) -> Number:
        if b.known and b.term > 0 and a.lo >= 0:
            if op == "/":
                return Number(type_, a.term / b.term, a.lo // b.term, a.hi // b.term)
            return Number(type_, a.term % b.term, 0, min(a.hi, b.term - 1))
        whole, rest = self.run.quotient_of(self.raw(a), self.raw(b))
        most = max(abs(a.lo), abs(a.hi))
        least = 0 if a.lo >= 0 and b.lo >= 0 else -most
        if op == "/":
            return Number(type_, whole, least, most)
        largest = max(abs(b.lo), abs(b.hi)) - 1
        return Number(type_, rest, -largest if a.lo < 0 else 0, largest if a.hi > 0 else 0)

    def bitwise(self, op: str, a: Number, b: Number, type_: IntType) -> Number:
        a, b = (b, a) if a.known else (a, b)
        if op == "|" and a.lo >= 0 and b.lo >= 0:
            low, high = (a, b) if a.hi < 1 << b.zeros else (b, a)
            if low.hi < 1 << high.zeros:
                return Number(type_, low.term + high.term, low.lo + high.lo, low.hi + high.hi, low.zeros)
        if max(a.hi, b.hi) <= 1 and min(a.lo, b.lo) >= 0:
            p, q = self.truth(a), self.truth(b)
            result = {"&": z3.And(p, q), "|": z3.Or(p, q), "^": z3.Xor(p, q)}[op]
            return self.convert(self.boolean(result), type_)
        if b.known and b.term == 0:
            return constant(type_, 0) if op == "&" else a
        if b.known and b.term >= 0 and op == "&":
            zeros, bits = b.zeros, b.term.bit_length()
            if b.term == (1 << bits) - (1 << zeros):
                term = a.term / (1 << zeros) % (1 << (bits - zeros)) * (1 << zeros)
                return Number(type_, term if zeros else a.term % (1 << bits), 0, b.term, zeros)
        if b.known and b.term > 0 and b.term == 1 << b.zeros and op == "|":
            there = a.term / b.term % 2 == 1
            if self.run.implied(z3.Not(there)):
                return Number(
                    type_, a.term + b.term, a.lo + b.term, min(a.hi + b.term, type_.hi), min(a.zeros, b.zeros)
                )
            lo, hi = max(a.lo, type_.lo), min(a.hi + b.term, type_.hi)
            return Number(type_, z3.If(there, a.term, a.term + b.term), lo, hi, min(a.zeros, b.zeros))
        raise UnsupportedError(f"{op} of integers")

    def shifted_down(self, a: Number, by: int) -> Any:
        return a.term / (1 << by)

    def complement(self, a: Number) -> Any:
        return -1 - a.term if a.type.signed else a.type.hi - a.term

    def compared(self, op: str, a: Number, b: Number, type_: IntType) -> Any:
        p, q = a.term, b.term
        return {
            "<": lambda: p < q,
            "<=": lambda: p <= q,
            ">": lambda: p > q,
            ">=": lambda: p >= q,
            "==": lambda: p == q,
            "!=": lambda: p != q,
        }[op]()

    def choice(self, condition: Any, a: Any, b: Any, type_: IntType) -> Any:
        return z3.If(condition, z3.IntVal(a) if isinstance(a, int) else a, z3.IntVal(b) if isinstance(b, int) else b)


class Bits(Theory):
    def symbol(self, type_: IntType, name: str, lo: int | None = None, hi: int | None = None) -> Number:
        term = z3.BitVec(name, type_.bits)
        a = Number(type_, term, type_.lo if lo is None else lo, type_.hi if hi is None else hi)
        if (a.lo, a.hi) != (type_.lo, type_.hi):
            self.run.assume(
                z3.And(self.at_least(term, a.lo, type_), self.at_least(z3.BitVecVal(a.hi, type_.bits), term, type_))
            )
        return a

    def at_least(self, a: Any, b: Any, type_: IntType) -> Any:
        return a >= b if type_.signed else z3.UGE(a, b)

    def number(self, type_: IntType, term: Any) -> Number:
        return Number(type_, term, type_.lo, type_.hi)

    def raw(self, a: Number) -> Any:
        return z3.BitVecVal(a.term, a.type.bits) if a.known else a.term

    def wide(self, a: Number, bits: int = 128) -> Any:
        """The value, as a signed bit-vector that has room for sums and products of it."""
        return self.stretched(self.raw(a), a.type, bits)

    def stretched(self, term: Any, type_: IntType, bits: int) -> Any:
        more = bits - term.size()
        return z3.SignExt(more, term) if type_.signed else z3.ZeroExt(more, term)

    def extended(self, a: Number, type_: IntType) -> Any:
        more = type_.bits - a.type.bits
        return self.stretched(a.term, a.type, type_.bits) if more >= 0 else z3.Extract(type_.bits - 1, 0, a.term)

    def narrowed(self, a: Number, type_: IntType) -> Number:
        return Number(type_, self.extended(a, type_), type_.lo, type_.hi, min(a.zeros, type_.bits))

    def exact(self, op: str, a: Number, b: Number, type_: IntType) -> Any:
        return EXACT[op](self.raw(a), self.raw(b))

    def stays(self, op: str, a: Number, b: Number, type_: IntType) -> Any:
        bits = 2 * type_.bits
        return EXACT[op](self.wide(a, bits), self.wide(b, bits)) == z3.SignExt(type_.bits, self.exact(op, a, b, type_))

    def modulo(self, op: str, a: Number, b: Number, type_: IntType) -> Number:
        return Number(type_, self.exact(op, a, b, type_), type_.lo, type_.hi, min(zeros_of(op, a, b), type_.bits))

    def divided(self, op: str, a: Number, b: Number, type_: IntType) -> Number:
        p, q = self.raw(a), self.raw(b)
        if op == "/":
            return self.number(type_, p / q if type_.signed else z3.UDiv(p, q))
        return self.number(type_, z3.SRem(p, q) if type_.signed else z3.URem(p, q))

    def bitwise(self, op: str, a: Number, b: Number, type_: IntType) -> Number:
        p, q = self.raw(a), self.raw(b)
        term = {"&": p & q, "|": p | q, "^": p ^ q}[op]
        lo, hi = type_.lo, type_.hi
        if min(a.lo, b.lo) >= 0:
            most = min(a.hi, b.hi) if op == "&" else (1 << max(a.hi, b.hi).bit_length()) - 1
            lo, hi = 0, most
        elif op == "&" and max(a.lo, b.lo) >= 0:
            lo, hi = 0, b.hi if b.lo >= 0 else a.hi
        return Number(type_, term, lo, hi)

    def shifted_down(self, a: Number, by: int) -> Any:
        return a.term >> by if a.type.signed else z3.LShR(a.term, by)

    def complement(self, a: Number) -> Any:
        return ~a.term

    def compared(self, op: str, a: Number, b: Number, type_: IntType) -> Any:
        p, q = self.raw(a), self.raw(b)
        signed, unsigned = {
            "<": (lambda: p < q, z3.ULT),
            "<=": (lambda: p <= q, z3.ULE),
            ">": (lambda: p > q, z3.UGT),
            ">=": (lambda: p >= q, z3.UGE),
            "==": (lambda: p == q, lambda x, y: x == y),
            "!=": (lambda: p != q, lambda x, y: x != y),
        }[op]
        return signed() if type_.signed else unsigned(p, q)

    def choice(self, condition: Any, a: Any, b: Any, type_: IntType) -> Any:
        p = z3.BitVecVal(a, type_.bits) if isinstance(a, int) else a
        q = z3.BitVecVal(b, type_.bits) if isinstance(b, int) else b
        return z3.If(condition, p, q)
