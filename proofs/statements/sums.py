"""Sums of products: what is said of 32 bits before a convolution is run, and sums that start at bias plus rounding."""

from __future__ import annotations

from typing import Any

import z3

from proofs.execute import Cut
from proofs.memory import Buffer
from proofs.numbers import INT8, INT16, INT32, INT64, UINT8, UINT32, UINT64, IntType, Number, constant
from proofs.statement import Proof, statement
from proofs.statements.kernels import array
from proofs.statements.rounding import floor_of
from proofs.translate import Translation

PACK, PLAIN32 = "conv/gemm/panel.c", "arch/plain32/kernels_plain32.c"
INTEGERS = z3.IntSort()


def magnitude(a: Any) -> Any:
    return z3.If(a < 0, -a, a)


@statement(
    "what nmp_fits_int32 passes stays in 32 bits: the start plus any part of products with magnitudes of `most` in all",
    PACK,
    "nmp_fits_int32",
)
def sums_fit(proof: Proof) -> None:
    def body(c: Translation) -> None:
        start, most = c.run.symbol(INT64, "start", -(2**62), 2**62 - 1), c.run.symbol(INT64, "most", 0, 2**62 - 1)
        fits = c.theory.truth(c.call("nmp_fits_int32", start, most))
        part = c.run.integer("part")
        c.run.assume(magnitude(part) <= most.term)
        there = z3.And(start.term + part >= INT32.lo, start.term + part <= INT32.hi)
        c.run.demand(z3.Implies(fits, there), "a partial sum")
        largest = magnitude(start.term) + most.term
        c.run.demand(fits == (largest <= INT32.hi), "as large as it can be")

    proof.run(body)


@statement(
    "sums of up to 128 weights and of their magnitudes are exact in 16 bits for int8, in 32 bits for int16",
    PACK,
    "nmp_sum_narrow",
    "nmp_sum_wide",
)
def weights_are_summed(proof: Proof) -> None:
    for name, type_ in (("nmp_sum_narrow", INT8), ("nmp_sum_wide", INT16)):

        def body(c: Translation, name: str = name, type_: IntType = type_) -> None:
            sums, magnitudes = (z3.Function(f"{key}_of", INTEGERS, INTEGERS) for key in ("sum", "magnitudes"))
            n = c.run.symbol(UINT64, "n", 0, 128)  # NMP_STRETCH, which the proof of nmp_sum_weights holds
            weights = array(c, "w", type_, n)
            begin = {key: c.run.symbol(INT64, key, -(2**40), 2**40) for key in ("sum", "magnitudes")}
            total = c.struct("nmp_weight_sums", **begin)
            w = weights.values  # type: ignore[attr-defined]
            c.run.assume(sums(0) == 0, magnitudes(0) == 0)

            def exact(run: Any, v: dict[str, Any]) -> list[Any]:
                i = run.theory.raw(v["i"])
                for at in (i, i - 1):
                    run.assume(
                        z3.Implies(at >= 0, sums(at + 1) == sums(at) + w(at)),
                        z3.Implies(at >= 0, magnitudes(at + 1) == magnitudes(at) + magnitude(w(at))),
                    )
                part, size = run.theory.raw(v["sum"]), run.theory.raw(v["magnitudes"])
                return [
                    i <= n.term,
                    part == sums(i),
                    size == magnitudes(i),
                    magnitude(part) <= size,
                    size <= i * -type_.lo,
                ]

            c.run.cuts[(name, 0)] = Cut(exact)
            c.call(name, c.pointer(total), c.pointer(weights), n)
            for key, function in (("sum", sums), ("magnitudes", magnitudes)):
                got = c.theory.raw(total.fields[key].value)
                c.run.demand(got == begin[key].term + function(n.term), key)

        proof.run(body)


@statement(
    "a channel's weights are summed from first to last, in stretches of at most 128 that lie in the weights",
    PACK,
    "nmp_sum_weights",
)
def weights_are_summed_in_stretches(proof: Proof) -> None:
    def body(c: Translation) -> None:
        wide = c.run.choose(2)
        k, channel = c.run.symbol(UINT32, "k", 1, 131071), c.run.symbol(UINT64, "channel", 0, 2**31 - 1)
        w = array(c, "w", INT16 if wide else INT8)
        conv = c.struct("nmp_conv", k=k, w_wide=wide, w=c.pointer(w))
        first = channel.term * k.term
        c.run.assume(first >= 0, first + k.term < 2**62)
        place: dict[str, Any] = {}
        totals = {key: z3.Function(key, INTEGERS, INTEGERS) for key in ("sum", "magnitudes")}
        c.run.assume(*(total(0) == 0 for total in totals.values()))  # of the first so many weights

        def stretch(c: Translation, sums: Any, weights: Any, n: Number) -> None:
            at, count = c.theory.raw(weights.index), c.theory.raw(n)
            c.run.demand(z3.And(count >= 1, count <= 128), "elements of a stretch")
            c.run.demand(z3.And(at == place["i"], at >= first, at + count <= first + k.term), "place of a stretch")
            place["n"] = count
            for key, total in totals.items():
                field = sums.target.fields[key]
                more = total(at + count - first) - total(at - first)
                field.value = c.theory.number(INT64, field.value.term + more)

        def moves(run: Any, v: dict[str, Any]) -> list[Any]:
            i, end = run.theory.raw(v["i"]), run.theory.raw(v["end"])
            conditions = [i >= first, i <= first + k.term, end == first + k.term]
            conditions += [
                run.theory.raw(v["s"].fields[key].value) == total(i - first) for key, total in totals.items()
            ]
            if "n" in place:
                conditions.append(i == place["i"] + place["n"])
            place["i"] = i
            return conditions

        c.run.contracts |= {"nmp_sum_narrow": stretch, "nmp_sum_wide": stretch}
        c.run.cuts[("nmp_sum_weights", 0)] = Cut(moves)
        place.clear()
        got = c.call("nmp_sum_weights", c.pointer(conv), channel)
        for key, total in totals.items():
            c.run.demand(c.theory.raw(got.fields[key].value) == total(k.term), f"{key} of all weights")

    proof.run(body)


@statement(
    "an int32 sum that starts at bias * 2^shift plus half a unit, and wraps on the way, ends as rsh(S, shift) + bias "
    "where nmp_gemm_fits_int32 says so, for bytes of x that are 128 too large, too",
    PACK,
    "pack_fits",
    beyond={"const int by =": "split planes, and channels without weights: tests"},
)
def sums_start_at_bias(proof: Proof) -> None:
    for zero in (0, 128):
        for x_wide in (0, 1):

            def body(c: Translation, zero: int = zero, x_wide: int = x_wide) -> None:
                most_w = 131071 * 2**15
                weights = c.run.symbol(INT64, "weights", -most_w, most_w)
                sizes = c.run.symbol(INT64, "magnitudes", 0, most_w)
                c.run.assume(magnitude(weights.term) <= sizes.term)
                by, bias = constant(INT32, range(-15, 48)[c.run.choose(63)]), c.run.symbol(INT32, "bias")
                c.run.contracts |= {
                    "nmp_conv_shift": lambda c, *a: by,
                    "nmp_conv_bias": lambda c, *a: bias,
                }
                conv = c.struct("nmp_conv", x_wide=x_wide)
                product = c.struct("nmp_gemm_product", planes=1, zero=zero, bytes=0)
                start, shift = c.variable(INT32), c.variable(INT32)
                sums = c.struct("nmp_weight_sums", sum=weights, magnitudes=sizes)
                args = (c.pointer(product), 0, c.pointer(sums), c.pointer(start), c.pointer(shift))
                if not c.run.decide(c.theory.truth(c.call("pack_fits", c.pointer(conv), *args))):
                    return
                c.run.demand(shift.value is not None, "a shift where it fits")
                s = c.run.integer("S")
                c.run.assume(magnitude(s) <= sizes.term * (32768 if x_wide else 128))
                added = s + (128 * weights.term if zero else 0)  # the products that the kernel adds
                units = c.run.one_of(shift.value, 0, 30)
                whole = start.value.term + added
                wrapped = (whole - INT32.lo) % 2**32 + INT32.lo
                y = wrapped / 2**units
                wanted = (s + (2 ** (units - 1) if units else 0)) / 2**units + bias.term
                c.run.demand(y == wanted, "the end of the sum")

            proof.run(body)


@statement(
    "plain32's ends of sums of up to 131071 products of int8 are rsh(sum, shift) + bias, clipped, for any shift, bias",
    PLAIN32,
    "nmp_plain32_scale_32to8",
    "nmp_plain32_scale_32to16",
)
def sums_end_in_words(proof: Proof) -> None:
    for bits in (8, 16):
        ends_of(proof, f"nmp_plain32_scale_32to{bits}", IntType(bits, True), INT32, PLAIN32)


@statement(
    "plain32's ends of sums of up to 131071 products of int16 are rsh(sum, shift) + bias, clipped",
    "arch/plain32/kernels_plain32_wide.c",
    "nmp_plain32_scale_64to8",
    "nmp_plain32_scale_64to16",
)
def long_sums_end(proof: Proof) -> None:
    for bits in (8, 16):
        ends_of(
            proof, f"nmp_plain32_scale_64to{bits}", IntType(bits, True), INT64, "arch/plain32/kernels_plain32_wide.c"
        )


def ends_of(proof: Proof, name: str, y: IntType, of: IntType, path: str) -> None:
    """One row of one channel: rows and channels are steps of addresses alone."""

    def body(c: Translation) -> None:
        most = 131071 * (2**14 if of is INT32 else 2**30)
        total = c.run.symbol(of, "sum", -most, most)
        bias, lo, hi = (
            c.run.symbol(INT32, "bias"),
            c.run.symbol(INT32, "lo", y.lo, y.hi),
            c.run.symbol(INT32, "hi", y.lo, y.hi),
        )
        shift = constant(INT8, range(-15, 48)[c.run.choose(63)])
        c.run.assume(lo.term <= hi.term)
        out = Buffer(y, constant(INT64, 1), None, "y")

        def single(type_: IntType, value: Any) -> Any:
            return c.pointer(Buffer(type_, constant(INT64, 1), lambda index: value))

        args = (single(of, total), 1, 1, single(INT32, bias), single(INT8, shift), lo, hi)
        c.call(name, c.pointer(out), 1, *args)
        ((_, got),) = out.written
        by = shift.term
        rounded = (total.term + 2 ** (by - 1)) / 2**by if by > 0 else total.term * 2**-by
        value = rounded + bias.term
        clipped = z3.If(value < lo.term, lo.term, z3.If(value > hi.term, hi.term, value))
        c.run.demand(c.theory.raw(got) == clipped, "end")

    proof.run(body, machine="rv32", path=f"interpreter/src/{path}")


@statement(
    "products of int16 in two sums: -(high * 2^16 + low) is the exact sum of any number of them, and low never leaves "
    "32 bits",
    "arch/plain32/kernels_plain32_wide.c",
    "gemm_16x16_four",
)
def products_in_two_sums(proof: Proof) -> None:
    def body(c: Translation) -> None:
        k = c.run.symbol(UINT32, "k", 0, 131071)
        x = array(c, "x", INT16, k)
        w = array(c, "w", INT16)
        at = z3.Function("products", INTEGERS, INTEGERS)  # sum of the first i products of the first channel
        c.run.assume(at(0) == 0)
        xs, ws = x.values, w.values  # type: ignore[attr-defined]

        def add(run: Any, i: Any, count: int) -> None:
            for lane in range(count):
                run.assume(at(i + lane + 1) == at(i + lane) + xs(i + lane) * ws(i + lane))

        def step(run: Any, i: Any) -> None:
            add(run, i, 4)
            for lane in range(4):
                product = xs(i + lane) * ws(i + lane)
                run.assume(xs(i + lane) >= -32768, xs(i + lane) <= 32767, ws(i + lane) >= -32768, ws(i + lane) <= 32767)
                p, q = xs(i + lane), ws(i + lane)
                limits = [p >= -32768, p <= 32767, q >= -32768, q <= 32767]
                run.lemma(limits, z3.And(product <= 2**30, product >= -(2**30) + 2**15), "a product of int16")

        def channels(run: Any, v: dict[str, Any], multiple: int) -> list[Any]:
            """x and all rows of weights move on together; the first channel's sum is exact."""
            i = run.theory.raw(v["x"].index)
            step(run, i)
            conditions = [i >= 0, i <= k.term, i % multiple == 0]
            for name, row in zip(("w0", "w1", "w2", "w3"), (0, *rows), strict=True):
                conditions.append(run.theory.raw(v[name].index) == i + row)
            for name in "abcd":
                low, high = run.theory.raw(v[name]), run.theory.raw(v[f"{name}_high"])
                conditions += [low >= 0, low <= 65535, magnitude(high * 65536 + low) <= i * 2**30]
            low, high = run.theory.raw(v["a"]), run.theory.raw(v["a_high"])
            conditions.append(-(high * 65536 + low) == at(i))
            return conditions

        rows = [c.run.symbol(UINT32, f"row{i}", 0, 3 * 131071) for i in range(3)]
        terms, rows = rows, [row.term for row in rows]
        steps = Buffer(UINT32, constant(INT64, 3), lambda index: terms[index.term], "rows")
        sums = Buffer(INT64, constant(INT64, 4), None, "sums")
        for loop, multiple in ((0, 4), (2, 1)):
            c.run.cuts[("gemm_16x16_four", loop)] = Cut(lambda run, v, m=multiple: channels(run, v, m))
        c.call("gemm_16x16_four", c.pointer(sums), c.pointer(x), c.pointer(w), c.pointer(steps), k)
        c.run.demand(c.theory.raw(sums.written[0][1]) == at(k.term), "the sum")

    proof.run(body, machine="rv32")


__all__ = ["UINT8", "floor_of"]
