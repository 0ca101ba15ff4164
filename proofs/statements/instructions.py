"""Packed instructions of Cortex-M: what inline assembly computes, by a model of each instruction, is what C says."""

from __future__ import annotations

from typing import Any

import z3

from proofs.execute import Cut
from proofs.instructions import byte, half
from proofs.memory import Buffer
from proofs.numbers import INT8, INT16, INT32, INT64, UINT32, UINT64, IntType, Number, constant
from proofs.statement import Proof, statement
from proofs.translate import Translation

DSP, MVE = "arch/cortex_m/kernels_dsp.c", "arch/cortex_m/kernels_mve.c"


def clipped(value: Any, lo: Any, hi: Any) -> Any:
    return z3.If(value < lo, lo, z3.If(value > hi, hi, value))


def rounded(value: Any, shift: Any) -> Any:
    """rsh for shifts of 0 or more, in bits that hold all of it."""
    unit = z3.BitVecVal(1, value.size())
    return z3.If(shift > 0, value + (unit << (shift - 1)), value) >> shift


@statement("SSUB8 and SEL clip four bytes to [lo, hi], for any word and any lo <= hi", DSP, "dsp_clip_bytes")
def bytes_are_clipped(proof: Proof) -> None:
    def body(c: Translation) -> None:
        word = c.run.symbol(UINT32, "word")
        lo, hi = z3.BitVecs("lo hi", 8)
        c.run.assume(lo <= hi)
        four = [c.theory.number(UINT32, z3.Concat(limit, limit, limit, limit)) for limit in (lo, hi)]
        y = c.theory.raw(c.call("dsp_clip_bytes", word, *four))
        for i in range(4):
            c.run.demand(byte(y, i) == clipped(byte(word.term, i), lo, hi), f"byte {i}")

    proof.run(body, machine="dsp", bits=True)


@statement(
    "SXTB16, PKHBT, PKHTB, BFI and SSAT, USAT take apart, put together and saturate as their functions' names say",
    DSP,
    *(
        "dsp_even",
        "dsp_odd",
        "dsp_low",
        "dsp_high",
        "dsp_bytes",
        "dsp_int8",
        "dsp_int16",
        "dsp_positive8",
        "dsp_positive16",
    ),
)
def words_are_packed(proof: Proof) -> None:
    def body(c: Translation) -> None:
        a, b, d, e = (c.run.symbol(UINT32, name) for name in "abde")
        even, odd, low, high = (
            c.theory.raw(c.call(name, *args))
            for name, args in (("dsp_even", [a]), ("dsp_odd", [a]), ("dsp_low", [a, b]), ("dsp_high", [a, b]))
        )
        wide = [z3.SignExt(24, byte(a.term, i)) for i in range(4)]
        c.run.demand(z3.And(half(even, False) == wide[0], half(even, True) == wide[2]), "even bytes")
        c.run.demand(z3.And(half(odd, False) == wide[1], half(odd, True) == wide[3]), "odd bytes")
        halves = [(half(word.term, False), half(word.term, True)) for word in (a, b)]
        c.run.demand(z3.And(half(low, False) == halves[0][0], half(low, True) == halves[1][0]), "lower halves")
        c.run.demand(z3.And(half(high, False) == halves[0][1], half(high, True) == halves[1][1]), "upper halves")
        four = c.theory.raw(c.call("dsp_bytes", a, b, d, e))
        for i, word in enumerate((a, b, d, e)):
            c.run.demand(byte(four, i) == byte(word.term, 0), f"byte {i}")
        v = c.run.symbol(INT32, "v")
        for name, lo, hi in (
            ("int8", -128, 127),
            ("int16", -32768, 32767),
            ("positive8", 0, 127),
            ("positive16", 0, 32767),
        ):
            y = c.theory.raw(c.call(f"dsp_{name}", v))
            c.run.demand(y == clipped(v.term, z3.BitVecVal(lo, 32), z3.BitVecVal(hi, 32)), name)

    proof.run(body, machine="dsp", bits=True)


@statement(
    "a sum by SMLAD is sat(rsh(a * 2^p + b * 2^q, shift)), a difference the same with a minus, for any pair of int16 "
    "and the shifts that is_simple takes; q is 1, 7, 14 or 15, p of a difference 0 or 14",
    DSP,
    "add_pair",
    "sum_of",
    "is_simple",
)
def pairs_are_added(proof: Proof) -> None:
    sums = [(1, p, 0) for p in range(16)] + [(1, 0, q) for q in (1, 7, 14, 15)]
    differences = [(-1, p, 0) for p in (0, 14)] + [(-1, 0, q) for q in (1, 7, 14, 15)]
    for sign, a_shift, b_shift in sums + differences:

        def body(c: Translation, sign: int = sign, a_shift: int = a_shift, b_shift: int = b_shift) -> None:
            shift = c.run.symbol(INT32, "shift", -1, 47)
            lo, hi = c.run.symbol(INT32, "lo", -32768, 32767), c.run.symbol(INT32, "hi", -32768, 32767)
            c.run.assume(lo.term <= hi.term)
            fields = {
                "a_step": 1,
                "b_step": 1,
                "a_shift": a_shift,
                "b_shift": b_shift,
                "shift": shift,
                "lo": lo,
                "hi": hi,
            }
            how = c.struct("nmp_binary", **fields)
            simple = c.theory.truth(c.call("is_simple", c.pointer(how)))
            possible = z3.And(shift.term >= 0, shift.term <= 30, z3.BoolVal(max(a_shift, b_shift) <= 14))
            c.run.demand(simple == possible, "what is simple")
            if not c.run.decide(simple):
                return
            pair = c.run.symbol(UINT32, "pair")
            if a_shift + b_shift:  # all shifts are shown once, and the units for one shift each
                shift = how.fields["shift"].value = constant(INT32, 1)
            total = c.call("sum_of", c.pointer(how), sign)
            units, start = total.fields["units"].value, total.fields["round"].value
            by = c.theory.raw(shift)
            half_unit = z3.If(by > 0, z3.BitVecVal(1, 32) << (by - 1), z3.BitVecVal(0, 32))
            c.run.demand(c.theory.raw(start) == half_unit, "rounding")
            begin = c.run.symbol(INT32, "start", 0, 2**29)
            a, b = (z3.SignExt(32, half(pair.term, high)) for high in (False, True))
            exact = a * 2**a_shift + sign * b * 2**b_shift
            added = c.theory.wide(c.call("dsp_mla2", pair, units, begin), 64)
            c.run.demand(added == exact + c.theory.wide(begin, 64), "SMLAD does not wrap")
            v = c.run.symbol(INT32, "sum")  # of the pair and the rounding, by what was shown
            c.run.contracts["dsp_mla2"] = lambda c, *args: v
            wanted = c.theory.wide(v, 64) >> c.theory.wide(shift, 64)
            place = c.variable(c.types.named(["sum"]), total)
            for full, bits in ((0, 8), (1, 8), (1, 16)):
                ends = [(-(1 << (bits - 1))), (1 << (bits - 1)) - 1]
                least, most = (z3.BitVecVal(e, 64) for e in ends) if full else (c.theory.wide(e, 64) for e in (lo, hi))
                y = c.call("add_pair", pair, c.pointer(place), bits, full)
                c.run.demand(c.theory.wide(y, 64) == clipped(wanted, least, most), f"sum, {bits} bits, full {full}")

        proof.run(body, machine="dsp", bits=True)


@statement(
    "the end of a sum of 64 bits in 32-bit halves is rsh(sum, shift) + bias, for shifts 1..32 that lead into 32 bits",
    "arch/cortex_m/conv_dsp.c",
    "end_one",
)
def long_sums_end_in_words(proof: Proof) -> None:
    for shift in range(1, 33):

        def body(c: Translation, shift: int = shift) -> None:
            total, bias = c.run.symbol(INT64, "sum"), c.run.symbol(INT32, "bias", -(2**30) + 1, 2**30 - 1)
            twice = total.term >> (shift - 1)
            c.run.assume(twice >= -(2**31), twice < 2**31 - 1)
            y = c.theory.raw(c.call("end_one", total, shift, bias))
            wanted = rounded(z3.SignExt(64, total.term), z3.BitVecVal(shift, 128)) + z3.SignExt(96, bias.term)
            c.run.demand(z3.SignExt(96, y) == wanted, "end")

        proof.run(body, machine="dsp", bits=True)


class Lane:
    """One element of a vector loop, which is any: arrays of one element."""

    def __init__(self, c: Translation, y: IntType) -> None:
        self.c, self.y = c, Buffer(y, constant(INT64, 1), None, "y")
        self.lo, self.hi = (c.run.symbol(INT32, name, y.lo, y.hi) for name in ("lo", "hi"))
        c.run.assume(self.lo.term <= self.hi.term)

    def operand(self, type_: IntType, name: str) -> tuple[Any, Any]:
        value = self.c.run.symbol(type_, name)
        return self.c.pointer(Buffer(type_, constant(INT64, 1), lambda index: value, name)), self.c.theory.wide(
            value, 96
        )

    def show(self, exact: Any, shift: int) -> None:
        wide = self.c.theory.wide
        value = rounded(exact, z3.BitVecVal(shift, 96)) if shift >= 0 else exact << -shift
        wanted = clipped(value, wide(self.lo, 96), wide(self.hi, 96))
        ((_, stored),) = self.y.written
        self.c.run.demand(wide(stored, 96) == wanted, "element")


@statement(
    "MVE's requantize: a lane is sat(rsh(x, shift)), for any x, range and shift in [-15, 47]",
    MVE,
    *(f"nmp_mve_requantize_{x}to{y}" for x in (8, 16) for y in (8, 16)),
)
def lanes_are_requantized(proof: Proof) -> None:
    for x in (8, 16):
        for y in (8, 16):

            def body(c: Translation, x: int = x, y: int = y) -> None:
                lane = Lane(c, IntType(y, True))
                pointer, value = lane.operand(IntType(x, True), "x")
                shift = range(-15, 48)[c.run.choose(63)]
                args = (pointer, constant(UINT32, 1), shift, lane.lo, lane.hi)
                c.call(f"nmp_mve_requantize_{x}to{y}", c.pointer(lane.y), *args)
                lane.show(value, shift)

            proof.run(body, machine="mve", bits=True)


def lanes(proof: Proof, op: str, a: IntType, b: IntType, y: IntType, shifts: list[tuple[int, int]]) -> None:
    def body(c: Translation) -> None:
        lane = Lane(c, y)
        (p, p_value), (q, q_value) = lane.operand(a, "a"), lane.operand(b, "b")
        a_shift, b_shift = shifts[c.run.choose(len(shifts))]
        shift = range(-15, 48)[c.run.choose(63)]
        fields = {
            "a_step": 1,
            "b_step": 1,
            "a_shift": a_shift,
            "b_shift": b_shift,
            "shift": shift,
            "lo": lane.lo,
            "hi": lane.hi,
        }
        c.run.contracts["one_by_one"] = lambda c, *args: c.run.choose(0)
        how = c.struct("nmp_binary", **fields)
        product = z3.SignExt(64, z3.Extract(31, 0, p_value) * z3.Extract(31, 0, q_value))  # 32 bits hold it
        exact = product if op == "mul" else p_value * 2**a_shift + q_value * 2**b_shift

        def one_by_one(c: Translation, *args: Any) -> None:
            """Plain C, which is left to tests: the element that is wanted."""
            value = rounded(exact, z3.BitVecVal(shift, 96)) if shift >= 0 else exact << -shift
            wanted = clipped(value, c.theory.wide(lane.lo, 96), c.theory.wide(lane.hi, 96))
            lane.y.written.append((constant(INT64, 0), c.theory.number(y, z3.Extract(y.bits - 1, 0, wanted))))

        c.run.contracts["one_by_one"] = one_by_one
        name = f"nmp_mve_{op}_{a.bits}x{b.bits}to{y.bits}"
        c.call(name, c.pointer(lane.y), p, q, constant(UINT32, 1), c.pointer(how))
        lane.show(exact, shift)

    proof.run(body, machine="mve", bits=True)


@statement(
    "MVE's sums: a lane is sat(rsh(a * 2^p + b * 2^q, shift)), in lanes of 16 bits up to p, q = 7, of 32 bits up to 22 "
    "for int8 and 14 for int16, at chosen p and q",
    MVE,
    "nmp_mve_add_8x8to8",
    "nmp_mve_add_16x16to16",
    "fits",
    "rows_of_both",
)
def lanes_are_added(proof: Proof) -> None:
    def body(c: Translation) -> None:
        steps = {name: c.run.symbol(UINT32, name, 0, 1) for name in ("a_step", "b_step")}
        how = c.struct("nmp_binary", a_shift=0, b_shift=0, **steps)
        rows = z3.And(*(step.term == 1 for step in steps.values()))
        for name, more in (("rows_of_both", []), ("fits", [0, 0])):
            c.run.demand(c.theory.truth(c.call(name, c.pointer(how), *more)) == rows, "rows of both operands")

    proof.run(body, machine="mve", bits=True)
    lanes(proof, "add", INT8, INT8, INT8, [(7, 0), (0, 7), (8, 0), (22, 0), (0, 22), (23, 0)])
    lanes(proof, "add", INT16, INT16, INT16, [(14, 0), (0, 14), (15, 0)])


@statement("MVE's products: a lane is sat(rsh(a * b, shift))", MVE, "nmp_mve_mul_8x8to8")
def lanes_are_multiplied(proof: Proof) -> None:
    lanes(proof, "mul", INT8, INT8, INT8, [(0, 0)])


__all__ = ["UINT64", "Cut", "Number"]
