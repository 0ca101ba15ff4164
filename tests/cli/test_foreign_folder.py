"""The current folder may be a stranger's: nothing of it is run. In a checkout without a build the error says so."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
from test_action import PROJECT

import nmpconv
from nmpconv.errors import ExitCode

ROOT = Path(__file__).resolve().parent.parent.parent
NMPCONV = Path(sysconfig.get_path("scripts"), "nmpconv")
# Names that Python, nmpconv and what it needs import.
PLANTED = ("json", "multiprocessing", "numpy", "onnx", "pickle", "pip", "random", "socket", "tempfile", "typer")
SAFE = pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python has no PYTHONSAFEPATH")


@pytest.fixture
def foreign(here: Path) -> Path:
    """The current folder with modules in it that leave a file where they are imported, and a package nmpconv."""
    code = f"from pathlib import Path\nPath({str(here / 'imported')!r}).open('a').write(__name__ + ' ')\n"
    for name in PLANTED:
        (here / f"{name}.py").write_text(code)
    (here / "nmpconv").mkdir()
    (here / "nmpconv" / "__init__.py").write_text(code)
    return here


def imported(folder: Path) -> str:
    """The names of the planted modules that were run."""
    path = folder / "imported"
    return path.read_text() if path.exists() else ""


def test_the_planted_modules_tell(foreign: Path) -> None:
    subprocess.run([sys.executable, "-c", "import typer, pip"], check=True)
    assert imported(foreign) == "typer pip "


@SAFE
def test_workers(foreign: Path) -> None:
    command = [NMPCONV, "eval", "model.nmp", "--data", "images", "--workers", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, imported(foreign)) == (0, ""), ran.stderr


@pytest.mark.slow
def test_the_summary_of_the_action(foreign: Path) -> None:
    (foreign / "nmpconv.toml").write_text(PROJECT.format(bits="8", flash=10**6))
    command = [sys.executable, ROOT / ".github" / "build_summary.py", "."]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, imported(foreign)) == (0, ""), ran.stderr
    assert "### model" in ran.stdout


@pytest.mark.slow
@SAFE
def test_the_steps_of_the_action(foreign: Path, tmp_path: Path) -> None:
    """All of them as GitHub runs them, but that pip says its version in place of installing."""
    (foreign / "nmpconv.toml").write_text(PROJECT.format(bits="8", flash=10**6))
    programs = tmp_path / "programs"
    programs.mkdir()
    python = programs / "python"
    ours = shlex.quote(sys.executable)
    python.write_text(f'#!/bin/sh\n[ "$2" = pip ] && set -- -m pip --version\nexec {ours} "$@"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(programs), str(NMPCONV.parent), os.environ["PATH"]])
    steps = re.split(r"^    - ", (ROOT / "action.yml").read_text(), flags=re.MULTILINE)[2:]
    assert len(steps) == 2
    for step in steps:
        env, script = re.fullmatch(r".*?      env:\n(.*?)      run: \|\n(.*)", step, re.DOTALL).groups()
        given = dict(re.findall(r"^ +(\w+): (.*?)(?: #.*)?$", env, re.MULTILINE))
        known = {"ACTION": str(ROOT), "PROJECT": ".", "BEFORE": "", "DEVICE": "", "BOARDS": "nothing", "TOKEN": ""}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
        kept |= {name: known.get(name, value.strip('"')) for name, value in given.items()}
        kept |= {"PATH": path, "RUNNER_TEMP": str(tmp_path)}
        ran = subprocess.run(
            ["bash", "-c", textwrap.dedent(script)], env=kept, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, imported(foreign)) == (0, ""), ran.stderr
        assert "'nothing'" in ran.stderr or "TOKEN" in env  # the program ran, and knows no such board
    assert "### model" in (tmp_path / "nmpconv-build.md").read_text()


@pytest.mark.parametrize("checkout", [True, False])
def test_a_package_without_its_extension(tmp_path: Path, checkout: bool) -> None:
    """Beside an installed wheel, as Python finds it in the root of a checkout."""
    shutil.copytree(
        Path(nmpconv.__file__).parent, tmp_path / "nmpconv", ignore=shutil.ignore_patterns("_nmp.*", "__pycache__")
    )
    if checkout:
        (tmp_path / "CMakeLists.txt").touch()
    says = "`make build` there" if checkout else "install nmpconv again"
    # Without site: what an editable installation adds to the path would give the extension.
    kept = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    for command in (["-c", "import nmpconv; nmpconv.load('m.nmp')"], ["-m", "nmpconv", "run", "m.nmp", "x.png"]):
        ran = subprocess.run(
            [sys.executable, "-S", *command], cwd=tmp_path, env=kept, capture_output=True, text=True, check=False
        )
        assert f"{tmp_path}: nmpconv has no compiled interpreter here" in ran.stderr
        assert says in ran.stderr
        assert ran.returncode == (1 if command[0] == "-c" else ExitCode.INPUT)
    assert (
        "ImportError"
        in subprocess.run(
            [
                sys.executable,
                "-S",
                "-c",
                "try:\n import nmpconv.calib.native_sums\nexcept ImportError: print('ImportError')",
            ],
            cwd=tmp_path,
            env=kept,
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    )
