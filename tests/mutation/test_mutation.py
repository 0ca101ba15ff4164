"""Mutants: which changes there are, which are drawn, the order of tests, and the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation import __main__ as tool
from mutation.draw import drawn, files
from mutation.order import first, near
from mutation.sites import of_file

PYTHON = '''"""Adds 1 < 2."""
__all__ = ["f"]


def f(x: int = 3, *, flag: bool = True) -> float:
    if x <= 0 and not flag:
        print(x)
    return -x * 2.5
'''
C = """#define ONE 1
/* a < b */
int f(int a, int *b) {
  const int c = a << 2;
  b[0] += c;
  g("1 < 2", b);
  return !a && c != 0x10u;
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in (("nmpconv/a/m.py", PYTHON), ("nmpconv/b.py", "x = 1\n"), ("interpreter/src/base/f.c", C)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def changes(root: Path, file: str) -> list[tuple[int, str, str]]:
    return [(mutant.line, mutant.old, mutant.new) for mutant in of_file(root, file)]


def test_changes_of_python(tree: Path) -> None:
    assert changes(tree, "nmpconv/a/m.py") == [
        (5, "3", "2"), (5, "3", "4"), (5, "True", "False"), (6, "<=", "<"), (6, "0", "1"), (6, "and", "or"),
        (6, "not ", ""), (7, "print(x)", "pass"), (8, "-", ""), (8, "*", "+"), (8, "2.5", "3.5"),
    ]  # fmt: skip


def test_changes_of_c(tree: Path) -> None:
    assert changes(tree, "interpreter/src/base/f.c") == [
        (4, "<<", ">>"), (4, "2", "1"), (4, "2", "3"), (5, "b[0] += c;", ";"), (5, "0", "1"), (5, "+=", "-="),
        (6, 'g("1 < 2", b);', ";"), (7, "!", ""), (7, "&&", "||"), (7, "!=", "=="), (7, "0x10", "15"),
        (7, "0x10", "17"),
    ]  # fmt: skip


def test_a_mutant_is_the_file_with_one_change(tree: Path) -> None:
    mutants = of_file(tree, "nmpconv/a/m.py")
    assert len({mutant.key for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        changed = mutant.applied(PYTHON).splitlines()
        assert [i for i, line in enumerate(PYTHON.splitlines(), 1) if line != changed[i - 1]] == [mutant.line]


def test_more_mutants_begin_with_the_fewer(root: Path) -> None:
    some, more = (drawn(root, "c", count, 1) for count in (20, 60))
    assert more[:20] == some and len({mutant.key for mutant in more}) == 60
    assert len({mutant.file for mutant in some}) > 10
    assert drawn(root, "c", 20, 2) != some
    assert not [file for file in files(root, "c") if "/gen/" in file]


def test_near_tests_come_first(root: Path) -> None:
    assert near(root, "nmpconv/data/tables.py")
    assert near(root, "nmpconv/passes/memory/plan_memory.py")[0] == "tests/passes/test_plan_memory.py"
    assert near(root, "interpreter/src/core/steps.c")[0] == "tests/file"
    assert first("interpreter/src/ops/add.c")[1:] == ["-k", "add"]


def test_equivalent_mutants_are_there(root: Path) -> None:
    """A line that has changed is looked at again; each has a reason."""
    for key, reason in tool.equivalent().items():
        assert key in {mutant.key for mutant in of_file(root, key.split(":")[0])}, key
        assert len(reason) > 20, key


def test_the_report(tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = of_file(tree, "nmpconv/a/m.py")[:6]
    results = {
        mutant.key: {"key": mutant.key, "line": mutant.line, "result": result}
        for mutant, result in zip(mutants, ("killed", "killed", "survived", "limit", "invalid"), strict=False)
    }
    assert tool.report(mutants, results) == 1
    text = capsys.readouterr().out
    assert "| nmpconv/a | 2 | 4 | 0 | 1 | 1 |" in text and "survived  line 5 of nmpconv/a/m.py" in text
    monkeypatch.setattr(tool, "equivalent", lambda: {mutants[2].key: "", mutants[3].key: ""})
    assert tool.report(mutants, results) == 0
    assert "| nmpconv/a | 2 | 2 | 2 | 1 | 1 |" in capsys.readouterr().out


def test_a_line_that_was_cut_off_is_tested_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"key": "a", "result": "survived"}\n{"key": "a", "result": "killed"}\n{"key": "b", "res')
    assert tool.known(path) == {"a": {"key": "a", "result": "killed"}}
