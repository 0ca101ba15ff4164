"""Progress of a long computation."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # stage, done, total


def reporter(progress: Progress | bool | None) -> Progress:
    """The function to call: `silent` without one. True: `api.keyword_checks` puts bars in its place."""
    return progress if callable(progress) else silent


def silent(stage: str, done: int, total: int) -> None:
    """For a caller that does not want to know."""
