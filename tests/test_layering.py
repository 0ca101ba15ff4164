"""Who may import whom. A new module or folder needs a row here, and a row is a decision.

Imports under TYPE_CHECKING count like any other.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from nmpconv.exporters.c_sources import ON_PCS
from nmpconv.file._schema import OP_TABLES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "nmpconv"
C_CORE = ROOT / "interpreter"

# A part of the package, a module or a folder of it: the other parts that it imports. They stand above it, so no two
# parts know each other.
PARTS: dict[str, set[str]] = {
    "errors": set(),
    "ir": set(),
    "base": {"errors"},
    "ops": {"base", "errors", "ir"},
    "graph": {"base", "errors", "ir", "ops"},
    "frontend": {"base", "errors", "ir", "ops"},
    "data": {"base", "errors", "ir"},
    "calib": {"base", "errors", "frontend", "graph", "ir", "ops"},
    "passes": {"base", "errors", "ir", "ops"},
    "passes/float": {"base", "errors", "ir", "ops", "passes"},
    "passes/quantize": {"base", "calib", "errors", "graph", "ir", "ops", "passes"},
    "passes/memory": {"errors", "ir", "ops", "passes"},
    "file": {"base", "errors", "ir", "ops"},
    "device": {"base", "errors"},
    "runtime": {"base", "data", "device", "errors", "file", "ir", "ops"},
    "evaluation": {"base", "calib", "data", "errors", "frontend", "runtime"},
    "conversion": {
        "base",
        "calib",
        "data",
        "errors",
        "evaluation",
        "file",
        "frontend",
        "graph",
        "ir",
        "ops",
        "passes",
        "passes/float",
        "passes/memory",
        "passes/quantize",
        "runtime",
    },
    "bisection": {
        "base",
        "calib",
        "conversion",
        "data",
        "errors",
        "evaluation",
        "file",
        "frontend",
        "graph",
        "ir",
        "ops",
        "passes/quantize",
    },
    "exporters": {
        "base",
        "calib",
        "conversion",
        "data",
        "errors",
        "evaluation",
        "file",
        "frontend",
        "ir",
        "ops",
        "passes/float",
        "passes/quantize",
        "runtime",
    },
    "explorer": {"base", "errors", "file", "runtime"},
    "api": {
        "base",
        "bisection",
        "calib",
        "conversion",
        "data",
        "device",
        "errors",
        "evaluation",
        "exporters",
        "file",
        "frontend",
        "ir",
        "runtime",
    },
    "torch": {
        "api",
        "base",
        "conversion",
        "errors",
        "file",
        "graph",
        "ir",
        "ops",
        "passes/memory",
        "passes/quantize",
        "runtime",
    },
    "cli": {
        "base",
        "bisection",
        "conversion",
        "device",
        "errors",
        "evaluation",
        "file",
        "frontend",
        "ir",
        "ops",
        "runtime",
    },
    "__main__": {"cli", "errors"},
    "__init__": {"api", "errors", "runtime"},
}

# What comes from outside, besides numpy and the standard library.
THIRD_PARTY: dict[str, set[str]] = {
    "base": {"distributed", "tomli", "tomllib"},  # tomllib is in the standard library from Python 3.11
    "ops": {"onnx"},
    "frontend": {"onnx"},
    "data": {"PIL", "soundfile"},
    "calib": {"onnx", "onnxruntime"},
    "file": {"flatbuffers"},
    "device": {"cobs", "serial", "unicorn"},
    "evaluation": {"onnx"},
    "conversion": {"threadpoolctl"},
    "bisection": {"onnx", "threadpoolctl"},
    "exporters": {"PIL", "jinja2", "markupsafe", "onnx"},
    "explorer": {"model_explorer"},
    "api": {"onnx", "rich", "torch", "tqdm"},
    "torch": {"onnx", "torch"},
    "cli": {"rich", "typer"},
}
STANDARD = set(sys.stdlib_module_names) | {"numpy"}


def part_of(path: Path) -> str:
    return _part(path.relative_to(PACKAGE).with_suffix("").parts)


def _part(names: Sequence[str]) -> str:
    """The layer of a module, by the names below the package."""
    whole = "/".join(names[:2])
    return whole if whole in PARTS else names[0]


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """(absolute module, line) of every import statement, wherever it stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                module = f"{node.module}.{alias.name}" if node.module == "nmpconv" else node.module
                yield str(module), node.lineno


def test_every_part_has_a_row() -> None:
    found = {part_of(path) for path in PACKAGE.rglob("*.py") if path.parent.name != "passes"}
    assert found | {"passes"} == set(PARTS)


@pytest.mark.parametrize("part", sorted(PARTS))
def test_package_imports(part: str) -> None:
    """Nothing but what the rows say, and all of it: a right that nobody uses goes."""
    above = list(PARTS)[: list(PARTS).index(part)]
    assert PARTS[part] <= set(above), "a part imports only what stands above it"
    wrong, used = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        if part_of(path) != part:
            continue
        for module, line in imports(path):
            top, *rest = module.split(".")
            if top != "nmpconv":
                used.add(top)
                allowed = top in STANDARD | THIRD_PARTY.get(part, set())
            else:
                target = _part(rest) if rest else ""
                used.add(target)
                allowed = target in {part, "", "__version__"} | PARTS[part]
                allowed |= part in ("base", "runtime", "calib") and target == "_nmp"
            if not allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {part} may not import {module}")
    assert wrong == []
    assert (PARTS[part] | THIRD_PARTY.get(part, set())) - used == set()


# C: a folder (or a file of interpreter/src itself): the others that it includes, which stand above it. LEVEL is the
# level.h of each folder of arch/: what its kernels are called and when they are there. It alone leaves such a folder.
SRC = C_CORE / "src"
LEVEL = "arch/*/level.h"
FOLDERS: dict[str, set[str]] = {
    "include": set(),
    "image": {"include"},
    "base": set(),
    "kernels": {"base"},
    LEVEL: {"base", "kernels"},
    "dispatch.h": {"kernels", LEVEL},
    "conv": {"base", "dispatch.h", "kernels"},
    "conv/gemm": {"conv"},
    "conv/depthwise": set(),
    "arch/x86": {"base", "conv", "conv/depthwise", "conv/gemm", "kernels"},
    "arch/aarch64": {"base", "conv", "conv/depthwise", "conv/gemm", "kernels"},
    "arch/cortex_m": {"base", "conv"},
    "arch/plain32": {"base", "conv"},
    "arch/rvv": {"conv"},
    "arch/wasm": {"conv", "conv/depthwise", "conv/gemm", "kernels"},
    "dispatch.c": {"dispatch.h", "include", LEVEL},
    "gen": {"base"},
    "ops/common": {"base", "conv", "dispatch.h", "gen", "include", "kernels"},
    "ops": {"base", "conv", "ops/common"},
    "core": {"base", "dispatch.h", "gen", "include", "ops/common"},
    "sound": {"base", "core", "gen", "include"},
    "core/fuse": {"base", "core", "gen", "ops/common"},
    "nmp.c": {"core", "core/fuse", "dispatch.h", "gen", "include"},
    "python": {"include"},
    "firmware": {"include"},
    "wasm": {"include"},
    "tests": {
        "base",
        "conv",
        "conv/gemm",
        "core",
        "dispatch.h",
        "firmware",
        "gen",
        "include",
        "kernels",
        "python",
        LEVEL,
    },
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
C_FILES = [p for p in sorted(C_CORE.rglob("*")) if p.suffix in (".c", ".cpp", ".h", ".inc")]
IN_SRC = [p for p in C_FILES if p.is_relative_to(SRC)]


def folder_of(path: Path) -> str:
    """The row of a file of interpreter/; its folder, whatever lies deeper outside of src."""
    if not path.is_relative_to(SRC):
        return path.relative_to(C_CORE).parts[0]
    return path.parent.relative_to(SRC).as_posix() if path.parent != SRC else path.name


def included(path: Path) -> Iterator[Path]:
    """The files that a file includes by name: from the roots of the include path, or from beside it outside of src."""
    roots = [C_CORE / "include", SRC]
    if folder_of(path) in ("python", "firmware", "tests"):
        roots += [path.parent, C_CORE / "firmware", *sorted(C_CORE.glob("firmware/boards/*"))]
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        found = next((root / name for root in roots if (root / name).is_file()), None)
        assert found is not None, f"{path.relative_to(ROOT)}: {name} is not named by its folder"
        yield found.resolve()


def test_every_row_of_c_stands_below_what_it_includes() -> None:
    rows = list(FOLDERS)
    assert [(row, other) for row in rows for other in FOLDERS[row] if rows.index(other) >= rows.index(row)] == []


def test_c_includes() -> None:
    """Each folder includes those of its row, all of them and no other."""
    used: dict[str, set[str]] = {row: set() for row in FOLDERS}
    for path in C_FILES:
        row = folder_of(path)
        level = row.startswith("arch/") and path.name == "level.h"
        for other in included(path):
            target = folder_of(other)
            if target != row:
                alone = target.startswith("arch/") and other.name == "level.h"
                used[LEVEL if level else row].add(LEVEL if alone else target)
    assert used == FOLDERS


def test_no_two_c_files_need_each_other() -> None:
    """A source and its header are one file here."""
    above: dict[Path, set[Path]] = {}
    for path in IN_SRC:
        unit = path.with_suffix("")
        above.setdefault(unit, set()).update(p.with_suffix("") for p in included(path))
        above[unit].discard(unit)
    while done := {unit for unit, others in above.items() if not others & above.keys()}:
        above = {unit: others for unit, others in above.items() if unit not in done}
    assert sorted(path.as_posix() for path in above) == []


PUBLIC = re.compile(r"^(?!static|typedef)[\w *]*?\b(nmp_\w+)\([^;]*?\)\s*\{", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def test_no_two_c_files_call_each_other() -> None:
    """By the functions that they define and name; one that several files define belongs to a level."""
    texts = {p: COMMENT.sub("", p.read_text(encoding="utf-8")) for p in IN_SRC if p.suffix == ".c"}
    homes: dict[str, set[Path]] = {}
    for path, text in texts.items():
        for name in PUBLIC.findall(text):
            homes.setdefault(name, set()).add(path)
    assert len(homes) > 150
    alone = {name: files.pop() for name, files in homes.items() if len(files) == 1}
    uses = {p: {alone[n] for n in re.findall(r"\bnmp_\w+", text) if n in alone} - {p} for p, text in texts.items()}
    assert [path.name for path in TopologicalSorter(uses).static_order()] != []  # a circle raises CycleError


STATIC = re.compile(r"^static [^;=\n]*[ *](run|check|scratch|work|conv|tasks|rows|packed?|choose)\(", re.MULTILINE)


def test_static_functions_have_the_name_of_their_file() -> None:
    """Those that every op or kernel has: conv2d_check, not check, so that a search finds one thing."""
    assert {path.name: found for path in IN_SRC if (found := STATIC.findall(path.read_text(encoding="utf-8")))} == {}


def test_c_files_by_kind() -> None:
    """A header has a guard named by its path; what is included more than once is an .inc, which says what for."""
    wrong = []
    for path in IN_SRC:
        name, text = path.relative_to(SRC).as_posix(), path.read_text(encoding="utf-8")
        guard = "NMP_" + re.sub(r"\W", "_", name).upper()
        if path.suffix == ".h" and name.split("/")[0] != "gen" and f"#ifndef {guard}\n#define {guard}\n" not in text:
            wrong.append(f"{name}: its guard is to be {guard}")
        if path.suffix == ".inc" and (f"#ifndef {guard[:-3]}" in text or "ncluded by" not in text.split("*/")[0]):
            wrong.append(f"{name}: the comment at its head is to say what it is included by")
        wrong += [f"{name}: includes {other.name}" for other in included(path) if other.suffix == ".c"]
    assert wrong == []


def test_names_of_c_files() -> None:
    """Once each, since some makers of firmware put all objects into one folder; ops/ has a file an op."""
    names = [path.name for path in IN_SRC if path.suffix == ".c"]
    assert sorted(names) == sorted(set(names))
    assert {path.stem for path in IN_SRC if folder_of(path) == "ops"} == set(OP_TABLES)


def test_folders_that_bundles_leave_out_are_there() -> None:
    """Nothing else needs them, as tests/exporters show, which build bundles without."""
    assert [folder for folder in ON_PCS if not (SRC / folder).is_dir()] == []


def test_no_float_no_allocation() -> None:
    wrong = []
    for path in IN_SRC:
        code = re.sub(r'/\*.*?\*/|"[^"\n]*"', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for word in re.findall(r"\b(?:float|double|malloc|calloc|realloc|free|printf)\b", code):
            wrong.append(f"{path.relative_to(ROOT)}: {word}")
    assert wrong == []
