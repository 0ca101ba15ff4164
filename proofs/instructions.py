"""Instructions of Cortex-M that inline assembly here uses, by Arm's architecture reference manuals.

DSP extension: on words. MVE: on one lane of each vector register, since these instructions take lanes apart.
"""

from __future__ import annotations

import re
from typing import Any

import z3

from proofs.execute import texts
from proofs.memory import Pointer
from proofs.numbers import INT32, INT64, UINT32, IntType, Number, UnsupportedError, constant


def half(word: Any, high: bool) -> Any:
    return z3.SignExt(16, z3.Extract(31 if high else 15, 16 if high else 0, word))


def byte(word: Any, place: int) -> Any:
    return z3.Extract(8 * place + 7, 8 * place, word)


def saturated(value: Any, lo: int, hi: int) -> Any:
    return z3.If(value < lo, z3.BitVecVal(lo, value.size()), z3.If(value > hi, z3.BitVecVal(hi, value.size()), value))


def sxtb16(a: Any, turn: int = 0) -> Any:
    a = z3.RotateRight(a, turn)
    return z3.Concat(z3.SignExt(8, byte(a, 2)), z3.SignExt(8, byte(a, 0)))


def long_half(word: Any, high: bool) -> Any:
    return z3.SignExt(32, half(word, high))


class Words:
    """The DSP extension. names: registers by operand; values: their terms of 32 or 64 bits."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.ge: list[Any] = []

    def step(self, name: str, args: list[str]) -> None:
        value = [self.values.get(arg) for arg in args]
        number = [int(arg.split("#")[1]) if "#" in arg else 0 for arg in args]
        to = args[0]
        if name == "sxtb16":
            self.values[to] = sxtb16(value[1], number[-1])
        elif name == "pkhbt":
            self.values[to] = z3.Concat(z3.Extract(31, 16, value[2] << number[3]), z3.Extract(15, 0, value[1]))
        elif name == "pkhtb":
            self.values[to] = z3.Concat(z3.Extract(31, 16, value[1]), z3.Extract(15, 0, value[2] >> number[3]))
        elif name == "smlad":
            pairs = half(value[1], False) * half(value[2], False) + half(value[1], True) * half(value[2], True)
            self.values[to] = pairs + value[3]
        elif name in ("smlabb", "smlatt"):
            self.values[to] = half(value[1], name == "smlatt") * half(value[2], name == "smlatt") + value[3]
        elif name in ("smlald", "smlalbb", "smlaltt"):
            a, b = value[2], value[3]
            low, high = (long_half(a, top) * long_half(b, top) for top in (False, True))
            self.values[to[2:]] = self.values[to[2:]] + {"smlald": low + high, "smlalbb": low, "smlaltt": high}[name]
        elif name == "ssat":
            self.values[to] = saturated(value[2], -(1 << (number[1] - 1)), (1 << (number[1] - 1)) - 1)
        elif name == "usat":
            self.values[to] = saturated(value[2], 0, (1 << number[1]) - 1)
        elif name == "ssub8":
            wide = [z3.SignExt(1, byte(value[1], i)) - z3.SignExt(1, byte(value[2], i)) for i in range(4)]
            self.ge = [lane >= 0 for lane in wide]
            self.values[to] = z3.Concat(*(z3.Extract(7, 0, lane) for lane in reversed(wide)))
        elif name == "sel":
            parts = [z3.If(self.ge[i], byte(value[1], i), byte(value[2], i)) for i in range(4)]
            self.values[to] = z3.Concat(*reversed(parts))
        elif name == "bfi":
            mask = ((1 << number[3]) - 1) << number[2]
            self.values[to] = value[0] & ~z3.BitVecVal(mask, 32) | value[1] << number[2] & mask
        else:
            raise UnsupportedError(f"instruction {name}")


def assembly(machine: Any, node: Any, args: list[Any]) -> None:
    template = texts(args[0])
    machine.note(args[0])
    operands = []
    for constraint, expression in zip(args[1::2], args[2::2], strict=True):
        name, kind = re.fullmatch(r"(?:\[(\w+)\] )?(.*)", texts(constraint)).groups()
        operands.append((name, kind, expression))
    if "wlstp" in template:
        Lanes(machine, operands).run(template)
    elif template.strip():
        run_words(machine, template, operands)


def run_words(machine: Any, template: str, operands: list[Any]) -> None:
    theory, values = machine.theory, {}
    for at, (_, kind, expression) in enumerate(operands):
        bits = 64 if f"%Q{at}" in template else 32
        if "=" in kind:
            values[f"%{at}"] = machine.run.theory.raw(machine.run.symbol(UINT32, "any"))
        else:
            number = theory.convert(machine.evaluate(expression), IntType(bits, True))
            values[f"%{at}"] = theory.raw(number)
    words = Words({name.replace("%", ""): value for name, value in values.items()})
    for line in template.splitlines():
        if line.strip():
            name, rest = line.strip().split(None, 1)
            words.step(name, [part.strip().replace("%", "") for part in registers(rest)])
    for at, (_, kind, expression) in enumerate(operands):
        if "=" in kind or "+" in kind:
            place = machine.place(expression)
            value = words.values[f"{at}"]
            machine.set(place, theory.number(IntType(value.size(), place.type.signed), value))


def registers(text: str) -> list[str]:
    """%Q0, %R0 of a pair are one, called Q 0."""
    parts = [part.strip() for part in text.split(",")]
    if parts[0].startswith("%Q"):
        return [f"Q {parts[0][2:]}", *parts[1:]]
    return parts


class Lanes:
    """A loop over vectors as its instructions for one lane: that of an element that is any."""

    def __init__(self, machine: Any, operands: list[Any]) -> None:
        self.machine, self.theory = machine, machine.theory
        self.operands = {name: (kind, expression) for name, kind, expression in operands}
        self.q: dict[str, Any] = {}

    def operand(self, text: str) -> Any:
        name = re.fullmatch(r"%q?\[(\w+)\]", text).group(1)
        return self.machine.evaluate(self.operands[name][1])

    def run(self, template: str) -> None:
        body = template.split("1:")[1].split("letp")[0]
        lanes = int(re.search(r"wlstp\.(\d+)", template).group(1))
        for line in body.splitlines():
            if line.strip():
                name, rest = line.strip().split(None, 1)
                self.step(name, [part.strip() for part in re.split(r",\s*(?![^\[]*\])", rest)], lanes)

    def step(self, name: str, args: list[str], lanes: int) -> None:
        base, _, suffix = name.partition(".")
        bits = int(re.sub(r"\D", "", suffix))
        if base.startswith("vldr"):
            self.q[args[0]] = self.loaded(base[-1], args[1], bits)
        elif base.startswith("vstr"):
            self.stored(base[-1], args[0], args[1])
        elif base in ("vqrshl", "vshl"):
            self.q[args[0]] = self.shifted(self.q[args[0]], self.operand(args[1]), bits, base == "vqrshl")
        elif base in ("vmax", "vmin"):
            a, b = (self.value(arg, bits) for arg in args[1:])
            self.q[args[0]] = z3.If((a > b) if base == "vmax" else (a < b), a, b)
        elif base in ("vadd", "vmul"):
            a, b = (self.value(arg, bits) for arg in args[1:])
            self.q[args[0]] = a + b if base == "vadd" else a * b
        else:
            raise UnsupportedError(f"instruction {name}")
        if bits != lanes:
            raise UnsupportedError(f"{name} in lanes of {lanes} bits")

    def value(self, text: str, bits: int) -> Any:
        if text in self.q:
            return self.q[text]
        return self.theory.raw(self.theory.convert(self.operand(text), IntType(bits, True)))

    def loaded(self, kind: str, address: str, bits: int) -> Any:
        pointer = self.operand(re.search(r"%\[\w+\]", address).group())
        of = IntType({"b": 8, "h": 16}[kind], True)
        place = self.machine.pointed(Pointer(of, pointer.target, pointer.index))
        return self.theory.raw(self.theory.convert(self.machine.get(place), IntType(bits, True)))

    def stored(self, kind: str, register: str, address: str) -> None:
        """The lowest bits of a lane."""
        pointer = self.operand(re.search(r"%\[\w+\]", address).group())
        of = IntType({"b": 8, "h": 16}[kind], True)
        value = self.theory.number(of, z3.Extract(of.bits - 1, 0, self.q[register]))
        place = self.machine.pointed(Pointer(of, pointer.target, pointer.index))
        self.machine.set(place, value)

    def shifted(self, value: Any, by: Number, bits: int, rounds: bool) -> Any:
        """VSHL, VQRSHL by a register: up by its lowest byte, or down where that is negative, rounded half up."""
        by = self.machine.run.one_of(by, -128, 127)
        if by < 0 and not rounds:
            return value >> min(-by, bits - 1)
        wide = z3.SignExt(96 - bits, value)
        wide = wide + (1 << -by - 1) >> -by if by < 0 else wide << by
        if rounds:
            wide = saturated(wide, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        return z3.Extract(bits - 1, 0, wide)


__all__ = ["INT32", "INT64", "assembly", "constant"]
