"""The name that a mistyped one is meant for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(name: str, known: Iterable[str]) -> str:
    """Text "did you mean 'mean'?"; "" where no name is near."""
    near = get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""
