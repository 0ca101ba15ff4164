"""What the tests share: optional tools, the model zoo, the samples."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write what the code makes now into the golden files")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted: their property "summary"."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "summary" and report.when == "call":
                    terminalreporter.write_line(value)


@pytest.fixture(scope="session")
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten instead of compared with."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def samples(root: Path) -> Path:
    """The folder of sample models."""
    return root / "samples"


@pytest.fixture(scope="session")
def need_tool() -> Callable[..., str]:
    """need_tool(name, ...): the path of the first of these programs that is there.

    Without any the test is skipped; where NMP_CI is set it fails, for in CI nothing is optional.
    """

    def find(*names: str) -> str:
        for name in names:
            if path := shutil.which(name):
                return path
        message = f"needs {' or '.join(names)}"
        if os.environ.get("NMP_CI"):
            pytest.fail(f"{message}, and in CI nothing is optional")
        pytest.skip(message)

    return find


@pytest.fixture(scope="session")
def zoo(root: Path) -> Path:
    """Third-party models and images; tests that use them are marked `zoo`, and skipped where there are none."""
    path = Path(os.environ.get("NMP_ZOO") or root.parent / "shared" / "zoo")
    if not (path / "zoo.json").is_file():
        pytest.skip(f"no model zoo at {path} (set NMP_ZOO)")
    return path
