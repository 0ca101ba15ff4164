"""Functions of source files, named by file and the line that begins them, and the tests that call them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, zip_longest
from pathlib import Path

FEW, NEAR = 6, 100  # tests before those of the folders that are near, and of these
SHORT, LONG = 0.3, 1.0  # seconds


@dataclass
class Functions:
    """root: of the checkout."""

    root: Path
    _lines: dict[str, list[str]] = field(default_factory=dict)

    def name(self, file: str, line: int) -> str:
        """Name of the function that begins there: in Python its first decorator or `def`."""
        if file not in self._lines:
            self._lines[file] = (self.root / file).read_text(encoding="utf-8").splitlines()
        lines = self._lines[file]
        if file.endswith(".py"):
            while not lines[line - 1].lstrip().startswith(("def ", "async def ")):
                line += 1
        return f"{file}: {lines[line - 1].strip()}"

    def around(self, file: str, line: int, known: Iterable[str]) -> list[str]:
        """Names of the function that holds the line; of all in the file if none does. known: functions of C files."""
        if file.endswith(".py"):
            tree = ast.parse((self.root / file).read_text(encoding="utf-8"))
            every = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
            holding = [node.lineno for node in every if node.lineno <= line <= (node.end_lineno or 0)]
            inner = [max(holding)] if holding else [node.lineno for node in every]
            return [self.name(file, n) for n in inner]
        names = {name.removeprefix(f"{file}: ") for name in known if name.startswith(f"{file}: ")}
        lines = (self.root / file).read_text(encoding="utf-8").splitlines()
        before = [text.strip() for text in lines[:line] if text.strip() in names]
        return [f"{file}: {text}" for text in before[-1:] or names]


@dataclass(frozen=True)
class Touches:
    """folder: a file for each folder of tests that was traced to its end, of lines that `mutation.touched` wrote."""

    folder: Path

    @cached_property
    def _files(self) -> dict[str, list[dict]]:
        paths = sorted(self.folder.glob("*.jsonl"))
        return {p.stem: [json.loads(line) for line in p.read_text(encoding="utf-8").splitlines()] for p in paths}

    @cached_property
    def names(self) -> set[str]:
        return {name for rows in self._files.values() for row in rows for name in row["new"]}

    @property
    def known(self) -> set[str]:
        """Tests that were traced."""
        return {row["test"] for rows in self._files.values() for row in rows}

    @property
    def traced(self) -> set[str]:
        """Folders of tests."""
        return set(self._files)

    def tests(self, functions: Iterable[str], near: tuple[str, ...] = ()) -> list[str]:
        """Those that call one of these: by turns of each test file the cheapest, which calls few others, but long ones
        last. Short ones of the folders `near` follow the first of these."""
        wanted = set(functions)
        by_file: dict[str, list[tuple[float, str]]] = {}
        close, long = [], set()
        for rows in self._files.values():
            names = chain.from_iterable(row["new"] for row in rows)
            numbers = {i for i, name in enumerate(names) if name in wanted}
            for row in rows:
                if not numbers.isdisjoint(row["touched"]):
                    cost = (row["seconds"] + 0.01) * len(row["touched"])
                    by_file.setdefault(row["test"].split("::")[0], []).append((cost, row["test"]))
                    if row["seconds"] >= LONG:
                        long.add(row["test"])
                    if row["test"].startswith(near) and row["seconds"] < SHORT:
                        close.append((cost, row["test"]))
        ordered = sorted(sorted(tests) for tests in by_file.values())
        turns = zip_longest(*([test for _, test in tests] for tests in ordered))
        by_turns = sorted((test for turn in turns for test in turn if test), key=long.__contains__)
        return list(dict.fromkeys((*by_turns[:FEW], *(test for _, test in sorted(close)[:NEAR]), *by_turns)))
