"""Limits of the tree: small files, no paths of one machine, nothing of third parties, small samples."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MAX_LINES = 450
# Tables and generated files only grow; each is listed here by name.
TABLES = {"LICENSE", "nmpconv/file/_schema.py", "tests/mutation/judged.txt"}
GENERATED = "interpreter/src/gen/"
SOURCES = {
    ".properties",
    ".ipynb",
    ".c",
    ".cpp",
    ".css",
    ".fbs",
    ".h",
    ".hpp",
    ".html",
    ".inc",
    ".ino",
    ".js",
    ".mjs",
    ".mts",
    ".ld",
    ".md",
    ".mk",
    ".pdsc",
    ".py",
    ".pyi",
    ".sh",
    ".toml",
    ".txt",
    ".typed",
    ".yaml",
    ".yml",
    ".cmake",
    "",
}
PICTURES = {".png", ".svg"}
CODE, COLUMNS = {".c", ".h", ".hpp", ".inc", ".ino", ".cpp", ".py", ".pyi"}, 120
TO_TOOLS = re.compile(r"  # (type: ignore|noqa).*|^.*\\$")  # a line of a macro is the formatter's alone
MODELS = {".onnx", ".nmp", ".zip"}  # a .zip holds inputs of a fuzzer
DATA = {".csv", ".json", ".lock", ".txt"}

# Joined here, so that this file passes its own test.
FORBIDDEN = [f"/{name}/" for name in ("work", "opt", "root", "home", "tmp")] + [f".{'library'}"]

SAMPLE_BYTES, SAMPLE_FILES, MODEL_BYTES = 500_000, 210, 300_000


def tree() -> list[Path]:
    """The files of the checkout that git knows or would add, relative to it."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout")
    return [Path(name) for name in listed if (ROOT / name).is_file()]


def lines_of(path: Path) -> list[str]:
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


def texts() -> list[Path]:
    return [path for path in tree() if path.suffix not in PICTURES | MODELS]


def test_files_are_small() -> None:
    limited = [p for p in texts() if str(p) not in TABLES and not str(p).startswith(GENERATED) and p.suffix in SOURCES]
    long = [f"{path}: {len(lines_of(path))} lines" for path in limited if len(lines_of(path)) > MAX_LINES]
    assert long == [], f"at most {MAX_LINES}: split what has two subjects"


def test_lines_of_code_fit() -> None:
    """Formatters leave comments and strings as they are. What a line says to a tool does not count."""
    limited = [p for p in texts() if p.suffix in CODE and not str(p).startswith(GENERATED)]
    wrong = [
        f"{path}:{number}: {len(line)} columns"
        for path in limited
        for number, line in enumerate(lines_of(path), 1)
        if len(TO_TOOLS.sub("", line)) > COLUMNS
    ]
    assert wrong == []


def test_generated_files_say_so() -> None:
    python = [Path("nmpconv/file/_schema.py"), Path("nmpconv/ops/_all.py")]
    generated = [path for path in texts() if str(path).startswith(GENERATED)] + python
    assert [str(path) for path in generated if "enerated" not in lines_of(path)[0]] == []


def test_nothing_names_a_machine() -> None:
    wrong = [
        f"{path}:{number}: {word}"
        for path in texts()
        for number, line in enumerate(lines_of(path), 1)
        for word in FORBIDDEN
        if word in line
    ]
    assert wrong == []


def test_models_and_pictures_are_our_own() -> None:
    """samples/*/train.py, a test, `make bench`, `page` or `convert --report` made them; nothing else is in the tree."""
    known = SOURCES | PICTURES | MODELS | DATA
    homes = ("samples/", "schema/samples/", "tests/", "bench/chart.svg", "docs/report", "docs/page.png")
    wrong = [
        str(p)
        for p in tree()
        if p.suffix not in known or (p.suffix in PICTURES | MODELS and not str(p).startswith(homes))
    ]
    assert wrong == []


def test_samples_are_small() -> None:
    for sample in sorted(path for path in (ROOT / "samples").iterdir() if path.is_dir()):
        files = [ROOT / path for path in tree() if (ROOT / path).is_relative_to(sample)]
        assert len(files) <= SAMPLE_FILES, sample.name
        assert sum(path.stat().st_size for path in files) <= SAMPLE_BYTES, sample.name
        assert (sample / "model.onnx").stat().st_size <= MODEL_BYTES, sample.name
        assert {"README.md", "train.py", "run.sh", "model.onnx"} <= {path.name for path in files}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_docstrings_say_the_thing_itself() -> None:
    """A verb or a noun phrase comes first: no relative clause, no question."""
    wrong = [
        f"{path}: {text.split()[0]} ..."
        for path, node in documented()
        if (text := ast.get_docstring(node))
        if opens_wrong(text)
    ]
    assert wrong == []


def test_comments_of_c_say_the_thing_itself() -> None:
    """The same of comments in C and C++; those that go on behind code begin in lower case."""
    files = sorted(path for path in (ROOT / "interpreter").rglob("*") if path.suffix in C_SUFFIXES)
    opened = [(path, found) for path in files for found in COMMENT.findall(path.read_text(encoding="utf-8"))]
    assert len(opened) > 2000
    assert [f"{path.relative_to(ROOT)}: {text}" for path, text in opened if opens_wrong(text)] == []


C_SUFFIXES = {".c", ".h", ".inc", ".cpp", ".hpp"}
COMMENT = re.compile(r"(?:/\*|//)[\s*]*(\S[^\n]*)")
QUESTIONS = {"How", "Of", "That", "What", "When", "Where", "Whether", "Which", "Why"}


def opens_wrong(text: str) -> bool:
    return text.split()[0].strip(",.:") in QUESTIONS or re.match(r"\w+ whether\b", text) is not None


@cache
def documented() -> list[tuple[Path, ast.Module | ast.ClassDef | ast.FunctionDef]]:
    """Modules, classes and functions. Collections of garbage would go through all trees again and again."""
    folders = ("nmpconv", "bench", "packaging", "proofs", "docs/site", "samples", "tests", ".github", ".ci")
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    gc.disable()
    try:
        return [(path.relative_to(ROOT), node) for path in paths for node in definitions(parsed(path))]
    finally:
        gc.enable()


def definitions(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef]:
    """The node and those in it. Only statements hold definitions, and most nodes are of expressions."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
        yield node
    for block in ("body", "handlers", "cases", "orelse", "finalbody"):
        for statement in getattr(node, block, ()):
            yield from definitions(statement)


BARE = {"found", "made", "said", "told", "given", "kept", "those", "one", "some", "both"}


def test_variables_are_nouns() -> None:
    """A local variable or a parameter is called by the noun for what it holds, not by a bare participle or pronoun.

    Parameters that callers write, those by keyword alone, may be: `found` and `allowed` of an error.
    """
    files = sorted((ROOT / "nmpconv").rglob("*.py"))
    assert [f"{path.relative_to(ROOT)}:{line}: {word}" for path in files for line, word in bare_names(path)] == []


def bare_names(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and names of all variables and parameters of functions that are `BARE`."""
    tree = parsed(path)
    fields = {field for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for field in map(target_of, node.body)}
    by_keyword = {arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for arg in node.kwonlyargs}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields and node.id in BARE:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node not in by_keyword and node.arg in BARE:
            yield node.lineno, node.arg


def target_of(statement: ast.stmt) -> ast.expr | None:
    return statement.target if isinstance(statement, ast.AnnAssign) else None


def test_classes_have_names_of_their_own() -> None:
    classes = [(node.name, path) for path, node in documented() if isinstance(node, ast.ClassDef)]
    names = Counter(name for name, path in classes if path.parts[0] == "nmpconv" and path.name != "_schema.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_modules_have_names_of_their_own() -> None:
    names = Counter(path.name for path in (ROOT / "nmpconv").rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} == {"__init__.py"}
