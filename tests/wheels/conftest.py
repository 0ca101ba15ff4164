"""The tools of `make wheels` are installed once for all tests: the compiler alone has 0.4 GB."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that they are in."""
    return tmp_path_factory.mktemp("work") / "work"
