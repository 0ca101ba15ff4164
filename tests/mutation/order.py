"""Order of the tests for a mutant: those that import the module first, then its folder's, then the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

OPS = ("tests/ops/test_ops.py", "tests/hostile", "tests/ops/test_kernels.py", "tests/ops")
# Near tests of C code by folder or file of interpreter/src; the first that fits.
NEAR_C = {
    "arch": OPS,
    "kernels": OPS,
    "conv": OPS,
    "ops": OPS,
    "image": ("tests/runtime", "tests/exporters"),
    "": ("tests/file", "tests/hostile", "tests/runtime", *OPS, "tests/fuzz_inputs", "tests/device"),
}
FAR = 99
LEAST = 5  # test files that are near


def first(file: str) -> list[str]:
    """Arguments of pytest for the few tests that are likeliest to fail: of a C file, those of its op."""
    parts = file.removeprefix("interpreter/src/").split("/")
    if parts[0] in ("conv", "arch"):
        return ["tests/ops/test_ops.py", "-k", "conv2d or fully_connected"]
    return ["tests/ops/test_ops.py", "-k", Path(file).stem] if parts[0] == "ops" and len(parts) == 2 else []


def near(root: Path, file: str) -> list[str]:
    """Test files and folders in the order to run."""
    if file.startswith("interpreter/src/"):
        below = file.removeprefix("interpreter/src/")
        tests = next(tests for prefix, tests in NEAR_C.items() if below.startswith(prefix))
        return [test for test in tests if (root / test).exists()]
    distances = _distances(root, file)
    folder = file.split("/")[1]
    ordered = sorted(distances, key=lambda test: _rank(test, file, distances[test]))
    found = [test for test in ordered if distances[test] <= 1 or test.startswith(f"tests/{folder}/")]
    others = sorted((test for test in ordered if test not in found), key=lambda test: distances[test])
    return found + others[: max(LEAST - len(found), 0)]


def rest(root: Path, file: str) -> list[str]:
    """All others, nearest imports first."""
    known, distances = near(root, file), _distances(root, file)
    others = [test for test in distances if not any(test == one or test.startswith(f"{one}/") for one in known)]
    return sorted(others, key=lambda test: (distances[test], test))


def _rank(test: str, file: str, distance: int) -> tuple:
    return (
        Path(test).stem != f"test_{Path(file).stem.strip('_')}",
        distance,
        test.split("/")[1] != file.split("/")[1],
        test,
    )


def _distances(root: Path, file: str) -> dict[str, int]:
    """Imports between each test file and the module; FAR without any."""
    graph = imports(root)
    users: dict[str, set[str]] = {}
    for user, used in graph.items():
        for one in used:
            users.setdefault(one, set()).add(user)
    reached, layer, distance = {file: 0}, {file}, 0
    while layer:
        distance += 1
        layer = {user for one in layer for user in users.get(one, ()) if user not in reached}
        reached.update(dict.fromkeys(layer, distance))
    return {test: reached.get(test, FAR) for test in graph if Path(test).name.startswith("test_")}


@cache
def imports(root: Path) -> dict[str, set[str]]:
    """By file of nmpconv/ and tests/: the files of these that it imports."""
    paths = [path.relative_to(root) for top in ("nmpconv", "tests") for path in sorted((root / top).rglob("*.py"))]
    names: dict[str, str] = {}
    for path in paths:
        parts = path.with_suffix("").parts
        dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        names[dotted] = path.as_posix()
        if parts[0] == "tests":  # helpers are imported by their own names
            names.setdefault(dotted.removeprefix("tests."), path.as_posix())
            names.setdefault(parts[-1], path.as_posix())
    return {
        path.as_posix(): {names[name] for name in _imported((root / path).read_text(encoding="utf-8")) if name in names}
        for path in paths
    }


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
