"""Texts of a bundle, with @NAMES@ for what differs between bundles."""

from __future__ import annotations

import re
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
PLACE = re.compile(r"@([A-Z]+)@")


def filled(name: str, **values: object) -> str:
    """A template with its @NAMES@ replaced, each of which has to be given."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    return PLACE.sub(lambda match: str(values[match[1]]), text)
