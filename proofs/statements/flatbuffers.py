"""base/fb.c: the verifier reads nothing outside of the file, whatever its bytes and its length are.

Each function is proved with what its callees were proved to say. What is assumed of the schema's tables is checked
against gen/nmp_schema.c by tests/proofs.
"""

from __future__ import annotations

from typing import Any

import z3

from proofs.execute import Cut
from proofs.memory import Buffer, Pointer, Record
from proofs.numbers import UINT8, UINT32, Number, constant
from proofs.statement import Proof, statement
from proofs.translate import Translation

FB = "base/fb.c"
SCALAR, STRING, TABLE, UNION, VECTOR, STRINGS, TABLES = range(7)
WIDTHS = (1, 2, 4, 8)
BYTES_MAX = 2**31 - 1
INTEGERS, BOOLEAN = z3.IntSort(), z3.BoolSort()
FILE, KIND, ARG = (z3.Function(name, INTEGERS, INTEGERS) for name in ("file", "kind", "arg"))


def one_of(term: Any, values: tuple[int, ...]) -> Any:
    return z3.Or(*(term == value for value in values))


class Walk:
    """A file of any length and bytes, and a walk over it."""

    def __init__(self, c: Translation) -> None:
        self.c, self.run = c, c.run
        self.bytes = c.run.symbol(UINT32, "bytes", 4, BYTES_MAX)
        self.budget = c.run.symbol(UINT32, "budget")
        self.count = c.run.symbol(UINT32, "fields", 0, 255)
        self.first_field = c.run.integer("first_field")
        self.file = Buffer(UINT8, self.bytes, self.byte, "file")
        self.fields = Buffer(c.types.named(["fb_field"]), None, self.field, "fields")
        self.w = c.struct("walk", file=c.pointer(self.file), bytes=self.bytes, budget=self.budget)
        self.at = c.run.symbol(UINT32, "at")

    def byte(self, index: Number) -> Number:
        term = FILE(self.c.theory.raw(index))
        self.run.assume(term >= 0, term <= 255)
        return Number(UINT8, term, 0, 255)

    def field(self, index: Number) -> Record:
        """A field by what gen/nmp_schema.c may say of one."""
        at = self.c.theory.raw(index)
        kind, arg = KIND(at), ARG(at)
        plain = kind % 128
        self.run.assume(kind >= 0, kind <= 255, arg >= 0, arg <= 255, plain <= TABLES)
        self.run.assume(z3.Implies(z3.Or(plain == SCALAR, plain == VECTOR), one_of(arg, WIDTHS)))
        return self.c.struct("fb_field", kind=Number(UINT8, kind, 0, 255), arg=Number(UINT8, arg, 0, 255))

    def four(self, at: Any) -> Any:
        """There are four bytes at `at`."""
        return z3.And(at >= 0, at + 4 <= self.bytes.term)

    def place(self, at: Any) -> Any:
        return z3.And(self.four(at), at % 4 == 0)

    def pointer(self) -> Pointer:
        return self.c.pointer(self.w)

    # Callees

    def fields_of(self, c: Translation, w: Any, number: Any, fields: Pointer) -> Number:
        fields.target.value = Pointer(self.fields.of, self.fields, Number(UINT32, self.first_field, 0, 255))
        return self.count

    def follow(self, c: Translation, w: Any, at: Number) -> Number:
        self.run.demand(self.four(c.theory.raw(at)), "follow: four bytes in the file")
        to = c.run.symbol(UINT32, "to")
        self.run.assume(z3.Or(to.term == 0, self.place(to.term)))
        return to

    def vector_inside(self, c: Translation, w: Any, at: Number, width: Number, count: Pointer) -> Number:
        self.run.demand(self.four(c.theory.raw(at)), "vector_inside: four bytes in the file")
        self.run.demand(one_of(c.theory.raw(width), WIDTHS), "vector_inside: width")
        elements = c.run.symbol(UINT32, "count")
        count.target.value = elements
        inside = z3.Bool(c.run.name("inside"))
        for bytes_ in WIDTHS:
            end = c.theory.raw(at) + 4 + elements.term * bytes_
            self.run.assume(z3.Implies(z3.And(inside, c.theory.raw(width) == bytes_), end <= self.bytes.term))
        return c.theory.boolean(inside)


@statement("inside is at + bytes <= length, for any 32-bit numbers", FB, "inside")
def range_in_file(proof: Proof) -> None:
    def body(c: Translation) -> None:
        walk, more = Walk(c), c.run.symbol(UINT32, "more")
        result = c.theory.truth(c.call("inside", walk.pointer(), walk.at, more))
        c.run.demand(result == (walk.at.term + more.term <= walk.bytes.term), "inside")

    proof.run(body)


@statement("an offset is followed to nothing, or further on, to a multiple of 4 with four bytes", FB, "follow")
def offset_leads_into_file(proof: Proof) -> None:
    def body(c: Translation) -> None:
        walk = Walk(c)
        c.run.assume(walk.four(walk.at.term))
        to = c.theory.raw(c.call("follow", walk.pointer(), walk.at))
        c.run.demand(z3.Or(to == 0, z3.And(walk.place(to), to > walk.at.term)), "follow")

    proof.run(body)


@statement("what is spent leaves the budget, which never gets below 0", FB, "spend")
def budget_shrinks(proof: Proof) -> None:
    def body(c: Translation) -> None:
        walk, more = Walk(c), c.run.symbol(UINT32, "more")
        result = c.theory.truth(c.call("spend", walk.pointer(), more))
        units, left = 1 + more.term / 8, c.theory.raw(walk.w.fields["budget"].value)
        enough = units <= walk.budget.term
        c.run.demand(z3.And(result == enough, left == walk.budget.term - z3.If(enough, units, 0)), "spend")

    proof.run(body)


@statement("a vector ends in the file, for any count and width", FB, "vector_inside")
def vector_ends_in_file(proof: Proof) -> None:
    for width in WIDTHS:

        def body(c: Translation, width: int = width) -> None:
            walk, count = Walk(c), c.variable(UINT32)
            at = walk.at.term
            c.run.assume(walk.four(at))
            result = c.theory.truth(c.call("vector_inside", walk.pointer(), walk.at, width, c.pointer(count)))
            end = at + 4 + c.theory.raw(count.value) * width
            c.run.demand(result == z3.And(end <= walk.bytes.term, (at + 4) % width == 0), "vector")

        proof.run(body)


@statement(
    "a vector of scalars and a string end in the file, the string in a NUL", FB, "scalars_inside", "string_inside"
)
def strings_end_in_file(proof: Proof) -> None:
    def body(c: Translation) -> None:
        walk = Walk(c)
        c.run.contracts["vector_inside"] = walk.vector_inside
        spent = []

        def spend(c: Translation, w: Any, size: Number) -> Number:
            spent.append(size)
            return c.theory.boolean(z3.Bool("spent"))

        c.run.contracts["spend"] = spend
        c.run.assume(walk.four(walk.at.term))
        if c.run.choose(2):
            result = c.theory.truth(c.call("string_inside", walk.pointer(), walk.at))
            if not c.run.decide(result):
                return
            c.run.demand(bool(spent), "its bytes are paid")
            end = walk.at.term + 4 + z3.Int("count")
            last = c.theory.raw(c.load(walk.file, Number(UINT32, end, 0, 2**32 - 1)))
            paid = spent[-1].term == z3.Int("count")
            c.run.demand(z3.And(end < walk.bytes.term, last == 0, paid), "string")
        else:
            width = WIDTHS[c.run.choose(4)]
            result = c.theory.truth(c.call("scalars_inside", walk.pointer(), walk.at, width))
            if spent:
                c.run.demand(c.theory.raw(spent[-1]) == z3.Int("count") * width, "bytes that are paid")

    proof.run(body)


@statement(
    "a table's vtable and all of its fields lie in the file, aligned, for any bytes",
    FB,
    "frame_inside",
    "fb_offset",
    "fb_load16",
    "fb_load32",
    beyond={"  return 1;": "the statement is of what passes; that nothing else is refused, tests show"},
)
def table_lies_in_file(proof: Proof) -> None:
    """Shows the place of any field by the loop over fields."""
    field = z3.Int("some_field")

    def good(walk: Walk) -> Any:
        """Condition on the field's place: its width's bytes in the file, at a multiple of its width."""
        at = walk.at.term
        kind, arg = KIND(walk.first_field + field), ARG(walk.first_field + field)
        width = z3.If(kind % 128 == SCALAR, arg, 4)
        word = sum(FILE(at + i) * 256**i for i in range(4))
        vtable = at - z3.If(word >= 2**31, word - 2**32, word)
        slot = 4 + 2 * field
        offset = z3.If(
            slot < FILE(vtable) + 256 * FILE(vtable + 1), FILE(vtable + slot) + 256 * FILE(vtable + slot + 1), 0
        )
        there = z3.And(offset >= 4, at + offset + width <= walk.bytes.term)
        aligned = z3.Or(*(z3.And(width == bytes_, (at + offset) % bytes_ == 0) for bytes_ in WIDTHS))
        return z3.If(offset == 0, kind < 128, z3.And(there, aligned))

    def body(c: Translation) -> None:
        walk = Walk(c)
        c.run.assume(walk.place(walk.at.term), field >= 0, field < walk.count.term)
        c.run.contracts["fields_of"] = walk.fields_of
        c.run.cuts[("frame_inside", 0)] = Cut(
            lambda run, v: [v["i"].term <= walk.count.term, z3.Implies(field < v["i"].term, good(walk))]
        )
        walk.field(Number(UINT32, walk.first_field + field, 0, 255))
        result = c.theory.truth(c.call("frame_inside", walk.pointer(), constant(UINT32, 0), walk.at))
        c.run.demand(z3.Implies(result, good(walk)), "the field's place")

    proof.run(body)


def lists(name: str, callee: str) -> Any:
    """The result is 1 where the vector lies in the file and each element leads to what passes; of one that is any."""
    to_of, passes = z3.Function("to", INTEGERS, INTEGERS), z3.Function("passes", INTEGERS, BOOLEAN)
    any_index = z3.Int("some_element")

    def body(c: Translation) -> None:
        walk, last = Walk(c), {}
        c.run.assume(walk.place(walk.at.term), any_index >= 0)

        def good(i: Any) -> Any:
            to = to_of(walk.at.term + 4 + 4 * i)
            return z3.And(to != 0, passes(to))

        def follow(c: Translation, w: Any, at: Number) -> Number:
            to = walk.follow(c, w, at)
            c.run.assume(to.term == to_of(c.theory.raw(at)))
            return to

        def element(c: Translation, *args: Any) -> Number:
            c.run.demand(walk.place(c.theory.raw(args[-1])), f"{callee}: four bytes in the file")
            return c.theory.boolean(passes(c.theory.raw(args[-1])))

        def before(run: Any, v: dict[str, Any]) -> list[Any]:
            last["i"] = v["i"].term
            return [v["i"].term <= v["count"].term, z3.Implies(any_index < v["i"].term, good(any_index))]

        c.run.contracts |= {"vector_inside": walk.vector_inside, "follow": follow, callee: element}
        args = [constant(UINT32, 0)] if name == "tables_inside" else []
        c.run.cuts[(name, 0)] = Cut(before)
        result = c.theory.truth(c.call(name, walk.pointer(), *args, walk.at))
        count = z3.Int("count")
        c.run.demand(z3.Implies(z3.And(result, any_index < count), good(any_index)), "an element of a list that passes")
        bad = z3.And(last["i"] < count, z3.Not(good(last["i"]))) if last else z3.BoolVal(False)
        c.run.demand(z3.Or(result, z3.Not(z3.Bool("inside")), bad), "a list that is refused for a reason")

    return body


@statement(
    "a list passes where its vector and every element do, each looked for in the file, for any count",
    FB,
    "tables_inside",
    "strings_inside",
)
def lists_lie_in_file(proof: Proof) -> None:
    proof.run(lists("tables_inside", "table_inside"))
    proof.run(lists("strings_inside", "string_inside"))


@statement(
    "what a field of any kind leads to is looked for as its kind says, in the file, and members of unions have a type",
    FB,
    "field_inside",
    "fb_kind",
)
def fields_are_looked_for(proof: Proof) -> None:
    def body(c: Translation) -> None:
        walk = Walk(c)
        c.run.assume(walk.place(walk.at.term))
        element = walk.field(Number(UINT32, walk.first_field, 0, 255))
        member, kind = c.run.symbol(UINT32, "member", 0, 255), c.theory.raw(element.fields["kind"].value) % 128
        c.run.assume(z3.Implies(kind == UNION, member.term > 0), kind != SCALAR)
        called: list[tuple[str, Any]] = []

        def callee(name: str) -> Any:
            def contract(c: Translation, *args: Any) -> Number:
                called.append((name, args))
                if name == "scalars_inside":
                    c.run.demand(one_of(c.theory.raw(args[2]), WIDTHS), "width of a vector")
                at = c.theory.raw(args[1 if name == "scalars_inside" else -1])
                c.run.demand(walk.place(at), f"{name}: four bytes in the file")
                return c.theory.boolean(z3.Bool(name))

            return contract

        names = {STRING: "string_inside", TABLE: "table_inside", UNION: "table_inside", VECTOR: "scalars_inside"}
        names |= {STRINGS: "strings_inside", TABLES: "tables_inside"}
        c.run.contracts |= {name: callee(name) for name in names.values()}
        result = c.theory.truth(c.call("field_inside", walk.pointer(), c.pointer(element), member, walk.at))
        arg = c.theory.raw(element.fields["arg"].value)
        if not called:
            c.run.demand(z3.And(result, kind == UNION, member.term > arg), "a member of a later version")
            return
        ((name, args),) = called
        c.run.demand(one_of(kind, tuple(code for code, of in names.items() if of == name)), "kind")
        c.run.demand(result == z3.Bool(name), "what is found")
        if name in ("table_inside", "tables_inside"):
            number = c.theory.raw(args[1])
            member_there = z3.And(number == member.term - 1, number < arg)
            c.run.demand(z3.If(kind == UNION, member_there, number == arg), "number of a table")

    proof.run(body)


@statement(
    "a table passes where its frame does and each field leads to what passes, whatever they are; a union is there "
    "where its type says so",
    FB,
    "table_inside",
)
def fields_lie_in_file(proof: Proof) -> None:
    there, offset_of = z3.Function("there", INTEGERS, BOOLEAN), z3.Function("offset", INTEGERS, INTEGERS)
    to_of, passes = z3.Function("to", INTEGERS, INTEGERS), z3.Function("passes", INTEGERS, BOOLEAN)
    any_field = z3.Int("some_field")

    def body(c: Translation) -> None:
        walk, last = Walk(c), {}
        first, at = walk.first_field, walk.at.term
        i = z3.Int("field")
        typed = z3.And(i > first, KIND(i - 1) == SCALAR, ARG(i - 1) == 1)
        c.run.assume(z3.ForAll(i, z3.Implies(KIND(i) % 128 == UNION, typed), patterns=[KIND(i)]))
        c.run.assume(walk.place(at), any_field >= 0)

        def good(i: Any) -> Any:
            kind, to = KIND(first + i) % 128, to_of(at + offset_of(i))
            member = z3.If(there(i - 1), FILE(at + offset_of(i - 1)), 0)
            union = z3.Or(kind != UNION, there(i) == (member != 0))
            return z3.Or(kind == SCALAR, z3.And(union, z3.Or(z3.Not(there(i)), z3.And(to != 0, passes(to)))))

        def slot(c: Translation, table: Pointer, number: Number) -> Pointer:
            """By the proof of frames."""
            i = c.theory.raw(number)
            c.run.demand(z3.And(i >= 0, i < walk.count.term), "a field of the table")
            if not c.run.decide(there(i)):
                return Pointer(UINT8, None)
            width = z3.If(KIND(first + i) % 128 == SCALAR, ARG(first + i), 4)
            c.run.assume(offset_of(i) >= 4, offset_of(i) < 65536, at + offset_of(i) + width <= walk.bytes.term)
            return Pointer(UINT8, walk.file, Number(UINT32, at + offset_of(i), 0, 2**32 - 1))

        def offset(c: Translation, table: Pointer, number: Number) -> Number:
            """Likewise."""
            place = slot(c, table, number)
            present = place.target is not None
            return Number(UINT32, offset_of(c.theory.raw(number)), 4, 65535) if present else constant(UINT32, 0)

        def frame(c: Translation, *args: Any) -> Number:
            c.run.demand(walk.place(c.theory.raw(args[-1])), "frame_inside: four bytes in the file")
            return c.theory.boolean(z3.Bool("frame"))

        def follow(c: Translation, w: Any, at: Number) -> Number:
            to = walk.follow(c, w, at)
            c.run.assume(to.term == to_of(c.theory.raw(at)))
            return to

        def field(c: Translation, w: Any, field: Any, member: Number, to: Number) -> Number:
            c.run.demand(walk.place(c.theory.raw(to)), "field_inside: four bytes in the file")
            union = KIND(c.theory.raw(field.index)) % 128 == UNION
            c.run.demand(union == (c.theory.raw(member) > 0), "field_inside: a member of a union")
            return c.theory.boolean(passes(c.theory.raw(to)))

        def before(run: Any, v: dict[str, Any]) -> list[Any]:
            last["i"] = v["i"].term
            return [v["i"].term <= walk.count.term, z3.Implies(any_field < v["i"].term, good(any_field))]

        def spend(c: Translation, w: Any, bytes_: Number) -> Number:
            c.run.demand(c.theory.raw(bytes_) == 0, "a table is paid as one unit")
            return c.theory.boolean(z3.Bool("spent"))

        c.run.contracts |= {"fields_of": walk.fields_of, "fb_slot": slot, "frame_inside": frame, "spend": spend}
        c.run.contracts |= {"fb_offset": offset, "follow": follow, "field_inside": field}
        c.run.cuts[("table_inside", 0)] = Cut(before)
        result = c.theory.truth(c.call("table_inside", walk.pointer(), constant(UINT32, 0), walk.at))
        whole = z3.And(z3.Bool("spent"), z3.Bool("frame"))
        c.run.demand(z3.Implies(result, whole), "a table that passes")
        c.run.demand(
            z3.Implies(z3.And(result, any_field < walk.count.term), good(any_field)), "a field of a table that passes"
        )
        bad = z3.And(last["i"] < walk.count.term, z3.Not(good(last["i"]))) if last else z3.BoolVal(False)
        c.run.demand(z3.Or(result, z3.Not(whole), bad), "a table that is refused for a reason")

    proof.run(body)
