"""Loads, stores and addresses on a path."""

from __future__ import annotations

from typing import Any

import z3

from proofs.execute import Run
from proofs.memory import ArrayType, Buffer, Cell, Pointer, PointerType, Record, StructType, Types, copied, is_zero
from proofs.numbers import INT32, INT64, IntType, Number, UnsupportedError, constant


class Objects:
    def __init__(self, types: Types, run: Run) -> None:
        self.types, self.run, self.theory = types, run, run.theory

    # What is made

    def variable(self, type_: Any, value: Any = None) -> Any:
        """A place of this type; without a value it is not initialized."""
        if isinstance(type_, StructType):
            if isinstance(value, Record):
                return value.copy()
            return Record(type_, {name: self.variable(of) for name, of in self.types.fields(type_)})
        if isinstance(type_, ArrayType):
            return Buffer(type_.of, constant(INT64, type_.count) if type_.count is not None else None)
        return Cell(type_, value)

    def zeros(self, type_: Any) -> Any:
        if isinstance(type_, StructType):
            return Record(type_, {name: self.zeros(of) for name, of in self.types.fields(type_)})
        if isinstance(type_, ArrayType):
            return Buffer(type_.of, constant(INT64, type_.count or 0), lambda index: constant(type_.of, 0))
        if isinstance(type_, IntType):
            return Cell(type_, constant(type_, 0))
        return Cell(type_, Pointer(type_, None))

    def struct(self, name: str, **fields: Any) -> Record:
        """A struct by its C name; fields that are not given are not initialized."""
        type_ = self.types.struct(name) if name in self.types.structs else self.types.named([name])
        record = self.variable(type_)
        for field, value in fields.items():
            of = dict(self.types.fields(type_))[field]
            record.fields[field] = (
                value if isinstance(value, Record | Buffer) else self.variable(of, self.converted(value, of))
            )
        return record

    def pointer(self, target: Any) -> Pointer:
        return Pointer(target.of if isinstance(target, Buffer) else target.type, target, constant(INT64, 0))

    def forget(self, place: Any, name: str) -> None:
        """Any value of its type."""
        if isinstance(place, Record):
            for field, part in place.fields.items():
                self.forget(part, f"{name}.{field}")
        elif isinstance(place, Buffer):
            place.written = []
            place.load = lambda index: self.run.symbol(place.of, f"{name}[]")
        elif isinstance(place.type, IntType):
            place.value = self.run.symbol(place.type, name)
        elif isinstance(place.type, PointerType) and isinstance(place.value, Pointer):
            index = self.run.symbol(INT64, f"{name}.index")
            place.value = Pointer(place.value.to, place.value.target, index)

    def forget_pointed(self, pointer: Pointer, name: str) -> None:
        """Any contents; an array that only results are written to is not read, and has none."""
        if isinstance(pointer.target, Buffer):
            pointer.target.written = []
            if pointer.target.load is not None:
                self.forget(pointer.target, name)
        elif pointer.target is not None:
            self.forget(pointer.target, name)

    # Conversions

    def converted(self, value: Any, type_: Any) -> Any:
        if isinstance(value, int):
            value = constant(INT64, value) if not isinstance(type_, IntType) else constant(type_, value)
        if isinstance(type_, IntType) and isinstance(value, Number):
            return self.theory.convert(value, type_)
        if isinstance(type_, PointerType):
            if is_zero(value):
                return Pointer(type_.to, None)
            if isinstance(value, Pointer):
                keeps = value.target is None or isinstance(value.target, str) or callable(value.target)
                return value if keeps else Pointer(type_.to, value.target, value.index)
            if isinstance(value, Buffer):
                return Pointer(type_.to, value, constant(INT64, 0))
        return value

    # Values

    def value_of(self, place: Any, name: str) -> Any:
        if isinstance(place, Buffer):
            return Pointer(place.of, place, constant(INT64, 0))
        return self.get(place, name)

    def get(self, place: Any, name: str = "") -> Any:
        if isinstance(place, tuple):
            return self.load(*place)
        if isinstance(place, Record):
            return place
        if isinstance(place, Cell):
            if place.value is None:
                self.run.demand(False, f"{name} is read before it is written")
            return place.value
        raise UnsupportedError(f"value of {type(place).__name__}")

    def set(self, place: Any, value: Any) -> None:
        if isinstance(place, tuple):
            self.store(place[0], place[1], self.converted(value, place[0].of))
        elif isinstance(place, Record):
            place.fields = {name: copied(part) for name, part in value.fields.items()}
        else:
            place.value = self.converted(value, place.type)

    def load(self, buffer: Buffer, index: Number) -> Any:
        buffer.read.append(index)
        others = []
        for at, value in reversed(buffer.written):
            same = z3.simplify(self.theory.raw(at) == self.theory.raw(index))
            if z3.is_true(same):
                others.append((None, value))
                break
            if not z3.is_false(same):
                others.append((same, value))
        if not others or others[-1][0] is not None:
            if buffer.load is None:
                self.run.demand(False, f"{buffer.name or 'an array'} is read before it is written")
            others.append((None, buffer.load(index)))
        result = others[-1][1]
        for same, value in reversed(others[:-1]):
            result = self.theory.select(same, value, result)
        return self.converted(result, buffer.of)

    def store(self, buffer: Buffer, index: Number, value: Any) -> None:
        buffer.written.append((index, value))

    # Addresses

    def scale(self, pointer: Pointer) -> int:
        """Elements of the array under a pointer in one step of it."""
        if not isinstance(pointer.target, Buffer):
            return 1
        wide, unit = self.types.size(pointer.to), self.types.size(pointer.target.of)
        if wide % unit:
            raise UnsupportedError("an address within an element")
        return wide // unit

    def moved(self, pointer: Pointer, by: Number, sign: int) -> Pointer:
        """pointer + sign * by elements. In integers an index does not wrap; an address must stay in its array."""
        step = sign * self.scale(pointer)
        index, by = pointer.index, self.plain(by)
        term = self.theory.raw(index) + self.theory.raw(by) * step if not (index.known and by.known) else None
        ends = [by.lo * step, by.hi * step]
        if term is None:
            target_index = constant(INT64, index.term + by.term * step)
        else:
            target_index = Number(INT64, z3.simplify(term), index.lo + min(ends), index.hi + max(ends))
        if isinstance(pointer.target, Buffer) and pointer.target.count is not None:
            self.within(target_index, pointer.target.count, 1, "an address leaves its array")
        return Pointer(pointer.to, pointer.target, target_index)

    def plain(self, by: Number) -> Number:
        if by.type.bits < 64 or by.known or not hasattr(self.theory, "wide"):
            return (
                self.theory.convert(by, INT64)
                if by.type.bits < 64 or by.known
                else Number(INT64, by.term, by.lo, by.hi)
            )
        return Number(INT64, by.term, INT64.lo, INT64.hi)

    def within(self, index: Number, count: Number, more: int, what: str) -> None:
        least, most = self.theory.raw(index), self.theory.raw(self.theory.convert(count, INT64))
        self.run.demand(z3.And(least >= 0, least <= most if more else least < most), what)

    def pointed(self, pointer: Pointer) -> Any:
        """The place that a pointer points to."""
        if isinstance(pointer, Record | Buffer):
            return pointer
        if pointer.target is None:
            self.run.demand(False, "NULL is followed")
        if not isinstance(pointer.target, Buffer):
            if not (pointer.index.known and pointer.index.term == 0):
                raise UnsupportedError("an address behind a variable")
            return pointer.target
        if self.scale(pointer) != 1:
            raise UnsupportedError("a load of several elements")
        if pointer.target.count is not None:
            self.within(pointer.index, pointer.target.count, 0, "an element outside of its array")
        if isinstance(pointer.target.of, StructType | PointerType):
            return pointer.target.load(pointer.index)
        return (pointer.target, pointer.index)

    def pointers(self, op: str, a: Any, b: Any) -> Any:
        if op in "+-" and isinstance(a, Pointer) and isinstance(b, Number):
            return self.moved(a, b, 1 if op == "+" else -1)
        if op == "+" and isinstance(a, Pointer):
            self.run.demand(False, "a sum of addresses")
        if op == "+" and isinstance(b, Pointer):
            return self.moved(b, a, 1)
        if isinstance(a, Pointer) and isinstance(b, Pointer):
            if op == "-" and a.target is b.target:
                return Number(
                    INT64,
                    self.theory.raw(a.index) - self.theory.raw(b.index),
                    a.index.lo - b.index.hi,
                    a.index.hi - b.index.lo,
                )
            if op in ("<", "<=", ">", ">=", "==", "!=") and a.target is b.target is not None:
                return self.theory.compare(op, a.index, b.index)
            if op in ("==", "!=") and (a.target is None or b.target is None):
                return constant(INT32, int((a.target is b.target) == (op == "==")))
        if op in ("==", "!=") and is_zero(b):
            return constant(INT32, int((a.target is None) == (op == "==")))
        raise UnsupportedError(f"{op} of addresses")

    def copy_bytes(self, to: Pointer, source: Pointer, count: Number) -> Pointer:
        """memcpy between a variable and an array, little-endian."""
        bits = self.theory
        n = self.run.one_of(count, 0, 64)
        array, cell = (source, to.target) if isinstance(to.target, Cell) else (to, source.target)
        unit = self.types.size(array.target.of)
        if self.types.size(cell.type) != n or n % unit:
            raise UnsupportedError("memcpy of a part")
        at = Pointer(array.target.of, array.target, array.index)
        word = 0 if array is source else self.theory.raw(cell.value)
        for i in range(n // unit):
            place = self.pointed(self.moved(at, constant(INT64, i), 1))
            if array is source:
                part = bits.extended(bits.convert(self.load(*place), IntType(8 * unit, False)), cell.type)
                word = word | part << (8 * unit * i) if i else part
            else:
                part = z3.Extract(8 * unit * (i + 1) - 1, 8 * unit * i, word)
                self.store(place[0], place[1], bits.number(array.target.of, part))
        if array is source:
            cell.value = bits.number(cell.type, word)
        return to

    def zeros_pointer(self, name: str) -> Pointer:
        """The address of a struct of this name that is all zeros."""
        return self.pointer(self.zeros(self.types.named([name])))
