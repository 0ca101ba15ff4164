"""CONTRIBUTING.md's worked examples work, and what it names is there; the files for contributors agree with it."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from documented import Block, blocks
from onnx_text import build

from nmpconv.frontend import expand
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.graph.text import parse, to_text
from nmpconv.graph.verify import verify

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text(encoding="utf-8")
FUTURE = ("nmpconv/passes/float/same_shape", "tests/passes/float/same_shape")  # what the example of a pass would add
RELEASE_LINES = 40


def program(word: str) -> ModuleType:
    """The page's block of Python with this word, executed."""
    [block] = [one for one in blocks(TEXT) if one.language == "python" and any(word in line for line in one.lines)]
    module = ModuleType("example")
    exec("\n".join(block.lines), module.__dict__)
    return module


def language(name: str) -> list[Block]:
    return [block for block in blocks(TEXT) if block.language == name]


def test_the_expansion(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import onnxruntime

    text = "(float[1,2,3,3] x) => (y) { y = com.example.Hinge(x) }"
    build(text, 17, tmp_path / "m.onnx", header=', "com.example": 1')
    for kind, expansion in program("Hinge").ALWAYS.items():
        monkeypatch.setitem(expand.ALWAYS, kind, expansion)  # type: ignore[arg-type]
    x = np.random.default_rng(0).normal(size=(1, 3, 3, 2)).astype(np.float32)  # NHWC
    graph = load(tmp_path / "m.onnx")
    exported = to_onnx(graph, graph.outputs).SerializeToString()
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    x = x.reshape(graph[graph.inputs[0]].shape)
    [y] = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(y, np.maximum(0, 1 - x), rtol=1e-6)
    assert 0 < (y > 0).mean() < 1
    assert all(f"`{name}`" in TEXT for name in ("ALWAYS", "FORMS", "Body", "--bless"))


def test_the_pass() -> None:
    [case] = language("text")
    before, _, after = "\n".join(case.lines).partition("---\n")
    graph = parse(before)
    verify(graph, "FLOAT", "the case")
    found = program("def run").run(graph)
    verify(found, "FLOAT", "same_shape")
    assert to_text(found).strip() == after.strip() != to_text(graph).strip()


def rows() -> list[tuple[str, str]]:
    """(file, what it holds) of the page's tables."""
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)`", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("path", "word"), rows(), ids=lambda text: text.rpartition("/")[2])
def test_files_of_examples_hold_what_the_page_says(path: str, word: str) -> None:
    assert word in (ROOT / path).read_text(encoding="utf-8")


ADDED = ("an ONNX operator", "an option of `convert`", "an op", "a pass", "a kernel", "a board")


def test_each_kind_of_addition_has_an_example() -> None:
    assert len(rows()) >= 16
    headings = re.findall(r"^## (.*)", TEXT, re.MULTILINE)
    assert [f"Add {kind}" for kind in ADDED] == headings[2:]


def test_paths_and_targets_are_there() -> None:
    paths = {path.rstrip("/") for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", TEXT)}
    tests = set(re.findall(r"\bpytest -q (\S+)", TEXT))
    gone = [p for p in paths | tests if not p.startswith((".venv", *FUTURE)) and not (ROOT / p).exists()]
    assert gone == [] and len(tests) > 0
    targets = set(re.findall(r"\bmake ([a-z-]+)", TEXT))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_hooks_have_the_pinned_versions() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    hooks = set(re.findall(r"additional_dependencies: \[(.*)\]", (ROOT / ".pre-commit-config.yaml").read_text()))
    assert {re.split("==", hook)[0] for hook in hooks} == {"ruff", "clang-format"}
    assert all(f'"{hook}"' in project for hook in hooks)
    assert "[dev]" in TEXT and 'dev = ["nmpconv[test,lint]"' in project


def sections(text: str) -> dict[str, list[str]]:
    """By heading: its lines, without empty ones at the ends."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    return {heading: body.strip().splitlines() for heading, body in zip(parts[::2], parts[1::2], strict=True)}


def test_releases_are_told_in_few_lines() -> None:
    """The top section grows until it is released; docs/releasing.md has it condensed then."""
    found = sections((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    long = {heading: len(lines) for heading, lines in found.items() if "(unreleased)" not in heading}
    assert long and all(count <= RELEASE_LINES for count in long.values()), long
