"""core/plan_check.c: a plan that passes is one in which every read finds what was produced, for any number of ops.

Tensors lie where an unknown function says, ops write what another one says. Of an op or a tensor that is any, the loops
show what holds of it; so it holds of all.
"""

from __future__ import annotations

from typing import Any

import z3

from proofs.execute import Cut
from proofs.memory import Record
from proofs.numbers import INT32, UINT32, Number
from proofs.statement import Proof, statement
from proofs.translate import Translation

PLAN = "core/plan_check.c"
INTEGERS = z3.IntSort()
START, BYTES, SIZE, OUTPUT, LIVE_END, INPUT, MODEL_OUTPUT, SCRATCH, ROOM = (
    z3.Function(name, INTEGERS, INTEGERS)
    for name in ("start", "bytes", "size", "output", "live_end", "input", "model_output", "scratch_at", "scratch_room")
)
BYTES_MAX = 2**31 - 1


def end(tensor: Any) -> Any:
    return START(tensor) + BYTES(tensor)


def apart(a: Any, b: Any) -> Any:
    return z3.Or(end(a) <= START(b), end(b) <= START(a))


class Model:
    """A model of any tensors and ops. placed: check_place has passed all of its activations."""

    def __init__(self, c: Translation, placed: bool = True) -> None:
        self.c, self.run, self.placed = c, c.run, placed
        self.ops, self.inputs, self.outputs = (c.run.symbol(UINT32, name) for name in ("ops", "inputs", "outputs"))
        self.arena = c.run.symbol(UINT32, "arena", 0, BYTES_MAX)
        lists = {
            name: c.struct("fb_vector", count=count)
            for name, count in (("ops", self.ops), ("inputs", self.inputs), ("outputs", self.outputs))
        }
        self.fast = c.run.symbol(UINT32, "fast", 0, BYTES_MAX)  # by check_fast
        self.m = c.struct("nmp_model", arena_bytes=self.arena, fast_bytes=self.fast, **lists)
        self.paid: list[Any] = []
        self.cost: Any = lambda steps: z3.BoolVal(True)
        c.run.contracts |= {
            "extent_of": lambda c, m, i: self.extent(i),
            "room_of": lambda c, m, i: self.room(i),
            "nmp_fail": self.fail,
            "nmp_model_output_of": lambda c, m, i: self.index(OUTPUT, i),
            "nmp_model_live_end": lambda c, m, i: self.index(LIVE_END, i),
            "nmp_model_port": self.port,
            "nmp_spend": self.spend,
        }

    def index(self, function: Any, i: Number) -> Number:
        term = function(self.c.theory.raw(i))
        self.run.assume(term >= 0, term < 2**32)
        return Number(UINT32, term, 0, 2**32 - 1)

    def port(self, c: Translation, ports: Record, i: Number) -> Number:
        is_input = ports.fields["count"].value.term is self.inputs.term
        return self.index(INPUT if is_input else MODEL_OUTPUT, i)

    def extent(self, i: Number) -> Record:
        at = self.c.theory.raw(i)
        self.run.assume(*self.known(at))
        parts = {"start": START(at), "bytes": BYTES(at), "size": SIZE(at)}
        return self.c.struct("extent", **{name: Number(UINT32, term, 0, 2**32 - 1) for name, term in parts.items()})

    def room(self, op: Number) -> Record:
        """By check_fast."""
        at = self.c.theory.raw(op)
        start, room = SCRATCH(at), ROOM(at)
        self.run.assume(start >= 0, room >= 0)
        if self.placed:
            self.run.assume(start + room <= self.fast.term)
        else:
            self.run.assume(start < 2**32, room < 2**32)
        parts = {"start": start, "bytes": room, "size": z3.IntVal(0)}
        return self.c.struct("extent", **{name: Number(UINT32, term, 0, 2**32 - 1) for name, term in parts.items()})

    def known(self, tensor: Any) -> list[Any]:
        """By check_tensor, and check_place."""
        start, size = START(tensor), SIZE(tensor)
        found = [
            start >= 0,
            start < 2**32,
            BYTES(tensor) >= 1,
            BYTES(tensor) <= BYTES_MAX,
            size >= 1,
            size <= BYTES_MAX,
        ]
        return [*found, end(tensor) <= self.arena.term] if self.placed else found

    def fail(self, c: Translation, *args: Any) -> Number:
        status = c.run.symbol(INT32, "status", 1, 42)
        return Number(UINT32, status.term, 1, 42)

    def spend(self, c: Translation, needs: Any, steps: Number) -> Number:
        """Steps of verification, as many as `cost` says; what passes has paid them."""
        self.run.demand(self.cost(c.theory.raw(steps)), "steps that are paid")
        self.paid.append(z3.Bool(c.run.name("enough")))
        return c.theory.boolean(self.paid[-1])

    def pointer(self) -> Any:
        return self.c.pointer(self.m)


def passes(c: Translation, status: Any) -> bool:
    return c.run.decide(c.theory.raw(status) == 0)


@statement(
    "two extents overlap where a byte belongs to both, and equal ones are the same bytes", PLAN, "overlap", "equal"
)
def extents_overlap(proof: Proof) -> None:
    def body(c: Translation) -> None:
        model = Model(c)
        a, b = (c.run.symbol(UINT32, name) for name in "ab")
        found = c.theory.truth(c.call("overlap", model.extent(a), model.extent(b)))
        largest = z3.If(START(a.term) > START(b.term), START(a.term), START(b.term))
        smallest = z3.If(end(a.term) < end(b.term), end(a.term), end(b.term))
        c.run.demand(found == (largest < smallest), "overlap")
        same = c.theory.truth(c.call("equal", model.extent(a), model.extent(b)))
        fields = (START, BYTES, SIZE)
        c.run.demand(same == z3.And(*(one(a.term) == one(b.term) for one in fields)), "equal")

    proof.run(body)


@statement(
    "a tensor that passes lies at a multiple of 16 and ends in the arena, and in one memory, for any 32-bit offset",
    PLAN,
    "check_place",
)
def tensors_lie_in_arena(proof: Proof) -> None:
    def body(c: Translation) -> None:
        model, t = Model(c, placed=False), c.run.symbol(UINT32, "t")
        status = c.theory.raw(c.call("check_place", model.pointer(), t, c.zeros_pointer("nmp_fault")))
        one = z3.Or(end(t.term) <= model.fast.term, START(t.term) >= model.fast.term)
        right = z3.And(START(t.term) % 16 == 0, end(t.term) <= model.arena.term, one)
        c.run.demand((status == 0) == right, "place")

    proof.run(body)


@statement(
    "a fast memory that passes ends at a multiple of 16 in the arena; scratch of an op lies in it, at a multiple of 16",
    PLAN,
    "check_fast",
)
def scratch_lies_in_fast_memory(proof: Proof) -> None:
    def body(c: Translation) -> None:
        model, some = Model(c, placed=False), z3.Int("some")
        c.run.assume(some >= 0, SCRATCH(some) >= 0, ROOM(some) >= 0, SCRATCH(some) < 2**32, ROOM(some) < 2**32)
        shown = z3.And(SCRATCH(some) % 16 == 0, SCRATCH(some) + ROOM(some) <= model.fast.term)
        c.run.cuts[("check_fast", 0)] = Cut(
            lambda run, v: [
                z3.Implies(some < v["i"].term, shown),
                z3.Or(v["i"].term == 0, v["i"].term <= model.ops.term),
            ]
        )
        status = c.call("check_fast", model.pointer(), c.zeros_pointer("nmp_fault"))
        if passes(c, status):
            c.run.demand(z3.And(model.fast.term % 16 == 0, model.fast.term <= model.arena.term), "fast_bytes")
            c.run.demand(z3.Implies(some < model.ops.term, shown), "scratch")

    proof.run(body)


@statement(
    "a read that passes has a producer, and nothing that was produced since touches its bytes; it ends below the "
    "live_end of every op in between, and touches no scratch of theirs in the fast memory",
    PLAN,
    "check_read",
    "check_alive",
    beyond={"const int64_t op =": "it is what a fault tells: tests"},
)
def reads_find_what_was_produced(proof: Proof) -> None:
    def body(c: Translation) -> None:
        model = Model(c)
        reader, t = c.run.symbol(UINT32, "reader"), c.run.symbol(UINT32, "t")
        between = z3.Int("between")
        c.run.assume(between >= 0, *model.known(OUTPUT(between)), OUTPUT(between) >= 0, OUTPUT(between) < 2**32)

        def alive(op: Any) -> Any:
            behind = SCRATCH(op) + ROOM(op)
            beside = z3.Or(ROOM(op) == 0, end(t.term) <= SCRATCH(op), behind <= START(t.term))
            return z3.Implies(op < model.ops.term, z3.And(end(t.term) <= LIVE_END(op), beside))

        c.run.assume(SCRATCH(between) >= 0, ROOM(between) >= 0, SCRATCH(between) + ROOM(between) <= model.fast.term)
        c.run.assume(LIVE_END(between) >= 0, reader.term <= model.ops.term)
        last = {}

        def since(run: Any, v: dict[str, Any]) -> list[Any]:
            i = last["i"] = v["i"].term
            untouched = z3.And(apart(t.term, OUTPUT(between)), alive(between))
            shown = z3.Implies(z3.And(i <= between, between < reader.term), untouched)
            return [i <= reader.term, z3.Implies(v["status"].term == 0, z3.And(shown, alive(reader.term)))]

        def inputs(run: Any, v: dict[str, Any]) -> list[Any]:
            return [v["i"].term <= model.inputs.term]

        model.cost = lambda steps: steps == 1
        c.run.cuts |= {("check_read", 0): Cut(since), ("check_read", 1): Cut(inputs)}
        status = c.call(
            "check_read", model.pointer(), reader, t, c.pointer(c.struct("nmp_needs")), c.zeros_pointer("nmp_fault")
        )
        if not passes(c, status):
            return
        c.run.demand(z3.And(*model.paid), "all is paid")
        producer = z3.Int("producer")  # an op before, or -1 for an input of the model
        by_op = z3.And(producer >= 0, producer < reader.term, OUTPUT(producer) == t.term)
        untouched = z3.Implies(
            z3.And(producer < between, between < reader.term), z3.And(apart(t.term, OUTPUT(between)), alive(between))
        )
        op = last["i"] - 1
        found = z3.And(z3.substitute(by_op, (producer, op)), z3.substitute(untouched, (producer, op)))
        some = z3.Int("some")
        is_input = z3.Exists(some, z3.And(some >= 0, some < model.inputs.term, INPUT(some) == t.term))
        c.run.demand(z3.Or(found, z3.And(is_input, z3.substitute(untouched, (producer, z3.IntVal(-1))))), "a producer")
        c.run.demand(alive(reader.term), "live_end of the reader")

    proof.run(body)


@statement("inputs of a model that pass lie apart, each two of any number, and are in order", PLAN, "check_inputs")
def inputs_lie_apart(proof: Proof) -> None:
    def body(c: Translation) -> None:
        model = Model(c)
        late, early = z3.Ints("late early")
        c.run.assume(early >= 0, early < late)
        shown = z3.And(apart(INPUT(late), INPUT(early)), INPUT(late - 1) < INPUT(late))
        here: dict[str, Any] = {}
        model.cost = lambda steps: steps == here["i"]

        def outer(run: Any, v: dict[str, Any]) -> list[Any]:
            i = here["i"] = v["i"].term
            return [*model.paid, i >= 1, z3.Or(i == 1, i <= model.inputs.term), z3.Implies(late < i, shown)]

        def inner(run: Any, v: dict[str, Any]) -> list[Any]:
            i, k = v["i"].term, run.theory.raw(v["k"])
            before = z3.Implies(z3.And(late == i, early < k), apart(INPUT(late), INPUT(early)))
            return [k <= i, before, z3.Implies(late == i, INPUT(late - 1) < INPUT(late))]

        c.run.cuts |= {("check_inputs", 0): Cut(outer), ("check_inputs", 1): Cut(inner)}
        status = c.call("check_inputs", model.pointer(), c.pointer(c.struct("nmp_needs")), c.zeros_pointer("nmp_fault"))
        if passes(c, status):
            c.run.demand(z3.And(*model.paid), "all is paid")
            c.run.demand(z3.Implies(late < model.inputs.term, shown), "apart")

    proof.run(body)


@statement("an op's output that passes comes after all that came to be before", PLAN, "check_order")
def outputs_are_in_order(proof: Proof) -> None:
    def body(c: Translation) -> None:
        model, op = Model(c), c.run.symbol(UINT32, "op")
        status = c.theory.raw(c.call("check_order", model.pointer(), op, c.zeros_pointer("nmp_fault")))
        inputs = model.inputs.term
        before = z3.If(op.term > 0, OUTPUT(op.term - 1), z3.If(inputs > 0, INPUT(inputs - 1), -1))
        c.run.demand((status == 0) == (OUTPUT(op.term) > before), "order")

    proof.run(body)


@statement("a state that passes shares no byte with any output, unless it lies exactly on its own", PLAN, "check_state")
def states_lie_apart(proof: Proof) -> None:
    def body(c: Translation) -> None:
        model, at, some = Model(c), c.run.symbol(UINT32, "at"), z3.Int("some")
        own = c.run.symbol(INT32, "own", -1)
        c.run.contracts["nmp_model_state"] = lambda c, m, i: own
        c.run.assume(some >= 0, *model.known(MODEL_OUTPUT(some)))
        t, its = INPUT(at.term), MODEL_OUTPUT(own.term)
        exact = z3.And(MODEL_OUTPUT(some) == its, START(t) == START(its), end(t) == end(its), SIZE(t) == SIZE(its))
        shown = z3.Or(apart(t, MODEL_OUTPUT(some)), exact)
        model.cost = lambda steps: steps == model.outputs.term
        c.run.cuts[("check_state", 0)] = Cut(
            lambda run, v: [
                z3.Implies(some < v["i"].term, shown),
                z3.Or(v["i"].term == 0, v["i"].term <= model.outputs.term),
            ]
        )
        status = c.call(
            "check_state", model.pointer(), at, c.pointer(c.struct("nmp_needs")), c.zeros_pointer("nmp_fault")
        )
        if passes(c, status):
            c.run.demand(z3.Implies(own.term >= 0, z3.And(bool(model.paid), *model.paid)), "all is paid")
            c.run.demand(z3.Implies(z3.And(own.term >= 0, some < model.outputs.term), shown), "apart")

    proof.run(body)
