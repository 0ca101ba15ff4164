"""Who may import whom. A new module or folder needs a row here, and a row is a decision.

Imports under TYPE_CHECKING count only where they would make a part know another that it must not even name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "nmpconv"
C_CORE = ROOT / "interpreter"

# A part of the package is a module or a folder of it: the other parts that it may import.
CORE = {"errors", "fixed", "ir"}
GRAPH = CORE | {"ops", "reference", "text", "verify"}
PARTS: dict[str, set[str]] = {
    "errors": set(),
    "fixed": set(),
    "ir": set(),
    "files": {"errors"},
    "compare": set(),
    "_schema": set(),
    "ops": CORE,
    "text": CORE | {"ops"},
    "verify": CORE | {"ops"},
    "reference": CORE | {"ops"},
    "frontend": CORE | {"ops"},
    "calib": CORE | {"ops", "compare", "files", "frontend", "text"},
    "passes": GRAPH | {"calib", "compare"},
    "fit": GRAPH | {"calib", "compare", "passes"},
    "report": GRAPH | {"calib", "compare", "fit", "passes"},
    "flat": {"errors", "_schema"},
    "writer": CORE | {"_schema", "flat", "ops"},
    "reader": CORE | {"_schema", "flat"},
    "memory": {"ops", "reader"},
    "runtime": CORE | {"reader"},
    "targets": {"memory", "ops", "reader", "runtime"},
    "schedule": CORE | {"passes", "reader", "targets", "writer"},
    "convert": GRAPH | {"calib", "compare", "fit", "frontend", "passes", "report", "schedule", "writer"},
    "benchmark": {"runtime"},
    "bundle": {"_schema", "errors", "memory", "ops", "reader", "targets"},
    "feed": CORE | {"calib", "runtime"},
    "evaluate": CORE | {"calib", "compare", "feed", "frontend", "reader", "runtime"},
    "device": {"errors"},
    "ondevice": {"device", "errors", "runtime"},
    "cli": CORE
    | {"benchmark", "bundle", "feed", "ondevice"}
    | {"calib", "compare", "convert", "device", "evaluate", "files", "frontend", "memory", "ops", "reader", "report"}
    | {"runtime", "targets"},
    "__main__": {"cli"},
    "__init__": {"runtime"},
}
# Named in signatures only.
TYPES_ONLY: dict[str, set[str]] = {"ops": {"frontend"}}

# What comes from outside, besides numpy and the standard library.
THIRD_PARTY: dict[str, set[str]] = {
    "calib": {"PIL", "onnx", "onnxruntime"},
    "cli": {"rich", "typer"},
    "convert": {"threadpoolctl"},
    "device": {"cobs", "serial"},
    "evaluate": {"onnx"},
    "fit": {"threadpoolctl"},
    "flat": {"flatbuffers"},
    "frontend": {"onnx", "onnxruntime"},
    "ops": {"onnx"},
    "writer": {"flatbuffers"},
}
STANDARD = set(sys.stdlib_module_names) | {"numpy"}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, bool, int]]:
    """(absolute module, only for types, line) of every import statement, wherever it stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in for_types, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                module = f"{node.module}.{alias.name}" if node.module == "nmpconv" else node.module
                yield str(module), id(node) in for_types, node.lineno


def test_every_part_has_a_row() -> None:
    found = {part_of(path) for path in PACKAGE.rglob("*.py")}
    assert found - PARTS.keys() == set()


@pytest.mark.parametrize("part", sorted(PARTS))
def test_package_imports(part: str) -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if part_of(path) != part:
            continue
        for module, for_types, line in imports(path):
            top, _, rest = module.partition(".")
            if top != "nmpconv":
                allowed = top in STANDARD | THIRD_PARTY.get(part, set())
            else:
                target = rest.split(".")[0]
                allowed = target in {part, "", "__version__"} | PARTS[part]
                allowed |= for_types and target in TYPES_ONLY.get(part, set())
                allowed |= part == "runtime" and target == "_nmp"
            if not allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {part} may not import {module}")
    assert wrong == []


# C: files by pattern (the first that fits), and what they may include besides the standard headers.
INCLUDES: list[tuple[str, str]] = [
    ("include/nmp.h", r""),
    ("src/build.h", r""),
    ("src/gen/*", r"(gen/nmp_params|gen/nmp_schema|fb)\.h"),
    ("src/fixed.h", r""),
    ("src/crc*", r"(crc|x86)\.h"),
    ("src/fb.*", r"fb\.h"),
    ("src/axis.h", r""),
    ("src/kernels_avx*", r"(kernels\w*|conv|conv_bands|crc|fixed|transpose_x86|vector\d+|x86)\.h|kernels_portable\.c"),
    ("src/kernels_neon*", r"(aarch64|kernels\w*|conv|fixed|scale_neon|vector\d+)\.h|kernels_portable\.c"),
    ("src/kernels*", r"(build|conv|crc|dsp|fixed|kernels\w*|mve|rv32|rvv|x86)\.h"),
    ("src/vector*", r""),
    ("src/transpose_x86.h", r""),
    ("src/level.h", r"(dsp|mve|rv32|rvv)\.h"),
    ("src/conv_rv*", r"(conv\w*|fixed|patch|rv32|rvv)\.h"),
    ("src/conv*", r"(aarch64|axis|conv\w*|dsp|fixed|kernels\w*|level|mve|patch|rows|tile_\w+|vector\d+|x86)\.h"),
    ("src/tile_*", r"(conv_bands|conv_join|scale_neon|tile_\w+)\.h"),
    ("src/scale_neon.h", r"target\.h"),
    ("src/aarch64.*", r"(aarch64|kernels|target)\.h"),
    ("src/x86.*", r"(crc|kernels|target|x86)\.h"),
    ("src/target.h", r""),
    ("src/dsp.h", r"kernels\.h"),
    ("src/mve.h", r"conv\.h|arm_mve\.h"),
    ("src/rv32.h", r"rvv\.h"),
    ("src/rvv.h", r"conv\.h|riscv_vector\.h"),
    ("src/patch.*", r"(conv|patch|rvv)\.h"),
    ("src/rows.*", r"(conv|level|rows)\.h"),
    ("src/cpu.*", r"(aarch64|cpu|kernels|level|nmp|x86)\.h"),
    ("src/op.h", r"gen/nmp_params\.h|kernels\.h|nmp\.h"),
    ("src/ops/*", r"(\.\./)?(?!(fb|model|cpu|crc)\.)\w+\.h"),
    ("src/op_table.c", r"model\.h|op\.h"),
    ("src/decode.c", r"(model|gen/nmp_schema)\.h"),
    ("src/model.*", r"(model|fb|level|nmp|op|crc|fixed|gen/nmp_schema|gen/nmp_params)\.h"),
    ("src/arena.c", r"(model|gen/nmp_schema)\.h"),
    ("src/chain.*", r"(chain|views|model|gen/nmp_schema|ops/weighted)\.h"),
    ("src/views.*", r"(chain|views|model|gen/nmp_schema|ops/weighted)\.h"),
    ("src/nmp.c", r"(nmp|chain|cpu|model|gen/nmp_schema)\.h"),
    ("python/*", r"(nmp|pool)\.h|nanobind/[\w/.]+"),
    ("firmware/*", r"(nmp|board|config|agent|frame|cortex_m)\.h"),
    ("tests/*", r"(gen/|\.\./python/)?\w+\.h"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(nanobind/[^>]+)>)', re.MULTILINE)


def includable(path: Path) -> str:
    """The expression that fits what this file may include."""
    name = path.relative_to(C_CORE).as_posix()
    for pattern, allowed in INCLUDES:
        if fnmatch(name, pattern):
            return allowed
    pytest.fail(f"{name}: no row of INCLUDES fits")


def test_c_includes() -> None:
    wrong = []
    files = [p for p in sorted(C_CORE.rglob("*")) if p.suffix in (".c", ".h", ".cpp")]
    assert files
    for path in files:
        allowed = includable(path)
        for quoted, angled in INCLUDE.findall(path.read_text(encoding="utf-8")):
            name = quoted or angled
            if not re.fullmatch(allowed, name):
                wrong.append(f"{path.relative_to(ROOT)}: may not include {name}")
    assert wrong == []


def test_no_float_no_allocation() -> None:
    wrong = []
    for path in sorted((C_CORE / "src").rglob("*.[ch]")):
        code = re.sub(r'/\*.*?\*/|"[^"\n]*"', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for word in re.findall(r"\b(?:float|double|malloc|calloc|realloc|free|printf)\b", code):
            wrong.append(f"{path.relative_to(ROOT)}: {word}")
    assert wrong == []
