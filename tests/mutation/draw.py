"""Files that have mutants, and which of these are drawn."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from mutation.sites import Mutant, of_file

LANGUAGES = ("c", "python")
# Kernels of other machines than this one are compared with the portable ones by slow tests, in emulators.
ARCH = "interpreter/src/arch/"
OURS = {"x86_64": f"{ARCH}x86/", "aarch64": f"{ARCH}aarch64/"}.get(platform.machine(), "none")
# Generated, or made for tests.
ASIDE = ("interpreter/src/gen/", "nmpconv/file/_schema.py", "nmpconv/ops/_all.py", "nmpconv/ops/common/case.py")


def files(root: Path, language: str) -> list[str]:
    """The sources that users run, but for ASIDE and those of other machines."""
    top, endings = ("nmpconv", (".py",)) if language == "python" else ("interpreter/src", (".c", ".h", ".inc"))
    names = (path.relative_to(root).as_posix() for path in (root / top).rglob("*") if path.suffix in endings)
    return sorted(file for file in names if not file.startswith(ASIDE) and (file.startswith(OURS) or ARCH not in file))


def module(file: str) -> str:
    """The folder that a score is printed for."""
    parts = file.split("/")
    depth = 2 if parts[0] == "nmpconv" else 3
    if parts[:3] == ["interpreter", "src", "arch"]:
        depth = 4
    return "/".join(parts[: min(depth, len(parts) - 1)])


def drawn(root: Path, language: str, count: int, seed: int) -> list[Mutant]:
    """So many mutants of all, spread over modules by their size. Those of a smaller count are the first of these."""
    by_module: dict[str, list[Mutant]] = {}
    for file in files(root, language):
        by_module.setdefault(module(file), []).extend(of_file(root, file))
    order = []
    for mutants in by_module.values():
        shuffled = sorted((_chance(seed, mutant.key), mutant.key, mutant) for mutant in mutants)
        order += [((i + 0.5) / len(shuffled), chance, mutant) for i, (chance, _, mutant) in enumerate(shuffled)]
    return [mutant for *_, mutant in sorted(order, key=lambda item: item[:2])[:count]]


def _chance(seed: int, key: str) -> str:
    return hashlib.sha256(f"{seed} {key}".encode()).hexdigest()
