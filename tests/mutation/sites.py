"""Mutants: one operator, constant or statement of a source file is another one.

Python is read by `ast`, C by its tokens. Text is replaced in its place, so that line numbers stay.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PYTHON_OPERATORS: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
}
C_OPERATORS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "*",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "^": "|",
    "+=": "-=",
    "-=": "+=",
    "*=": "+=",
    "|=": "&=",
    "&=": "|=",
    "<<=": ">>=",
    ">>=": "<<=",
}
C_OPAQUE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M
)
C_BINARY = re.compile(r"(?<= )(?:<<=|>>=|[-+*|&]=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^])(?=[ ,])")
C_NOT = re.compile(r"!(?=[\w(])")
C_NUMBER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|[0-9]+)(?=[uUlL]*(?![\w.]))")
C_STATEMENT = re.compile(
    r"(?:\w+\(.*\)|[*(]*\w[\w.\->\[\]*+ ()]*? ?(?:<<|>>|[-+*|&^])?= .*|\w[\w.\->\[\]]*(?:\+\+|--));"
)
C_DECLARES = re.compile(r"(?:[a-z_]\w* +)+\**\w+(?:\[.*\])? *=")
C_TRUTH = re.compile(r"\breturn 1;")  # 2 is as true
CASES = ("cases", "_case", "_cases")


@dataclass(frozen=True)
class Mutant:
    """One change of a file.

    file: below the root, with slashes. offset: characters before `old` in the file. text: the line where it begins,
    without the indentation. nth: among changes that are the same in lines of the same text.
    """

    file: str
    offset: int
    line: int
    old: str
    new: str
    text: str
    column: int
    nth: int = 0

    @property
    def key(self) -> str:
        """A name that other changes of the file leave."""
        nth = f" ({self.nth})" if self.nth else ""
        old, new = (" ".join(part.split()) for part in (self.old, self.new))
        return f"{self.file}: `{old}` -> `{new}` at {self.column}{nth} of `{self.text}`"

    def applied(self, source: str) -> str:
        """The file with the change."""
        assert source.startswith(self.old, self.offset), self.key
        return source[: self.offset] + self.new + source[self.offset + len(self.old) :]


def of_file(root: Path, file: str) -> list[Mutant]:
    """All mutants of a file, by their place."""
    source = (root / file).read_text(encoding="utf-8")
    changes = of_python(source) if file.endswith(".py") else of_c(source)
    mutants: list[Mutant] = []
    seen: Counter[tuple] = Counter()
    for offset, old, new in sorted(set(changes)):
        start = source.rfind("\n", 0, offset) + 1
        whole = source[start : source.find("\n", start)]
        text = whole.strip()
        column = offset - start - (len(whole) - len(whole.lstrip()))
        place = (text, column, old, new)
        mutants.append(Mutant(file, offset, source.count("\n", 0, offset) + 1, old, new, text, column, seen[place]))
        seen[place] += 1
    return mutants


def of_c(source: str) -> Iterator[tuple[int, str, str]]:
    """Changes: where, the text there, the other text. Directives, comments and strings stay."""
    code = C_OPAQUE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    for match in C_BINARY.finditer(code):
        yield match.start(), match[0], C_OPERATORS[match[0]]
    for match in C_NOT.finditer(code):
        yield match.start(), "!", ""
    truths = {match.end() - 2 for match in C_TRUTH.finditer(code)}
    for match in C_NUMBER.finditer(code):
        yield from _numbers(match.start(), match[0]) if match.start() not in truths else [(match.start(), "1", "0")]
    start = 0
    for line in code.splitlines(keepends=True):
        text = line.strip()
        if C_STATEMENT.fullmatch(text) and not C_DECLARES.match(text) and text.count(";") == 1:
            at = start + line.index(text)
            yield at, source[at : at + len(text)], ";"
        start += len(line)


def _numbers(offset: int, text: str) -> Iterator[tuple[int, str, str]]:
    value = int(text, 0) if text[:2] in ("0x", "0X") or not text.startswith("0") else int(text, 8)
    yield offset, text, str(value + 1)
    if value > 0:
        yield offset, text, str(value - 1)


def of_python(source: str) -> Iterator[tuple[int, str, str]]:
    """As `of_c`. Annotations, decorators, docstrings, `__all__` and what ops are tested with (CASES, and tables of
    these alone) stay."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines()

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def begin(node: ast.expr | ast.stmt) -> int:
        return at(node.lineno, node.col_offset)

    def end(node: ast.expr | ast.stmt) -> int:
        return at(node.end_lineno or 0, node.end_col_offset or 0)

    def between(left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[tuple[int, str, str]]:
        if type(operator) in PYTHON_OPERATORS:
            old, new = PYTHON_OPERATORS[type(operator)]
            gap = re.sub(r"#[^\n]*", lambda match: " " * len(match[0]), source[end(left) : begin(right)])
            if old in gap:
                yield end(left) + gap.index(old), old, new

    tree = ast.parse(source)
    for node in _executed(tree, {"__all__", *_tables_of_cases(tree)}):
        if isinstance(node, ast.Compare):
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                yield from between(left, right, operator)
        elif isinstance(node, ast.BinOp):
            yield from between(node.left, node.right, node.op)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from between(left, right, node.op)
        elif isinstance(node, ast.AugAssign):
            old, new = PYTHON_OPERATORS.get(type(node.op), ("", ""))
            if old:
                offset = source.index(f"{old}=", end(node.target))
                yield offset, f"{old}=", f"{new}="
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            old = source[begin(node) : begin(node.operand)]
            yield begin(node), old, old.replace("not", "").replace("-", "").lstrip()
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            text = source[begin(node) : end(node)]
            if type(node.value) is int:
                yield from (
                    _numbers(begin(node), text) if text.isdigit() else ((begin(node), text, str(node.value + 1)),)
                )
            else:
                yield begin(node), text, repr(node.value + 1)
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield begin(node), str(node.value), str(not node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield begin(node), source[begin(node) : end(node)], "pass"
        elif isinstance(node, ast.Break | ast.Continue):
            old = source[begin(node) : end(node)]
            yield begin(node), old, "continue" if old == "break" else "break"


def _tables_of_cases(tree: ast.Module) -> set[str]:
    """Private names of the module, of values and functions, that only CASES read, or other such names."""
    readers: dict[str, set[str]] = defaultdict(set)

    def visit(node: ast.AST, reader: str) -> None:
        if isinstance(node, ast.FunctionDef) and node.name in CASES:
            reader = "cases"
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            readers[node.id].add(reader)
        for child in ast.iter_child_nodes(node):
            visit(child, reader)

    names = []
    for statement in tree.body:
        to = [name.id for name in getattr(statement, "targets", ()) if isinstance(name, ast.Name)]
        to += [statement.name] if isinstance(statement, ast.FunctionDef) else []
        names += to[:1]
        visit(statement, to[0] if to else "code")
    tables, count = {"cases"}, 0
    while len(tables) > count:
        count = len(tables)
        tables.update(n for n in names if n.startswith("_") and readers[n] and readers[n] <= {*tables, n})
    return tables


def _executed(node: ast.AST, aside: set[str]) -> Iterator[ast.AST]:
    """The nodes below that decide what is computed. aside: names of assignments that do not."""
    if isinstance(node, ast.JoinedStr):  # their places are those of the string in older Pythons
        return
    if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id in aside for to in node.targets):
        return
    if isinstance(node, ast.FunctionDef) and node.name in (*CASES, *aside):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _executed(child, aside)
