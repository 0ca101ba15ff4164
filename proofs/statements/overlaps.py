"""ops/common/overlap.c: a result that lies over its input is written where nobody reads any more."""

from __future__ import annotations

from typing import Any

import z3

from proofs.memory import Record
from proofs.numbers import INT32, INT64, UINT32, Number
from proofs.statement import Proof, statement
from proofs.translate import Translation

OVERLAP = "ops/common/overlap.c"
BYTES_MAX = 2**31 - 1


class Axis:
    """An axis of a convolution that was verified: its last window ends with the input and its padding."""

    def __init__(self, c: Translation) -> None:
        self.run = c.run
        names = {"in": 1, "out": 1, "kernel": 1, "stride": 1, "dilation": 1, "before": 0, "after": 0}
        most = {"stride": 32767, "dilation": 32767, "before": 32767, "after": 32767}
        self.fields = {name: c.run.symbol(INT32, name, least, most.get(name)) for name, least in names.items()}
        self.term = {name: symbol.term for name, symbol in self.fields.items()}
        t = self.term
        self.reach = t["dilation"] * (t["kernel"] - 1)
        self.last = (t["out"] - 1) * t["stride"]
        c.run.assume(self.last >= 0, self.reach >= 0, self.reach < 2**31)
        c.run.assume(self.last + self.reach + 1 <= t["in"] + t["before"] + t["after"])
        c.run.assume(t["in"] + t["before"] + t["after"] < 2**31)
        self.record = c.struct("nmp_axis", **self.fields)

    def pixel(self, position: Any, k: Any) -> Any:
        return position * self.term["stride"] - self.term["before"] + k * self.term["dilation"]

    def window(self, name: str) -> Any:
        """A window that is any, with what its place is at most."""
        position = self.run.symbol(INT32, name, 0)
        self.run.assume(position.term < self.term["out"])
        hypotheses = [position.term >= 0, position.term <= self.term["out"] - 1, self.term["stride"] >= 1]
        product = position.term * self.term["stride"]
        self.run.lemma(hypotheses, z3.And(product >= 0, product <= self.last), "a window begins before the last one")
        return position


@statement(
    "the pixel under an element of a window is position * stride - before + k * dilation, without a wrap",
    OVERLAP,
    "nmp_pixel",
)
def pixels_do_not_wrap(proof: Proof) -> None:
    def body(c: Translation) -> None:
        axis = Axis(c)
        position, k = axis.window("position"), c.run.symbol(INT32, "k", 0)
        c.run.assume(k.term < axis.term["kernel"])
        hypotheses = [k.term >= 0, k.term <= axis.term["kernel"] - 1, axis.term["dilation"] >= 1]
        product = k.term * axis.term["dilation"]
        c.run.lemma(hypotheses, z3.And(product >= 0, product <= axis.reach), "an element is before the last one")
        y = c.theory.raw(c.call("nmp_pixel", c.pointer(axis.record), position, k))
        c.run.demand(y == axis.pixel(position.term, k.term), "pixel")

    proof.run(body)


def pixel_of(axis: Axis) -> Any:
    def contract(c: Translation, pointer: Any, position: Number, k: Number) -> Number:
        """By the proof before."""
        t, at, element = axis.term, c.theory.raw(position), c.theory.raw(k)
        c.run.demand(z3.And(at >= 0, at < t["out"], element >= 0, element < t["kernel"]), "pixel of a window")
        term = axis.pixel(at, element)
        c.run.assume(term >= -32767, term < 2**31 - 1)
        return Number(INT32, term, -32767, 2**31 - 2)

    return contract


def lines(c: Translation, axis: Axis, up: int) -> Record:
    x, y = c.run.symbol(UINT32, "x", 1, BYTES_MAX), c.run.symbol(UINT32, "y", 1, BYTES_MAX)
    x_offset, y_offset = c.run.symbol(UINT32, "x_offset"), c.run.symbol(UINT32, "y_offset")
    c.run.assume(x_offset.term + x.term * axis.term["in"] <= BYTES_MAX)  # both lie in the arena
    c.run.assume(y_offset.term + y.term * axis.term["out"] <= BYTES_MAX)
    at = Number(INT64, y_offset.term - x_offset.term, -BYTES_MAX, BYTES_MAX)
    return c.struct("lines", v=axis.record, x=x, y=y, at=at, pixels=0, up=up)


@statement(
    "a line of the result sees the input lines from f(i) to before l(i) of FORMAT.md, and later lines none before",
    OVERLAP,
    "read_from",
    "read_to",
)
def lines_that_are_seen(proof: Proof) -> None:
    def body(c: Translation) -> None:
        axis = Axis(c)
        c.run.contracts["nmp_pixel"] = pixel_of(axis)
        l = c.pointer(lines(c, axis, 0))  # noqa: E741
        i, later = axis.window("i"), axis.window("later")
        c.run.assume(i.term <= later.term)
        t = axis.term
        hypotheses = [i.term <= later.term, t["stride"] >= 1]
        c.run.lemma(hypotheses, i.term * t["stride"] <= later.term * t["stride"], "windows move on")
        first = c.theory.raw(c.call("read_from", l, i))
        start = axis.pixel(i.term, 0)
        c.run.demand(first == z3.If(start < 0, 0, start), "f")
        c.run.demand(c.theory.raw(c.call("read_from", l, later)) >= first, "f of later lines")
        i_end = c.theory.arithmetic("+", i, Number(INT32, 1, 1, 1))
        last = c.theory.raw(c.call("read_to", l, i_end))
        end = start + (t["kernel"] - 1) * t["dilation"] + 1
        c.run.demand(last == z3.If(end < t["in"], end, t["in"]), "l")

    proof.run(body)


@statement(
    "a band of lines is written only where neither it nor a later one reads: down, before the first byte that is read "
    "from now on; up, behind the last one; without a wrap of its 32-bit quotients",
    OVERLAP,
    "next",
)
def bands_spare_what_is_read(proof: Proof) -> None:
    for up in (0, 1):

        def body(c: Translation, up: int = up) -> None:
            axis = Axis(c)
            l = lines(c, axis, up)  # noqa: E741
            x, y, at = (c.theory.raw(l.fields[name].value) for name in ("x", "y", "at"))
            out = axis.term["out"]
            done = c.run.symbol(INT32, "done", 0)
            c.run.assume(done.term < out)
            seen = c.run.symbol(INT32, "seen", 0)  # f of the first line, or l of the last one
            c.run.assume(seen.term <= axis.term["in"])
            c.run.lemma(
                [seen.term <= axis.term["in"], x >= 1, x * axis.term["in"] <= BYTES_MAX],
                x * seen.term <= BYTES_MAX,
                "bytes",
            )
            c.run.lemma([seen.term <= axis.term["in"], x >= 1], x * seen.term <= x * axis.term["in"], "bytes of x")
            c.run.lemma([seen.term >= 0, x >= 1], x * seen.term >= 0, "bytes before")

            def reads(c: Translation, l: Any, line: Number) -> Number:  # noqa: E741
                wanted = out - done.term if up else done.term
                c.run.demand(c.theory.raw(line) == wanted, "the line that is asked for")
                return seen

            c.run.contracts |= {"read_from": reads, "read_to": reads}
            band = c.call("next", c.pointer(l), done)
            first, last = (c.theory.raw(band.fields[name].value) for name in ("first", "last"))
            begin, end = (first, last), (done.term, out - done.term)
            if up:
                c.run.demand(
                    z3.And(begin[1] == end[1], begin[0] >= 0, begin[0] <= end[1]), "the band ends where it is to"
                )
                c.run.demand(z3.Implies(first < last, at + first * y >= x * seen.term), "written behind what is read")
            else:
                c.run.demand(
                    z3.And(begin[0] == end[0], begin[1] >= end[0], begin[1] <= out), "the band begins where it is to"
                )
                c.run.demand(z3.Implies(first < last, at + last * y <= x * seen.term), "written before what is read")

        proof.run(body)
