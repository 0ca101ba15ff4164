"""mypy --strict on the programs that users read: those of the documents, the notebook, and docs/examples.

python tests/documents/typed.py    # make lint runs it; exits with mypy's code
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from documented import blocks
from test_notebook import NOTEBOOK, cells

ROOT = Path(__file__).resolve().parents[2]
UNTYPED = ("torch",)  # taken as untyped where it is installed, too: the same everywhere
SCRIPTS = "samples/sounds"  # the folder in which a tutorial's program stands beside others
BESIDE = {"docs/tutorials/training.md": "samples/shapes"}  # where it is another


def programs() -> Iterator[tuple[str, str]]:
    """Places of programs, and their text."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("samples/*/*.md"))):
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.language == "python":
                yield f"{path.relative_to(ROOT)}:{block.line}", "\n".join(block.lines) + "\n"
    yield NOTEBOOK, "\n".join(cells(ROOT)) + "\n"
    for path in sorted((ROOT / "docs" / "examples").glob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def main() -> int:
    """mypy's exit code; the highest."""
    by_folder: dict[str, list[tuple[str, str]]] = {}
    for place, text in programs():
        by_folder.setdefault(BESIDE.get(place.partition(":")[0], SCRIPTS), []).append((place, text))
    with tempfile.TemporaryDirectory() as cache:
        return max(checked(folder, group, cache) for folder, group in by_folder.items())


def checked(beside: str, group: Sequence[tuple[str, str]], cache: str) -> int:
    """mypy's exit code for programs that stand beside others in this folder. cache: what it keeps of their imports."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, names = Path(scratch), dict[str, str]()
        for number, (place, text) in enumerate(group):
            path = folder / f"program{number}.py"
            path.write_text(text, encoding="utf-8")
            names[path.name] = place
        config = folder / "mypy.ini"
        config.write_text(
            "[mypy]\nstrict = true\nfollow_imports = silent\n"
            + "".join(f"[mypy-{name}.*]\nignore_missing_imports = true\nfollow_imports = skip\n" for name in UNTYPED)
        )
        ran = subprocess.run(
            [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", cache, *names],
            cwd=folder,
            env={**os.environ, "MYPYPATH": str(ROOT / beside)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    for line in ran.stdout.splitlines():
        name, colon, rest = line.partition(":")
        print(f"{names.get(name, name)}{colon}{rest}")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
