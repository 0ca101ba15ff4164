"""The samples' own scripts run as a person would run them; what they check is in them."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

SAMPLES = sorted(path.parent.name for path in (Path(__file__).parent.parent / "samples").glob("*/run.sh"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_run(name: str, samples: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    script = samples / name / "run.sh"
    done = subprocess.run(
        [script, tmp_path / "out"], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISSED" not in done.stdout
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"eval.json", f"{name}.nmp"}
