"""The notebook of the documents, run from the top in the folder that it names."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = "docs/examples/shapes.ipynb"


def cells(root: Path) -> list[str]:
    """The code of each cell; nothing that was printed is kept in the file."""
    found = json.loads((root / NOTEBOOK).read_text(encoding="utf-8"))
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
    return ["".join(cell["source"]) for cell in code]


@pytest.mark.slow
def test_the_notebook_runs(root: Path, samples: Path, tmp_path: Path) -> None:
    shutil.copytree(samples / "shapes", tmp_path / "shapes")
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(cells(root))],
        cwd=tmp_path / "shapes",
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[1].startswith("top-1 98") and lines[-1] == "circle"
    assert float(lines[-2].split()[0]) >= 36 > float(lines[0].split()[2])
    assert "<svg" in (tmp_path / "shapes" / "shapes.html").read_text(encoding="utf-8")
