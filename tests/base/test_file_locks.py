"""A lock of a file: one holder at a time, until the file is closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmpconv.base import files


@pytest.mark.skipif(files.fcntl is None, reason="this system has no such locks")
def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as first, path.open() as second:
        assert files._lock(first.fileno())
        assert not files._lock(second.fileno())
    with path.open() as third:
        assert files._lock(third.fileno())


def test_a_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    with (tmp_path / "lock").open("w") as file:
        assert not files._lock(file.fileno())
