"""The documents: links that lead somewhere, two of them short, lines that fit a terminal."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from nmpconv.conversion.option_types import option_flag
from nmpconv.conversion.options import Options
from nmpconv.conversion.quantizer import EQUALIZATIONS
from nmpconv.ir import Preprocess

ROOT = Path(__file__).resolve().parent.parent.parent
COLUMNS = 100
MOST_LINES = {"README.md": 120, "ARCHITECTURE.md": 100}

# Generated folders, and those of tools, hold documents that are not ours.
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "build" for part in path.relative_to(ROOT).parts)
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:|#")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def broken_links(path: Path) -> list[str]:
    links = LINK.findall(path.read_text(encoding="utf-8"))
    return [link for link in links if not ELSEWHERE.match(link) and not (path.parent / link.split("#")[0]).exists()]


def long_lines(path: Path) -> list[str]:
    """Lines of prose and of code; rows of tables cannot be wrapped."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [f"{n}: {len(line)} columns" for n, line in lines if len(line) > COLUMNS and not line.startswith("|")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_lines_fit(path: Path) -> None:
    assert long_lines(path) == []


@pytest.mark.parametrize("path", MOST_LINES)
def test_short_documents_are_short(path: str) -> None:
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= MOST_LINES[path]


def test_the_format_describes_preprocessing() -> None:
    """Every field of a file's `preprocess`, and every word that one of them may hold."""
    text = (ROOT / "schema" / "FORMAT.md").read_text(encoding="utf-8")
    pictures = text[text.index("**Pictures.**") : text.index("**States.**")]
    words = [word for choices in Preprocess.CHOICES.values() for word in choices]
    names = [field.name for field in fields(Preprocess)]
    assert [word for word in (*words, *names) if not re.search(rf"\b{word}\b", pictures)] == []


def test_every_decision_is_numbered_once() -> None:
    numbers = [path.name[:3] for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))]
    assert numbers == [f"{number:03}" for number in range(1, len(numbers) + 1)]


def test_the_glossary_has_every_equalization() -> None:
    words = " ".join((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split())
    assert f"equalization ({', '.join(EQUALIZATIONS)})" in words
    assert [mode for mode in EQUALIZATIONS if mode != "none" and f"*{mode}*" not in words] == []
    [flag] = [option_flag(option) for option in fields(Options) if option.name == "equalize"]
    assert flag is not None
    assert "streams: " in flag.help


def test_the_page_on_conversion_has_every_pass() -> None:
    passes = ROOT / "nmpconv" / "passes"
    files = {path.stem: path.read_text(encoding="utf-8") for path in passes.rglob("*.py")}
    page = (ROOT / "docs" / "conversion.md").read_text(encoding="utf-8")
    assert [name for name, text in sorted(files.items()) if "\ndef run(" in text and f"`{name}`" not in page] == []
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) <= set(files)


def cited_tests() -> list[tuple[str, str]]:
    """(file, function) of each test that a document names as path::function."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return sorted(set(re.findall(r"(tests/[\w/]+\.py)::(\w+)", text)))


@pytest.mark.parametrize(("path", "name"), cited_tests())
def test_tests_that_documents_name_are_there(path: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_the_checks_find_what_they_look_for(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    wide = "x" * (COLUMNS + 1)
    path.write_text(
        f"[here](page.md#a) [gone](gone.md) [web](https://a.b)\n{wide}\n| {wide}\n    {wide}\n```\n{wide}\n```\n"
    )
    assert broken_links(path) == ["gone.md"]
    assert long_lines(path) == [f"2: {COLUMNS + 1} columns", f"4: {COLUMNS + 5} columns", f"6: {COLUMNS + 1} columns"]
