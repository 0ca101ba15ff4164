"""The statements of proofs/ hold, and each of their lines is needed: a mutant of it refutes them."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = ROOT / "interpreter" / "src" / "gen" / "nmp_schema.c"


def statement_names() -> list[str]:
    """Read from the sources, since the solver may not be there."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("proofs/statements/*.py"))]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if "statement(" in "".join(map(ast.unparse, node.decorator_list))]


NAMES = statement_names()


@pytest.fixture(scope="module")
def proving(need_package: Callable[..., None]) -> ModuleType:
    need_package("z3", "pycparser")
    sys.path.insert(0, str(ROOT))
    importlib.import_module("proofs.statements")
    return importlib.import_module("proofs.statement")


def test_all_are_registered(proving: ModuleType) -> None:
    assert sorted(proving.STATEMENTS) == sorted(NAMES)


# Mutants of these take minutes of the solver and more: `make proofs ARGS="NAME --mutants"` tries them.
LONG = {
    "add_kernels",
    "lanes_are_added",
    "lanes_are_requantized",
    "long_sums_end",
    "pairs_are_added",
    "products_in_two_sums",
    "quotient_bit_by_bit",
    "root_is_floor",
    "sub_kernels",
    "sums_end_in_words",
    "sums_start_at_bias",
    "table_lies_in_file",
}


# Two seconds together: what reads a file, and rounding. So mutants of these lines meet the quick tests.
QUICK = (
    "budget_shrinks",
    "division_rounds_half_up",
    "fields_are_looked_for",
    "fields_lie_in_file",
    "lists_lie_in_file",
    "offset_leads_into_file",
    "range_in_file",
    "saturation",
    "shift_rounds_half_up",
    "strings_end_in_file",
    "vector_ends_in_file",
)


def test_long_ones_are_statements() -> None:
    assert set(NAMES) > LONG


@pytest.mark.parametrize("name", QUICK)
def test_the_quick_ones_hold(proving: ModuleType, name: str) -> None:
    proving.prove(proving.STATEMENTS[name])


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(set(NAMES) - LONG))
def test_each_line_is_needed(proving: ModuleType, name: str) -> None:
    """The statement holds of the code, and of each line there is a mutant of an operator or a constant that it does
    not hold of."""
    one = proving.STATEMENTS[name]
    proof = proving.prove(one)
    by_line, how = defaultdict(list), (proving.EFFORT_OF_MUTANT, proof.answers)
    for mutant in proving.mutants(proof):
        by_line[mutant.line].append(mutant)
    assert by_line
    found = {
        line: [f"{mutant}: {proving.outcome(one, mutant, *how)}" for mutant in some]
        for line, some in by_line.items()
        if not proving.is_beyond(one, line) and not proving.refuted(one, some, *how)
    }
    assert found == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(QUICK)))
def test_the_others_hold(proving: ModuleType, name: str) -> None:
    proving.prove(proving.STATEMENTS[name])


@pytest.mark.parametrize(
    ("before", "after"), [("if (s > 0)", "if (s >= 0)"), ("(s - 1)", "(s)"), (">> s", ">> (s - 1)"), ("a + (", "a - (")]
)
def test_a_wrong_rounding_is_refuted(proving: ModuleType, before: str, after: str, tmp_path: Path) -> None:
    """The proof is of the text of the file: of another one, it is another."""
    source = importlib.import_module("proofs.source")
    program = importlib.import_module("proofs.program")
    text = (ROOT / "interpreter/src/base/fixed.h").read_text(encoding="utf-8")
    assert text.count(before) >= 1
    mutated = tmp_path / "fixed.h"
    mutated.write_text(text.replace(before, after, 1))
    proof = proving.Proof(proving.STATEMENTS["shift_rounds_half_up"])

    def body(c: Any) -> None:
        exact(c, (0, 1, 5)[c.run.choose(3)])

    with pytest.raises(proving.RefutedError):
        proof.run(body, path=str(mutated))
    source.tree.cache_clear()
    program.program.cache_clear()


def test_an_answer_is_of_the_same_question(proving: ModuleType) -> None:
    """It is kept for questions of the same terms alone, whatever ran before."""
    z3, execute = importlib.import_module("z3"), importlib.import_module("proofs.execute")
    run = execute.Run(execute.Settings(), [], bits=False)
    for _ in range(2):
        x = z3.Int("x")
        assert run.ask(x > 0)[0] == z3.sat
        assert run.ask(x > 0, x < 0)[0] == z3.unsat
    assert run.ask(x > 0) == (z3.sat, None)
    assert run.ask(x > 0, anew=True)[1].model()[x].as_long() > 0
    assert len(run.settings.answers) == 2
    run.assume(x < 1)
    assert run.ask(x > 0)[0] == z3.unsat
    with pytest.raises(execute.RefutedError, match="x = "):
        run.demand(x > 0, "of a known answer")
    with pytest.raises(execute.RefutedError, match="x = "):
        run.demand(x > 0, "of a known answer")


def exact(c: Any, shift: int) -> None:
    numbers = importlib.import_module("proofs.numbers")
    a = c.run.symbol(numbers.INT64, "a", -(2**61), 2**61)
    y = c.theory.raw(c.call("nmp_rsh", a, shift))
    c.run.demand(y == (a.term + (1 << shift >> 1)) / (1 << shift), "rsh")


@pytest.mark.parametrize(
    ("code", "undefined"),
    [
        ("int f(int a) { return a + 1; }", True),
        ("int f(int a) { return a < 5 ? a + 1 : 0; }", False),
        ("unsigned f(unsigned a) { return a + 1; }", False),
        ("int f(short a) { return a * a; }", False),
        ("int f(unsigned short a) { return a * a; }", True),
        ("int f(int a) { return 1 << (a & 31); }", True),
        ("int f(int a) { return 1 << (a & 15); }", False),
        ("int f(int a) { return 7 / a; }", True),
        ("int f(int a) { int b; return a > 3 ? a : b; }", True),
        ("int f(int a) { int b[3] = {1, 2, 3}; return b[a & 3]; }", True),
        ("int f(int a) { int b[4] = {1, 2, 3, 4}; return b[a & 3]; }", False),
    ],
)
def test_what_is_undefined_is_refuted(proving: ModuleType, tmp_path: Path, code: str, undefined: bool) -> None:
    numbers = importlib.import_module("proofs.numbers")
    path = tmp_path / "code.c"
    path.write_text(code)
    proof = proving.Proof(proving.STATEMENTS["shift_rounds_half_up"])
    kind = numbers.IntType(16 if "short" in code else 32, "unsigned" not in code)

    def body(c: Any) -> None:
        c.call("f", c.run.symbol(kind, "a"))

    if undefined:
        with pytest.raises(proving.RefutedError):
            proof.run(body, path=str(path))
    else:
        proof.run(body, path=str(path))


def test_the_schema_is_as_assumed(proving: ModuleType) -> None:
    """The proofs of fb.c hold for schemas whose widths are 1, 2, 4 or 8, in which a union's type is in front of it."""
    flatbuffers = importlib.import_module("proofs.statements.flatbuffers")
    fields = re.findall(r"\{FB_KIND_(\w+)( \| FB_REQUIRED)?, (\w+)\}", SCHEMA.read_text(encoding="utf-8"))
    assert len(fields) > 100
    for at, (kind, _, arg) in enumerate(fields):
        if kind in ("SCALAR", "VECTOR"):
            assert int(arg) in flatbuffers.WIDTHS
        if kind == "UNION":
            assert fields[at - 1][0] == "SCALAR" and int(fields[at - 1][2]) == 1


def test_the_page_lists_the_statements(proving: ModuleType, bless: bool) -> None:
    page = ROOT / "docs" / "proofs.md"
    text = page.read_text(encoding="utf-8")
    before, _, after = text.partition("## Statements\n\n")
    rest = after[after.index("\n## ") :]
    if bless:
        page.write_text(f"{before}## Statements\n\n{proving.table()}{rest}", encoding="utf-8")
    assert after.removesuffix(rest) == proving.table() or bless, "pytest --bless tests/proofs"
