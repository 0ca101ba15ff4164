"""The package: light to import, typed, and what the documents show of it runs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import cli_files
import pytest

import nmpconv

HEAVY = {"PIL", "flatbuffers", "numpy", "onnx", "onnxruntime", "rich", "serial", "torch", "typer"}


def imported(code: str) -> set[str]:
    """The modules that a program imports, top names and those of nmpconv."""
    command = [sys.executable, "-X", "importtime", "-c", code]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    names = {line.rpartition("|")[2].strip() for line in log.splitlines() if line.startswith("import time:")}
    return {name.split(".")[0] for name in names} | {name for name in names if name.startswith("nmpconv")}


def test_importing_the_package_imports_nothing_heavy() -> None:
    found = imported("import nmpconv; nmpconv.__version__")
    assert {name for name in found if name.startswith("nmpconv")} <= {"nmpconv"}
    assert found & HEAVY == set()


def test_running_a_file_needs_no_converter() -> None:
    assert imported("import nmpconv; nmpconv.load") & HEAVY <= {"PIL", "flatbuffers", "numpy"}
    assert imported("import nmpconv; nmpconv.bench, nmpconv.inspect") & {"onnx", "onnxruntime"} == set()


def test_the_version_is_told_without_the_engines() -> None:
    found = imported("from nmpconv.cli import main; assert main(['--version']) == 0")
    assert "nmpconv.cli" in found
    assert found & {"PIL", "flatbuffers", "jinja2", "numpy", "onnx", "onnxruntime", "serial"} == set()


BLOCKED = """
import sys
from importlib.abc import MetaPathFinder
allowed = set(sys.argv[2].split())
class Only(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "nmpconv"}:
            raise ImportError(f"{name} is not to be imported")
        if name.startswith("nmpconv.") and name not in allowed:
            raise ModuleNotFoundError(f"{name} is not to be imported", name=name)
sys.meta_path.insert(0, Only())
import nmpconv
net = nmpconv.load(sys.argv[1])
(scores,) = net.run(net.inputs[0].lo * __import__("numpy").ones(net.inputs[0].shape, net.inputs[0].dtype))
print(scores.shape)
try:
    nmpconv.convert
except ImportError as error:
    print(error)
"""


def test_a_file_runs_with_numpy_alone(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the modules of nmpconv-runtime and with no other package."""
    monkeypatch.syspath_prepend(root / "packaging")
    runtime = importlib.import_module("runtime")
    (tmp_path / "model.nmp").write_bytes(cli_files.nmp_bytes())
    names = {name.replace("/", ".").removesuffix(".__init__") for name in runtime.MODULES} | {"_nmp"}
    allowed = " ".join(f"nmpconv.{name}" for name in names)
    command = [sys.executable, "-c", BLOCKED, str(tmp_path / "model.nmp"), allowed]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "(1, 3)",
        "nmpconv-runtime has no convert, it runs files: pip install nmpconv instead",
    ]


def test_every_public_name_is_there() -> None:
    assert set(nmpconv.__all__) <= set(dir(nmpconv))
    assert all(getattr(nmpconv, name) is not None for name in nmpconv.__all__)
    with pytest.raises(AttributeError, match="'nothing'"):
        nmpconv.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.slow
def test_the_example_runs(root: Path, samples: Path) -> None:
    command = [sys.executable, str(root / "docs/examples/shapes.py"), str(samples / "shapes")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "top-1 9" in ran.stdout or "top-1 100" in ran.stdout
    assert ran.stdout.endswith("000_circle.png: circle\n")
    assert "calibrate:" in ran.stderr


def test_programs_see_the_types(root: Path) -> None:
    """`make lint` checks the example with them."""
    assert (root / "nmpconv" / "py.typed").exists()
