"""Runs C functions on terms of the solver, path after path.

A path is run from the start: where a condition is not known, one side is taken and the other one noted for later. What
C leaves undefined, and what a proof demands, is asked of the solver where it stands, under all that the path assumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import z3
from pycparser import c_ast

from proofs.numbers import INT32, Bits, Integers, IntType, Number, UnsupportedError, constant

PATHS_MAX, STEPS_MAX = 3000, 400  # steps: of a loop without a cut


class RefutedError(Exception):
    """A demand that does not hold, with an input for which it does not."""


class UndecidedError(Exception):
    """A demand that the solver did not decide in its time."""


class PathEnd(Exception):
    """Nothing more is to be shown on this path."""


class ReturnSignal(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class BreakSignal(Exception):
    pass


class ContinueSignal(Exception):
    pass


@dataclass
class Cut:
    """An induction over a loop.

    invariant: its conditions, from the variables' values; shown before the loop and after each iteration
    names: variables that change, where the loop's text does not tell
    cases: values of some variables, one after the other known numbers; the invariant then has to say that there are no
        others
    kept: variables that the loop's text seems to change, and does not
    havoc: changes what is no variable
    joins: an earlier loop, after which nothing is known but the invariant: its ways out are one
    """

    invariant: Callable[[Run, dict[str, Any]], Iterable[Any]]
    names: tuple[str, ...] = ()
    cases: tuple[dict[str, int], ...] = ({},)
    kept: tuple[str, ...] = ()
    havoc: Callable[[Run], None] | None = None
    joins: tuple[str, int] | None = None


Answers = dict[tuple[int, ...], tuple[Any, Any]]
"""Verdicts of the solver by the identities of what was asked, with the terms, which keep these identities for as long
as they are here. A path begins with the questions of another, a mutant with those of the code."""


@dataclass
class Settings:
    """effort: of one question, in the solver's own units, so that a busy machine decides the same."""

    effort: int = 60_000_000
    little_effort: int = 400_000  # of a question that only makes terms simpler, or a path shorter
    cuts: dict[tuple[str, int], Cut] = field(default_factory=dict)
    contracts: dict[str, Callable[..., Any]] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)
    questions: int = 0
    joined: dict[tuple[str, int], list[int]] = field(default_factory=dict)


class Run:
    """One path. choices: the sides that are taken; open: what is left to be taken after it."""

    def __init__(self, settings: Settings, choices: list[int], bits: bool) -> None:
        self.settings, self.choices, self.taken = settings, choices, 0
        self.contracts, self.cuts = dict(settings.contracts), dict(settings.cuts)
        self.open: list[list[int]] = []
        self.path: list[Any] = []
        self.names: dict[str, int] = {}
        self.quotients: dict[Any, Any] = {}
        self.theory: Any = Bits(self) if bits else Integers(self)
        self.where: Any = None
        self.marks: dict[tuple[str, int], int] = {}

    # What is known

    def name(self, text: str) -> str:
        self.names[text] = self.names.get(text, 0) + 1
        return text if self.names[text] == 1 else f"{text}.{self.names[text]}"

    def assume(self, *conditions: Any) -> None:
        self.path += [condition for condition in conditions if not z3.is_true(condition) and condition is not True]

    def symbol(self, type_: IntType, name: str, lo: int | None = None, hi: int | None = None) -> Number:
        return self.theory.symbol(type_, self.name(name), lo, hi)

    def integer(self, name: str) -> Any:
        return z3.Int(self.name(name))

    def ask(self, *conditions: Any, effort: int | None = None, path: bool = True, anew: bool = False) -> Any:
        """The verdict on these conditions and the path's, and the solver that found it: None where it was known."""
        self.settings.questions += 1
        terms = (*self.path, *conditions) if path else conditions
        asked = [z3.BoolVal(term) if isinstance(term, bool) else term for term in terms]
        key = tuple(term.get_id() for term in asked)
        if key in self.settings.answers and not anew:
            return self.settings.answers[key][0], None
        solver = z3.Solver()
        solver.set("rlimit", effort or self.settings.effort)
        solver.add(*asked)
        verdict = solver.check()
        if verdict != z3.unknown:  # more effort may change that
            self.settings.answers[key] = verdict, asked
        return verdict, solver

    def implied(self, condition: Any) -> bool:
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return z3.is_true(condition)
        verdict, _ = self.ask(z3.Not(condition), effort=self.settings.little_effort)
        return bool(verdict == z3.unsat)

    def possible(self, condition: Any) -> bool:
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return z3.is_true(condition)
        return bool(self.ask(condition, effort=self.settings.little_effort)[0] != z3.unsat)

    # What is to be shown

    def demand(self, condition: Any, what: str) -> None:
        if isinstance(condition, bool):
            condition = z3.BoolVal(condition)
        plain = z3.simplify(condition)
        if not z3.is_true(plain):
            verdict, solver = self.ask(z3.Not(condition))
            if verdict == z3.sat:
                model = (solver or self.ask(z3.Not(condition), anew=True)[1]).model()
                values = ", ".join(
                    sorted(f"{decl} = {model[decl]}" for decl in model.decls() if decl.arity() == 0)[:12]
                )
                raise RefutedError(f"{what} at {self.where}: {values}")
            if verdict != z3.unsat:
                raise UndecidedError(f"{what} at {self.where}: {solver.reason_unknown()}")
        self.assume(condition)

    def lemma(self, hypotheses: Iterable[Any], conclusion: Any, what: str) -> None:
        """A step of a proof: shown from what is named alone, which keeps the question small; known from then on."""
        hypotheses = list(hypotheses)
        for hypothesis in hypotheses:
            self.demand(hypothesis, f"{what}, before")
        verdict, _ = self.ask(*hypotheses, z3.Not(conclusion), path=False)
        if verdict != z3.unsat:
            raise (RefutedError if verdict == z3.sat else UndecidedError)(f"{what} at {self.where}")
        self.assume(conclusion)

    # Sides

    def choose(self, count: int) -> int:
        """One of so many, each on a path of its own."""
        if self.taken == len(self.choices):
            self.open += [[*self.choices, other] for other in range(1, count)]
            self.choices = [*self.choices, 0]
        self.taken += 1
        return self.choices[self.taken - 1]

    def decide(self, condition: Any) -> bool:
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return z3.is_true(condition)
        if self.taken == len(self.choices):
            yes, no = self.possible(condition), self.possible(z3.Not(condition))
            if not (yes or no):
                raise PathEnd
            if yes and no:
                self.open.append([*self.choices, 0])
            self.choices = [*self.choices, int(yes)]
        self.taken += 1
        side = bool(self.choices[self.taken - 1])
        self.assume(condition if side else z3.Not(condition))
        return side

    def one_of(self, a: Number, lo: int, hi: int) -> int:
        """The number, on a path for each that it may be."""
        if a.known:
            return int(a.term)
        values = range(max(a.lo, lo), min(a.hi, hi) + 1)
        value = values[self.choose(len(values))]
        condition = self.theory.raw(a) == value
        if not self.possible(condition):
            raise PathEnd
        self.assume(condition)
        return value

    def quotient_of(self, a: Any, b: Any) -> tuple[Any, Any]:
        """a / b and a % b of C, by what defines them."""
        key = (a.get_id(), b.get_id())
        if key not in self.quotients:
            whole, rest = self.integer("quotient"), self.integer("rest")
            size = z3.If(b < 0, -b, b)
            self.assume(
                a == whole * b + rest, z3.If(a >= 0, z3.And(rest >= 0, rest < size), z3.And(rest <= 0, -rest < size))
            )
            self.quotients[key] = (whole, rest, a, b)
        return self.quotients[key][:2]


def explore(body: Callable[[Run], None], settings: Settings, bits: bool = False) -> int:
    """Runs all paths; returns how many there are."""
    left: list[list[int]] = [[]]
    paths = 0
    while left:
        run = Run(settings, left.pop(), bits)
        paths += 1
        if paths > PATHS_MAX:
            raise UnsupportedError(f"more than {PATHS_MAX} paths")
        with contextlib.suppress(PathEnd):
            body(run)
        left += run.open
    return paths


def true(value: Any) -> Number:
    return constant(INT32, int(value))


def texts(node: Any) -> str:
    """A string constant's text; neighbours were joined by the parser."""
    if not (isinstance(node, c_ast.Constant) and node.type == "string"):
        raise UnsupportedError("a string is expected")
    return node.value.replace('" "', "").replace('""', "").strip('"').replace("\\n", "\n")
