"""Puts a custom op of the samples on the path, as if it was installed: importing this module does so."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path += [str(TESTS.parent / "samples" / "gate"), str(TESTS / "entry_points")]
