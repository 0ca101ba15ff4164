"""Statements about C functions, and how they are proved."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pycparser import c_ast

from proofs.execute import Answers, Cut, Settings, UndecidedError, explore
from proofs.execute import RefutedError as RefutedError
from proofs.numbers import UnsupportedError
from proofs.program import Program, program
from proofs.source import ROOT
from proofs.translate import Translation


@dataclass
class Statement:
    """name: of the proof; says: the statement, about all inputs; functions: those whose lines it is about."""

    name: str
    says: str
    path: str
    functions: tuple[str, ...]
    prove: Callable[[Proof], None]
    beyond: dict[str, str] = field(default_factory=dict)  # lines that it says nothing of, by a part of them, and why


@dataclass
class Proof:
    """A statement that is being proved: which paths and questions it took, and which nodes of the C code."""

    statement: Statement
    effort: int = 60_000_000
    paths: int = 0
    questions: int = 0
    seconds: float = 0.0
    nodes: dict[int, tuple[str, Any]] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)

    def run(
        self,
        body: Callable[[Translation], None],
        machine: str = "pc",
        defines: tuple[str, ...] = (),
        bits: bool = False,
        cuts: dict[tuple[str, int], Cut] | None = None,
        contracts: dict[str, Any] | None = None,
        path: str = "",
    ) -> None:
        """Runs all paths of `body`, which calls C functions and demands what is to hold."""
        code = program(path or self.statement.path, machine, defines)
        code.seen.clear()
        settings = Settings(self.effort, cuts=cuts or {}, contracts=contracts or {}, answers=self.answers)
        started = time.process_time()
        try:
            self.paths += explore(lambda run: body(Translation(code, run)), settings, bits)
        finally:
            self.seconds += time.process_time() - started
            self.questions += settings.questions
        for key, (function, node) in code.seen.items():
            if function in self.statement.functions:
                self.nodes[key] = (function, node)


EFFORT_OF_MUTANT = 3_000_000
STATEMENTS: dict[str, Statement] = {}


def statement(
    says: str, path: str, *functions: str, beyond: dict[str, str] | None = None
) -> Callable[[Callable[[Proof], None]], Callable[[Proof], None]]:
    """Registers a proof under its function's name."""

    def register(prove: Callable[[Proof], None]) -> Callable[[Proof], None]:
        name = prove.__name__
        assert name not in STATEMENTS, name
        STATEMENTS[name] = Statement(name, says, f"interpreter/src/{path}", functions, prove, beyond or {})
        return prove

    return register


def prove(claim: Statement, effort: int = 60_000_000) -> Proof:
    proof = Proof(claim, effort)
    claim.prove(proof)
    functions = {function for function, _ in proof.nodes.values()}
    if functions != set(claim.functions):
        raise UnsupportedError(f"{claim.name}: never run: {sorted(set(claim.functions) - functions)}")
    return proof


# Mutants

OPERATORS = {
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "/": ("*",),
    "%": ("/",),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|",),
    "|": ("&",),
    "^": ("|",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "&&": ("||",),
    "||": ("&&",),
    "+=": ("-=",),
    "-=": ("+=",),
    "*=": ("/=",),
    "/=": ("*=",),
    "<<=": (">>=",),
    ">>=": ("<<=",),
    "|=": ("&=",),
    "&=": ("|=",),
}
NEAR = {frozenset(pair) for pair in (("<", "<="), (">", ">="), ("&&", "||"))}


@dataclass(frozen=True)
class Mutant:
    node: Any
    attribute: str
    before: str
    after: str

    @property
    def line(self) -> tuple[str, int]:
        return (self.node.coord.file, self.node.coord.line)

    def __str__(self) -> str:
        return f"{self.line[0]}:{self.line[1]}: {self.before} -> {self.after}"

    @contextmanager
    def applied(self) -> Iterator[None]:
        setattr(self.node, self.attribute, self.after)
        try:
            yield
        finally:
            setattr(self.node, self.attribute, self.before)


def mutants(proof: Proof) -> Iterator[Mutant]:
    """One operator or one constant each, of the nodes that the proof ran."""
    for _, node in proof.nodes.values():
        if isinstance(node, c_ast.BinaryOp | c_ast.Assignment):
            for other in OPERATORS.get(node.op, ()):
                yield Mutant(node, "op", node.op, other)
        elif isinstance(node, c_ast.Constant) and node.type == "string":
            yield from of_assembly(node)
        elif isinstance(node, c_ast.Constant):
            value, ends = split_number(node.value)
            for other in (value + 1, value - 1):
                if other >= 0:
                    yield Mutant(node, "value", node.value, f"{other}{ends}")
        elif isinstance(node, c_ast.UnaryOp) and node.op in ("-", "!"):
            yield Mutant(node, "op", node.op, "+")


def of_assembly(node: c_ast.Constant) -> Iterator[Mutant]:
    for old, other in (
        ("vmax", "vmin"),
        ("vmin", "vmax"),
        ("vqrshl", "vshl"),
        ("vadd", "vmul"),
        ("vmul", "vadd"),
        ("smlad", "smlabb"),
        ("sel %0, %0", "sel %0, %1"),
        ("ror #8", "ror #16"),
    ):
        if old in node.value:
            yield Mutant(node, "value", node.value, node.value.replace(old, other, 1))


def split_number(text: str) -> tuple[int, str]:
    digits = text.rstrip("uUlL")
    if text.startswith("'"):
        return 0, ""
    return int(digits, 0), text[len(digits) :]


def outcome(claim: Statement, mutant: Mutant, effort: int, answers: Answers | None = None) -> str:
    """The proof of the mutated code: holds, refuted, undecided or unsupported. answers: of the proof of the code."""
    with mutant.applied():
        try:
            claim.prove(Proof(claim, effort, answers={} if answers is None else answers))
        except RefutedError:
            return "refuted"
        except UndecidedError:
            return "undecided"
        except Exception:  # the mutant does what the proof's own text does not know: no verdict
            return "unsupported"
    return "holds"


def is_beyond(claim: Statement, line: tuple[str, int]) -> bool:
    """The statement says nothing of the line, and why: no mutant of it can be refuted."""
    text = (ROOT / line[0]).read_text(encoding="utf-8").splitlines()[line[1] - 1]
    return any(part in text for part in claim.beyond)


def refuted(claim: Statement, group: list[Mutant], effort: int, answers: Answers | None = None) -> bool:
    """One of these mutants is. Those that differ for few inputs come last: of most, the whole proof holds."""
    order = sorted(group, key=lambda mutant: frozenset((mutant.before, mutant.after)) in NEAR)
    return any(outcome(claim, mutant, effort, answers) == "refuted" for mutant in order)


def table() -> str:
    """All statements as they stand in docs/proofs.md."""
    lines = ["| name | statement | functions |", "|---|---|---|"]
    for claim in STATEMENTS.values():
        functions = claim.functions if len(claim.functions) <= 4 else (*claim.functions[:2], "...", claim.functions[-1])
        names = ", ".join(f"`{name}`" if name != "..." else name for name in functions)
        says = re.sub(r"([*|])", r"\\\1", claim.says)
        lines.append(f"| `{claim.name}` | {says} | {names} in `{claim.path.removeprefix('interpreter/src/')}` |")
    return "\n".join(lines) + "\n"
