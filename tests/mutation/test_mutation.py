"""Mutants: which changes there are, which are drawn, the order of tests, and the report."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mutation import __main__ as tool
from mutation import live
from mutation.below import has_name
from mutation.copy import COMPILING, _places, near, untraced
from mutation.draw import drawn, files
from mutation.functions import Functions, Touches
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
  if (COMPARE(a, ==, c)) {
    return 1;
  }
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
        (6, 'g("1 < 2", b);', ";"), (7, "==", "!="), (8, "1", "0"), (10, "!", ""), (10, "&&", "||"), (10, "!=", "=="),
        (10, "0x10", "15"), (10, "0x10", "17"),
    ]  # fmt: skip


def test_tables_of_cases_stay(tree: Path) -> None:
    """Those that other code reads, or other files may, have mutants."""
    text = "_A = 1\n_B = (_A, 2)\n_C = 3\nD = 4\ndef _f(): return 6\ndef _g(): return 7\n"
    text += "def cases():\n    return _B, _C, D, 5, _f()\ndef f():\n    return _C, _g()\n"
    (tree / "nmpconv" / "b.py").write_text(text)
    assert {line for line, *_ in changes(tree, "nmpconv/b.py")} == {3, 4, 6}


def test_a_mutant_is_the_file_with_one_change(tree: Path) -> None:
    mutants = of_file(tree, "nmpconv/a/m.py")
    assert len({mutant.key for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        changed = mutant.applied(PYTHON).splitlines()
        assert [i for i, line in enumerate(PYTHON.splitlines(), 1) if line != changed[i - 1]] == [mutant.line]


@pytest.mark.slow
def test_more_mutants_begin_with_the_fewer(root: Path) -> None:
    some, more = (drawn(root, "c", count, 1) for count in (20, 60))
    assert more[:20] == some and len({mutant.key for mutant in more}) == 60
    assert len({mutant.file for mutant in some}) > 10
    assert drawn(root, "c", 20, 2) != some
    assert not [file for file in files(root, "c") if "/gen/" in file]


def test_functions_around_a_line(tree: Path) -> None:
    known = ["interpreter/src/base/f.c: int f(int a, int *b) {", "interpreter/src/base/g.c: int g(void) {"]
    functions = Functions(tree)
    assert functions.around("interpreter/src/base/f.c", 5, known) == known[:1]
    assert functions.around("interpreter/src/base/f.c", 1, known) == known[:1]  # outside: all of the file
    wanted = ["nmpconv/a/m.py: def f(x: int = 3, *, flag: bool = True) -> float:"]
    assert functions.around("nmpconv/a/m.py", 7, []) == functions.around("nmpconv/a/m.py", 2, []) == wanted
    assert functions.name("nmpconv/a/m.py", 5) == wanted[0]


def test_tests_that_call_a_function_cheapest_of_each_file_first(tmp_path: Path) -> None:
    rows = [
        {"test": "a.py::slow", "seconds": 2.0, "touched": [0], "new": ["f"]},
        {"test": "a.py::quick", "seconds": 0.1, "touched": [0, 1], "new": ["g"]},
        {"test": "a.py::other", "seconds": 0.1, "touched": [1], "new": []},
        {"test": "b.py::late", "seconds": 5.0, "touched": [0, 1], "new": ["h", "f"]},
    ]
    (tmp_path / "late.jsonl").write_text(json.dumps(rows.pop()) + "\n")  # each file numbers its functions
    (tmp_path / "early.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "begun.part").write_text("{")
    assert Touches(tmp_path).tests(["f"]) == ["a.py::quick", "b.py::late", "a.py::slow"]
    assert Touches(tmp_path).tests(["f"], ("b",)) == ["a.py::quick", "b.py::late", "a.py::slow"]
    assert Touches(tmp_path).traced == {"early", "late"} and len(Touches(tmp_path).known) == 4
    assert Touches(tmp_path).tests(["none"]) == [] == Touches(tmp_path / "none").tests(["f"])


def test_short_tests_of_near_folders_come_early(tmp_path: Path) -> None:
    rows = [{"test": f"{name}.py::t{i}", "seconds": i / 10, "touched": [0], "new": ["f"] * (name == "a" and i == 0)}
            for name in "ab" for i in range(6)]  # fmt: skip
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = ["a.py::t0", "b.py::t0", "a.py::t1", "b.py::t1", "a.py::t2", "b.py::t2"]
    assert Touches(tmp_path).tests(["f"])[:8] == [*first, "a.py::t3", "b.py::t3"]
    assert Touches(tmp_path).tests(["f"], ("b",))[:8] == [*first, "a.py::t3", "b.py::t3"]
    rows[9]["seconds"] = 0.25  # b.py::t3
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert Touches(tmp_path).tests(["f"], ("b",))[:8] == [*first, "b.py::t3", "a.py::t3"]
    assert near("nmpconv/passes/float/squares.py") == ("tests/passes/",)


def test_tests_that_no_trace_sees(root: Path) -> None:
    """Files that compile C sources anew, and folders that mirror those of Python."""
    assert untraced(root, "interpreter/src/sound/nmp_sound.c") == ("tests/runtime/test_sound_frames.py",)
    assert untraced(root, "interpreter/src/conv/gemm/gemv.inc") == ("tests/ops/test_kernels.py",)
    assert untraced(root, "nmpconv/exporters/html/page.py") == ("tests/exporters",)
    assert untraced(root, "nmpconv/api/net.py", {"ops"}) == ("tests/api",)
    assert untraced(root, "nmpconv/api/net.py", {"api"}) == ()
    assert untraced(root, "interpreter/src/ops/add.c") == () == untraced(root, "nmpconv/ir.py")
    assert all((root / path).is_file() for paths in COMPILING.values() for path in paths)


def test_bodies_of_classes_are_no_functions() -> None:
    code = compile("class C:\n    x = 1\n    def f(): pass\ng = lambda: 0\n", "m.py", "exec")
    [body] = [const for const in code.co_consts if getattr(const, "co_name", "") == "C"]
    inner = [const for part in (code, body) for const in part.co_consts if hasattr(const, "co_name")]
    assert [part.co_name for part in inner if has_name(part)] == ["f"]
    assert not any(has_name(part.replace(co_filename="page.html")) for part in inner)


def test_processes_that_a_test_starts_are_traced(tmp_path: Path, root: Path) -> None:
    """Programs and forks; what ends them early loses nothing."""
    file = tmp_path / "sources.py"
    file.write_text(
        "import os, signal\ndef f(): pass\ndef g(): f(); os.kill(os.getpid(), signal.SIGKILL)\ndef h(): f()\n"
    )
    shutil.copy(root / "tests" / "mutation" / "below.py", tmp_path / "mutation_below.py")
    code = "import mutation_below, os\nfrom sources import g, h\nif not os.fork(): g()\nos.wait(); h()"
    below = tmp_path / "below"
    env = {**os.environ, "NMP_BELOW": str(below), "NMP_PACKAGE": str(file), "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert sorted(below.read_text().split()) == [f"{file}:{line}" for line in (2, 2, 3, 4)]


@pytest.mark.slow
def test_tests_run_in_forks(tmp_path: Path, root: Path) -> None:
    """In the order asked for; the first that fails is told, and one that takes too long is over."""
    text = "import time\ndef test_a(): pass\ndef test_b(): assert False\ndef test_c(): time.sleep(60)\n"
    (tmp_path / "test_own.py").write_text(text)
    (tmp_path / "build").mkdir()
    asked = [
        {"tests": ["test_own.py::test_a"], "seconds": 60},
        {"tests": ["test_own.py::test_b", "test_own.py::test_a"], "seconds": 60},
        {"tests": ["test_own.py"], "seconds": 60},
        {"tests": ["test_own.py::test_c"], "seconds": 1},
        {"tests": ["test_gone.py::test_a"], "seconds": 60},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mutation.runner"],
        input="".join(json.dumps(line) + "\n" for line in asked),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root / "tests")},
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"failed": None, "over": False},
        {"failed": "test_own.py::test_b", "over": False},
        {"failed": "test_own.py::test_b", "over": False},
        {"failed": None, "over": True},
        {"failed": None, "over": False},
    ]


BEFORE = """LIMIT = 3
def f(x, most=4):
    return min(x + 1, most)
class C:
    size = 5
    def g(self):
        return [x + 1 for x in (1, 2)]
squares = [x * 2 for x in (1, 2)]
"""


@pytest.mark.parametrize(
    ("old", "new", "applied"),
    [
        ("x + 1, most", "x - 1, most", (0, [2, 3])),
        ("[x + 1 for", "[x - 1 for", (2, [0, 1])),
        ("LIMIT = 3", "LIMIT = 4", None),
        ("most=4", "most=5", None),
        ("size = 5", "size = 6", None),
        ("x * 2", "x + 2", None),
    ],
)
def test_functions_get_other_code(tmp_path: Path, old: str, new: str, applied: tuple[int, list[int]] | None) -> None:
    """A mutant in a module's or a class's own statements needs a new process: their results stay."""
    file = str(tmp_path / "m.py")
    names: dict = {}
    exec(compile(BEFORE, file, "exec", dont_inherit=True), names)
    kept = names["f"]  # as a test module that imported it has it
    assert live.swap(live.functions(str(tmp_path)), file, BEFORE, BEFORE.replace(old, new)) == (applied is not None)
    assert (kept(1), names["C"]().g()) == (applied or (2, [2, 3]))


LIBRARY = "int f(int x);\nint f(int x) { return x * 2; }\nint g(int x);\nint g(int x) { return f(x) + 1; }\n"
CALLS = """import ctypes, json, sys
from pathlib import Path
from mutation import live
loaded, other, entries = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
library = ctypes.CDLL(str(loaded))
print(library.g(5))
live.redirect(loaded, other, entries)
print(library.g(5), library.f(5))
"""


@pytest.mark.skipif(platform.machine() not in live.JUMPS, reason="no jump is known of this processor")
def test_calls_lead_into_another_library(tmp_path: Path, root: Path, need_tool: Callable[..., str]) -> None:
    tables = []
    for name, text in (("one", LIBRARY), ("two", LIBRARY.replace("* 2", "* 3"))):
        (tmp_path / f"{name}.c").write_text(text)
        flags = ("-shared", "-fPIC", "-O1", "-falign-functions=16")
        library = tmp_path / f"{name}.so"
        subprocess.run([need_tool("cc", "gcc"), *flags, tmp_path / f"{name}.c", "-o", library], check=True)
        tables.append(_places(library))
    entries = json.dumps([(tables[0][name], tables[1][name]) for name in "fg"])
    command = [sys.executable, "-c", CALLS, tmp_path / "one.so", tmp_path / "two.so", entries]
    env = {**os.environ, "PYTHONPATH": str(root / "tests")}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert ran.stdout == "11\n16 15\n"


def test_forks_of_a_warm_process_have_the_change(tmp_path: Path, root: Path) -> None:
    """And the next one does not; all tests were collected before."""
    text = "def f():\n    return 1\n"
    (tmp_path / "tests").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "sources.py").write_text(text)
    tests = "from sources import f\ndef test_a(): assert f() < 3\ndef test_b(): assert f() == 1\n"
    tests += "def test_c(): pass\ndef test_d(): pass\n"
    (tmp_path / "tests" / "test_own.py").write_text(tests)
    asked: list[dict] = [
        {"tests": ["tests/test_own.py::test_b", "tests/test_own.py::test_a"], "seconds": 60},
        {"tests": ["tests/test_own.py::test_a", "tests/test_own.py::test_b"], "seconds": 60, "file": "sources.py"},
        {"tests": ["tests/test_own.py::test_a", "tests/test_own.py::test_d"], "seconds": -1, "file": "sources.py"},
        {"tests": ["tests"], "seconds": 60, "file": "sources.py", "text": "ONE = 1\n" + text},
    ]
    env = {**os.environ, "PYTHONPATH": f"{root / 'tests'}{os.pathsep}{tmp_path}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "mutation.warm", "tests"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, **pipes) as process:  # type: ignore[call-overload]
        collected = [f"tests/test_own.py::test_{name}" for name in "abcd"]
        assert json.loads(process.stdout.readline()) == {"collected": collected}
        (tmp_path / "sources.py").write_text(text.replace("1", "2"))
        for line in asked:
            process.stdin.write(json.dumps({"text": text, **line}) + "\n")
        process.stdin.close()
        answers = [json.loads(line) for line in process.stdout]
    assert answers == [
        {"failed": None, "over": False, "applied": True},
        {"failed": "tests/test_own.py::test_b", "over": False, "applied": True},
        {"failed": None, "over": True, "applied": True},
        {"failed": None, "over": False, "applied": False},
    ]


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
    assert "| nmpconv/a | 2 | 4 | 0 | 0 | 1 | 1 |" in text and "survived  line 5 of nmpconv/a/m.py" in text
    monkeypatch.setattr(tool, "equivalent", lambda: {mutants[2].key: "", mutants[3].key: ""})
    assert tool.report(mutants, results) == 0
    assert "| nmpconv/a | 2 | 2 | 2 | 0 | 1 | 1 |" in capsys.readouterr().out


def test_a_line_that_was_cut_off_is_tested_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"key": "a", "result": "survived"}\n{"key": "a", "result": "killed"}\n{"key": "b", "res')
    assert tool.known(path) == {"a": {"key": "a", "result": "killed"}}


def test_results_of_sessions_add_up(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts what is settled: of this folder, then of others. A survivor is tested again."""
    monkeypatch.setattr(tool, "JUDGED", tree / "judged.txt")
    first, second, third, *_ = mutants = of_file(tree, "nmpconv/a/m.py")
    assert tool.with_judged(mutants, {}) == {}
    tool.record({first.key: {"result": "survived"}, second.key: {"result": "killed"}})
    assert list(tool.with_judged(mutants, {})) == [second.key]
    tool.record({first.key: {"result": "killed"}})
    own = {third.key: {"result": "limit"}, second.key: {"result": "same"}, first.key: {"result": "limit"}}
    found = tool.with_judged(mutants, own)
    assert [found[mutant.key]["result"] for mutant in (first, second, third)] == ["killed", "same", "limit"]
    assert len(found) == 3 and found[first.key]["line"] == first.line
